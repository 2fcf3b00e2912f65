"""Who listens, as the kernel tells it and as /proc writes it."""

import socket

import pytest

from heliostat.engines.local import port_ownership
from heliostat.engines.local.port_ownership import NotListening, find_listening
from heliostat.payloads.port_listeners import read_proc_listeners
from heliostat.socket_queries import NetlinkUnavailable, query_listeners


@pytest.mark.parametrize(
    ("family", "host"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0"),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::"),
    ],
)
def test_the_kernel_says_the_same_as_proc(family: int, host: str) -> None:
    with socket.socket(family) as here:
        try:
            here.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = here.getsockname()[1]
        assert query_listeners(port) == read_proc_listeners(port) == []
        here.listen()
        assert query_listeners(port) == read_proc_listeners(port)
        assert len(query_listeners(port)) == 1


def test_where_the_kernel_cannot_be_asked_proc_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(port: int) -> list[tuple[str, int]]:
        raise NetlinkUnavailable

    monkeypatch.setattr(port_ownership, "query_listeners", cannot)
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        with pytest.raises(NotListening, match="not part of the job"):
            find_listening(port, [])
