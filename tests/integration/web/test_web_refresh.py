"""What an open page asks for again and again."""

import re

from integration.running_server import RunningServer
from integration.web.surfing import Surfer


def test_a_page_that_shows_everything_already_gets_nothing(server: RunningServer) -> None:
    job = server.run(command=["true"], name="still")["id"]
    surfer = Surfer(server).by_link()
    path = f"/jobs?q={job}"
    first = surfer.get(path, X_Fragment="list")
    known = first.headers["x-known"]
    same = surfer.get(path, X_Fragment="list", X_Known=known)
    assert (same.status, same.text) == (204, "")
    assert surfer.get(path, X_Fragment="counts,list", X_Known=known).status == 200
    assert surfer.get("/jobs?q=other", X_Fragment="list", X_Known=known).status == 200
    server.submit(command=["true"], name=f"more-{job}")
    assert f"more-{job}" in surfer.get(path, X_Fragment="list", X_Known=known).text


def test_what_was_just_changed_is_seen_at_once_by_who_changed_it(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    for number in range(5):
        name = f"fresh-{number}"
        surfer.get("/jobs?q=fresh", X_Fragment="list")
        server.submit(command=["true"], name=name)
        assert name in surfer.get("/jobs?q=fresh", X_Fragment="list", Cache_Control="no-cache").text
        assert name in surfer.get("/jobs?q=fresh").text


def test_a_page_that_changed_before_it_listened_is_told_at_once(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    found = re.search(r'data-live-url="([^"]+)"', surfer.get("/jobs").text)
    assert found
    server.run(command=["true"])
    cookie = f"helio_session={surfer.cookies['helio_session']}"
    address = found[1].replace("&amp;", "&")
    with server.raw_connection(tcp=True) as wire:
        wire.sendall(f"GET {address} HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n".encode())
        wire.settimeout(120)
        heard = b""
        while b"event: change" not in heard:
            heard += wire.recv(4096)
    assert b"data: jobs" in heard
