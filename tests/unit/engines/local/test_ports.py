"""Whose port it is, as the kernel tells it."""

import os
import socket
import subprocess
import sys

import pytest

from heliostat.engines.local.port_ownership import NotListening, find_listening

US = [os.getpid()]


def listener_on(address: str) -> socket.socket:
    """On a port that nobody else has on the other family either: other tests listen too."""
    family, other = (socket.AF_INET6, socket.AF_INET) if ":" in address else (socket.AF_INET, socket.AF_INET6)
    while True:
        listener = socket.create_server((address, 0), family=family)
        try:
            socket.create_server(("", listener.getsockname()[1]), family=other).close()
        except OSError:
            listener.close()
        else:
            return listener


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_socket_on_the_loopback_that_we_hold_is_found(address: str) -> None:
    with listener_on(address) as listener:
        port = listener.getsockname()[1]
        found = find_listening(port, US)
        assert (found.host, found.port) == ("::1" if ":" in address else "127.0.0.1", port)
        socket.create_connection((found.host, found.port), timeout=60).close()
        assert find_listening(port, US) == found


def test_one_for_all_of_ipv6_only_is_never_looked_for_at_an_address_that_others_can_take() -> None:
    with socket.socket(socket.AF_INET6) as ours:
        ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        ours.bind(("::", 0))
        ours.listen()
        port = ours.getsockname()[1]
        before = find_listening(port, US)
        code = f"import socket; s = socket.create_server(('127.0.0.1', {port})); print(1, flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as somebody_else:
            assert somebody_else.stdout is not None
            somebody_else.stdout.readline()
            assert find_listening(port, US) == before
            somebody_else.kill()
        assert before.host == "::1"
        assert find_listening(port, US) == before
        socket.create_connection((before.host, port), timeout=60).close()


def test_a_socket_that_somebody_else_holds_is_not() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(NotListening, match="not part of the job"),
    ):
        find_listening(listener.getsockname()[1], [1])


def test_one_that_is_shared_with_somebody_else_is_not_either() -> None:
    with socket.socket() as ours, socket.socket() as theirs:
        for one in (ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind(("127.0.0.1", 0))
        theirs.bind(ours.getsockname())
        ours.listen()
        theirs.listen()
        port = ours.getsockname()[1]
        assert find_listening(port, US)
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[ours.fileno()], close_fds=True
        )
        try:
            with pytest.raises(NotListening, match="not part of the job"):
                find_listening(port, [child.pid])
        finally:
            child.communicate(b"\n")


def test_another_socket_on_the_same_port_is_another_proof() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        before = find_listening(port, US)
    with pytest.raises(NotListening, match="no process listens"):
        find_listening(port, US)
    with socket.create_server(("127.0.0.1", port)):
        assert find_listening(port, US) != before


def test_one_that_does_not_listen_is_nobody() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(NotListening, match="no process listens"):
            find_listening(bound.getsockname()[1], US)
