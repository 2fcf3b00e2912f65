"""Two people who do not trust each other, one proxy: nobody reaches what is not theirs, whatever they send."""

import base64
import json
import os
import socket
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

from integration.running_server import RunningServer, acting_as
from integration.unix_users import Person, needs_root
from support.proxy_browser import ProxyBrowser, proxy_url, start_echo_job

pytestmark = needs_root


@pytest.fixture(scope="module")
def ann_job(server: RunningServer, two_unix_users: list[Person]) -> Iterator[tuple[int, int]]:
    yield from _job_of(server, two_unix_users[0])


@pytest.fixture(scope="module")
def bob_job(server: RunningServer, two_unix_users: list[Person]) -> Iterator[tuple[int, int]]:
    yield from _job_of(server, two_unix_users[1])


def _job_of(server: RunningServer, person: Person) -> Iterator[tuple[int, int]]:
    job = start_echo_job(server, person.uid, cpus=1, memory=256)
    yield job
    server.ask("POST", f"/jobs/{job[0]}/cancel", {"force": True})


def base(server: RunningServer, job: tuple[int, int]) -> str:
    return f"{proxy_url(server)}/s/{job[0]}-{job[1]}/"


def inside(server: RunningServer, person: Person, job: tuple[int, int]) -> ProxyBrowser:
    """A browser of this person that uses their own job."""
    visitor = ProxyBrowser(server).log_in(person.uid)
    assert visitor.follow_redirects(base(server, job))[1].status == 200
    return visitor


def key_of(server: RunningServer, person: Person, job: tuple[int, int]) -> str:
    key: str = server.ask("POST", f"/jobs/{job[0]}/ports/{job[1]}/key", {}, uid=person.uid).json["key"]
    return key


def test_somebody_elses_port_is_refused_by_the_api_the_web_and_the_proxy(
    server: RunningServer, ann: Person, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    job, port = ann_job
    for method, path in (("GET", ""), ("POST", "/key")):
        answer = server.ask(method, f"/jobs/{job}/ports/{port}{path}", {}, uid=bob.uid)
        assert (answer.status, ann.name in answer.error["message"]) == (403, True)
    visitor = inside(server, bob, bob_job)
    place, got = visitor.follow_redirects(base(server, ann_job))
    assert (got.status, urlsplit(place).path) == (403, f"/enter/{job}-{port}")
    assert visitor.get(base(server, ann_job)).status == 401
    assert visitor.get(f"{server.url}/jobs/{job}/port?port={port}").status == 403
    assert visitor.get(f"{server.url}/open/{job}-{port}").status == 403


def test_an_admin_does_not_act_as_somebody_else(server: RunningServer, ann_job: tuple[int, int]) -> None:
    job, port = ann_job
    assert server.ask("GET", f"/jobs/{job}/ports/{port}").status == 403


def test_a_cookie_or_key_opens_one_target_only(
    server: RunningServer, ann: Person, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    [stolen] = [value for key, value in inside(server, bob, bob_job).cookies.items() if key[0] == "helio_proxy"]
    with_cookie = [("Cookie", f"helio_proxy={stolen}")]
    assert ProxyBrowser(server).get(base(server, bob_job), headers=with_cookie).status == 200
    assert ProxyBrowser(server).get(base(server, ann_job), headers=with_cookie).status == 401
    with_key = [("Authorization", f"Bearer {key_of(server, bob, bob_job)}")]
    assert ProxyBrowser(server).get(base(server, bob_job), headers=with_key).status == 200
    assert ProxyBrowser(server).get(base(server, ann_job), headers=with_key).status == 401
    other_port = f"{proxy_url(server)}/s/{bob_job[0]}-{ann_job[1]}/"
    assert ProxyBrowser(server).get(other_port, headers=with_key).status == 401


def test_cookies_that_another_user_of_this_machine_has_copied_are_worthless(
    server: RunningServer, ann: Person, bob: Person, bob_job: tuple[int, int]
) -> None:
    """Without TLS, browsers send the cookies of a host to all of its ports: also to a server of ann."""
    bobs = inside(server, bob, bob_job)
    pages = (f"{server.url}/jobs", base(server, bob_job))
    assert [bobs.get(page).status for page in pages] == [200, 200]
    with acting_as(ann.uid):
        statuses = [ProxyBrowser(server, dict(bobs.cookies)).get(page).status for page in pages]
    assert statuses == [303, 401]
    assert [bobs.get(page).status for page in pages] == [200, 200]


def test_a_cookie_that_somebody_planted_in_a_browser_does_not_open_their_pages_there(
    server: RunningServer, ann: Person, bob: Person, ann_job: tuple[int, int]
) -> None:
    """Any port of this host can set it, and with paths ann's page would share an origin with bob's notebooks."""
    planted = inside(server, ann, ann_job)
    visitor = ProxyBrowser(server).log_in(bob.uid)
    path = urlsplit(base(server, ann_job)).path
    for place, value in planted.cookies.items():
        if place[1] == path or place[0] == "helio_session":
            visitor.cookies[place[0], path] = value  # her login too, before his
    for names in (("helio_session", "helio_proxy"), ("helio_proxy",)):
        one = ProxyBrowser(
            server, {key: value for key, value in visitor.cookies.items() if key[1] == "/" or key[0] in names}
        )
        assert one.get(base(server, ann_job)).status == 401
        assert one.follow_redirects(base(server, ann_job))[1].status == 403


def test_a_cookie_of_the_proxy_is_nothing_to_the_control_plane(
    server: RunningServer, bob: Person, bob_job: tuple[int, int]
) -> None:
    [secret] = [value for key, value in inside(server, bob, bob_job).cookies.items() if key[0] == "helio_proxy"]
    assert (
        ProxyBrowser(server).get(f"{server.url}/jobs", headers=[("Cookie", f"helio_session={secret}")]).status
        == 303
    )
    key = key_of(server, bob, bob_job)
    refused = server.ask("GET", "/whoami", tcp=True, headers={"Authorization": f"Bearer {key}"})
    assert refused.status == 401


def test_a_code_works_once_and_only_in_the_browser_it_was_made_for(
    server: RunningServer, ann: Person, bob: Person, bob_job: tuple[int, int]
) -> None:
    bobs = ProxyBrowser(server).log_in(bob.uid)
    asked = bobs.get(base(server, bob_job), headers=[("Accept", "text/html")]).location
    entry = bobs.get(asked).location
    anns = ProxyBrowser(server).log_in(ann.uid)
    assert anns.get(entry).status == 401  # she never asked: no nonce in her browser
    assert bobs.get(entry).status == 401  # and it is used up
    entry = bobs.get(asked).location
    planted = ProxyBrowser(server, dict(bobs.cookies)).cookies
    anns.cookies |= {key: value for key, value in planted.items() if key[0] == "helio_nonce"}
    assert anns.get(entry).status == 401  # even with a nonce planted there: her own login is nobody else's
    entry = bobs.get(asked).location
    assert bobs.get(entry).status == 303
    assert bobs.get(base(server, bob_job)).status == 200


def test_the_way_in_leads_nowhere_else(server: RunningServer, bob: Person, bob_job: tuple[int, int]) -> None:
    visitor = ProxyBrowser(server).log_in(bob.uid)
    own = f"/s/{bob_job[0]}-{bob_job[1]}/"
    for goal in (
        "https://evil.example/",
        "//evil.example/",
        "/s/1-2/",
        f"{own}../../x",
        "/\\evil.example",
        "x\r\nA: b",
    ):
        asked = visitor.get(base(server, bob_job), headers=[("Accept", "text/html")]).location
        entry = visitor.get(f"{asked.partition('&next=')[0]}&next={quote(goal, safe='')}")
        assert visitor.get(entry.location).location == own
        del visitor.cookies["helio_proxy", own]


@pytest.mark.parametrize(
    "path",
    [
        "/s/{bob}/../{ann}/echo",
        "/s/{bob}/%2e%2e/{ann}/echo",
        "/s/{bob}/%2E%2E%2F{ann}/echo",
        "/s/{bob}/..%2f{ann}/echo",
        "/s/{bob}/%252e%252e/{ann}/echo",
        "/s/{bob}/..\\{ann}/echo",
        "/s/{bob}%2f..%2f{ann}/echo",
        "/s/{bob}%00/../{ann}/echo",
        "//s/{ann}/echo",
        "/s//{ann}/echo",
        "/./s/{ann}/echo",
        "/x/../s/{ann}/echo",
        "/s/0{ann}/echo",
        "/s/{ann}%20/echo",
        "/s/{bob};{ann}/echo",
        "http://{host}/s/{ann}/echo",
        "/s/{bob}/echo/./x",
    ],
)
def test_no_spelling_of_a_path_leads_to_somebody_elses_job(
    server: RunningServer,
    bob: Person,
    ann_job: tuple[int, int],
    bob_job: tuple[int, int],
    path: str,
) -> None:
    names = {
        "ann": "{}-{}".format(*ann_job),
        "bob": "{}-{}".format(*bob_job),
        "host": urlsplit(proxy_url(server)).netloc,
    }
    answer = raw(server, path.format(**names), key_of(server, bob, bob_job))
    assert b"HTTP/1.1 200" not in answer.partition(b"\r\n")[0], answer
    assert str(ann_pid(server, ann_job)).encode() not in answer.partition(b"\r\n\r\n")[2]


def test_no_host_header_leads_to_somebody_elses_job(
    server: RunningServer, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    key = key_of(server, bob, bob_job)
    for host in (f"127.0.0.1:{ann_job[1]}", f"{ann_job[0]}-{ann_job[1]}.localhost", "evil.example", ""):
        got = ProxyBrowser(server).get(
            base(server, bob_job) + "echo", headers=[("Host", host), ("Authorization", f"Bearer {key}")]
        )
        assert got.json["pid"] != ann_pid(server, ann_job)
    twice = [("Authorization", f"Bearer {key}"), ("host", "a"), ("HOST", "b")]
    assert ProxyBrowser(server).get(base(server, bob_job) + "echo", headers=twice).status == 400


def test_another_site_cannot_use_the_cookie_of_a_browser(
    server: RunningServer, bob: Person, bob_job: tuple[int, int]
) -> None:
    visitor, url = inside(server, bob, bob_job), base(server, bob_job) + "echo"
    own = proxy_url(server)
    near = own.rpartition(":")[0] + ":9999"  # a server of somebody else on the same machine
    for origin in (near, server.url, "https://evil.example", "null", f"{own.rpartition(':')[0]}.evil.example"):
        assert visitor.send("POST", url, body=b"x", headers=[("Origin", origin)]).status == 403
    assert visitor.send("POST", url, body=b"x", headers=[("Origin", own)]).status == 200
    for mode, dest in (("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe")):
        said = [("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest)]
        assert visitor.get(url, headers=said).status == 403
    visit = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
    assert visitor.get(url, headers=visit).status == 200
    assert visitor.send("POST", url, body=b"x", headers=visit).status == 403


def test_a_websocket_from_another_site_or_without_a_way_in_is_refused(
    server: RunningServer, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    [cookie] = [value for key, value in inside(server, bob, bob_job).cookies.items() if key[0] == "helio_proxy"]
    own = proxy_url(server)
    name, other = "{}-{}".format(*bob_job), "{}-{}".format(*ann_job)
    assert upgrade(server, f"/s/{name}/echo", cookie, own) == 200  # this server speaks no WebSocket, and says so
    assert upgrade(server, f"/s/{name}/echo", cookie, server.url) == 403
    assert upgrade(server, f"/s/{name}/echo", cookie, None) == 403
    assert upgrade(server, f"/s/{name}/echo", "", own) == 401
    assert upgrade(server, f"/s/{other}/echo", cookie, own) == 401
    assert upgrade(server, f"/s/{name}/../{other}/echo", cookie, own) == 404


def test_a_port_of_somebody_else_is_not_reached_through_ones_own_job(
    server: RunningServer, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    """The server connects as root: nobody may be led by it to what is not part of their job."""
    for port in (ann_job[1], int(urlsplit(server.url).port or 0), int(urlsplit(proxy_url(server)).port or 0)):
        answer = server.ask("GET", f"/jobs/{bob_job[0]}/ports/{port}", uid=bob.uid)
        assert (answer.status, "not part of the job" in answer.error["message"]) == (409, True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = server.ask("GET", f"/jobs/{bob_job[0]}/ports/{listener.getsockname()[1]}", uid=bob.uid)
        assert answer.status == 409
    assert server.ask("GET", f"/jobs/{bob_job[0]}/ports/22", uid=bob.uid).status == 422
    assert server.ask("GET", f"/jobs/{bob_job[0]}/ports/70000", uid=bob.uid).status == 422


def test_a_port_that_changes_hands_is_left_alone(
    server: RunningServer, bob: Person, bob_job: tuple[int, int]
) -> None:
    job = bob_job
    key = key_of(server, bob, job)
    said = [("Authorization", f"Bearer {key}")]
    assert ProxyBrowser(server).get(base(server, job) + "echo", headers=said).status == 200
    with acting_as(bob.uid):  # another process of the same user, not part of the job
        beside = socket.socket()
        beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        beside.bind(("127.0.0.1", job[1]))
        beside.listen()
    with beside:
        assert server.ask("GET", f"/jobs/{job[0]}/ports/{job[1]}", uid=bob.uid).status == 409
        got = ProxyBrowser(server).send("POST", base(server, job) + "echo", body=b"x", headers=said)
        assert got.status == 409
    assert ProxyBrowser(server).send("POST", base(server, job) + "echo", body=b"x", headers=said).status == 200


def test_a_way_in_ends_with_its_job(server: RunningServer, bob: Person, bob_job: tuple[int, int]) -> None:
    job = bob_job
    said = [("Authorization", f"Bearer {key_of(server, bob, job)}")]
    server.ask("POST", f"/jobs/{job[0]}/cancel?force=true", uid=bob.uid)
    server.finished(job[0], bob.uid)
    got = ProxyBrowser(server).get(base(server, job) + "echo", headers=said)
    assert got.status in (409, 502)
    assert server.ask("GET", f"/jobs/{job[0]}/ports/{job[1]}", uid=bob.uid).status == 409


def ann_pid(server: RunningServer, job: tuple[int, int]) -> int:
    with socket.create_connection(("127.0.0.1", job[1])) as direct:
        direct.sendall(b"GET /echo HTTP/1.1\r\n\r\n")
        pid: int = json.loads(direct.recv(65536).partition(b"\r\n\r\n")[2])["pid"]
        return pid


def raw(server: RunningServer, target: str, key: str) -> bytes:
    address = urlsplit(proxy_url(server))
    said = [f"Host: {address.netloc}", f"Authorization: Bearer {key}", "Connection: close"]
    head = "\r\n".join([f"GET {target} HTTP/1.1", *said, "", ""])
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=120) as connection:
        connection.sendall(head.encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65536), b""))


def upgrade(server: RunningServer, target: str, cookie: str, origin: str | None) -> int:
    address = urlsplit(proxy_url(server))
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {address.netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        f"Cookie: helio_proxy={cookie}",
        *([f"Origin: {origin}"] if origin else []),
    ]
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=120) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(65536).split(b" ")[1])
