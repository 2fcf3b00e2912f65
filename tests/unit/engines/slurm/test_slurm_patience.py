"""One submission that does not go through keeps nobody else waiting, and is tried again."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.patience import Patience
from heliostat.engines.slurm.tools import SlurmRefused
from heliostat.errors import EngineUnavailable
from heliostat.models import Cause
from unit.engines.slurm.test_slurm_engine import FakeSlurm, Site

FULL = EngineUnavailable("Slurm's queue is full (MaxJobCount).")


class PickySlurm(FakeSlurm):
    """Says this of some attempts whenever they are submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.says: dict[str, Exception] = {}

    def submit(self, argv: Sequence[str], script: str) -> int:
        for attempt_id, error in self.says.items():
            if any(word.endswith(f":{attempt_id}") for word in argv):
                raise error
        return super().submit(argv, script)


class PickySite(Site):
    slurm: PickySlurm


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PickySite]:
    monkeypatch.setattr("unit.engines.slurm.test_slurm_engine.FakeSlurm", PickySlurm)
    monkeypatch.setattr("heliostat.engines.slurm.patience._LONGEST_SECONDS", 0.1)
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
    site.wait_until(lambda: site.engine.waiting("2.1"), "the second is put off")
    site.engine.start([site.attempt(3, name="another")])
    site.wait_until(lambda: site.number_of("3.1"), "the third is handed over")
    site.slurm.end(site.number_of("1.1") or 0)
    site.wait_until(site.ends, "the end of the first is told")
    assert site.engine.waiting("2.1") is not None
    site.slurm.says = {}
    site.wait_until(lambda: site.number_of("2.1"), "the second is handed over")
    assert [end.attempt_id for end in site.ends()] == ["1.1"]


def test_what_keeps_it_is_said(site: PickySite) -> None:
    site.slurm.says = {"1.1": FULL}
    site.engine.start([site.attempt(1)])
    site.wait_until(lambda: "queue is full" in str(site.engine.waiting("1.1")), "it says so")
    site.slurm.says = {}
    site.wait_until(lambda: site.number_of("1.1"), "it is handed over")
    assert "full" not in str(site.engine.waiting("1.1"))


def test_one_that_was_put_off_can_be_stopped(site: PickySite) -> None:
    site.slurm.says = {"1.1": FULL}
    site.engine.start([site.attempt(1)])
    site.wait_until(lambda: site.engine.waiting("1.1"), "it is put off")
    site.engine.stop(site.attempt(1), 0)
    site.wait_until(site.ends, "its end is told")
    assert [end.cause for end in site.ends()] == [Cause.STOPPED]


def test_it_is_tried_ever_more_seldom_but_at_least_every_minute() -> None:
    now = 0.0
    patience = Patience(1.0, lambda: now)
    waits = []
    for _ in range(100):
        patience.put_off(["1.1"], "full")
        began = now
        while not patience.is_due("1.1"):
            now += 0.5
        waits.append(now - began)
    assert waits[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert waits[-1] == 60
    assert patience.is_due("2.1")
    patience.put_off(["1.1"], "full")
    patience.hurry()
    assert patience.is_due("1.1")


@dataclass
class Tools:
    """Programs that stand for Slurm's."""

    folder: Path
    commands: Commands = field(init=False)

    def __post_init__(self) -> None:
        environment = {"PATH": f"{self.folder}:{os.defpath}"}
        self.commands = Commands(self.folder / "submitting.lock", environment)

    def make(self, name: str, *lines: str) -> None:
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def submit(self) -> int:
        return self.commands.submit(["sbatch", "--parsable"], "#!/bin/sh\n")


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


def test_without_sbatch_nothing_is_refused(tools: Tools) -> None:
    with pytest.raises(EngineUnavailable, match="cannot be run"):
        Commands(tools.folder / "lock", {"PATH": str(tools.folder)}).submit(["sbatch"], "")


def test_words_of_a_site_do_not_make_a_refusal_look_like_an_absence(tools: Tools) -> None:
    first, last = "job connection-test: no socket for you", "Batch job submission failed: Unspecified error"
    tools.make("sbatch", f"echo 'sbatch: error: {first}' >&2", f"echo 'sbatch: error: {last}' >&2", "exit 1")
    with pytest.raises(SlurmRefused, match="Unspecified error"):
        tools.submit()


def test_an_absence_is_in_the_last_line(tools: Tools) -> None:
    tools.make("sbatch", "echo 'sbatch: error: Batch job submission failed: Connection refused' >&2", "exit 1")
    with pytest.raises(EngineUnavailable, match="Connection refused"):
        tools.submit()
