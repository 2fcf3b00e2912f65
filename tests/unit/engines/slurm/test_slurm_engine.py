"""The engine against a made-up Slurm that loses answers, goes away and gives old numbers to others."""

import errno
import getpass
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from heliostat.config import Home, Settings
from heliostat.engines.slurm.batch_script import SubmissionContext as SlurmSite
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.command_output import (
    ArrayElementId,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmReservation,
    expand_host_list,
)
from heliostat.engines.slurm.engine import SlurmEngine
from heliostat.engines.slurm.journal import ArrayElement, JournalEntry, SubmissionJournal
from heliostat.engines.slurm.observer import Observer
from heliostat.engines.slurm.polling import SlurmTiming
from heliostat.engines.slurm.submitter import Submitter
from heliostat.engines.slurm.tracked_jobs import TrackedJobs
from heliostat.errors import EngineUnavailable
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptStarted,
    EndCause,
    Job,
    JobSpec,
    JobState,
    Observation,
    Resources,
)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ME = os.geteuid()
SELDOM = SlurmTiming(poll_seconds=3600)


TOO_MANY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


class FakeSlurm:
    """What `Commands` offers, over a dictionary."""

    def __init__(self) -> None:
        self.known: dict[int, SlurmJob] = {}
        self.past: dict[int, SlurmJob] = {}  # what only the accounting has
        self.comments: dict[int, str] = {}
        self.submitted: list[list[str]] = []
        self.scripts: list[str] = []
        self.cancelled: list[int] = []
        self.is_away = False
        self.loses_answers = False
        self.refuses: str | None = None
        self.has_submission_under_way = False  # of a server that was killed
        self.looks = 0
        self.largest_array = 1001
        self.most = 100_000  # jobs of one user
        self._lock = threading.Lock()

    def put(self, number: int, comment: str, state: str = "PENDING", uid: int = ME) -> None:
        self.known[number] = SlurmJob(number, state, uid, 0, 0, None, None, (), "Resources")
        self.comments[number] = comment

    def run(self, number: int) -> None:
        self.known[number] = replace(self.known[number], state="RUNNING", started_at=BEGAN, nodes=("n1",))

    def end(self, number: int, state: str = "COMPLETED") -> None:
        self.run(number)
        with self.receipt(number).open("a") as receipt:
            run = f"{number} {self.known[number].queue_details.restart_count}"
            receipt.write(f"begun {run} n1\nended {run} 0\n")
        self.known[number] = replace(self.known[number], state=state, ended_at=BEGAN)

    def receipt(self, number: int) -> Path:
        """Where the script it was submitted with notes its life."""
        if not isinstance(number, ArrayElementId):
            (word,) = re.findall("^done <(.*)$", self.scripts[number - 100], re.MULTILINE)
            return Path(shlex.split(word)[0])
        script = self.scripts[number.array_job_id - 100]
        ((job, attempt),) = re.findall(rf"^{number.index}\) set -- (\d+) (\d+) ", script, re.MULTILINE)
        (folder,) = re.findall(r'^set -- "\$@" (.*)/"\$1"$', script, re.MULTILINE)
        return Path(shlex.split(folder)[0]) / job / f"{attempt}.receipt"

    def run_command(self, argv: Sequence[str]) -> str:
        raise EngineUnavailable("There is no accounting here.")

    def submit(self, argv: Sequence[str], script: str) -> int:
        self._answer()
        if self.refuses:
            raise SlurmRefused(self.refuses)
        options = dict(word.split("=", 1) for word in argv if "=" in word)
        indexes = expand_host_list(f"[{options['--array'].partition('%')[0]}]") if "--array" in options else ()
        with self._lock:
            if len(self.known) + max(1, len(indexes)) > self.most:
                raise SlurmRefused(TOO_MANY)
            number = 100 + len(self.submitted)
            self.submitted.append(list(argv))
            self.scripts.append(script)
            for one in [ArrayElementId.of(number, int(index)) for index in indexes] or [number]:
                self.put(one, options["--comment"])
        if self.loses_answers:
            self.loses_answers = False
            raise EngineUnavailable("The answer was lost.")
        return number

    def has_unfinished_submissions(self) -> bool:
        return self.has_submission_under_way

    def jobs(self, ours: Iterable[int] | None = None) -> dict[int, SlurmJob]:
        self._answer()
        self.looks += 1
        return dict(self.known)

    def past_jobs(self, numbers: Sequence[int]) -> dict[int, SlurmJob]:
        self._answer()
        return {number: self.past[number] for number in numbers if number in self.past}

    def job_comments(self, uid: int) -> list[tuple[int, str]]:
        self._answer()
        return list(self.comments.items())

    def job_names(self) -> dict[int, str]:
        return dict.fromkeys(self.known, "a\x1b[2Jb\nc")

    def job_devices(self, job: SlurmJob) -> dict[str, tuple[int, ...]]:
        return {"n1": (1, 3)}

    def nodes(self) -> list[SlurmNode]:
        self._answer()
        return [SlurmNode("n1", "idle", 8, 8000, (("a100", 4),), (), None)]

    def partitions(self) -> dict[str, SlurmPartition]:
        self._answer()
        return {"main": SlurmPartition("main", frozenset({"n1"}), is_default=True)}

    def reservations(self) -> list[SlurmReservation]:
        self._answer()
        return []

    def controller_started_at(self) -> datetime | None:
        return BEGAN - timedelta(days=1)

    def max_array_size(self) -> int | None:
        return self.largest_array

    def cancel(self, *numbers: int) -> None:
        self._answer()
        self.cancelled += numbers
        for number in numbers:
            if number in self.known and not self.known[number].is_terminal:
                self.known[number] = replace(self.known[number], state="CANCELLED")

    def send_signal(self, number: int, name: str) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.is_away:
            raise EngineUnavailable("Slurm does not answer.")


class Core:
    """The engine without its thread."""

    def __init__(self, settings: Settings, slurm: FakeSlurm) -> None:
        client = cast(SlurmClient, slurm)
        self.tracked = TrackedJobs(SubmissionJournal(settings.home.attempts))
        cluster = ClusterState(client, SlurmSite("x", runs_as_root=os.geteuid() == 0))
        self.submitter = Submitter(settings, client, self.tracked, cluster)
        self.observer = Observer(settings, client, self.tracked, cluster, self.submitter)


class Site:
    timing = SlurmTiming(poll_seconds=0.01)

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        for made in (self.home.jobs, self.home.attempts):
            made.mkdir()
        self.slurm = FakeSlurm()
        self.journal = SubmissionJournal(self.home.attempts)
        self.reports: list[Observation] = []
        self.engine = self.new_engine()

    def new_engine(self) -> SlurmEngine:
        engine = SlurmEngine(Settings(self.home), cast(SlurmClient, self.slurm), self.timing)
        engine.set_observation_callback(self.reports.extend)
        return engine

    def restart(self) -> None:
        self.engine.close()
        self.engine = self.new_engine()

    def attempt(self, number: int = 1, **fields: object) -> Attempt:
        job = Job(
            id=number,
            kind="batch",
            name="x",
            state=JobState.PENDING,
            user="ann",
            unix_user=getpass.getuser(),
            project="p",
            resources=Resources(),
            spec=JobSpec(("true",)),
            submitted_at=BEGAN,
            attempt=1,
            dispatched=True,
        )
        return Attempt(f"{number}.1", replace(job, **fields), "")  # type: ignore[arg-type]

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            time.sleep(0.005)

    def number_of(self, attempt_id: str) -> int | None:
        entry = self.journal.find(attempt_id)
        return entry.slurm_job_id if entry else None

    def ends(self) -> list[AttemptEnded]:
        return [seen for seen in self.reports if isinstance(seen, AttemptEnded)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


def test_a_job_whose_answer_was_lost_is_found_and_not_handed_over_again(site: Site) -> None:
    site.slurm.loses_answers = True
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME, 100), "its number is noted")
    site.slurm.end(100)
    site.wait_until(site.ends, "its end is told")
    assert list(site.slurm.comments) == [100]


def test_a_job_whose_answer_was_lost_is_found_after_a_restart(site: Site) -> None:
    comment = f"heliostat:{site.engine.instance}:1.1"
    site.journal.put("1.1", JournalEntry(ME))
    site.slurm.put(55, comment)
    site.slurm.run(55)
    (seen,) = site.engine.observe([site.attempt()])
    assert isinstance(seen, AttemptStarted)
    assert site.journal.find("1.1") == JournalEntry(ME, 55)


def test_a_job_of_another_user_that_bears_our_mark_is_not_ours(site: Site) -> None:
    comment = f"heliostat:{site.engine.instance}:1.1"
    site.journal.put("1.1", JournalEntry(ME))
    site.slurm.put(55, comment, uid=ME + 1)
    (seen,) = site.engine.observe([site.attempt()])
    assert isinstance(seen, AttemptEnded)
    assert seen.cause is EndCause.NOT_STARTED
    site.engine.start([site.attempt()])
    site.engine.stop(site.attempt(), 0)
    site.engine.forget_all_except([])
    site.wait_until(lambda: site.journal.find("1.1") is None, "the trace is swept")
    assert site.slurm.cancelled == []


def test_what_was_started_and_ended_while_nobody_looked_is_told_as_both(site: Site) -> None:
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME, 100), "it is handed over")
    site.engine.close()
    site.slurm.end(100)
    site.engine = site.new_engine()
    seen = site.engine.observe([site.attempt()])
    assert [type(one) for one in seen] == [AttemptStarted, AttemptEnded]


def test_while_slurm_is_away_nothing_is_said_to_have_ended(site: Site) -> None:
    site.engine.start([site.attempt(1)])
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME, 100), "it is handed over")
    site.slurm.is_away = True
    site.engine.start([site.attempt(2)])
    site.wait_until(lambda: "does not answer" in str(site.engine.wait_reason("2.1")), "it says so")
    site.restart()
    assert site.engine.observe([site.attempt(1)]) == []
    site.slurm.is_away = False
    site.slurm.end(100)
    site.wait_until(site.ends, "its end is told")
    assert [end.attempt_id for end in site.ends()] == ["1.1"]


def test_slurm_is_not_asked_more_often_because_nothing_is_to_be_started(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.engine.close()
    site.engine = SlurmEngine(Settings(site.home), cast(SlurmClient, site.slurm), SELDOM)
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.number_of("1.1"), "it is handed over")
    looks = site.slurm.looks
    for _ in range(20):
        site.engine.start([])
        time.sleep(0.005)  # in which a look would be made
    site.engine.close()
    assert site.slurm.looks == looks


def test_who_is_stopped_before_slurm_has_heard_of_it_never_reaches_it(site: Site) -> None:
    site.slurm.is_away = True
    site.engine.start([site.attempt(1), site.attempt(2)])
    site.wait_until(
        lambda: site.journal.find("1.1") == JournalEntry(ME, element=ArrayElement("1.1", 0)),
        "the first was tried in vain",
    )
    site.engine.stop(site.attempt(1), 0)
    site.engine.stop(site.attempt(2), 0)
    site.slurm.is_away = False
    site.wait_until(lambda: len(site.ends()) == 2, "both ends are told")
    assert [end.cause for end in site.ends()] == [EndCause.STOPPED, EndCause.STOPPED]


def test_who_is_stopped_after_its_answer_was_lost_is_taken_out_of_slurm(site: Site) -> None:
    comment = f"heliostat:{site.engine.instance}:1.1"
    site.slurm.is_away = True
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME), "it was tried")
    site.engine.stop(site.attempt(), 0)
    site.slurm.put(55, comment)
    site.slurm.is_away = False
    site.wait_until(site.ends, "its end is told")
    assert (site.slurm.cancelled[:1], site.ends()[0].cause) == ([55], EndCause.STOPPED)


def test_what_nobody_wants_any_more_is_taken_out_of_slurm_after_a_restart(site: Site) -> None:
    site.engine.start([site.attempt(1), site.attempt(2)])
    site.wait_until(lambda: site.number_of("1.1") and site.number_of("2.1"), "both are handed over")
    first, second = site.number_of("1.1"), site.number_of("2.1")
    site.restart()
    site.engine.observe([site.attempt(2)])
    site.engine.forget_all_except(["2.1"])
    site.wait_until(lambda: site.slurm.cancelled == [first], "the first is cancelled")
    assert site.journal.find("2.1") == JournalEntry(ME, second, ArrayElement("1.1", 1))


def test_a_number_that_now_belongs_to_somebody_else_is_left_alone(site: Site) -> None:
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME, 100), "it is handed over")
    site.slurm.put(100, "", uid=ME + 1)
    site.engine.stop(site.attempt(), 0)
    site.wait_until(site.ends, "it is given up")
    assert site.ends()[0].cause is EndCause.STOPPED
    assert site.slurm.cancelled == []


def test_looks_that_receipts_hasten_make_no_job_lost_before_its_time(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.engine.close()
    site.engine = SlurmEngine(Settings(site.home), cast(SlurmClient, site.slurm), SELDOM)
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.number_of("1.1"), "it is handed over")
    del site.slurm.known[100]
    for _ in range(30):
        assert site.engine.observe([site.attempt()]) == []
    site.engine.close()


def test_one_that_could_not_note_its_end_has_ended_as_slurm_says(site: Site) -> None:
    site.engine.start([site.attempt()])
    site.wait_until(lambda: site.number_of("1.1"), "it is handed over")
    site.slurm.receipt(100).write_text("begun 100 0 n1\n")
    site.slurm.run(100)
    site.slurm.known[100] = replace(site.slurm.known[100], state="COMPLETED", ended_at=BEGAN)
    site.wait_until(site.ends, "its end is told")
    assert (site.ends()[0].cause, site.ends()[0].exit_code) == (EndCause.EXITED, 0)


def test_a_trace_that_cannot_be_read_is_looked_up_by_its_mark(site: Site) -> None:
    (site.home.attempts / "1.1.slurm").write_text("uid 10\0")
    site.slurm.put(55, f"heliostat:{site.engine.instance}:1.1")
    site.slurm.run(55)
    (seen,) = site.engine.observe([site.attempt()])
    assert isinstance(seen, AttemptStarted)


def test_a_refusal_ends_the_attempt_with_slurms_words(site: Site) -> None:
    site.slurm.refuses = "Invalid qos specification"
    site.engine.start([site.attempt()])
    site.wait_until(site.ends, "its end is told")
    assert site.ends()[0].cause is EndCause.REFUSED
    assert "Invalid qos specification" in str(site.ends()[0].detail)


def test_a_limit_on_submitted_jobs_is_waited_for_without_end(site: Site) -> None:
    site.slurm.refuses = TOO_MANY
    site.engine.start([site.attempt(1), site.attempt(2)])
    site.wait_until(lambda: "job submit limit" in str(site.engine.wait_reason("2.1")), "it says so")
    site.slurm.refuses = None
    site.wait_until(lambda: site.number_of("1.1") and site.number_of("2.1"), "both are handed over")
    assert site.ends() == []


def test_a_full_disk_is_waited_for_without_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("heliostat.engines.slurm.submitter.prepare_job_folder", full)
        site.engine.start([site.attempt(1), site.attempt(2)])
        site.wait_until(lambda: "No space left" in str(site.engine.wait_reason("2.1")), "it says so")
    site.wait_until(lambda: site.number_of("1.1") and site.number_of("2.1"), "both are handed over")
    assert site.ends() == []


def test_a_start_says_where_and_on_which_gpus(site: Site) -> None:
    site.engine.start([site.attempt(resources=Resources(1, 64, 2))])
    site.wait_until(lambda: 100 in site.slurm.known, "it is handed over")
    site.slurm.run(100)
    site.wait_until(lambda: site.reports, "its start is told")
    started = site.reports[0]
    assert isinstance(started, AttemptStarted)
    assert [(place.node, place.devices) for place in started.places] == [("n1", ("n1:1", "n1:3"))]
    assert started.gpu_type == "a100"
