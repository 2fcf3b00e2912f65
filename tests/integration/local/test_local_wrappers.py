"""One wrapper runs attempts one after the other, and nothing of one reaches the next."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.engines.local.cgroups import CgroupTree, Limits, NoCgroups, find_cgroups
from heliostat.engines.local.processes import boot_id, start_time
from heliostat.engines.local.trace import Claim, Traces
from support.waiting import wait_until
from support.wrapper import ToldWrapper


@pytest.fixture
def wrapper(tmp_path: Path) -> Iterator[ToldWrapper]:
    told = ToldWrapper(tmp_path)
    yield told
    told.end()


def sleepers(wrapper: ToldWrapper) -> list[str]:
    command = ["ps", "-o", "args=", "-s", str(wrapper.pid)]
    listed = subprocess.run(command, check=False, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if line.startswith("sleep")]


def test_each_has_its_own_trace_and_output_and_is_told_in_turn(wrapper: ToldWrapper) -> None:
    for number in range(1, 6):
        wrapper.tell(f"{number}.1", f"echo this is {number}; exit {number}")
    assert [wrapper.hear() for _ in range(5)] == [f"{number}.1" for number in range(1, 6)]
    assert [wrapper.status(f"{number}.1") for number in range(1, 6)] == ["001", "002", "003", "004", "005"]
    assert [wrapper.output(f"{number}.1") for number in (1, 5)] == ["this is 1\n", "this is 5\n"]


def test_nothing_of_one_reaches_the_next(wrapper: ToldWrapper) -> None:
    look = 'exec 8<&-; echo "$SECRET $(pwd) $(umask)"; echo /proc/self/fd/*; exec grep SigIgn /proc/self/status'
    spoil = "export SECRET=1; cd /; umask 000; trap '' TERM; exec 6</dev/null; name=9.9 traces=/nowhere"
    wrapper.tell("1.1", look)
    wrapper.tell("2.1", f"{spoil}; sh -c 'exit 0'")
    wrapper.tell("3.1", look)
    assert [wrapper.hear() for _ in range(3)] == ["1.1", "2.1", "3.1"]
    assert wrapper.output("3.1") == wrapper.output("1.1") != ""
    assert "/fd/5" not in wrapper.output("3.1")


def test_a_script_that_comes_again_is_known_and_another_in_its_descriptor_is_not_taken_for_it(
    wrapper: ToldWrapper,
) -> None:
    shared = wrapper.make('echo "job $1 attempt $2"')
    for name in ("1.1", "2.7"):
        wrapper.tell_with(name, shared)
        assert wrapper.hear() == name
    wrapper.unmake(shared)
    other = wrapper.make("echo another")
    assert other.descriptor == shared.descriptor
    wrapper.tell_with("3.1", other)
    assert wrapper.hear() == "3.1"
    expected = {"1.1": "job 1 attempt 1\n", "2.7": "job 2 attempt 7\n", "3.1": "another\n"}
    assert {name: wrapper.output(name) for name in expected} == expected


def test_nothing_is_run_of_the_script_of_one_that_was_disowned(wrapper: ToldWrapper, tmp_path: Path) -> None:
    """Its descriptor may be another file's by then."""
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.write(log, f"touch {tmp_path}/ran\nexit 9\n".encode())
    wrapper.trace("1.1").write_text("disowned\n")
    script = wrapper.make("exit 0")
    os.dup2(log, script.descriptor)
    wrapper.tell_with("1.1", script)
    wrapper.tell("2.1", "exit 7")
    assert [wrapper.hear(), wrapper.hear()] == ["1.1", "2.1"]
    assert wrapper.status("2.1") == "007"
    assert not (tmp_path / "ran").exists()
    os.close(log)


def test_one_that_was_disowned_is_passed_over(wrapper: ToldWrapper, tmp_path: Path) -> None:
    wrapper.trace("1.1").write_text("disowned\n")
    wrapper.tell("1.1", f"touch {tmp_path}/ran")
    wrapper.tell("2.1", "exit 7")
    assert [wrapper.hear(), wrapper.hear()] == ["1.1", "2.1"]
    assert wrapper.trace("1.1").read_text() == "disowned\n"
    assert not (tmp_path / "ran").exists()
    assert wrapper.status("2.1") == "007"


def test_one_whose_script_cannot_be_opened_is_not_claimed(wrapper: ToldWrapper) -> None:
    wrapper.tell("1.1", None)
    wrapper.tell("2.1", "exit 7")
    assert [wrapper.hear(), wrapper.hear()] == ["1.1", "2.1"]
    assert not wrapper.trace("1.1").exists()


def test_it_leaves_when_the_server_hangs_up(wrapper: ToldWrapper) -> None:
    wrapper.tell("1.1", "exit 0")
    wrapper.hear()
    wrapper.hang_up()
    wrapper.wait()


def test_without_a_server_what_runs_is_the_last_one(wrapper: ToldWrapper) -> None:
    wrapper.tell("1.1", "sleep 0.5; exit 3")
    wrapper.tell("2.1", "exit 4")
    wait_until(wrapper.trace("1.1").exists, "the first one runs")
    wrapper.hang_up()
    wrapper.wait()
    assert wrapper.status("1.1") == "003"
    assert not wrapper.trace("2.1").exists()


@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_to_its_own_process_group_ends_the_attempt_alone(wrapper: ToldWrapper, signal: str) -> None:
    wrapper.tell("1.1", f"kill -s {signal} 0; exec sleep 5", limit=60)
    assert wrapper.hear() == "1.1"
    wrapper.tell("2.1", "exit 4")
    assert wrapper.hear() == "2.1"
    assert (int(wrapper.status("1.1")) > 128, wrapper.status("2.1")) == (True, "004")


def test_a_limit_ends_one_and_not_the_next_and_leaves_nothing_that_waits(wrapper: ToldWrapper) -> None:
    wrapper.tell("1.1", "exec sleep 600", limit=1)
    wrapper.tell("2.1", "sleep 1; exit 4", limit=300)
    wrapper.tell("3.1", "exit 5", limit=300)
    assert [wrapper.hear() for _ in range(3)] == ["1.1", "2.1", "3.1"]
    assert [wrapper.status(f"{number}.1") for number in (1, 2, 3)] == ["143", "004", "005"]
    assert [wrapper.trace(f"{number}.1", "timed_out").exists() for number in (1, 2, 3)] == [True, False, False]
    wait_until(lambda: not sleepers(wrapper), "no watch of a limit is left", 5)


def test_a_watch_that_was_signalled_still_holds_the_limit(wrapper: ToldWrapper) -> None:
    began = time.monotonic()
    noisy = "trap : TERM; for _ in 1 2 3 4 5 6; do kill 0; sleep 0.1; done; exec sleep 600"
    wrapper.tell("1.1", noisy, limit=2)
    assert wrapper.hear() == "1.1"
    assert wrapper.trace("1.1", "timed_out").exists()
    assert 1 <= time.monotonic() - began < 8


def test_quick_ones_leave_no_watch_of_their_limit(wrapper: ToldWrapper) -> None:
    for number in range(1, 151):
        wrapper.tell(f"{number}.1", "exit 0", limit=7777)
        assert wrapper.hear() == f"{number}.1"
    wait_until(lambda: not sleepers(wrapper), "no watch of a limit is left", 5)


def test_the_claim_says_when_its_wrapper_was_born(wrapper: ToldWrapper) -> None:
    wrapper.tell("1.1", "exit 0")
    wrapper.hear()
    traces = Traces(wrapper.home.attempts)
    assert traces.claim("1.1") == Claim(wrapper.pid, start_time(wrapper.pid), "1.1")
    text = wrapper.trace("1.1").read_text()
    wrapper.trace("1.1").write_text(text.replace(boot_id(), "another-boot"))
    assert traces.claim("1.1") is None


def test_the_claim_of_an_older_version_is_that_of_the_process_that_names_its_trace(tmp_path: Path) -> None:
    traces = Traces(tmp_path)
    old = subprocess.Popen(["sh", "-c", "sleep 60; :", traces.path("1.1")])
    try:
        wait_until(Path(f"/proc/{old.pid}/cmdline").read_bytes, "it has become that program")
        for number, born in (("1.1", start_time(old.pid)), ("2.1", 0)):
            (tmp_path / f"{number}.started").write_text(f"{old.pid} 1.00 {boot_id()} ---\n")
            assert traces.claim(number) == Claim(old.pid, born, number)
    finally:
        old.kill()
        old.wait()


def test_an_empty_claim_is_nobodys_only_after_a_while(tmp_path: Path) -> None:
    traces = Traces(tmp_path)
    (tmp_path / "1.1.started").touch()
    assert not traces.disown("1.1", at_once=True)
    assert traces.disown("2.1", at_once=True)
    assert traces.disown("2.1", at_once=True)


@pytest.fixture(params=["/sys/fs/cgroup", "/sys/fs/cgroup/unified"])
def groups(request: pytest.FixtureRequest) -> Iterator[CgroupTree]:
    found = find_cgroups(f"told-{os.getpid()}", Path(request.param)) if Path(request.param).exists() else None
    if found is None or isinstance(found, NoCgroups) or not found.quiet_files:
        pytest.skip(f"no cgroups to be used in {request.param}")
    yield found
    for name in found.names():
        group = found.find(name)
        assert group is None or (group.kill() and group.remove())
    found.remove()


@pytest.fixture
def grouped(tmp_path: Path, groups: CgroupTree) -> Iterator[ToldWrapper]:
    groups.create("1.1", Limits())
    told = ToldWrapper(tmp_path, groups=groups)
    yield told
    told.end()


def last_word(wrapper: ToldWrapper, name: str) -> str:
    return wrapper.trace(name).read_text().split()[-1]


def test_those_who_leave_a_group_quiet_use_it_one_after_the_other(grouped: ToldWrapper) -> None:
    for number in (1, 2, 3):
        grouped.tell(f"{number}.1", f"exit {number}", group="1.1", limit=60)
    assert [grouped.hear() for _ in range(3)] == ["1.1", "2.1", "3.1"]
    assert [last_word(grouped, f"{number}.1") for number in (1, 2, 3)] == ["001+", "002+", "003+"]
    assert grouped.trace("3.1").read_text().split()[3] == "1.1"


def test_whoever_leaves_a_process_was_the_last_one(grouped: ToldWrapper) -> None:
    grouped.tell("1.1", "sleep 60 & exit 4", group="1.1")
    with contextlib.suppress(BrokenPipeError):  # it may have left already
        grouped.tell("2.1", "exit 5", group="1.1")
    grouped.wait()
    assert last_word(grouped, "1.1") == "004-"
    assert not grouped.trace("2.1").exists()


def test_whoever_leaves_a_group_of_its_own_making_was_the_last_one_where_that_matters(
    grouped: ToldWrapper, groups: CgroupTree
) -> None:
    """With cgroup v2 nobody may enter a group whose own groups have controllers."""
    inside = " ".join(f"{folder}/1.1/inside" for folder in groups.folders)
    grouped.tell("1.1", f"mkdir {inside}", group="1.1")
    with contextlib.suppress(BrokenPipeError):
        grouped.tell("2.1", "exit 5", group="1.1")
    if len(groups.folders) == 1:
        grouped.wait()
        assert last_word(grouped, "1.1") == "000-"
    else:
        assert [grouped.hear(), grouped.hear()] == ["1.1", "2.1"]


def test_a_group_that_is_gone_is_not_quiet(grouped: ToldWrapper, groups: CgroupTree) -> None:
    grouped.tell("1.1", "exit 5", group="7.7")
    grouped.wait()
    assert last_word(grouped, "1.1") == "125-"


def test_a_watch_of_the_limit_that_was_stopped_holds_nobody_up(wrapper: ToldWrapper) -> None:
    others = "me=$(exec sh -c 'echo $PPID'); for pid in $(pgrep -P $$); do [ $pid = $me ] || kill -STOP $pid; done"
    wrapper.tell("1.1", f"{others}; exit 3", limit=600)
    assert wrapper.hear() == "1.1"
    assert wrapper.status("1.1") == "003"
