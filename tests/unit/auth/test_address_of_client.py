"""Where a request comes from, and which proxies are believed."""

import os
import socket
from collections.abc import Iterator

import pytest

from heliostat.auth.client_address import (
    ClientAddress,
    Connection,
    can_identify_local_users,
    describe_client,
    find_client,
    network_of,
)
from integration.unix_users import needs_root

SERVER = ("10.0.0.1", 8470)


def from_afar(ip: str, forwarded_for: str = "", *trusted: str) -> str:
    return str(find_client(Connection((ip, 40000), SERVER), forwarded_for, trusted))


@pytest.fixture(params=["127.0.0.1", "::1", "::"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.create_server((request.param, 0), family=family, dualstack_ipv6=request.param == "::")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        yield server


def accepted(listener: socket.socket, uid: int | None = None) -> tuple[socket.socket, Connection]:
    """A connection of this process, opened as this user."""
    host, port = listener.getsockname()[:2]
    os.seteuid(os.geteuid() if uid is None else uid)
    try:
        client = socket.create_connection(("127.0.0.1" if host == "::" else host, port))
    finally:
        os.seteuid(os.getuid())
    peer, _ = listener.accept()
    with peer:
        return client, Connection(peer.getpeername()[:2], peer.getsockname()[:2])


@pytest.mark.skipif(not can_identify_local_users(), reason="this kernel does not name the user of a connection")
def test_a_process_on_this_machine_is_known_by_its_unix_user(listener: socket.socket) -> None:
    client, connection = accepted(listener)
    with client:
        found = find_client(connection, "", ())
    assert found.uid == os.geteuid()
    assert found.ip in {"127.0.0.1", "::1"}
    assert str(found) == f"{found.ip} (uid {os.geteuid()})"


def test_another_machine_is_known_by_its_address() -> None:
    assert from_afar("10.0.0.5") == "10.0.0.5"
    assert from_afar("::ffff:10.0.0.5") == "10.0.0.5"
    assert from_afar("10.0.0.5", "1.2.3.4") == "10.0.0.5"
    assert from_afar("10.0.0.5", "1.2.3.4", "10.0.0.6") == "10.0.0.5"


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("9.9.9.9, 1.2.3.4", "1.2.3.4"),
        ("9.9.9.9,1.2.3.4, 10.1.0.7", "1.2.3.4"),
        ("2001:db8::1", "2001:db8::1"),
        ("unknown", "10.1.0.5"),
        ("1.2.3.4, nonsense", "10.1.0.5"),
        ("10.1.0.7", "10.1.0.5"),
        ("", "10.1.0.5"),
    ],
)
def test_of_a_trusted_proxy_the_last_address_that_no_proxy_has_is_believed(
    forwarded_for: str, client: str
) -> None:
    assert from_afar("10.1.0.5", forwarded_for, "10.1.0.0/24") == client


@needs_root
def test_a_person_on_this_machine_is_no_trusted_proxy(listener: socket.socket) -> None:
    for uid, is_believed in ((33, True), (1234, False)):
        client, connection = accepted(listener, uid)
        with client:
            found = find_client(connection, "1.2.3.4", ("127.0.0.1", "::1"))
        assert found.is_proxied is is_believed
        assert (found.ip == "1.2.3.4") is is_believed


def test_one_person_can_have_a_whole_ipv6_network_and_one_unix_user() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1")
    assert network_of(str(ClientAddress("127.0.0.1", 1000))) != network_of(str(ClientAddress("127.0.0.1", 1001)))


def test_a_unix_user_is_one_client_from_every_address_of_this_machine() -> None:
    for uid in (1011, -1, None):  # None: the kernel does not know the connection any more
        clients = [
            ClientAddress("127.0.0.1", uid),
            ClientAddress("127.9.0.3", uid),
            ClientAddress("127.9.0.4", uid),
        ]
        assert len({network_of(str(client)) for client in clients}) == 1
    tcp = {network_of(str(ClientAddress(ip, 1011))) for ip in ("127.9.0.3", "::1", "10.0.0.1")}
    assert tcp == {network_of("local socket (uid 1011)")} == {"uid 1011"}


def test_on_the_unix_socket_the_client_is_its_user() -> None:
    assert describe_client({"client": None, "state": {"peer_uid": 1000}}) == "local socket (uid 1000)"
