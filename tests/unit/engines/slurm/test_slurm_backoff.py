"""One submission that does not go through keeps nobody else waiting, and is tried again."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from heliostat.config import Settings
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.command_output import ArrayElementId
from heliostat.engines.slurm.journal import JournalEntry
from heliostat.engines.slurm.polling import Backoff
from heliostat.engines.slurm.submitter import receipt_path
from heliostat.engines.slurm.usage import read_usage
from heliostat.errors import EngineUnavailable
from heliostat.models import AttemptEnded, EndCause
from unit.engines.slurm.test_slurm_engine import ME, FakeSlurm, Site

FULL = EngineUnavailable("Slurm's queue is full (MaxJobCount).")


class PickySlurm(FakeSlurm):
    """Says this of some attempts whenever they are submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.says: dict[str, Exception] = {}
        self.at_once: list[int] = []

    def cancel(self, *numbers: int) -> None:
        self.at_once.append(len(numbers))
        super().cancel(*numbers)

    def submit(self, argv: Sequence[str], script: str) -> int:
        for attempt_id, error in self.says.items():
            if any(word.endswith(f":{attempt_id}") for word in argv):
                raise error
        return super().submit(argv, script)


class PickySite(Site):
    timing = replace(Site.timing, max_backoff_seconds=0.1)
    slurm: PickySlurm


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PickySite]:
    monkeypatch.setattr("unit.engines.slurm.test_slurm_engine.FakeSlurm", PickySlurm)
    site = PickySite(tmp_path)
    yield site
    site.engine.close()


@pytest.mark.parametrize(
    "error", [FULL, RuntimeError("nobody thought of this"), OSError(errno.ENOSPC, "No space")]
)
def test_one_that_cannot_be_submitted_blinds_nobody(site: PickySite, error: Exception) -> None:
    site.slurm.says = {"2.1": error}
    site.engine.start([site.attempt(1)])
    site.wait_until(lambda: site.number_of("1.1"), "the first is handed over")
    site.engine.start([site.attempt(2)])
    site.wait_until(lambda: site.engine.wait_reason("2.1"), "the second is put off")
    site.engine.start([site.attempt(3, name="another")])
    site.wait_until(lambda: site.number_of("3.1"), "the third is handed over")
    site.slurm.end(site.number_of("1.1") or 0)
    site.wait_until(site.ends, "the end of the first is told")
    assert site.engine.wait_reason("2.1") is not None
    site.slurm.says = {}
    site.wait_until(lambda: site.number_of("2.1"), "the second is handed over")
    assert [end.attempt_id for end in site.ends()] == ["1.1"]


def test_what_keeps_it_is_said(site: PickySite) -> None:
    site.slurm.says = {"1.1": FULL}
    site.engine.start([site.attempt(1)])
    site.wait_until(lambda: "queue is full" in str(site.engine.wait_reason("1.1")), "it says so")
    site.slurm.says = {}
    site.wait_until(lambda: site.number_of("1.1"), "it is handed over")
    assert "full" not in str(site.engine.wait_reason("1.1"))


def test_one_that_was_put_off_can_be_stopped(site: PickySite) -> None:
    site.slurm.says = {"1.1": FULL}
    site.engine.start([site.attempt(1)])
    site.wait_until(lambda: site.engine.wait_reason("1.1"), "it is put off")
    site.engine.stop(site.attempt(1), 0)
    site.wait_until(site.ends, "its end is told")
    assert [end.cause for end in site.ends()] == [EndCause.STOPPED]


def test_what_an_earlier_server_sent_is_not_given_up_while_it_is_on_its_way(site: PickySite) -> None:
    site.journal.put("1.1", JournalEntry(ME))
    site.slurm.has_submission_under_way = True
    site.restart()
    assert site.engine.observe([site.attempt(1)]) == []
    looks = site.slurm.looks
    site.wait_until(lambda: site.slurm.looks > looks + 20, "Slurm was looked at many times")
    assert site.ends() == []
    site.slurm.put(55, f"heliostat:{site.engine.instance}:1.1")
    site.slurm.has_submission_under_way = False
    site.wait_until(lambda: site.number_of("1.1") == 55, "it is found")


def test_an_orphan_is_not_forgotten_while_it_is_on_its_way(site: PickySite) -> None:
    site.journal.put("1.1", JournalEntry(ME))
    site.slurm.has_submission_under_way = True
    site.restart()
    site.engine.start([site.attempt(2)])
    site.engine.forget_all_except(["2.1"])
    looks = site.slurm.looks
    site.wait_until(lambda: site.slurm.looks > looks + 5, "Slurm was looked at")
    site.slurm.put(55, f"heliostat:{site.engine.instance}:1.1")
    site.slurm.has_submission_under_way = False
    site.wait_until(lambda: site.slurm.cancelled == [55], "it is cancelled")


def test_what_was_given_up_leaves_no_receipt_and_is_cancelled_when_it_comes_late(site: PickySite) -> None:
    site.timing = replace(site.timing, foreign_poll_seconds=0.01)
    attempt = site.attempt(1)
    receipt = Path(receipt_path(Settings(site.home), attempt))
    receipt.parent.mkdir(parents=True)
    receipt.touch()
    site.journal.put("1.1", JournalEntry(ME))
    site.restart()
    (seen,) = site.engine.observe([attempt])
    assert isinstance(seen, AttemptEnded)
    assert (seen.cause, receipt.exists()) == (EndCause.NOT_STARTED, False)
    site.engine.forget_all_except([])
    site.engine.forget(["1.1"])
    site.slurm.put(55, f"heliostat:{site.engine.instance}:1.1")
    site.wait_until(lambda: 55 in site.slurm.cancelled, "the late one is cancelled")


def test_it_is_tried_ever_more_seldom_but_at_least_every_minute() -> None:
    now = 0.0
    backoff = Backoff(1.0, clock=lambda: now)
    waits = []
    for _ in range(100):
        backoff.delay(["1.1"], "full")
        began = now
        while not backoff.is_due("1.1"):
            now += 0.5
        waits.append(now - began)
    assert waits[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert waits[-1] == 60
    assert backoff.is_due("2.1")
    backoff.delay(["1.1"], "full")
    backoff.clear()
    assert backoff.is_due("1.1")


@dataclass
class Tools:
    """Programs that stand for Slurm's."""

    folder: Path
    client: SlurmClient = field(init=False)

    def __post_init__(self) -> None:
        environment = {"PATH": f"{self.folder}:{os.defpath}"}
        self.client = SlurmClient(self.folder / "submitting.lock", environment)

    def make(self, name: str, *lines: str) -> None:
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def submit(self) -> int:
        return self.client.submit(["sbatch", "--parsable"], "#!/bin/sh\n")


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def test_an_sbatch_that_waits_for_room_in_the_queue_is_not_waited_for(tools: Tools) -> None:
    said = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
    tools.make("sbatch", f'echo $$ >"{tools.folder}/pid"', f"echo '{said}' >&2", "exec sleep 600")
    with pytest.raises(EngineUnavailable, match=r"queue is full \(MaxJobCount\)"):
        tools.submit()
    pid = int((tools.folder / "pid").read_text())
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "sbatch goes on"
        time.sleep(0.01)


def test_a_submission_is_given_its_script_and_gives_its_number(tools: Tools) -> None:
    tools.make("sbatch", f'cat >"{tools.folder}/script"', "sleep 0.7", "echo 4711")
    assert tools.submit() == 4711
    assert (tools.folder / "script").read_text() == "#!/bin/sh\n"


def test_a_submission_that_outlives_its_server_is_seen_by_the_next(tools: Tools) -> None:
    tools.make("sbatch", f'mkfifo "{tools.folder}/end"', f'cat "{tools.folder}/end"', "echo 1")
    assert not tools.client.has_unfinished_submissions()
    with ThreadPoolExecutor() as pool:
        number = pool.submit(tools.submit)
        while not (tools.folder / "end").exists() and not number.done():
            time.sleep(0.01)
        assert tools.client.has_unfinished_submissions()
        (tools.folder / "end").write_text("")
        assert number.result() == 1
    assert not tools.client.has_unfinished_submissions()


def test_without_sbatch_nothing_is_refused(tools: Tools) -> None:
    with pytest.raises(EngineUnavailable, match="cannot be run"):
        SlurmClient(tools.folder / "lock", {"PATH": str(tools.folder)}).submit(["sbatch"], "")


def test_the_accounting_is_asked_for_any_number_of_jobs(tools: Tools) -> None:
    tools.make("sacct", f'echo "$@" | wc -c >>"{tools.folder}/lengths"')
    assert tools.client.past_jobs([ArrayElementId.of(1234567, index) for index in range(20_000)]) == {}
    assert read_usage(tools.client, [ArrayElementId.of(1234567, index) for index in range(20_000)]) == {}
    lengths = [int(length) for length in (tools.folder / "lengths").read_text().split()]
    assert len(lengths) == 80
    assert max(lengths) < 100_000


def test_words_of_a_site_do_not_make_a_refusal_look_like_an_absence(tools: Tools) -> None:
    first, last = "job connection-test: no socket for you", "Batch job submission failed: Unspecified error"
    tools.make("sbatch", f"echo 'sbatch: error: {first}' >&2", f"echo 'sbatch: error: {last}' >&2", "exit 1")
    with pytest.raises(SlurmRefused, match="Unspecified error"):
        tools.submit()


def test_an_absence_is_in_the_last_line(tools: Tools) -> None:
    tools.make("sbatch", "echo 'sbatch: error: Batch job submission failed: Connection refused' >&2", "exit 1")
    with pytest.raises(EngineUnavailable, match="Connection refused"):
        tools.submit()


LINE = "{}|{}|1001|0|1700000000|1700003600|n1|0|0:00|UNLIMITED|2|main|1700000000|cpu=1|None|"


def test_of_those_that_are_over_only_ours_are_written_out(tools: Tools) -> None:
    tools.make(
        "squeue",
        f'echo "$*" >>"{tools.folder}/asked"',
        'case "$*" in',
        f"*--jobs=7,9*) echo '{LINE.format('7', 'COMPLETED')}'; echo '{LINE.format('9_1', 'FAILED')}' ;;",
        f"*) echo '{LINE.format('8', 'RUNNING')}' ;;",
        "esac",
    )
    ours = [7, 8, ArrayElementId.of(9, 1), ArrayElementId.of(9, 2)]
    jobs = tools.client.jobs(ours)
    assert {str(number): job.state for number, job in jobs.items()} == {
        "8": "RUNNING",
        "7": "COMPLETED",
        "9_1": "FAILED",
    }
    asked = (tools.folder / "asked").read_text().splitlines()
    assert ["--states=all" in words for words in asked] == [False, True]
    assert list(tools.client.jobs([8])) == [8]
    assert len((tools.folder / "asked").read_text().splitlines()) == 3


def test_one_whom_slurm_does_not_know_keeps_nobody_from_being_seen(tools: Tools) -> None:
    live, unknown = LINE.format("8", "RUNNING"), "slurm_load_jobs error: Invalid job id specified"
    tools.make("squeue", f"case \"$*\" in *--jobs=*) echo '{unknown}' >&2; exit 1 ;; esac", f"echo '{live}'")
    assert list(tools.client.jobs([7, 8])) == [8]
