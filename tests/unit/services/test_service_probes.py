"""A probe of a replica ends with its timeout, and sends the secret only to the replica itself."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.models.services import HealthCheck
from heliostat.models.sessions import ListeningSocket
from heliostat.services.context import Context
from heliostat.services.web_services.health import probe_replica
from support.fake_engines import PortsEngine
from unit.services.test_service_health import JOB, SERVICE

LONG_SECONDS, SHORT_SECONDS = 60.0, 0.3
Talk = Callable[[socket.socket], None]
ports: list[int] = []  # of the replica that serves now


@dataclass
class Replica:
    """Its server, which handles each connection in the same way."""

    listener: socket.socket
    heard: list[bytes] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def serve(self, talk: Talk) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, contextlib.suppress(OSError):
                    self.heard.append(connection.recv(65536))
                    talk(connection)


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[Replica], Talk]], Replica]]:
    with contextlib.ExitStack() as stack:
        stack.callback(ports.clear)

        def start(talk: Callable[[Replica], Talk]) -> Replica:
            replica = Replica(stack.enter_context(socket.create_server(("127.0.0.1", 0))))
            thread = threading.Thread(target=replica.serve, args=[talk(replica)])
            stack.callback(thread.join, 30)
            stack.callback(replica.listener.shutdown, socket.SHUT_RDWR)
            stack.callback(replica.over.set)
            thread.start()
            ports.append(replica.listener.getsockname()[1])
            return replica

        yield start


def look(proofs: list[int], path: str | None = "/", seconds: float = LONG_SECONDS) -> str:
    engine = PortsEngine(lambda: ListeningSocket("127.0.0.1", ports[-1], (proofs.pop(0),)))
    context = cast(Context, SimpleNamespace(engine=engine))
    service = replace(SERVICE, secret="s3cret", check=HealthCheck(path, timeout_seconds=seconds))
    return probe_replica(context, service, JOB)


def well(_: Replica) -> Talk:
    return lambda connection: connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def test_a_slow_response_ends_with_the_timeout(
    serving: Callable[[Callable[[Replica], Talk]], Replica],
) -> None:
    """Each byte comes in time."""

    def dripping(replica: Replica) -> Talk:
        def talk(connection: socket.socket) -> None:
            while not replica.over.wait(SHORT_SECONDS / 10):
                connection.sendall(b"x")

        return talk

    serving(dripping)
    assert "no answer in time" in look([1, 1], seconds=SHORT_SECONDS)


def test_a_foreign_process_on_the_port_gets_no_secret(
    serving: Callable[[Callable[[Replica], Talk]], Replica],
) -> None:
    replica = serving(well)
    assert "has just changed" in look([1, 2])
    assert not any(replica.heard)


@pytest.mark.parametrize("path", ["/", None])
def test_a_replica_that_responds_is_healthy(
    serving: Callable[[Callable[[Replica], Talk]], Replica], path: str | None
) -> None:
    replica = serving(well)
    assert look([1, 1], path) == ""
    assert [b"Bearer s3cret" in one for one in replica.heard if one] == ([True] if path else [])
