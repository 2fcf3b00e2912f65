"""Polling the activity of sessions: only their own server is polled; an error of one does not affect others."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.config import SessionSettings
from heliostat.models import Attempt, JobState
from heliostat.models.sessions import ListeningSocket, ProxyTarget, Session
from heliostat.services.context import Context
from heliostat.services.proxy_routes import ProxyRoute
from heliostat.services.sessions import idle_culler as session_activity
from heliostat.services.sessions import idle_culler as session_watch
from support.fake_engines import PortsEngine, RemoteEngine
from unit.services.site import a_job

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = replace(a_job(7, NOW), state=JobState.RUNNING, attempt=1, started_at=NOW)
WAY = ProxyRoute(ProxyTarget(7), Attempt(JOB.attempt_id, JOB, "here"), frozenset(), 4000, True, "token s3cret")


@contextmanager
def answering(body: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that always sends this response: its port, and the received requests."""
    heard: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(120)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the port of the session."""
    monkeypatch.setattr(session_activity, "find_route", lambda *_: WAY)
    return ports.append


ports: list[int] = []  # of the session


def _listening() -> ListeningSocket:
    return ListeningSocket("127.0.0.1", ports[-1], (1,))


def a_context(**parts: Any) -> Context:
    return cast(Context, SimpleNamespace(**{"engine": PortsEngine(_listening), "now": lambda: NOW, **parts}))


def test_a_session_reports_its_activity(found: Callable[[int], None]) -> None:
    said = [{"execution_state": "busy", "last_activity": "2026-03-01T11:00:00Z"}]
    with answering(json.dumps(said).encode()) as (port, heard):
        found(port)
        told = session_activity.poll_jupyter_activity(a_context(), JOB)
    assert told == (True, NOW.replace(hour=11))
    assert all(b"token s3cret" in one for one in heard)


def test_a_session_on_another_node_is_not_polled_on_the_local_port(found: Callable[[int], None]) -> None:
    """Another user's process may listen on that port of this host, and must not get the secret."""
    with answering(b"[]") as (port, heard):
        found(port)
        assert session_activity.poll_jupyter_activity(
            a_context(engine=RemoteEngine(b"HTTP/1.1 200 OK\r\n\r\n[]")), JOB
        )
        assert heard == []


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", b"HTTP/1.1 403 No\r\n\r\n[]", b"HTTP/1.1 200 OK\r\n\r\n[1"]
)
def test_an_invalid_response_from_another_node_is_ignored(found: Callable[[int], None], answer: bytes) -> None:
    found(1)
    assert session_activity.poll_jupyter_activity(a_context(engine=RemoteEngine(answer)), JOB) is None


def test_a_session_on_another_node_is_polled_only_if_it_may_be_idle() -> None:
    settings = SimpleNamespace(sessions=SessionSettings(idle_after="4h"))
    context = a_context(engine=RemoteEngine(), settings=settings)

    def is_asked(**known: Any) -> bool:
        return session_watch._is_poll_needed(context, Session(7, "jupyter", "s", **known))

    assert is_asked()
    assert not is_asked(active_at=NOW - timedelta(hours=3))
    assert is_asked(active_at=NOW - timedelta(hours=3, minutes=50))
    assert is_asked(active_at=NOW, idle_warned_at=NOW)
    assert not is_asked(keep_idle=True)


@pytest.mark.parametrize("body", [b"[" * 2**20, b"[" * 5000, b"[1]", b"{}", b"\xff", b"["])
def test_an_invalid_response_is_ignored(found: Callable[[int], None], body: bytes) -> None:
    with answering(body) as (port, _):
        found(port)
        assert session_activity.poll_jupyter_activity(a_context(), JOB) is None


def test_an_error_of_one_session_does_not_stop_the_check_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(_: Context, job: Any) -> None:
        asked.append(job.id)
        raise RecursionError("deeper and deeper")

    jobs = {number: replace(JOB, id=number) for number in (1, 2, 3)}
    sessions = [Session(number, "jupyter", "s", active_at=NOW) for number in jobs]
    monkeypatch.setattr(session_watch, "poll_jupyter_activity", ask)
    monkeypatch.setattr(session_watch.stored_sessions, "list_running_sessions", lambda _: sessions)
    monkeypatch.setattr(session_watch.stored, "get_jobs", lambda *_: jobs)
    store = SimpleNamespace(read=nullcontext)
    with pytest.raises(ExceptionGroup, match="not checked"):
        session_watch.check_running_sessions(a_context(store=store))
    assert asked == [1, 2, 3]
