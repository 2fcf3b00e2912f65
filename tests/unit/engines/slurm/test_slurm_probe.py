"""What the doctor makes of Slurm's settings, and of what a node answers."""

import json
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from heliostat.config import Home, ServerSettings, Settings
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.command_output import SlurmPartition, parse_slurm_config
from heliostat.engines.slurm.installation_checks import examine_slurm_configuration
from heliostat.engines.slurm.node_probe import (
    ProbeRequest,
    ProbeResult,
    evaluate_probe,
    last_probe_findings,
    parse_probe_output,
    probe_failed_finding,
    probe_partitions,
    probe_srun_argv,
)
from heliostat.errors import Conflict

QUESTION = ProbeRequest("/shared/probe-1", "w0rd", {"ann": (1001, 1001), "bob": (1002, 1002)})
RIGHT = ProbeResult("n1", 1000.5, "w0rd", True, dict(QUESTION.users))
CONFIG = """\
Configuration data as of 2024-01-01T00:00:00
AccountingStorageTRES   = cpu,mem,gres/gpu
AccountingStorageType   = accounting_storage/slurmdbd
DisableRootJobs         = No
GresTypes               = gpu
MaxArraySize            = 1001
MinJobAge               = 300 sec
ProctrackType           = proctrack/cgroup
TaskPlugin              = task/cgroup,task/affinity
"""


def verdict(answer: ProbeResult, asked: tuple[float, float] = (1000.0, 1001.0)) -> list[tuple[str, str]]:
    found = evaluate_probe("main", "/shared", QUESTION, answer, asked)
    assert all(hint for _, level, _, hint in found if level != "ok")
    return [(level, message) for _, level, message, _ in found]


def test_a_node_that_sees_what_we_see_is_well() -> None:
    good = "n1 of partition main can use /shared, has the same ids for 2 users, and its clock is right."
    assert verdict(RIGHT) == [("ok", good)]


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        (replace(RIGHT, marker=None), "problem", "cannot read /shared"),
        (replace(RIGHT, marker="other"), "problem", "cannot read /shared"),
        (replace(RIGHT, can_write=False), "problem", "cannot write"),
        (replace(RIGHT, users={"ann": (1001, 1001), "bob": None}), "problem", "jobs cannot run there: bob."),
        (replace(RIGHT, users={}), "problem", "jobs cannot run there: ann, bob."),
        (
            replace(RIGHT, users={"ann": (1001, 1001), "bob": (1003, 1002)}),
            "problem",
            "bob is 1002:1002 here, but 1003:1002 on n1",
        ),
        (replace(RIGHT, clock_seconds=900.0), "warning", "clock of n1 is 100 s off"),
        (replace(RIGHT, clock_seconds=1101.0), "warning", "clock of n1 is 100 s off"),
    ],
)
def test_what_is_wrong_on_a_node_is_told(answer: ProbeResult, level: str, words: str) -> None:
    ((found, message),) = verdict(answer)
    assert found == level
    assert words in message


def test_a_clock_of_which_nothing_is_known_is_not_judged() -> None:
    assert [level for level, _ in verdict(replace(RIGHT, clock_seconds=None))] == ["ok"]


def test_the_script_says_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("w0rd\n")
    (tmp_path / "tray").mkdir()
    question = ProbeRequest(str(tmp_path), "w0rd", {"root": (0, 0), "nobody-of-that-name": (1, 1)})
    argv = probe_srun_argv("main", question)
    said = subprocess.run(
        argv[argv.index("/bin/sh") :], env={"SLURMD_NODENAME": "n7"}, capture_output=True, text=True, check=False
    )
    answer = parse_probe_output(said.stdout)
    assert (answer.node, answer.marker, answer.can_write) == ("n7", "w0rd", True)
    assert answer.users == {"root": (0, 0), "nobody-of-that-name": None}
    assert answer.clock_seconds is not None
    assert said.stderr == ""


def test_the_script_says_little_where_the_folder_is_not_there(tmp_path: Path) -> None:
    argv = probe_srun_argv("main", ProbeRequest(str(tmp_path / "none"), "w0rd"))
    said = subprocess.run(argv[argv.index("/bin/sh") :], env={}, capture_output=True, text=True, check=False)
    assert (parse_probe_output(said.stdout).marker, parse_probe_output(said.stdout).can_write) == (None, False)
    assert (said.returncode, said.stderr) == (0, "")


def test_a_full_partition_is_told_apart_from_a_broken_one() -> None:
    assert (
        "had free resources"
        in probe_failed_finding("main", "Unable to allocate resources: Requested nodes are busy")[2]
    )
    assert (
        "The probe of partition main failed: Job cannot run as root"
        in probe_failed_finding("main", "Job cannot run as root")[2]
    )


class OnePartition:
    """Of which a node answers with what it is told to, or Slurm refuses."""

    def __init__(self, says: str | None) -> None:
        self.says, self.asked = says, 0

    def partitions(self) -> dict[str, SlurmPartition]:
        nodes = frozenset({"n1"})
        return {
            "main": SlurmPartition("main", nodes),
            "closed": SlurmPartition("closed", nodes, accepts_jobs=False),
        }

    def run_command(self, argv: list[str]) -> str:
        self.asked += 1
        if self.says is None:
            raise SlurmRefused("Requested nodes are busy")
        folder = argv[argv.index("probe") + 1]
        return self.says.replace("WORD", Path(folder, "word").read_text().strip())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = Home(tmp_path)
    home.attempts.mkdir()
    return Settings(home, server=ServerSettings(engine="slurm"))


def test_what_was_found_is_kept_with_its_age_and_nothing_is_left(settings: Settings) -> None:
    assert [(level, hint) for _, level, _, hint in last_probe_findings(settings)] == [
        ("warning", "helio doctor --probe")
    ]
    slurm = OnePartition("node n1\nword WORD\nwritable yes\n")
    found = probe_partitions(settings, {}, cast(SlurmClient, slurm))
    assert (slurm.asked, list(last_probe_findings(settings))) == (1, found)
    assert [level for _, level, _, _ in found] == ["ok"]
    assert not list(settings.home.path.glob("probe-*"))
    path = settings.home.attempts / "probed.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "at": kept["at"] - 5 * 3600}))
    assert next(message for _, _, message, _ in last_probe_findings(settings)).endswith("(5 h ago)")


def test_nobody_changes_the_word_and_what_they_put_beside_it_goes_away(settings: Settings) -> None:
    class Watched(OnePartition):
        def run_command(self, argv: list[str]) -> str:
            folder = Path(argv[argv.index("probe") + 1])
            tray = folder / "tray"
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "word", tray)]
            assert modes == [0o711, 0o644, 0o1733]
            for _ in range(1500):
                tray /= "d"
                tray.mkdir()
            return super().run_command(argv)

    assert probe_partitions(settings, {}, cast(SlurmClient, Watched("node n1\nword WORD\nwritable yes\n")))
    assert not list(settings.home.path.glob("probe-*"))


def test_a_refusal_is_a_finding(settings: Settings) -> None:
    ((_, level, message, hint),) = probe_partitions(settings, {}, cast(SlurmClient, OnePartition(None)))
    assert (level, message) == ("warning", "No node of partition main had free resources for a probe.")
    assert hint


def test_two_do_not_probe_at_once(settings: Settings) -> None:
    class Impatient(OnePartition):
        def run_command(self, argv: list[str]) -> str:
            with pytest.raises(Conflict):
                probe_partitions(settings, {}, cast(SlurmClient, OnePartition("")))
            return super().run_command(argv)

    assert (
        len(probe_partitions(settings, {}, cast(SlurmClient, Impatient("node n1\nword WORD\nwritable yes\n"))))
        == 1
    )


def test_good_settings_of_slurm_give_no_warning() -> None:
    found = list(examine_slurm_configuration(parse_slurm_config(CONFIG), gpus=4))
    assert [(level, message[:24]) for _, level, message, _ in found] == [("ok", "Arrays of up to 1001 ele")]


@pytest.mark.parametrize(
    ("name", "value", "gpus", "words"),
    [
        ("GresTypes", "(null)", 0, "GresTypes does not contain gpu"),
        ("AccountingStorageTRES", "cpu,mem", 4, "does not count GPUs"),
        ("ProctrackType", "proctrack/linuxproc", 4, "can outlive it"),
        ("TaskPlugin", "task/none", 4, "more cpus, memory and GPUs than allocated"),
        ("MaxArraySize", "10", 4, "MaxArraySize=10 is small"),
        ("DisableRootJobs", "Yes", 4, "does not run jobs of root"),
    ],
)
def test_settings_of_slurm_that_are_in_the_way_are_told_with_a_hint(
    name: str, value: str, gpus: int, words: str
) -> None:
    found = list(examine_slurm_configuration({**parse_slurm_config(CONFIG), name: value}, gpus))
    ((message, hint),) = [(message, hint) for _, level, message, hint in found if level != "ok"]
    assert words in message
    assert hint


def test_a_slurm_that_forgets_at_once_and_keeps_nothing_is_a_problem() -> None:
    forgetful = {"AccountingStorageType": "(null)", "MinJobAge": "2 sec"}
    found = list(examine_slurm_configuration({**parse_slurm_config(CONFIG), **forgetful}, 4))
    assert [level for _, level, _, _ in found if level != "ok"] == ["problem"]
