"""Code that is sent for jobs, to a real server: over TCP as from a laptop, across a crash, and by two people."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliostat.client import Client
from heliostat.client import uploads as client_uploads
from heliostat.client.uploads import scan_folder
from heliostat.errors import BadRequest, Conflict, HeliostatError, Invalid, NotAuthenticated, TooLarge
from integration.running_server import RunningServer, acting_as
from integration.unix_users import Person, needs_root
from support.server_process import ServerProcess
from support.terminal import TerminalProcess
from support.waiting import wait_until

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("uploads") / "home"
    with ServerProcess(home, storage={"upload_max_size": "4M", "upload_quota": "16M"}) as server:
        yield server


@pytest.fixture
def laptop(server: ServerProcess) -> Iterator[Client]:
    """Far away: TCP and a token."""
    token = server.client.tokens.create("laptop")["token"]
    with Client(server.client.status()["url"], token=token) as client:
        yield client


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "model.py").write_text("NAME = 'resnet'\n")
    (folder / "train.py").write_text("import sys; sys.path.insert(0, 'src'); import model; print(model.NAME)\n")
    (folder / "run.sh").write_text("#!/bin/sh\nexec python3 train.py\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("src/model.py")
    (folder / "big.log").write_text("not needed")
    (folder / ".gitignore").write_text("*.log\n")
    return folder


def _sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of the files that go over the wire from here on."""
    digests: list[str] = []
    original = client_uploads._head

    def head(file: Any) -> bytes:
        digests.append(file.digest)
        return original(file)

    monkeypatch.setattr(client_uploads, "_head", head)
    return digests


def _blob(content: bytes, digest: str | None = None) -> bytes:
    return f"{digest or hashlib.sha256(content).hexdigest()} {len(content)}\n".encode() + content


def _send(client: Client, body: bytes) -> Any:
    return client._transport.post_stream("/uploads/blobs", [body], len(body))


def _blobs(home: Path) -> list[Path]:
    return [path for path in (home / "uploads").rglob("blobs/*/*") if path.is_file()]


def test_a_job_from_elsewhere_runs_in_a_copy_of_the_folder(laptop: Client, code: Path) -> None:
    job = laptop.submit("./run.sh && readlink latest && ls -A", upload=code).wait(WAIT_SECONDS)
    assert job.ok, job.logs()
    assert job.logs().split() == [
        "resnet",
        "src/model.py",
        ".gitignore",
        "latest",
        "run.sh",
        "src",
        "train.py",
    ]


def test_what_was_sent_once_is_not_sent_again(laptop: Client, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / "own").write_text(os.fsdecode(os.urandom(8).hex()))
    first = laptop.upload(code)
    sent = _sent(monkeypatch)
    assert laptop.upload(code) == first
    assert sent == []
    (code / "train.py").write_text("print('changed')\n")
    assert laptop.upload(code) != first
    assert set(sent) == {hashlib.sha256(b"print('changed')\n").hexdigest()}


def test_the_bar_is_told_how_many_bytes_of_how_many_were_sent(laptop: Client, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(3 * 2**20))
    told: list[tuple[int, int]] = []
    laptop.upload(tmp_path, progress=lambda sent, total: told.append((sent, total)))
    assert told[0] == (0, 3 * 2**20)
    assert told[-1] == (3 * 2**20, 3 * 2**20)
    assert told == sorted(told)


def test_what_a_job_changes_is_kept_for_its_next_attempt_and_changes_no_upload(
    server: ServerProcess, laptop: Client, code: Path
) -> None:
    job = laptop.submit("echo x >>train.py; cat train.py | wc -l; sleep 1000", upload=code)
    wait_until(lambda: "2" in job.logs(), "its first attempt has changed the file", WAIT_SECONDS)
    job.requeue()
    wait_until(lambda: job.refresh().attempt == 2 and "3" in job.logs(), "the second finds it so", WAIT_SECONDS)
    job.cancel()
    job.wait(WAIT_SECONDS)
    fresh = laptop.submit("wc -l <train.py", upload=code).wait(WAIT_SECONDS)
    assert fresh.logs().split() == ["1"]


def test_an_array_gives_each_element_a_copy_of_its_own(laptop: Client, code: Path) -> None:
    array = laptop.submit("echo $HELIOSTAT_ARRAY_INDEX >mine; cat mine", array="0-2", upload=code)
    array.wait(WAIT_SECONDS)
    assert [job.logs().strip() for job in array] == ["0", "1", "2"]


def test_a_folder_that_is_too_large_is_refused_with_its_largest_files(laptop: Client, code: Path) -> None:
    (code / "weights.bin").write_bytes(bytes(5 * 2**20))
    with pytest.raises(TooLarge, match=r"5\.0 MiB.*weights\.bin \(5\.0 MiB\)") as refused:
        laptop.submit("true", upload=code)
    assert ".heliostatignore" in str(refused.value.hint)


def test_at_a_terminal_a_bar_shows_how_far_the_upload_is(server: ServerProcess, code: Path) -> None:
    (code / "weights.bin").write_bytes(os.urandom(3 * 2**20))
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home), "COLUMNS": "100"}
    person = TerminalProcess(["run", "--upload", str(code), "--follow", "--", "./run.sh"], environment)
    person.wait_for_output("Uploading")
    person.wait_for_output("of 3.0 MiB")
    person.wait_for_output("resnet")
    assert person.wait_for_exit() == 0
    (code / "weights.bin").write_bytes(bytes(5 * 2**20))
    person = TerminalProcess(["run", "--upload", str(code), "--", "true"], environment)
    person.wait_for_output("weights.bin (5.0 MiB)")
    person.wait_for_output("hint: ")
    assert person.wait_for_exit() == 1


def test_nobody_can_send_more_than_the_quota(server: ServerProcess, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "small", storage={"upload_max_size": "2M", "upload_quota": "4M"}) as small:
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "data").write_bytes(os.urandom(2**20))
            small.client.upload(folder)
        (tmp_path / "3").mkdir()
        (tmp_path / "3" / "data").write_bytes(os.urandom(2**20))
        with pytest.raises(Conflict, match="4M"):
            small.client.upload(tmp_path / "3")
        with pytest.raises(Conflict, match="4M"):  # also whoever does not ask before
            _send(small.client, _blob(os.urandom(2**20)))


@pytest.mark.parametrize(
    "body",
    [
        _blob(b"hello", "0" * 64),
        _blob(b"hello")[:-1],
        _blob(b"hello") + b"x",
        b"x" * 200,
        b"../../etc/passwd 5\nhello",
        ("A" * 64 + " 1\nx").encode(),
        ("a" * 64 + " -1\nx").encode(),
        ("a" * 64 + " 99999999999999999\nx").encode(),
    ],
)
def test_what_is_not_as_announced_is_refused_and_not_kept(
    server: ServerProcess, laptop: Client, body: bytes
) -> None:
    before = {path for path in _blobs(server.home) if path.name != hashlib.sha256(b"hello").hexdigest()}
    with pytest.raises(BadRequest):
        _send(laptop, body)
    after = {path for path in _blobs(server.home) if path.name != hashlib.sha256(b"hello").hexdigest()}
    assert after == before
    assert not list((server.home / "uploads").rglob("*.draft"))


@pytest.mark.parametrize(
    "body",
    [
        {"files": [{"path": "../x", "sha256": "a" * 64, "size": 1}]},
        {"files": [{"path": "/etc/x", "sha256": "a" * 64, "size": 1}]},
        {"files": [{"path": "x", "sha256": "A" * 64, "size": 1}]},
        {"files": [{"path": "x", "sha256": "a" * 64, "size": -1}]},
        {"files": [{"path": "x", "sha256": "a" * 64, "size": 1, "mode": 0o4755}]},
        {"links": [{"path": "x", "target": "/etc"}]},
        {"links": [{"path": "a/x", "target": "../../.."}]},
    ],
)
def test_a_folder_that_cannot_be_laid_out_is_refused(laptop: Client, body: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        laptop._transport.call("POST", "/uploads", body)


def test_a_job_cannot_name_what_was_not_uploaded(laptop: Client) -> None:
    with pytest.raises(Invalid, match="You have no upload"):
        laptop.submit("true", upload="f" * 64)


def test_an_upload_is_the_working_directory(laptop: Client, code: Path) -> None:
    with pytest.raises(Invalid, match="workdir"):
        laptop.submit("true", upload=code, workdir="/tmp")


def test_strangers_can_send_nothing(server: ServerProcess) -> None:
    with Client(server.client.status()["url"], token="helio_wrong") as stranger:
        with pytest.raises(NotAuthenticated):
            _send(stranger, _blob(b"hello"))
        with pytest.raises(HeliostatError):  # the most a stranger may send is small
            _send(stranger, _blob(bytes(2**20)))


def test_a_job_whose_code_is_gone_says_so(server: ServerProcess, laptop: Client, code: Path) -> None:
    (code / "only").write_text("here")
    upload = laptop.upload(code)
    job = laptop.submit("true", upload=upload, held=True)
    for path in (server.home / "uploads").rglob(upload):
        path.unlink()
    job.release()
    job.wait(WAIT_SECONDS)
    assert job.state == "failed"
    assert "--upload" in (job.reason or "")


def test_an_upload_that_a_crash_interrupted_goes_on_where_it_was(
    tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        (code / f"{number}.bin").write_bytes(os.urandom(2**20))
    server = ServerProcess(tmp_path / "home")
    sent = _sent(monkeypatch)
    held: set[str] = set()

    def crash(done: int, total: int) -> None:
        if done > 3 * 2**20 and not held:
            server.kill()
            held.update(path.name for path in _blobs(server.home))
            sent.clear()
            server.start()

    with server:
        scanned = scan_folder(code)
        upload = client_uploads.upload_scanned_folder(server.client._transport, scanned, crash, batch_bytes=2**20)
        assert held
        assert not held & set(sent), "what the server had was sent again"
        for path in _blobs(server.home):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        job = server.client.submit("cat *.bin | wc -c", upload=upload).wait(WAIT_SECONDS)
        assert job.logs().split() == [str(6 * 2**20)]


@needs_root
def test_the_copy_belongs_to_the_one_who_runs_the_job(tmp_path: Path, ann: Person, bob: Person) -> None:
    server = RunningServer('server.simulate_gpus = "2xA100"\n')
    try:
        content = b"#!/bin/sh\nid -un\n"
        digest = hashlib.sha256(content).hexdigest()
        folder = {"files": [{"path": "bin/who", "sha256": digest, "size": len(content), "executable": True}]}
        assert server.ask("POST", "/uploads", folder, uid=ann.uid).json["missing"] == [digest]
        assert server.ask("POST", "/uploads/blobs", raw=_blob(content), uid=ann.uid).json == {"stored": 1}
        offered = server.ask("POST", "/uploads", folder, uid=ann.uid).json
        assert offered["missing"] == []
        job = server.run(ann.uid, command=["bin/who"], upload=offered["id"])
        assert server.output(job["id"], ann.uid).strip() == ann.name
        work = server.home / "jobs" / str(job["id"]) / "work"
        for path in (work, work / "bin", work / "bin" / "who"):
            assert (path.stat().st_uid, path.stat().st_gid) == (ann.uid, ann.gid)
        assert stat.S_IMODE(work.stat().st_mode) == 0o700
        # What she has sent says nothing to him, and he cannot use it.
        assert server.ask("POST", "/uploads", folder, uid=bob.uid).json["missing"] == [digest]
        refused = server.ask("POST", "/jobs", {"command": ["true"], "upload": offered["id"]}, uid=bob.uid)
        assert refused.status == 422
        with acting_as(bob.uid), pytest.raises(PermissionError):
            list((server.home / "uploads").iterdir())
    finally:
        server.remove()
