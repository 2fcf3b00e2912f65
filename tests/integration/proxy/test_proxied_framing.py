"""Where a request ends is never in doubt: nobody's bytes become the request of somebody else."""

from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from support.proxied import Visitor, echo_job, proxy_url

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def base(server: RunningServer) -> Iterator[str]:
    job, port = echo_job(server)
    yield f"{proxy_url(server)}/s/{job}-{port}/"
    server.ask("POST", f"/jobs/{job}/cancel")


@pytest.fixture(scope="module")
def visitor(server: RunningServer, base: str) -> Visitor:
    visitor = Visitor(server).log_in()
    assert visitor.follow(base)[1].status == 200
    return visitor


@pytest.mark.parametrize("named", ["content-length", "Content-Length, host", "close,CONTENT-LENGTH"])
def test_a_body_stays_a_body_whatever_the_connection_header_names(visitor: Visitor, base: str, named: str) -> None:
    got = visitor.send("POST", f"{base}echo", body=SMUGGLED, headers=[("Connection", named)])
    assert (got.json["target"], got.json["bytes"]) == ("/echo", len(SMUGGLED))
    assert got.header("host") == base.split("/")[2]
    assert [visitor.get(f"{base}echo?{turn}").json["target"] for turn in range(3)] == [
        f"/echo?{turn}" for turn in range(3)
    ]


@pytest.mark.parametrize("body", [b"x", [b"in", b"parts"]])
def test_a_connection_that_carried_a_body_serves_nobody_else(
    visitor: Visitor, base: str, body: bytes | list[bytes]
) -> None:
    used = visitor.send("POST", f"{base}echo", body=body).json["connection"]
    after = [visitor.get(f"{base}echo").json["connection"] for _ in range(3)]
    assert used not in after
    assert len(set(after)) == 1  # those without are used again
