"""Where a request ends is never in doubt: nobody's bytes become the request of somebody else."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from integration.running_server import RunningServer
from support.proxy_browser import ProxyBrowser, proxy_url, start_echo_job

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def base(server: RunningServer) -> Iterator[str]:
    job, port = start_echo_job(server)
    yield f"{proxy_url(server)}/s/{job}-{port}/"
    server.ask("POST", f"/jobs/{job}/cancel")


@pytest.fixture(scope="module")
def visitor(server: RunningServer, base: str) -> ProxyBrowser:
    visitor = ProxyBrowser(server).log_in()
    assert visitor.follow_redirects(base)[1].status == 200
    return visitor


@pytest.mark.parametrize("named", ["content-length", "Content-Length, host", "close,CONTENT-LENGTH"])
def test_a_body_stays_a_body_whatever_the_connection_header_names(
    visitor: ProxyBrowser, base: str, named: str
) -> None:
    got = visitor.send("POST", f"{base}echo", body=SMUGGLED, headers=[("Connection", named)])
    assert (got.json["target"], got.json["bytes"]) == ("/echo", len(SMUGGLED))
    assert got.echoed_header("host") == base.split("/")[2]
    assert [visitor.get(f"{base}echo?{turn}").json["target"] for turn in range(3)] == [
        f"/echo?{turn}" for turn in range(3)
    ]


@pytest.mark.parametrize("body", [b"x", [b"in", b"parts"]])
def test_a_connection_that_carried_a_body_serves_nobody_else(
    visitor: ProxyBrowser, base: str, body: bytes | list[bytes]
) -> None:
    used = visitor.send("POST", f"{base}echo", body=body).json["connection"]
    after = [visitor.get(f"{base}echo").json["connection"] for _ in range(3)]
    assert used not in after
    assert len(set(after)) == 1  # those without are used again


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\tchunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "Content-Length: 0\r\nContent-Length: 40",
        "Content-Length: +0",
        "Content-Length: 0x0",
        "Content-Length: 0,40",
    ],
)
def test_a_request_that_two_readers_may_cut_differently_never_becomes_two_inside(
    server: RunningServer, visitor: ProxyBrowser, base: str, framing: str
) -> None:
    """What follows it is refused, or is a request to us like any other: without a way in it leads nowhere."""
    address = urlsplit(base)
    cookie = dict(visitor._cookie(address.path))["Cookie"]
    head = (
        f"POST {address.path}echo?cut HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: {cookie}\r\n{framing}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=120) as connection:
        connection.sendall(head.encode() + b"0\r\n\r\n" + SMUGGLED)
        connection.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    assert said.count(b'"target": ') <= 1
    assert b'"target": "/smuggled"' not in said
    assert b"/smuggled" not in visitor.get(f"{base}echo").body
