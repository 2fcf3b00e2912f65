"""The wrapper of an attempt: what it claims, what it leaves on disk, and that its limit holds."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from signal import Signals

import pytest

from heliostat.engines.local.claim_files import ClaimFiles, WrapperClaim
from heliostat.engines.local.processes import boot_id, process_start_time
from support.attempt_wrapper import WrapperUnderTest
from support.waiting import wait_until

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")


@pytest.fixture
def wrapper(tmp_path: Path) -> Iterator[WrapperUnderTest]:
    under_test = WrapperUnderTest(tmp_path)
    yield under_test
    under_test.kill_all()


def session_of(pid: int) -> list[str]:
    command = ["ps", "-o", "args=", "-s", str(pid)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()


def test_it_leaves_the_exit_status_and_passes_the_output_on(wrapper: WrapperUnderTest) -> None:
    assert wrapper.run("1.1", "echo out; echo err >&2; exit 3") == "003"
    assert wrapper.output("1.1") == "out\nerr\n"


def test_the_payload_finds_no_signal_ignored(wrapper: WrapperUnderTest) -> None:
    wrapper.run("1.1", "exec grep SigIgn /proc/self/status", limit=60)
    ignored = int(wrapper.output("1.1").split()[1], 16)
    assert [name for name in SIGNALS if ignored >> (Signals[f"SIG{name}"] - 1) & 1] == []


def test_an_attempt_that_was_disowned_never_runs(wrapper: WrapperUnderTest, tmp_path: Path) -> None:
    wrapper.status_file("1.1").write_text("disowned\n")
    wrapper.run("1.1", f"touch {tmp_path}/ran")
    assert wrapper.status_file("1.1").read_text() == "disowned\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_to_its_own_process_group_ends_the_payload_alone(wrapper: WrapperUnderTest, signal: str) -> None:
    assert int(wrapper.run("1.1", f"kill -s {signal} 0; exec sleep 600", limit=300)) > 128
    assert not wrapper.status_file("1.1", "timed_out").exists()


def test_the_limit_ends_the_payload_and_leaves_no_process(wrapper: WrapperUnderTest) -> None:
    pid = wrapper.start("1.1", "exec sleep 600", limit=1)
    assert wrapper.wait("1.1") == "143"
    assert wrapper.status_file("1.1", "timed_out").exists()
    wait_until(lambda: not session_of(pid), "nothing of its session is left")


def test_an_attempt_that_ends_before_its_limit_leaves_no_process(wrapper: WrapperUnderTest) -> None:
    pids = [wrapper.start(f"{number}.1", "exit 4", limit=7777) for number in range(1, 30)]
    assert {wrapper.wait(f"{number}.1") for number in range(1, 30)} == {"004"}
    wait_until(lambda: not any(session_of(pid) for pid in pids), "nothing of their sessions is left")


def test_the_limit_holds_though_the_payload_signals_its_process_group(wrapper: WrapperUnderTest) -> None:
    noisy = "trap : TERM; for _ in 1 2 3 4 5 6; do kill 0; sleep 0.1; done; exec sleep 600"
    assert wrapper.run("1.1", noisy, limit=2) == "143"
    assert wrapper.status_file("1.1", "timed_out").exists()


def test_the_claim_says_when_the_wrapper_was_born(wrapper: WrapperUnderTest, tmp_path: Path) -> None:
    pid = wrapper.start("1.1", f"while ! [ -e {tmp_path}/go ]; do sleep 0.01; done")
    claim = wrapper.status_file("1.1")
    wait_until(lambda: claim.exists() and claim.read_text(), "it has claimed its attempt")
    traces = ClaimFiles(tmp_path)
    assert traces.read_claim("1.1") == WrapperClaim(pid, process_start_time(pid), "1.1")
    text = wrapper.status_file("1.1").read_text()
    wrapper.status_file("1.1").write_text(text.replace(boot_id(), "another-boot"))
    assert traces.read_claim("1.1") is None
    (tmp_path / "go").touch()


def test_the_trace_of_a_wrapper_of_an_earlier_version_names_its_cgroup(tmp_path: Path) -> None:
    traces = ClaimFiles(tmp_path)
    (tmp_path / "2.1.started").write_text(f"77 1.00 {boot_id()}:5 1.1 ----\n")
    assert traces.read_claim("2.1") == WrapperClaim(77, 5, "1.1")
    assert traces.read_exit("2.1").exit_code is None
    (tmp_path / "2.1.started").write_text(f"77 1.00 {boot_id()}:5 1.1 003+\n")
    assert traces.read_exit("2.1").exit_code == 3


def test_a_job_has_the_limit_of_open_files_that_the_server_was_started_with(tmp_path: Path) -> None:
    wrapper = WrapperUnderTest(tmp_path, {"HELIOSTAT_OPEN_FILES": "123"})
    wrapper.run("1.1", 'ulimit -S -n; echo "${HELIOSTAT_OPEN_FILES-}"')
    assert wrapper.output("1.1") == "123\n\n"
