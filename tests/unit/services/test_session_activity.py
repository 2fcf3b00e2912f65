"""Sessions are asked whether they are used: only their own server is, and none keeps others from being asked."""

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
    """A server that says this to everybody: its port, and what it was sent."""
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
    """Say where the session listens."""
    monkeypatch.setattr(session_activity, "find_route", lambda *_: WAY)
    return ports.append


ports: list[int] = []  # of the session


def _listening() -> ListeningSocket:
    return ListeningSocket("127.0.0.1", ports[-1], (1,))


def a_context(**parts: Any) -> Context:
    return cast(Context, SimpleNamespace(**{"engine": PortsEngine(_listening), "now": lambda: NOW, **parts}))


def test_a_session_says_whether_it_is_used(found: Callable[[int], None]) -> None:
    said = [{"execution_state": "busy", "last_activity": "2026-03-01T11:00:00Z"}]
    with answering(json.dumps(said).encode()) as (port, heard):
        found(port)
        told = session_activity.poll_jupyter_activity(a_context(), JOB)
    assert told == (True, NOW.replace(hour=11))
    assert all(b"token s3cret" in one for one in heard)


def test_a_session_on_another_machine_is_not_asked_here(found: Callable[[int], None]) -> None:
    """What listens on that port of this machine is somebody else's, and must not see its secret."""
    with answering(b"[]") as (port, heard):
        found(port)
        assert session_activity.poll_jupyter_activity(
            a_context(engine=RemoteEngine(b"HTTP/1.1 200 OK\r\n\r\n[]")), JOB
        )
        assert heard == []


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", b"HTTP/1.1 403 No\r\n\r\n[]", b"HTTP/1.1 200 OK\r\n\r\n[1"]
)
def test_one_on_another_machine_that_says_nonsense_has_not_said(
    found: Callable[[int], None], answer: bytes
) -> None:
    found(1)
    assert session_activity.poll_jupyter_activity(a_context(engine=RemoteEngine(answer)), JOB) is None


def test_one_on_another_machine_is_only_asked_when_it_may_have_been_idle_for_long() -> None:
    settings = SimpleNamespace(sessions=SessionSettings(idle_after="4h"))
    context = a_context(engine=RemoteEngine(), settings=settings)

    def is_asked(**known: Any) -> bool:
        return session_watch._is_worth_asking(context, Session(7, "jupyter", "s", **known))

    assert is_asked()
    assert not is_asked(active_at=NOW - timedelta(hours=3))
    assert is_asked(active_at=NOW - timedelta(hours=3, minutes=50))
    assert is_asked(active_at=NOW, idle_warned_at=NOW)
    assert not is_asked(keep_idle=True)


@pytest.mark.parametrize("body", [b"[" * 2**20, b"[" * 5000, b"[1]", b"{}", b"\xff", b"["])
def test_one_that_says_nonsense_has_not_said(found: Callable[[int], None], body: bytes) -> None:
    with answering(body) as (port, _):
        found(port)
        assert session_activity.poll_jupyter_activity(a_context(), JOB) is None


def test_one_session_that_cannot_be_watched_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(_: Context, job: Any) -> None:
        asked.append(job.id)
        raise RecursionError("deeper and deeper")

    jobs = {number: replace(JOB, id=number) for number in (1, 2, 3)}
    sessions = [Session(number, "jupyter", "s", active_at=NOW) for number in jobs]
    monkeypatch.setattr(session_watch, "poll_jupyter_activity", ask)
    monkeypatch.setattr(session_watch.kept, "list_running_sessions", lambda _: sessions)
    monkeypatch.setattr(session_watch.stored, "get_jobs", lambda *_: jobs)
    store = SimpleNamespace(read=nullcontext)
    with pytest.raises(ExceptionGroup, match="not watched"):
        session_watch.check_running_sessions(a_context(store=store))
    assert asked == [1, 2, 3]
