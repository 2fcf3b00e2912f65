"""HTTP to a real server inside a real job, through the proxy."""

import hashlib
import os
import threading
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from support.proxy_browser import ProxyBrowser, proxy_url, start_echo_job


@pytest.fixture(scope="module")
def job(server: RunningServer) -> Iterator[tuple[int, int]]:
    job = start_echo_job(server)
    yield job
    server.ask("POST", f"/jobs/{job[0]}/cancel")


@pytest.fixture(scope="module")
def base(server: RunningServer, job: tuple[int, int]) -> str:
    return f"{proxy_url(server)}/s/{job[0]}-{job[1]}/"


@pytest.fixture(scope="module")
def visitor(server: RunningServer, base: str) -> ProxyBrowser:
    visitor = ProxyBrowser(server).log_in()
    assert visitor.follow_redirects(base)[1].status == 200
    return visitor


def test_the_api_tells_where_a_port_is_found(server: RunningServer, job: tuple[int, int], base: str) -> None:
    number, port = job
    answer = server.ask("GET", f"/jobs/{number}/ports/{port}")
    assert answer.json == {"job_id": number, "port": port, "url": base}


def test_a_browser_is_led_through_the_control_plane_and_back(server: RunningServer, base: str) -> None:
    visitor = ProxyBrowser(server).log_in()
    place, got = visitor.follow_redirects(f"{base}a%2Fb/echo?q=%20x&y=%2F")
    assert place == f"{base}a%2Fb/echo?q=%20x&y=%2F"
    assert got.json["target"] == "/a%2Fb/echo?q=%20x&y=%2F"
    [path] = [path for name, path in visitor.cookies if name == "helio_proxy"]
    assert base.endswith(path)


def test_who_is_not_logged_in_meets_the_login_page_and_programs_are_told(server: RunningServer, base: str) -> None:
    place, got = ProxyBrowser(server).follow_redirects(base)
    assert (got.status, "/login" in place) == (200, True)
    assert ProxyBrowser(server).get(base).status == 401


def test_our_secrets_and_hop_by_hop_headers_are_not_passed_on(visitor: ProxyBrowser, base: str) -> None:
    sent = [
        ("Cookie", "mine=1; helio_visitor=x; __Host-helio_session=y"),
        ("Connection", "keep-alive, x-drop"),
        ("X-Drop", "1"),
        ("Keep-Alive", "3"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic eA=="),
        ("Authorization", "Basic eA=="),
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
    ]
    got = visitor.get(f"{base}echo", headers=sent)
    names = [name.lower() for name, _ in got.json["headers"]]
    assert not {"connection", "x-drop", "keep-alive", "te", "proxy-authorization", "authorization"} & set(names)
    assert [value for name, value in got.json["headers"] if name.lower() == "x-twice"] == ["1", "2"]
    assert got.echoed_header("cookie") == "mine=1"
    assert got.echoed_header("x-forwarded-for") == "127.0.0.1"
    assert got.echoed_header("host") == base.split("/")[2]
    assert "helio" not in str(got.json["headers"]).replace("/s/", "")


def test_answers_stay_in_their_place_in_the_browser(visitor: ProxyBrowser, base: str) -> None:
    got = visitor.get(f"{base}cookies")
    prefix = "/" + base.split("/", 3)[3]
    assert got.all_headers("set-cookie") == [
        f"a=1; HttpOnly; Path={prefix}",
        f"b=2; Path={prefix}",
        f"c=3; Path={prefix}deep",
    ]
    assert got.all_headers("x-two") == ["1", "2"]
    for name in ("clear-site-data", "strict-transport-security", "x-gone", "keep-alive"):
        assert got.all_headers(name) == []
    assert visitor.get(f"{base}moved").location == f"{prefix}elsewhere"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_every_method_passes_with_its_body(visitor: ProxyBrowser, base: str, method: str) -> None:
    body = b"hello" if method in ("POST", "PUT", "PATCH") else None
    for _ in range(3):  # also over a connection that was used before
        got = visitor.send(method, f"{base}echo", body=body)
        assert got.status == 200
        if method != "HEAD":
            assert (got.json["method"], got.json["bytes"]) == (method, len(body or b""))


def test_large_bodies_stream_both_ways(visitor: ProxyBrowser, base: str) -> None:
    block, count = os.urandom(1 << 20), 40
    wanted = hashlib.sha256(block * count).hexdigest()
    got = visitor.send("POST", f"{base}echo", body=(block for _ in range(count)))
    assert (got.json["bytes"], got.json["sha"]) == (count << 20, wanted)
    assert len(visitor.get(f"{base}big?bytes={64 << 20}").body) == 64 << 20


def test_what_is_said_early_arrives_early(visitor: ProxyBrowser, base: str) -> None:
    with visitor.open_response("GET", f"{base}parts") as response:
        assert response.read(5) == b"first"
        released = threading.Thread(target=visitor.get, args=(f"{base}release",))
        released.start()
        assert response.read() == b"second"
        released.join(120)


def test_an_answer_before_the_end_of_the_question_arrives(visitor: ProxyBrowser, base: str) -> None:
    got = visitor.send("POST", f"{base}hasty", body=b"x")
    assert (got.status, got.body) == (413, b"large")


def test_a_program_comes_with_a_key(server: RunningServer, job: tuple[int, int]) -> None:
    made = server.ask("POST", f"/jobs/{job[0]}/ports/{job[1]}/key", {}).json
    got = ProxyBrowser(server).get(f"{made['url']}echo", headers=[("Authorization", f"Bearer {made['key']}")])
    assert (got.status, got.echoed_header("authorization")) == (200, None)
    wrong = ProxyBrowser(server).get(f"{made['url']}echo", headers=[("Authorization", "Bearer x")])
    assert wrong.status == 401


def test_logging_out_ends_it(server: RunningServer, base: str) -> None:
    visitor = ProxyBrowser(server).log_in()
    assert visitor.follow_redirects(base)[1].status == 200
    page = visitor.get(f"{server.url}/jobs").body.decode()
    token = page.split('name="csrf" value="')[1].split('"')[0]
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    visitor.send("POST", f"{server.url}/logout", body=f"csrf={token}".encode(), headers=form)
    assert visitor.get(base).status == 401


def test_cookies_outlive_the_server(server: RunningServer) -> None:
    job, port = start_echo_job(server)
    target = f"/s/{job}-{port}/"
    visitor = ProxyBrowser(server).log_in()
    visitor.follow_redirects(proxy_url(server) + target)
    server.stop()
    server.start()
    got = visitor.get(proxy_url(server) + target + "echo")
    assert (got.status, got.json["target"]) == (200, "/echo")
    server.ask("POST", f"/jobs/{job}/cancel")
