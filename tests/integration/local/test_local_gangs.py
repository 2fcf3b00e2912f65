"""Jobs of several tasks, parts of GPUs, checkpoints and overtime on this machine, with real processes."""

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heliostat.engines.local import engine as engine_module
from heliostat.engines.local.cgroups import CgroupsUnavailable, find_cgroups
from heliostat.engines.local.engine import read_checkpoint_times
from heliostat.engines.local.launch import find_rendezvous_port
from heliostat.models import Attempt, EndCause
from integration.engines.contract import Bench, as_running, local
from integration.running_server import wait_for
from integration.unix_users import Person, needs_root

WAITS_FOR_ALL = 'while [ "$(ls "$READY" | wc -l)" -lt "$HELIOSTAT_TASKS" ]; do sleep 0.01; done'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(local(tmp_path), tmp_path)
    yield bench
    bench.tear_down()


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    """Where each task leaves a file once it runs."""
    folder = tmp_path / "signs"
    folder.mkdir()
    return folder


def a_gang(bench: Bench, signs: Path, tasks: int, script: str, grace_seconds: float = 10.0) -> Attempt:
    gang = bench.gang(tasks, f': > "$READY/$RANK"; {script}', READY=str(signs))
    spec = replace(gang.job.spec, grace_seconds=grace_seconds)
    return replace(gang, job=replace(gang.job, spec=spec))


def log(bench: Bench, attempt: Attempt, stream: str = "stdout") -> str:
    return (bench.folder / "home" / "jobs" / str(attempt.job.id) / f"1.{stream}").read_text()


def wait_for_all(signs: Path, tasks: int) -> None:
    wait_for(lambda: len(list(signs.iterdir())) >= tasks, "all tasks to run")


def test_each_task_knows_its_number_its_device_and_where_all_meet(bench: Bench, signs: Path) -> None:
    says = 'echo "$HELIOSTAT_TASK/$HELIOSTAT_TASKS $RANK/$WORLD_SIZE $LOCAL_RANK $CUDA_VISIBLE_DEVICES"'
    gang = a_gang(bench, signs, 3, f"{says}; echo $MASTER_ADDR:$MASTER_PORT >&2")
    bench.start(gang)
    assert bench.wait_for_end(gang).exit_code == 0
    devices = [place.devices[0] for place in gang.places]
    expected = [f"{rank}/3 {rank}/3 {rank} {devices[rank]}" for rank in range(3)]
    assert sorted(log(bench, gang).splitlines()) == expected
    meeting = log(bench, gang, "stderr").splitlines()
    assert len(set(meeting)) == 1
    assert meeting[0].startswith("127.0.0.1:2")


def test_two_gangs_meet_at_ports_of_their_own() -> None:
    """But for those whose port somebody has at this moment, such as a gang of another test: they take the next."""
    assert len({find_rendezvous_port(number) for number in range(1, 51)}) > 25


def test_when_a_task_fails_the_others_may_save_their_work_within_the_grace(bench: Bench, signs: Path) -> None:
    saves = "trap 'echo saved $RANK; exit 0' TERM; while :; do sleep 0.01; done"
    gang = a_gang(bench, signs, 3, f'if [ "$RANK" = 1 ]; then {WAITS_FOR_ALL}; sleep 0.2; exit 6; fi; {saves}')
    bench.start(gang)
    ended = bench.wait_for_end(gang)
    assert (ended.cause, ended.exit_code) == (EndCause.EXITED, 6)
    assert sorted(log(bench, gang).splitlines()) == ["saved 0", "saved 2"]


def test_when_a_task_fails_those_that_ignore_term_are_killed_after_the_grace(bench: Bench, signs: Path) -> None:
    ignores = "trap '' TERM; while :; do sleep 0.01; done"
    script = f'if [ "$RANK" = 0 ]; then {WAITS_FOR_ALL}; exit 6; fi; {ignores}'
    gang = a_gang(bench, signs, 2, script, grace_seconds=0.3)
    bench.start(gang)
    ended = bench.wait_for_end(gang)
    assert (ended.cause, ended.exit_code) == (EndCause.EXITED, 6)


@pytest.mark.parametrize("name", ["TERM", "INT", "USR1"])
def test_every_task_gets_the_signal_once_and_has_the_grace(bench: Bench, signs: Path, name: str) -> None:
    counts = f"trap 'echo got $RANK; sleep 0.3; echo done $RANK; exit 0' {name}; : > \"$READY/ready$RANK\""
    gang = a_gang(bench, signs, 2, f"{counts}; while :; do sleep 0.01; done")
    bench.start(gang)
    wait_for_all(signs, 4)
    bench.engine.stop(gang, grace_seconds=10, signal=name)
    assert bench.wait_for_end(gang).cause is EndCause.STOPPED
    assert sorted(log(bench, gang).splitlines()) == ["done 0", "done 1", "got 0", "got 1"]


@pytest.mark.parametrize("signal_name", ["TERM", "USR1"])
def test_without_cgroups_too_every_task_gets_the_signal(
    tmp_path: Path, signs: Path, monkeypatch: pytest.MonkeyPatch, signal_name: str
) -> None:
    monkeypatch.setattr(engine_module, "find_cgroups", lambda instance: CgroupsUnavailable("none here"))
    bench = Bench(local(tmp_path), tmp_path)
    says = f"trap 'echo saved; exit 0' {signal_name}; : > \"$READY/ready$RANK\"; while :; do sleep 0.01; done"
    gang = a_gang(bench, signs, 2, says)
    bench.start(gang)
    wait_for_all(signs, 4)
    bench.engine.stop(gang, grace_seconds=10, signal=signal_name)
    assert bench.wait_for_end(gang).cause is EndCause.STOPPED
    bench.tear_down()
    assert log(bench, gang).split() == ["saved", "saved"]


def test_the_shells_around_the_tasks_say_nothing(bench: Bench, signs: Path) -> None:
    gang = a_gang(bench, signs, 2, "exec sleep 600")
    bench.start(gang)
    wait_for_all(signs, 2)
    bench.engine.stop(gang, grace_seconds=5)
    bench.wait_for_end(gang)
    assert (log(bench, gang), log(bench, gang, "stderr")) == ("", "")


def test_a_gang_goes_on_over_a_restart_of_the_server(bench: Bench, signs: Path) -> None:
    gang = a_gang(bench, signs, 2, "exec sleep 600")
    bench.start(gang)
    bench.wait_for_start(gang)
    wait_for_all(signs, 2)
    gang = as_running(gang, bench.reports_of(gang)[0].at)
    bench.restart()
    bench.engine.observe([gang])
    bench.engine.stop(gang, grace_seconds=5)
    assert bench.wait_for_end(gang).cause is EndCause.STOPPED


@needs_root
def test_tasks_run_as_the_one_who_submitted_them(ann: Person) -> None:
    with tempfile.TemporaryDirectory(prefix="helio-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        bench = Bench(local(folder), folder)
        gang = bench.gang(2, 'id -u; [ "$RANK" = 0 ] || exit 4')
        gang = replace(gang, job=replace(gang.job, unix_user=ann.name))
        bench.start(gang)
        ended = bench.wait_for_end(gang)
        bench.tear_down()
        assert (ended.cause, ended.exit_code) == (EndCause.EXITED, 4)
        assert set(log(bench, gang).split()) == {str(ann.uid)}


def test_the_limits_are_those_of_all_tasks_together(bench: Bench, signs: Path) -> None:
    found = find_cgroups(f"look-{os.getpid()}")
    if isinstance(found, CgroupsUnavailable) or "memory" not in found.controllers:
        pytest.skip("this machine has no memory controller for cgroups")
    found.remove()
    takes = "import time; x = bytearray(90 * 2**20)"  # more than the 64 MiB of one task
    gang = a_gang(bench, signs, 3, f'[ "$RANK" != 0 ] || exec python3 -c "{takes}"')
    bench.start(gang)
    assert bench.wait_for_end(gang).exit_code == 0
    greedy = a_gang(bench, signs, 2, f'[ "$RANK" != 0 ] || exec python3 -c "{takes}; y = bytearray(90 * 2**20)"')
    bench.start(greedy)
    ended = bench.wait_for_end(greedy)
    assert ended.cause is EndCause.OUT_OF_MEMORY
    assert "128 MiB" in str(ended.detail)


def test_a_part_of_a_gpu_comes_with_its_share_of_the_memory(bench: Bench) -> None:
    attempt = bench.sharing(0.25)
    says = 'echo "$HELIOSTAT_GPU_FRACTION $HELIOSTAT_GPU_MEMORY_MIB $CUDA_VISIBLE_DEVICES"'
    spec = replace(attempt.job.spec, command=("sh", "-c", says), env={})
    attempt = replace(attempt, job=replace(attempt.job, spec=spec))
    bench.start(attempt)
    bench.wait_for_end(attempt)
    device = bench.engine.nodes()[0].devices[0]
    assert log(bench, attempt).split() == ["0.25", str(device.memory_mib // 4), device.uuid]


def test_checkpoints_are_the_users_alone_and_stay_for_the_next_attempt(bench: Bench) -> None:
    says = (
        'ls "$HELIOSTAT_CHECKPOINT_DIR"; : > "$HELIOSTAT_CHECKPOINT_DIR/model"; : > "$HELIOSTAT_CHECKPOINT_FILE"'
    )
    first = bench.gang(1, says)
    first = replace(first, places=())
    bench.start(first)
    bench.wait_for_end(first)
    second = replace(first, id=f"{first.job.id}.2", job=replace(first.job, attempt=2))
    bench.start(second)
    bench.wait_for_end(second)
    folder = bench.folder / "home" / "jobs" / str(first.job.id)
    assert (folder / "2.stdout").read_text().split() == ["model", "saved"]
    assert (folder / "checkpoints").stat().st_mode & 0o777 == 0o700


def saved(tmp_path: Path, bench: Bench) -> tuple[Attempt, Path]:
    """A running attempt of a job, and the file by which it says that its work is saved."""
    attempt = as_running(bench.finishing(), datetime.now(UTC) - timedelta(minutes=10))
    folder = tmp_path / str(attempt.job.id) / "checkpoints"
    folder.mkdir(parents=True)
    return attempt, folder / "saved"


@pytest.mark.parametrize(("minutes", "told"), [(-5, -5), (60, 0), (-20, None)], ids=["since", "to come", "before"])
def test_a_checkpoint_is_believed_between_the_start_and_now(
    bench: Bench, tmp_path: Path, minutes: int, told: int | None
) -> None:
    attempt, file = saved(tmp_path, bench)
    file.touch()
    now = datetime.now(UTC).replace(microsecond=0)
    at = (now + timedelta(minutes=minutes)).timestamp()
    os.utime(file, (at, at))
    expected = {} if told is None else {attempt.id: now + timedelta(minutes=told)}
    assert read_checkpoint_times(tmp_path, [attempt], now) == expected


def test_what_is_no_plain_file_tells_of_no_checkpoint(bench: Bench, tmp_path: Path) -> None:
    attempt, file = saved(tmp_path, bench)
    other = tmp_path / "other"
    other.touch()
    assert read_checkpoint_times(tmp_path, [attempt], datetime.now(UTC)) == {}
    file.symlink_to(other)
    assert read_checkpoint_times(tmp_path, [attempt], datetime.now(UTC)) == {}
    file.unlink()
    file.mkdir()
    assert read_checkpoint_times(tmp_path, [attempt], datetime.now(UTC)) == {}


def test_the_signals_that_may_be_asked_for_are_there() -> None:
    from heliostat.models.quantities import STOP_SIGNALS

    assert all(f"SIG{name}" in signal.Signals.__members__ for name in STOP_SIGNALS)
