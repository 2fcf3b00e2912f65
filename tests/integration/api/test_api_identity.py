"""Who is calling is what the kernel or a secret says, and never what a header claims."""

import base64
import os
import socket

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root


@pytest.fixture(scope="module")
def token(server: RunningServer) -> str:
    secret: str = server.ask("POST", "/tokens", {"name": "for tests"}).json["token"]
    return secret


def test_tcp_without_a_proof_is_a_stranger_everywhere(server: RunningServer) -> None:
    described = server.ask("GET", "/openapi.json").json["paths"]
    for path, methods in described.items():
        if path.endswith("/login"):
            continue
        for method in methods:
            answer = server.ask(method.upper(), path.removeprefix("/api/v1").replace("{job_id}", "1"), tcp=True)
            assert answer.status == 401, (method, path, answer.status)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.error["hint"]


@pytest.mark.parametrize(
    "proof",
    [
        "Bearer",
        "Bearer ",
        "Bearer helio_" + "x" * 43,
        "Bearer helio_" + "x" * 100_00,
        "Bearer ../../etc/passwd",
        "Basic",
        "Basic !!!!",
        "Basic \xff\xfe",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + base64.b64encode(b"root").decode(),
        "Basic " + base64.b64encode(b"root:").decode(),
        "Basic " + base64.b64encode(b"ro\0ot:\0").decode(),
        "Digest username=root",
        "Negotiate x",
        "root",
    ],
    ids=lambda proof: ascii(proof)[:30],
)
def test_a_bad_proof_is_refused_even_from_who_would_be_known_by_the_socket(
    server: RunningServer, proof: str
) -> None:
    for tcp in (False, True):
        answer = server.ask("GET", "/whoami", headers={"Authorization": proof}, tcp=tcp)
        assert answer.status in (401, 429)
        assert answer.error["hint"]


@pytest.mark.parametrize("path", ["/events/stream", "/jobs/{}/logs/follow"])
def test_a_stream_ends_soon_after_its_token_is_revoked(server: RunningServer, path: str) -> None:
    job_id = server.submit(command="sleep 600")
    made = server.ask("POST", "/tokens", {"name": "to be revoked"}).json
    wish = f"GET /api/v1{path.format(job_id)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {made['token']}\r\n\r\n"
    with server.raw_connection(tcp=True) as connection:
        connection.sendall(wish.encode())
        assert b" 200 " in connection.recv(4096)
        assert server.ask("DELETE", f"/tokens/{made['id']}").status == 204
        connection.settimeout(120)
        assert _rest_of(connection).endswith(b"0\r\n\r\n"), "the answer is not whole"
    server.ask("POST", f"/jobs/{job_id}/cancel?force=true")


@needs_root
def test_a_stream_ends_soon_after_the_account_is_deactivated_or_gets_other_rights(
    server: RunningServer, ann: Person
) -> None:
    name = server.ask("GET", "/whoami", uid=ann.uid).json["user"]["name"]
    server.ask("POST", "/projects", {"name": "streams", "department": "default"})
    changes: list[tuple[str, str, dict[str, object]]] = [
        ("PUT", f"/projects/streams/members/{name}", {"role": "manager"}),
        ("PATCH", f"/users/{name}", {"active": False}),
    ]
    for method, path, body in changes:
        with server.raw_connection(uid=ann.uid) as connection:
            connection.sendall(b"GET /api/v1/events/stream HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in connection.recv(4096)
            assert server.ask(method, path, body).status in (200, 204)
            connection.settimeout(120)
            assert _rest_of(connection).endswith(b"0\r\n\r\n"), "the answer is not whole"
    assert server.ask("PATCH", f"/users/{name}", {"active": True}).status == 200


def _rest_of(connection: socket.socket) -> bytes:
    """Up to the last chunk of the answer; the connection itself stays open."""
    received = b""
    while not received.endswith(b"0\r\n\r\n") and (more := connection.recv(4096)):
        received += more
    return received


def test_two_proofs_are_none(server: RunningServer, token: str) -> None:
    lines = [f"Authorization: Bearer {token}", "Authorization: Basic cm9vdDp4"]
    for order in (lines, lines[::-1], [lines[0], lines[0]]):
        with server.raw_connection(tcp=True) as connection:
            head = ["GET /api/v1/whoami HTTP/1.1", "Host: x", "Connection: close", *order]
            connection.sendall("\r\n".join([*head, "", ""]).encode())
            assert _all_of(connection).startswith(b"HTTP/1.1 401")


def test_headers_of_proxies_change_neither_who_we_are_nor_where_we_come_from(
    server: RunningServer, token: str
) -> None:
    lies = {
        "X-Forwarded-For": "10.9.8.7",
        "X-Real-IP": "10.9.8.7",
        "Forwarded": "for=10.9.8.7",
        "X-Forwarded-User": "somebody",
        "X-Remote-User": "somebody",
        "Remote-User": "somebody",
        "X-Peer-Uid": "0",
        "Host": "evil.example",
    }
    answer = server.ask("GET", "/whoami", headers={**lies, "Authorization": f"Bearer {token}"}, tcp=True)
    assert (answer.json["address"], answer.json["via"]) == (
        f"127.0.0.1 (uid {os.geteuid()})",
        "token",
    )
    assert server.ask("GET", "/whoami", headers=lies, tcp=True).status == 401
    assert server.ask("GET", "/whoami", headers=lies).json["address"] == f"local socket (uid {os.geteuid()})"


def test_the_scope_of_a_token_limits_it(server: RunningServer) -> None:
    job = {"command": ["true"]}
    requests: dict[str, tuple[str, str, object]] = {
        "status": ("GET", "/status", None),
        "jobs": ("GET", "/jobs", None),
        "forecast": ("POST", "/when", job),
        "submit": ("POST", "/jobs", job),
        "new token": ("POST", "/tokens", {"name": "more"}),
        "web login": ("POST", "/login/link", {}),
        "account": ("POST", "/users", {"name": "made-by-token"}),
    }
    expected = {
        "metrics": {"status"},
        "read": {"status", "jobs", "forecast"},
        "submit": {"status", "jobs", "forecast", "submit"},
        "full": set(requests),
    }
    for scope, allowed in expected.items():
        made = server.ask("POST", "/tokens", {"name": f"for {scope}", "scope": scope}).json
        assert made["scope"] == scope
        headers = {"Authorization": f"Bearer {made['token']}"}
        answers = {name: server.ask(*one, headers=headers, tcp=True) for name, one in requests.items()}
        assert {name for name, answer in answers.items() if answer.status < 300} == allowed
        assert {answer.status for name, answer in answers.items() if name not in allowed} <= {403}
    refused = server.ask("POST", "/tokens", {"name": "x", "scope": "root"})
    assert refused.status == 422


def test_a_trusted_proxy_says_where_we_come_from() -> None:
    settings = 'server.engine = "simulated"\nserver.trusted_proxies = ["127.0.0.1"]\n'
    server = RunningServer(settings)
    try:
        secret = server.ask("POST", "/tokens", {"name": "for tests"}).json["token"]
        headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": "evil, 10.9.8.7"}
        assert server.ask("GET", "/whoami", headers=headers, tcp=True).json["address"] == "10.9.8.7"
    finally:
        server.remove()


@needs_root
def test_the_socket_knows_each_unix_user_and_no_header_makes_one_another(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    for person in (ann, bob):
        lies = {"X-Remote-User": "root", "X-Forwarded-User": "root"}
        who = server.ask("GET", "/whoami", uid=person.uid, headers=lies).json
        assert (who["user"]["name"], who["user"]["role"], who["via"]) == (person.name, "user", "socket")


@needs_root
def test_what_only_admins_may_is_refused_to_others(server: RunningServer, ann: Person, bob: Person) -> None:
    server.ask("GET", "/whoami", uid=bob.uid)
    for method, path, body in (
        ("POST", "/nodes/here/drain", {"reason": "mine"}),
        ("POST", "/nodes/here/resume", None),
        ("GET", "/doctor", None),
        ("POST", "/doctor", None),
        ("GET", "/audit", None),
        ("POST", "/users", {"name": "zoe"}),
        ("PATCH", f"/users/{ann.name}", {"role": "admin"}),
        ("PATCH", f"/users/{bob.name}", {"active": False}),
        ("PUT", f"/users/{bob.name}/password", {"password": "correct horse battery"}),
        ("PUT", "/users/root/password", {"password": "correct horse battery"}),
        ("POST", "/departments", {"name": "mine"}),
        ("POST", "/projects", {"name": "mine", "department": "default"}),
        ("PUT", f"/projects/default/members/{ann.name}", {"role": "manager"}),
        ("GET", "/tokens?user=root", None),
        ("POST", "/jobs", {"command": "true", "priority": 1}),
    ):
        answer = server.ask(method, path, body, uid=ann.uid)
        assert (answer.status, answer.error["code"]) == (403, "forbidden"), (method, path)
        assert answer.error["hint"]
    assert server.ask("GET", "/nodes/here").json["state"] == "up"


@needs_root
def test_the_token_of_a_deactivated_user_opens_nothing_and_stays_dead(server: RunningServer, bob: Person) -> None:
    secret = server.ask("POST", "/tokens", {"name": "laptop"}, uid=bob.uid).json["token"]
    proof = {"Authorization": f"Bearer {secret}"}
    assert server.ask("GET", "/whoami", headers=proof, tcp=True).json["user"]["name"] == bob.name
    before = server.jobs()
    try:
        assert server.ask("PATCH", f"/users/{bob.name}", {"active": False}).status == 200
        for answer in (
            server.ask("GET", "/whoami", headers=proof, tcp=True),
            server.ask("POST", "/jobs", {"command": "true"}, headers=proof, tcp=True),
            server.ask("POST", "/jobs", {"command": "true"}, uid=bob.uid),
            server.ask("POST", "/tokens", {"name": "again"}, uid=bob.uid),
        ):
            assert answer.status in (401, 403)
            assert answer.error["hint"]
        assert server.jobs() == before
    finally:
        server.ask("PATCH", f"/users/{bob.name}", {"active": True})
    assert server.ask("GET", "/whoami", headers=proof, tcp=True).status == 401
    assert server.ask("GET", "/whoami", uid=bob.uid).status == 200


@needs_root
def test_a_revoked_token_opens_nothing(server: RunningServer, ann: Person, bob: Person) -> None:
    made = server.ask("POST", "/tokens", {"name": "laptop"}, uid=ann.uid).json
    proof = {"Authorization": f"Bearer {made['token']}"}
    assert server.ask("DELETE", f"/tokens/{made['id']}", uid=bob.uid).status == 404
    assert server.ask("GET", "/whoami", headers=proof, tcp=True).status == 200
    assert server.ask("DELETE", f"/tokens/{made['id']}", uid=ann.uid).status == 204
    assert server.ask("GET", "/whoami", headers=proof, tcp=True).status == 401
    assert "token" not in server.ask("GET", "/tokens", uid=ann.uid).json["items"][0]


def test_system_accounts_and_nobody_are_turned_away(server: RunningServer) -> None:
    if server.ask("GET", "/whoami").json["user"]["name"] != "root":
        pytest.skip("acts as system accounts, so it needs root")
    for uid in (1, 65534, 4_000_000):
        answer = server.ask("GET", "/whoami", uid=uid)
        assert answer.status == 403
        assert answer.error["hint"]


def _all_of(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(65536):
        data += part
    return data
