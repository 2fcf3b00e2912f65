"""A node gets other GPUs, whatever happens in between."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.config import Home, load_settings
from heliostat.engines.slurm import recomposer
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.recomposer import (
    DRAIN_REASON,
    ObservedNode,
    PendingRecomposition,
    Recomposer,
    RecompositionStep,
    StepFailed,
    node_command_argv,
    parse_scontrol_node,
    plan_recomposition,
    run_node_command,
)
from heliostat.errors import Conflict, EngineUnavailable, Invalid

TEMPLATE = ["node", "{verb}", "{node}", "{conf}"]
BASE = "CPUs=4 Sockets=4 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=4000 Weight=1"
LINE = (
    "NodeName=d1 Arch=x86_64 CoresPerSocket=1  CPUAlloc={used} CPUEfctv=4 CPUTot=4 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres={gres} NodeAddr=10.0.0.2 RealMemory=4000 AllocMem=0 Sockets=4 Boards=1 "
    "State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A Partitions=main  CfgTRES=cpu=4,gres/gpu=2{reason}"
)


class FakeSlurm:
    """One node, its slurmd, and what runs there."""

    def __init__(self) -> None:
        self.exists, self.gres, self.used, self.drained = True, "gpu:a100:2", 0, ""
        self.daemon: str | None = "as before"
        self.dynamic, self.away = True, False
        self.did: list[str] = []

    def run_command(self, argv: Sequence[str]) -> str:
        if self.away:
            raise EngineUnavailable("Slurm does not answer.")
        if argv[1] == "delete":
            assert (self.used, self.daemon) == (0, None)
            self.exists = False
            self.did.append("delete")
            return ""
        if not self.exists:
            refused = SlurmRefused("scontrol ended with 1")
            refused.output = "Node d1 not found"
            raise refused
        state = ("MIXED" if self.used else "IDLE") + ("+DRAIN" if self.drained else "")
        reason = f" Reason={self.drained} [root@2024-01-01T00:00:00]" if self.drained else ""
        state += "+DYNAMIC_NORM" if self.dynamic else ""
        return LINE.format(used=self.used, gres=self.gres, state=state, reason=reason)

    def update_node(self, node: str, *values: str) -> None:
        assert self.exists
        state, *reason = values
        self.drained = reason[0].removeprefix("Reason=") if state == "State=DRAIN" else ""
        self.did.append(state)

    def command(self, argv: Sequence[str]) -> None:
        _, verb, node, conf = argv
        assert node == "d1"
        self.did.append(verb)
        if verb == "stop":
            assert not self.used
            self.daemon = None
        else:
            assert not self.exists or self.daemon
            self.exists, self.daemon, self.drained = True, conf, ""
            self.gres = conf.partition("Gres=")[2] or "(null)"


class Still(Recomposer):
    """Moves only when it is told to."""

    def _wake_thread(self) -> None:
        pass

    def advance_by(self, steps: int) -> None:
        for _ in range(steps):
            self._retry_at.clear()
            self.advance()


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = FakeSlurm()
    monkeypatch.setattr(recomposer, "run_node_command", slurm.command)
    return slurm


def make_recomposer(slurm: FakeSlurm, folder: Path) -> Still:
    return Still(folder, cast(SlurmClient, slurm), TEMPLATE)


def test_an_empty_node_gets_other_gpus_and_is_used_again(slurm: FakeSlurm, tmp_path: Path) -> None:
    ours = make_recomposer(slurm, tmp_path)
    told = ours.recompose("d1", {"a100": 4, "t4": 1})
    assert (told.at, told.steps[4]) == (0, f"Start slurmd with {BASE} Gres=gpu:a100:4,gpu:t4:1.")
    ours.advance_by(len(RecompositionStep))
    assert slurm.did == ["State=DRAIN", "stop", "delete", "start"]
    assert (slurm.gres, slurm.drained, ours.find("d1"), list(tmp_path.iterdir())) == (
        "gpu:a100:4,gpu:t4:1",
        "",
        None,
        [],
    )


def test_a_dry_run_changes_nothing(slurm: FakeSlurm, tmp_path: Path) -> None:
    ours = make_recomposer(slurm, tmp_path)
    assert len(ours.recompose("d1", {"a100": 0}, dry_run=True).steps) == len(RecompositionStep)
    ours.advance_by(9)
    assert (slurm.did, ours.find("d1"), list(tmp_path.iterdir())) == ([], None, [])


def test_a_node_that_has_them_is_left_alone(slurm: FakeSlurm, tmp_path: Path) -> None:
    ours = make_recomposer(slurm, tmp_path)
    assert ours.recompose("d1", {"a100": 2, "t4": 0}).steps == ()
    assert ours.find("d1") is None


def test_running_jobs_end_by_themselves(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.used = 2
    ours = make_recomposer(slurm, tmp_path)
    ours.recompose("d1", {})
    ours.advance_by(9)
    assert slurm.did == ["State=DRAIN"]
    slurm.used = 0
    ours.advance_by(9)
    assert (slurm.gres, slurm.did[-1]) == ("(null)", "start")


def test_resuming_the_node_before_it_is_empty_abandons_it(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.used = 2
    ours = make_recomposer(slurm, tmp_path)
    ours.recompose("d1", {})
    ours.advance_by(3)
    slurm.drained = ""
    ours.advance_by(9)
    assert (ours.find("d1"), slurm.did) == (None, ["State=DRAIN"])


def test_who_was_drained_by_somebody_else_is_drained_again(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.drained = "new fan"
    ours = make_recomposer(slurm, tmp_path)
    ours.recompose("d1", {"a100": 1})
    ours.advance_by(3)
    ours.recompose("d1", {"a100": 3})
    ours.advance_by(9)
    assert (slurm.gres, slurm.drained) == ("gpu:a100:3", "new fan")


def test_a_step_that_fails_says_why_and_is_tried_again(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(argv: Sequence[str]) -> None:
        raise StepFailed("node_command failed with exit code 255: no route to host")

    ours = make_recomposer(slurm, tmp_path)
    ours.recompose("d1", {"a100": 1})
    monkeypatch.setattr(recomposer, "run_node_command", fail)
    ours.advance_by(9)
    told = ours.find("d1")
    assert told is not None
    assert (told.at, told.error) == (2, "node_command failed with exit code 255: no route to host")
    ours.advance()  # not at once
    monkeypatch.setattr(recomposer, "run_node_command", slurm.command)
    ours.advance_by(9)
    assert slurm.gres == "gpu:a100:1"


def test_a_node_that_joins_with_other_gpus_gets_no_jobs(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrongly(argv: Sequence[str]) -> None:
        slurm.command(argv)
        slurm.gres = "gpu:a100:1"

    monkeypatch.setattr(recomposer, "run_node_command", wrongly)
    ours = make_recomposer(slurm, tmp_path)
    ours.recompose("d1", {"a100": 4})
    ours.advance_by(9)
    told = ours.find("d1")
    assert told is not None
    assert "registered with 1 a100; see its gres.conf" in (told.error or "")
    assert slurm.drained == DRAIN_REASON


@given(killed=st.lists(st.integers(0, 7), max_size=4), lost=st.booleans())
def test_a_killed_server_goes_on_where_it_was(
    killed: list[int], lost: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`lost`: it dies after a step was done, before that is noted."""
    folder, slurm = tmp_path_factory.mktemp("notes"), FakeSlurm()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomposer, "run_node_command", slurm.command)
        make_recomposer(slurm, folder).recompose("d1", {"a100": 4})
        for steps in killed:
            ours = make_recomposer(slurm, folder)
            ours.advance_by(steps)
            if lost and (work := ours._pending.get("d1")):
                ours._do_step(work)
        ours = make_recomposer(slurm, folder)
        ours.advance_by(9)
    assert (slurm.gres, slurm.drained, ours.find("d1"), slurm.exists) == ("gpu:a100:4", "", None, True)


def test_slurm_away_is_waited_for(slurm: FakeSlurm, tmp_path: Path) -> None:
    ours = make_recomposer(slurm, tmp_path)
    ours.recompose("d1", {"a100": 1})
    slurm.away = True
    ours.advance_by(3)
    assert (ours.find("d1") or pytest.fail("gone")).error == "Slurm does not answer."
    slurm.away = False
    ours.advance_by(9)
    assert slurm.gres == "gpu:a100:1"


def test_a_node_of_slurm_conf_is_refused(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.dynamic = False
    with pytest.raises(Conflict, match=r"defined in slurm\.conf"):
        make_recomposer(slurm, tmp_path).recompose("d1", {"a100": 1})


def test_without_a_command_it_is_refused(slurm: FakeSlurm, tmp_path: Path) -> None:
    with pytest.raises(Conflict) as refused:
        Still(tmp_path, cast(SlurmClient, slurm), []).recompose("d1", {"a100": 1})
    assert "node_command" in (refused.value.hint or "")


def test_words_that_a_shell_would_understand_are_not_passed_on() -> None:
    node = ObservedNode("d1", "idle+dynamic_norm", {}, "CPUs=4 Feature=a;reboot", 0, None)
    with pytest.raises(Conflict, match="unsupported characters"):
        plan_recomposition(node, {"a100": 1})


def test_what_is_filled_in_is_not_read_again() -> None:
    work = PendingRecomposition("{conf}", {"t4": 1}, "CPUs=4")
    assert node_command_argv(TEMPLATE, "stop", work) == ["node", "stop", "{conf}", "CPUs=4 Gres=gpu:t4:1"]


def test_a_reason_cannot_pretend_to_be_a_fact() -> None:
    line = LINE.format(
        used=0, gres="gpu:a100:2(S:0),gpu:t4:1", state="IDLE+DRAIN", reason=" Reason=x State=IDLE Gres=y"
    )
    seen = parse_scontrol_node(line)
    assert seen is not None
    assert (seen.state, seen.gpus, seen.base_config, seen.drain_reason) == (
        "idle+drain",
        {"a100": 2, "t4": 1},
        BASE,
        "x State=IDLE Gres=y",
    )
    assert parse_scontrol_node("Node d1 not found\n") is None


def test_a_command_is_run_without_a_shell_and_its_last_words_are_kept() -> None:
    run_node_command(["/bin/sh", "-c", '[ "$1" = "a  b" ]', "sh", "a  b"])
    with pytest.raises(StepFailed, match="failed with exit code 3: second"):
        run_node_command(["/bin/sh", "-c", "echo first; echo second >&2; exit 3"])
    with pytest.raises(StepFailed, match="cannot be run: /nonexistent: No such file"):
        run_node_command(["/nonexistent"])


@pytest.mark.parametrize("value", ['["ssh", "{node}"]', "[1]", '["{node}", "{verb}", "{conf}"]', '"ssh {node}"'])
def test_a_setting_that_is_no_command_is_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(f"slurm.node_command = {value}\n")
    with pytest.raises(Invalid, match="node_command"):
        load_settings(Home(tmp_path))


def test_a_setting_that_is_a_command_is_taken(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('slurm.node_command = ["ssh", "{node}", "sn", "{verb}", "{conf}"]\n')
    assert load_settings(Home(tmp_path)).slurm.node_command[0] == "ssh"
