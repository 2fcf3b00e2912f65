"""The way through slurmrestd, against one that is made up: tokens, lost answers, misleading statuses, no tools."""

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import Home, Settings, load_settings
from heliostat.engines.slurm import rest
from heliostat.engines.slurm.checks import examine_slurm
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.rest import RestCommands
from heliostat.engines.slurm.rest_http import RestApi
from heliostat.engines.slurm.rest_token import TokenFile
from heliostat.engines.slurm.ways import way_to_slurm
from heliostat.errors import EngineUnavailable, Invalid

WORDS = ["sbatch", "--parsable", f"--uid={os.geteuid()}", "--comment=x", "--export=NIL"]


def token_of(seconds: float, secret: str = "s3cret") -> str:
    claims = {"exp": int(time.time() + seconds), "sun": "slurm"}
    return f"head.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.{secret}"


def error(number: int, words: str) -> dict[str, Any]:
    return {"errors": [{"error_number": number, "error": words}]}


class FakeRest(ThreadingHTTPServer):
    """Answers what it is told to, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, object]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[object] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeRest

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, dict(self.headers), content))
        self.server.connections.add(self.client_address)
        status, body = self.server.answers.pop(0) if self.server.answers else (200, {"errors": []})
        if body is None:  # the answer is lost
            self.close_connection = True
            return
        said = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *words: object) -> None: ...


@pytest.fixture
def fake() -> Iterator[FakeRest]:
    with FakeRest() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "slurm.token"
    path.touch(mode=0o600)
    path.write_text(f"SLURM_JWT={token_of(30 * 86400)}\n")
    return path


@pytest.fixture
def slurm(fake: FakeRest, token: Path, tmp_path: Path) -> Iterator[RestCommands]:
    """Without any of Slurm's tools."""
    api = RestApi(fake.url, TokenFile(token))
    yield RestCommands(tmp_path / "submitting.lock", {"PATH": str(tmp_path)}, api=api)
    api.close()


def test_a_job_is_submitted_as_its_user_with_the_token_of_another(slurm: RestCommands, fake: FakeRest) -> None:
    fake.answers = [(200, {"errors": [], "job_id": 12})]
    assert slurm.submit(WORDS, "#!/bin/sh\necho \udcff\n") == 12
    _, path, headers, content = fake.asked[0]
    assert path == "/slurm/v0.0.38/job/submit"
    assert headers["X-SLURM-USER-NAME"] == "root" if os.geteuid() == 0 else True
    assert headers["X-SLURM-USER-TOKEN"].endswith(".s3cret")
    assert b"echo \xff" in content
    slurm.jobs()
    assert fake.asked[1][2]["X-SLURM-USER-NAME"] == "slurm"


def test_a_number_counts_whatever_status_and_errors_say(slurm: RestCommands, fake: FakeRest) -> None:
    fake.answers = [(500, {"job_id": 12, **error(2015, "Requested nodes are busy")})]
    assert slurm.submit(WORDS, "") == 12


def test_a_refusal_is_in_slurms_words(slurm: RestCommands, fake: FakeRest) -> None:
    said = "Invalid account or account/partition combination specified"
    fake.answers = [(500, {"errors": [{"error_code": 2045, "error": said}]})]
    with pytest.raises(SlurmRefused, match=said):
        slurm.submit(WORDS, "")


@pytest.mark.parametrize(
    "answer",
    [
        (500, error(-1, "Unspecified error")),
        (500, error(5005, "Zero Bytes were transmitted or received")),
        (200, error(1007, "Protocol authentication error")),
        (200, {"errors": []}),
        (502, "bad gateway"),
        (401, "Authentication failure"),
        (200, None),
    ],
)
def test_what_may_have_been_taken_all_the_same_is_not_sent_again(
    slurm: RestCommands, fake: FakeRest, answer: tuple[int, object]
) -> None:
    fake.answers = [answer]
    with pytest.raises(EngineUnavailable) as caught:
        slurm.submit(WORDS, "")
    assert len(fake.asked) == 1
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


def test_an_option_without_a_word_is_refused_before_anything_is_sent(slurm: RestCommands, fake: FakeRest) -> None:
    with pytest.raises(SlurmRefused, match="--nice"):
        slurm.submit([*WORDS, "--nice=1"], "")
    assert fake.asked == []


def test_one_connection_is_kept_and_made_again_when_it_was_closed(slurm: RestCommands, fake: FakeRest) -> None:
    slurm.jobs()
    slurm.nodes()
    assert len(fake.connections) == 1
    fake.answers = [(200, None)]
    slurm.partitions()
    assert len(fake.connections) == 2


def test_jobs_that_are_gone_are_cancelled_and_other_errors_are_told(slurm: RestCommands, fake: FakeRest) -> None:
    fake.answers = [(500, error(2017, "Invalid job id specified")), (500, error(2021, "Job already finished"))]
    slurm.cancel(7)
    slurm.signal(7, "TERM")
    assert [asked[:2] for asked in fake.asked] == [
        ("DELETE", "/slurm/v0.0.38/job/7"),
        ("DELETE", "/slurm/v0.0.38/job/7?signal=TERM"),
    ]
    fake.answers = [(500, error(5005, "Zero Bytes were transmitted or received"))]
    with pytest.raises(EngineUnavailable):
        slurm.cancel(8)


def test_what_the_accounting_does_not_know_is_nothing(slurm: RestCommands, fake: FakeRest) -> None:
    fake.answers = [(200, {"jobs": [], **error(9003, "Nothing found with query")})]
    assert slurm.past_jobs([1, 2]) == {}
    assert fake.asked[0][1] == "/slurmdb/v0.0.38/jobs?step=1%2C2"


def test_what_slurmrestd_cannot_do_says_which_tool_is_missing(slurm: RestCommands) -> None:
    with pytest.raises(SlurmRefused, match="scontrol is not installed"):
        slurm.update_node("n1", "State=DRAIN")


def test_a_new_token_is_taken_without_a_restart(slurm: RestCommands, fake: FakeRest, token: Path) -> None:
    slurm.jobs()
    token.write_text(token_of(1000, "another"))
    slurm.jobs()
    assert [asked[2]["X-SLURM-USER-TOKEN"].rpartition(".")[2] for asked in fake.asked] == ["s3cret", "another"]


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (token_of(1000), 0o640, "Others may read"),
        (token_of(-1), 0o600, "has expired"),
        ("hello", 0o600, "holds no token"),
        ("a.b\r\nX: y.c", 0o600, "holds no token"),
        ("", 0o600, "holds no token"),
    ],
    ids=["others may read it", "expired", "no token", "two lines", "empty"],
)
def test_a_token_that_cannot_be_used_is_said_and_not_sent(
    slurm: RestCommands, fake: FakeRest, token: Path, content: str, mode: int, said: str
) -> None:
    token.write_text(content)
    token.chmod(mode)
    with pytest.raises(EngineUnavailable, match=said) as caught:
        slurm.jobs()
    assert (fake.asked, "s3cret" in str(caught.value)) == ([], False)


def test_no_token_is_said_with_how_to_make_one(slurm: RestCommands, token: Path) -> None:
    token.unlink()
    with pytest.raises(EngineUnavailable) as caught:
        slurm.jobs()
    assert "scontrol token" in (caught.value.hint or "")


def test_what_a_killed_server_had_sent_is_on_its_way_as_long_as_it_may_take(
    slurm: RestCommands, tmp_path: Path
) -> None:
    mark = tmp_path / "submitting.abc.rest"
    mark.touch()
    assert slurm.has_earlier_submissions()
    os.utime(mark, (0, time.time() - rest.SUBMIT_SECONDS))
    assert slurm.has_earlier_submissions()
    os.utime(mark, (0, time.time() - 2 * rest.SUBMIT_SECONDS))
    assert not slurm.has_earlier_submissions()
    assert not mark.exists()


def test_a_submission_leaves_no_mark(slurm: RestCommands, fake: FakeRest, tmp_path: Path) -> None:
    fake.answers = [(200, {"job_id": 1}), (200, None)]
    slurm.submit(WORDS, "")
    with pytest.raises(EngineUnavailable):
        slurm.submit(WORDS, "")
    assert list(tmp_path.glob("*.rest")) == []


def test_the_settings_choose_the_way(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert type(way_to_slurm(Settings(home))) is Commands
    chosen = way_to_slurm(Settings(home, slurm_api="http://localhost:6820"))
    assert isinstance(chosen, RestCommands)
    assert chosen.api.token_file.path == tmp_path / "slurm.token"


@pytest.mark.parametrize(
    "line",
    [
        'slurm_api = "localhost:6820"',
        'slurm_api = "http://user:pw@host"',
        'slurm_api = "http://host:99999"',
        'slurm_api = "unix:run"',
        'slurm_token_file = "token"',
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, line: str) -> None:
    home = Home(tmp_path)
    home.config.write_text(line + "\n")
    with pytest.raises(Invalid):
        load_settings(home)


def found(slurm: RestCommands, home: Path) -> dict[str, str]:
    return {message: level for _, level, message, _ in examine_slurm(Settings(Home(home)), slurm)}


def test_the_doctor_says_which_way_is_used_and_that_tools_are_missing(
    slurm: RestCommands, fake: FakeRest, tmp_path: Path
) -> None:
    up = {"meta": {"Slurm": {"release": "22.05.8"}}, "pings": [{"ping": "UP"}], "errors": []}
    fake.answers = [(200, up), (200, up)]
    said = found(slurm, tmp_path)
    assert said[f"Slurm is asked through slurmrestd at {fake.url}, API v0.0.38."] == "ok"
    assert said["slurm 22.05.8."] == said["slurmctld answers."] == "ok"
    assert [level for message, level in said.items() if message.startswith("Not installed: sbatch")] == ["warning"]


@pytest.mark.parametrize(
    ("days", "level"), [(30, "ok"), (6, "warning"), (-1, "problem")], ids=["a month", "six days", "yesterday"]
)
def test_the_doctor_warns_a_week_before_a_token_expires(
    slurm: RestCommands, token: Path, tmp_path: Path, days: int, level: str
) -> None:
    token.write_text(token_of(timedelta(days=days).total_seconds()))
    said = found(slurm, tmp_path)
    day = datetime.now(UTC) + timedelta(days=days)
    assert [told for message, told in said.items() if f"{day:%Y-%m-%d}" in message] == [level]


def test_the_doctor_says_when_another_api_is_spoken(slurm: RestCommands, fake: FakeRest, tmp_path: Path) -> None:
    fake.answers = [(404, "Unable find requested URL.")]
    assert any("does not know the API v0.0.38" in message for message in found(slurm, tmp_path))
