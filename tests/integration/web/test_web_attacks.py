"""What people try against a login."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from integration.running_server import RunningServer
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"
ELSEWHERE = [
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "https:evil.example",
    "javascript:alert(1)",
    "/jobs\r\nSet-Cookie: planted=1",
    "/jobs\nLocation: //evil.example",
    "/\u2028/evil.example",
]


@pytest.fixture(scope="module")
def encrypted() -> Iterator[RunningServer]:
    """Behind a proxy that speaks TLS."""
    server = RunningServer('server.engine = "simulated"\nserver.public_url = "https://helio.example"\n')
    yield server
    server.remove()


@pytest.mark.parametrize("goal", ELSEWHERE)
def test_no_login_leads_elsewhere_or_sets_a_header(server: RunningServer, goal: str) -> None:
    surfer = Surfer(server).by_link()
    seen = surfer.get(f"/login?next={quote(goal)}")
    assert (seen.status, seen.location) == (303, "/")
    stranger = Surfer(server).get(f"/login?next={quote(goal)}")
    assert 'name="next" value="/"' in stranger.text
    assert "planted" not in " ".join((*seen.cookies, *stranger.cookies))


def test_an_address_with_line_breaks_sets_no_header(server: RunningServer) -> None:
    seen = Surfer(server).get("/jobs%0d%0aSet-Cookie:%20planted=1")
    assert "planted" not in " ".join(seen.cookies)
    assert "\n" not in seen.headers.get("location", "")


@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", "http://127.0.0.1:1", "http://HOST.evil.example"]
)
def test_a_form_of_another_origin_is_refused_even_with_its_token(server: RunningServer, origin: str) -> None:
    surfer = Surfer(server).by_link()
    token = surfer.get("/").form_token
    host = server.url.removeprefix("http://").rpartition(":")[0]
    sent = surfer.post("/logout", [("csrf", token)], Origin=origin.replace("HOST", host))
    assert sent.status == 403
    assert surfer.get("/").status == 200


def test_nobody_is_logged_in_as_the_attacker(server: RunningServer) -> None:
    """The token of the attacker's own login form does not fit the browser of another."""
    server.ask("POST", "/users", {"name": "evil", "password": PASSWORD})
    token = Surfer(server).get("/login").form_token
    victim = Surfer(server)
    victim.get("/login")
    fields = [("csrf", token), ("name", "evil"), ("password", PASSWORD), ("next", "/")]
    assert victim.post("/login", fields).status == 403
    assert "helio_session" not in victim.cookies


def test_a_planted_cookie_is_replaced_and_stays_worthless(server: RunningServer) -> None:
    planted = {"helio_session": "A" * 43}
    victim = Surfer(server, dict(planted)).by_link()
    assert victim.cookies["helio_session"] != planted["helio_session"]
    assert Surfer(server, dict(planted)).get("/jobs").status == 303


def test_logging_out_everywhere_ends_the_other_browsers_too(server: RunningServer) -> None:
    one, other = Surfer(server).by_link(), Surfer(server).by_link()
    token = one.get("/").form_token
    assert one.post("/logout", [("csrf", token), ("everywhere", "yes")]).location == "/login"
    assert other.get("/").status == 303


def test_behind_tls_cookies_are_sent_encrypted_only_and_to_this_host_only(encrypted: RunningServer) -> None:
    link = encrypted.ask("POST", "/login/link", {}).json["url"]
    assert link.startswith("https://helio.example/")
    surfer = Surfer(encrypted)
    entered = surfer.get(link.removeprefix("https://helio.example"))
    (cookie,) = (cookie for cookie in entered.cookies if "helio_session=" in cookie)
    assert cookie.startswith("__Host-helio_session=")
    words = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert {"secure", "httponly", "path=/", "samesite=lax"} <= words
    assert not any(word.startswith("domain") for word in words)
    assert surfer.get("/").status == 200
    plain = {"helio_session": surfer.cookies["__Host-helio_session"]}
    assert Surfer(encrypted, plain).get("/").status == 303


def test_behind_tls_a_form_comes_from_the_public_address(encrypted: RunningServer) -> None:
    surfer = Surfer(encrypted)
    surfer.get(encrypted.ask("POST", "/login/link", {}).json["url"].removeprefix("https://helio.example"))
    token = surfer.get("/").form_token
    assert surfer.post("/logout", [("csrf", token)], Origin="https://helio.example:444").status == 403
    assert surfer.post("/logout", [("csrf", token)], Origin="https://helio.example").status == 303


def test_a_form_that_is_too_large_is_answered_with_a_page(server: RunningServer) -> None:
    text = "x" * (65 * 2**10)
    seen = Surfer(server).post("/login", [("name", text)])
    assert seen.status == 413
    assert "<h1>Request too large</h1>" in seen.text
    assert "default-src 'none'" in seen.headers["content-security-policy"]
    assert server.ask("POST", "/login", raw=text.encode(), tcp=True).error["code"] == "too_large"


def test_a_large_form_of_unknown_length_is_answered_with_a_page(server: RunningServer) -> None:
    with server.raw_connection(tcp=True) as wire:
        head = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        wire.sendall(head + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        wire.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (2**17, b"x" * 2**17))
        answer = b""
        while part := wire.recv(2**16):
            answer += part
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"<h1>Request too large</h1>" in answer
