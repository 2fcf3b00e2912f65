"""What every engine promises whose attempts are real programs: logs, files, ports and commands inside."""

import asyncio
import contextlib
import getpass
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contract import Bench

from heliostat.engines.contract import Endpoint, RunsPrograms
from heliostat.errors import Conflict, NotFound
from heliostat.models import Attempt
from heliostat.models.uploads import TreeFile, blob_path, make_tree, user_upload_folder
from heliostat.store.uploads import UploadStore

SERVER = """
import http.server, os, threading
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello")
server = http.server.HTTPServer(("127.0.0.1", 0), Hello)
with open(os.environ["HELIOSTAT_CHECKPOINT_DIR"] + "/.session-1", "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
"""


@pytest.fixture
def bench(programs_bench: Bench) -> Bench:
    return programs_bench


@pytest.fixture
def engine(bench: Bench) -> RunsPrograms:
    assert isinstance(bench.engine, RunsPrograms)
    return bench.engine


@contextlib.contextmanager
def attached(engine: RunsPrograms) -> Iterator[asyncio.AbstractEventLoop]:
    """As the proxy does: connections live on a loop of their own thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def attach() -> None:
        engine.attach_endpoints()

    try:
        asyncio.run_coroutine_threadsafe(attach(), loop).result(60)
        yield loop
        asyncio.run_coroutine_threadsafe(engine.detach_endpoints(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class FirstLine(asyncio.Protocol):
    def __init__(self) -> None:
        self.line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(b"GET / HTTP/1.0\r\n\r\n")  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.line.done():
            self.line.set_result(data.splitlines()[0])


async def greeted(there: Endpoint) -> bytes:
    talk = await there.open(FirstLine)
    try:
        return await talk.line
    finally:
        talk.transport.close()
        await asyncio.sleep(0)


def done(bench: Bench, script: str) -> Attempt:
    attempt = bench.saying(script)
    bench.start(attempt)
    bench.wait_for_end(attempt)
    return attempt


class SlowCode:
    """Uploaded code with a file that cannot be read until it has arrived."""

    def __init__(self, uploads: Path) -> None:
        self.tree = make_tree([TreeFile("data", hashlib.sha256().hexdigest(), 0)])
        folder = user_upload_folder(str(uploads), getpass.getuser())
        self._file = Path(blob_path(folder, self.tree.files[0].digest))
        self._file.parent.mkdir(parents=True)
        os.mkfifo(self._file)
        UploadStore(uploads).add_tree(getpass.getuser(), self.tree)

    def used_by(self, attempt: Attempt) -> Attempt:
        return replace(attempt, job=replace(attempt.job, spec=replace(attempt.job.spec, upload=self.tree.id)))

    def arrive(self) -> None:
        pipe = os.open(self._file, os.O_RDWR)
        self._file.unlink()
        self._file.touch()
        os.close(pipe)


def test_code_that_takes_long_to_copy_keeps_no_other_start_waiting(bench: Bench) -> None:
    code = SlowCode(bench.folder / "home" / "uploads")
    slow = [code.used_by(bench.finishing()) for _ in range(6)]
    try:
        bench.start(*slow)
        bench.let_another_one_finish()
        assert not any(map(bench.reports_of, slow))
    finally:
        code.arrive()
    for attempt in slow:
        assert bench.wait_for_end(attempt).exit_code == 0


def test_what_an_attempt_prints_is_read_from_any_byte(bench: Bench, engine: RunsPrograms) -> None:
    job = done(bench, "echo one; echo two; echo oh >&2").job.id
    whole = engine.read_log(job, 1, "stdout", 0, 100)
    assert (whole.data, whole.offset, whole.size) == (b"one\ntwo\n", 0, 8)
    assert engine.read_log(job, 1, "stdout", 4, 2).data == b"tw"
    last = engine.read_log(job, 1, "stdout", -4, 100)
    assert (last.data, last.offset) == (b"two\n", 4)
    assert engine.read_log(job, 1, "stdout", 100, 100).data == b""
    assert engine.read_log(job, 1, "stderr", 0, 100).data == b"oh\n"


def test_of_what_never_ran_there_is_nothing(bench: Bench, engine: RunsPrograms) -> None:
    assert engine.read_log(10**9, 1, "stdout", 0, 100).data == b""
    assert not engine.has_job_files(10**9)
    assert engine.read_job_file(10**9, "work/x", 100) == ""
    with pytest.raises(NotFound):
        engine.list_job_files(10**9, "")


def test_what_an_attempt_left_is_read_and_nothing_else(bench: Bench, engine: RunsPrograms) -> None:
    files = "echo 12345 > left; mkdir sub; echo x > sub/below; ln -s /etc/hostname link"
    job = done(bench, f'{files}; echo 1 > "$HELIOSTAT_CHECKPOINT_DIR/it"').job.id
    assert engine.has_job_files(job)
    assert engine.has_job_files(job, "work")
    assert not engine.has_job_files(job, "none")
    assert engine.read_job_file(job, "work/left", 100) == "12345\n"
    assert engine.read_job_file(job, "work/left", 2) == "12"
    assert engine.read_job_file(job, "work/left", 2, end=True) == "5\n"
    assert engine.read_job_file(job, "checkpoints/it", 100) == "1\n"
    assert engine.read_job_file(job, "work/link", 100) == ""
    assert [one.name for one in engine.list_job_files(job, "").entries] == ["sub", "left", "link"]
    assert b"".join(engine.open_job_file(job, "sub/below").chunks()) == b"x\n"
    for path in ("link", "../1.stdout", "none"):
        with pytest.raises(NotFound):
            engine.open_job_file(job, path)


def test_a_command_runs_where_the_attempt_does(bench: Bench, engine: RunsPrograms) -> None:
    attempt = bench.running_long()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    inside = engine.exec(attempt, ["sh", "-c", 'echo "$HELIOSTAT_JOB_ID in $PWD"'])
    try:
        said = subprocess.run(
            inside.argv,
            env=dict(inside.environment) or os.environ,
            pass_fds=inside.inherited_descriptors,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    finally:
        inside.close()
    assert said == f"{attempt.job.id} in {engine.work_folder(attempt.job.id)}\n"
    engine.extend_time_limit(attempt, 3600)


def test_a_port_of_an_attempt_is_reached_and_no_other(bench: Bench, engine: RunsPrograms) -> None:
    attempt = bench.saying(f"exec python3 -c '{SERVER}'")
    bench.start(attempt)
    bench.wait_for_start(attempt)
    bench.wait_until(lambda: engine.session_port(attempt) is not None, "the port that it says")
    port = engine.session_port(attempt) or 0
    with attached(engine) as loop:
        there = engine.endpoint(attempt, port)
        assert there.check().port == port
        assert there.check(again=False) == there.check()
        request = b"GET / HTTP/1.0\r\n\r\n"
        assert there.exchange(request, 60, 10_000).endswith(b"\r\n\r\nhello")
        assert there.exchange(request, 60, 10_000, first_line=True).startswith(b"HTTP/1.0 200 OK\r\n")
        assert there.exchange(b"", 60, 10_000) == b""
        assert asyncio.run_coroutine_threadsafe(greeted(there), loop).result(60) == b"HTTP/1.0 200 OK"
        with pytest.raises(Conflict):
            engine.endpoint(attempt, 1).check()
        with pytest.raises(Conflict):
            asyncio.run_coroutine_threadsafe(engine.endpoint(attempt, 1).open(asyncio.Protocol), loop).result(60)
