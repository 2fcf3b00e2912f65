"""Control groups, for real: whatever versions and controllers this kernel has."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from heliostat.engines.local import cgroup_files
from heliostat.engines.local.cgroup_v1 import CgroupV1
from heliostat.engines.local.cgroup_v2 import CgroupV2
from heliostat.engines.local.cgroups import Cgroup, CgroupLimits, CgroupsUnavailable, CgroupTree, find_cgroups

MOUNT = Path("/sys/fs/cgroup")
NOBODY = 65534
INSTANCE = f"test-{os.getpid()}"

FORKS_AND_LEAVES = "import os\nwhile True:\n    if os.fork(): os._exit(0)"
FORKS_ON_AND_ON = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0: time.sleep(600)
    except OSError: pass
"""
IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def root_of(version: str) -> Path:
    is_pure_v2 = (MOUNT / "cgroup.controllers").exists()
    if version == "v1":
        if is_pure_v2 or not (MOUNT / "memory").exists():
            pytest.skip("this machine has no cgroup v1")
        return MOUNT
    root = MOUNT if is_pure_v2 else MOUNT / "unified"
    if not (root / "cgroup.controllers").exists():
        pytest.skip("this machine has no cgroup v2 mounted")
    return root


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(version: str) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can make groups at the top of the hierarchy")
    return root_of(version)


@pytest.fixture
def tree(root: Path) -> Iterator[CgroupTree]:
    found = find_cgroups(INSTANCE, root)
    if isinstance(found, CgroupsUnavailable):
        pytest.skip(found.reason)
    yield found
    for name in found.names():
        group = found.find(name)
        assert group is not None
        assert group.kill(10)
        assert remove(group)
    assert found.remove()


@pytest.fixture
def run() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts Python code inside a group, the way the wrapper does."""
    started = []

    def start(group: Cgroup, code: str) -> "subprocess.Popen[str]":
        enter = 'for file in $1; do echo 0 >"$file" || exit 125; done; shift; exec "$@"'
        argv = ["sh", "-c", enter, "sh", " ".join(group.enter_files), sys.executable, "-c", code]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def needs(tree: CgroupTree, controller: str) -> None:
    if controller not in tree.controllers:
        pytest.skip(f"{tree.description}: the kernel will not enforce {controller} here")


def until(condition: Callable[[], bool]) -> None:
    assert cgroup_files.wait_until(condition, 120)


def remove(group: Cgroup) -> bool:
    return cgroup_files.wait_until(group.remove, 10)  # the kernel lets go of the dead a moment after their end


def folders(group: Cgroup) -> list[Path]:
    return [Path(file).parent for file in group.enter_files]


def setting(group: Cgroup, file: str) -> str:
    return next((folder / file).read_text().strip() for folder in folders(group) if (folder / file).exists())


# Limits, enforced by the kernel


def test_a_job_over_its_memory_is_killed_and_counted(tree: CgroupTree, run: Callable) -> None:
    needs(tree, "memory")
    group = tree.create("12.1", CgroupLimits(memory_mib=48))
    assert group.oom_kills() == 0
    assert run(group, "bytearray(400 << 20)").wait(120) == -signal.SIGKILL
    assert group.oom_kills() == 1
    peak_mib = group.memory_peak_mib()
    assert peak_mib is None or 40 <= peak_mib <= 48


def test_an_oom_kill_in_a_group_the_job_has_made_itself_is_counted(tree: CgroupTree, run: Callable) -> None:
    needs(tree, "memory")
    group = tree.create("12.1", CgroupLimits(memory_mib=48))
    for folder in folders(group):
        (folder / "inner").mkdir()
    inner = SimpleNamespace(enter_files=[file.replace("/12.1/", "/12.1/inner/") for file in group.enter_files])
    assert run(inner, "bytearray(400 << 20)").wait(120) == -signal.SIGKILL
    assert group.oom_kills() == 1


def test_a_fork_bomb_stops_at_the_limit_of_processes(tree: CgroupTree, run: Callable) -> None:
    needs(tree, "pids")
    group = tree.create("12.1", CgroupLimits(pids=8))
    code = """
import os, time
for count in range(100):
    try: pid = os.fork()
    except BlockingIOError: break
    if pid == 0: time.sleep(600)
print(count, flush=True)
time.sleep(600)
"""
    process = run(group, code)
    assert process.stdout.readline() == "7\n"
    assert len(group.pids()) == 8
    assert group.kill()


def test_limits_reach_the_kernel_and_can_be_set_anew(tree: CgroupTree) -> None:
    needs(tree, "memory")
    needs(tree, "cpu")
    is_v1 = "v1" in tree.description
    memory, cpu = ("memory.limit_in_bytes", "cpu.cfs_quota_us") if is_v1 else ("memory.max", "cpu.max")
    for memory_mib in (64, 128, 32):
        group = tree.create("12.1", CgroupLimits(memory_mib=memory_mib, cpus=2))
        assert setting(group, memory) == str(memory_mib << 20)
        assert setting(group, cpu) == ("200000" if is_v1 else "200000 100000")
    tree.create("12.1", CgroupLimits())
    assert int(setting(group, memory).replace("max", str(1 << 62))) > 1 << 60
    assert setting(group, cpu) in ("-1", "max 100000")


def test_v1_counts_swap_as_memory_where_the_kernel_can() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make groups at the top of the hierarchy")
    tree = find_cgroups(INSTANCE, root_of("v1"))
    assert not isinstance(tree, CgroupsUnavailable)
    group = tree.create("12.1", CgroupLimits(memory_mib=64))
    try:
        if not any((folder / "memory.memsw.limit_in_bytes").exists() for folder in folders(group)):
            pytest.skip("this kernel does not account for swap")
        assert setting(group, "memory.memsw.limit_in_bytes") == str(64 << 20)
    finally:
        assert group.remove()
        assert tree.remove()


# Ending


def test_kill_ends_a_process_that_forks_and_leaves_in_a_tight_loop(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits(pids=64))
    process = run(group, FORKS_AND_LEAVES)
    assert process.wait(120) == 0  # the first one is gone, its descendants go on
    assert group.kill()
    assert group.pids() == []


def test_kill_ends_a_fork_bomb(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits(pids=64))
    run(group, FORKS_ON_AND_ON)
    until(lambda: len(group.pids()) > 30)
    assert group.kill()
    assert group.pids() == []


@pytest.mark.parametrize("available", [frozenset({"cgroup.freeze"}), frozenset()], ids=["freeze", "signals"])
@pytest.mark.parametrize("version", ["v2"])
def test_kill_works_on_kernels_without_cgroup_kill(
    tree: CgroupTree, run: Callable, available: frozenset[str]
) -> None:
    group = tree.create("12.1", CgroupLimits())
    run(group, FORKS_ON_AND_ON)
    until(lambda: len(group.pids()) > 30)
    assert CgroupV2(str(folders(group)[0]), available).kill(20)
    assert group.pids() == []


@pytest.mark.parametrize("version", ["v1"])
def test_kill_works_without_a_freezer(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits(pids=64))
    run(group, FORKS_ON_AND_ON)
    until(lambda: len(group.pids()) > 30)
    assert CgroupV1({"other": str(folders(group)[1])}).kill(20)
    assert group.pids() == []


@pytest.mark.parametrize("version", ["v1"])
def test_kill_ends_what_an_earlier_kill_left_unable_to_fork(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits(pids=100))
    process = run(group, IGNORES_TERM)
    assert process.stdout.readline() == "ready\n"
    limit = next(folder / "pids.max" for folder in folders(group) if (folder / "pids.max").exists())
    limit.write_text("0")
    assert group.kill()
    assert process.wait(120) == -signal.SIGKILL


def test_a_process_that_ignores_term_is_signalled_and_then_killed(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits())
    process = run(group, IGNORES_TERM)
    assert process.stdout.readline() == "ready\n"
    group.signal(signal.SIGTERM)
    assert group.pids() == [process.pid]
    assert group.kill()
    assert process.wait(120) == -signal.SIGKILL


def test_a_signal_reaches_every_process_also_in_inner_groups(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits())
    for folder in folders(group):
        (folder / "inner").mkdir()
    inner = SimpleNamespace(enter_files=[file.replace("/12.1/", "/12.1/inner/") for file in group.enter_files])
    started = [
        run(place, "print('ready', flush=True); import time; time.sleep(600)") for place in (group, inner, group)
    ]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 3
    group.signal(signal.SIGTERM)
    assert [process.wait(120) for process in started] == [-signal.SIGTERM] * 3


def test_an_older_process_is_signalled_first_so_that_no_shell_starts_its_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signalled: list[str] = []

    def note(descriptor: int, _: int) -> None:
        fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        signalled.append(next(line.removeprefix("Pid:").strip() for line in fields if line.startswith("Pid:")))

    monkeypatch.setattr(signal, "pidfd_send_signal", note)
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(9)]
    try:
        for parent, child in itertools.combinations([process.pid for process in started], 2):
            signalled.clear()
            cgroup_files.signal_all(lambda pids=(child, parent): list(pids), signal.SIGTERM)
            assert signalled == [str(parent), str(child)]
    finally:
        for process in started:
            process.kill()
            process.wait(120)


def test_kill_spares_the_process_that_asks_for_it(tree: CgroupTree, root: Path) -> None:
    tree.create("12.1", CgroupLimits())
    code = f"""
import subprocess
from pathlib import Path
from heliostat.engines.local.cgroups import find_cgroups
group = find_cgroups({INSTANCE!r}, Path({str(root)!r})).find("12.1")
for file in group.enter_files: Path(file).write_text("0")
child = subprocess.Popen(["sleep", "600"])
print(group.kill(0), child.wait(120))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False -9\n", done.stderr


# Removing and finding again


def test_a_group_with_a_process_stays_and_an_empty_one_goes(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits(memory_mib=64, cpus=1, pids=10))
    process = run(group, IGNORES_TERM)
    process.stdout.readline()
    assert group.remove() is False
    assert group.kill()
    process.wait(120)
    assert remove(group)
    assert tree.names() == []


def test_groups_that_the_job_has_made_are_removed_too(tree: CgroupTree) -> None:
    group = tree.create("12.1", CgroupLimits())
    for folder in folders(group):
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "c").mkdir()
    assert group.remove()
    assert not any(folder.exists() for folder in folders(group))


def test_a_group_that_is_gone_is_empty_and_nothing_fails(tree: CgroupTree) -> None:
    group = tree.create("12.1", CgroupLimits())
    assert group.remove()
    assert group.remove()
    assert group.kill()
    group.signal(signal.SIGTERM)
    assert (group.pids(), group.oom_kills(), group.memory_peak_mib()) == ([], 0, None)
    assert tree.find("12.1") is None


def test_nobody_enters_a_removed_group(tree: CgroupTree, run: Callable) -> None:
    group = tree.create("12.1", CgroupLimits())
    group.remove()
    assert run(group, "print('inside')").wait(120) != 0


def test_groups_are_found_after_a_restart(tree: CgroupTree, root: Path) -> None:
    made = tree.create("12.1", CgroupLimits())
    tree.create("7.2", CgroupLimits())
    again = find_cgroups(INSTANCE, root)
    assert not isinstance(again, CgroupsUnavailable)
    assert sorted(again.names()) == ["12.1", "7.2"]
    found = again.find("12.1")
    assert found is not None
    assert found.enter_files == made.enter_files


def test_two_installations_do_not_see_each_other(tree: CgroupTree, root: Path) -> None:
    other = find_cgroups(f"{INSTANCE}-b", root)
    assert not isinstance(other, CgroupsUnavailable)
    try:
        tree.create("12.1", CgroupLimits())
        assert other.names() == []
        assert other.find("12.1") is None
    finally:
        assert other.remove()


def test_a_tree_with_groups_is_not_removed(tree: CgroupTree) -> None:
    tree.create("12.1", CgroupLimits())
    assert tree.remove() is False


@pytest.mark.parametrize("version", ["v1"])
def test_a_group_removed_only_in_part_is_found_and_made_whole(tree: CgroupTree) -> None:
    group = tree.create("12.1", CgroupLimits())
    folders(group)[0].rmdir()
    assert tree.names() == ["12.1"]
    assert tree.find("12.1") is not None
    tree.create("12.1", CgroupLimits(pids=5))
    assert all(folder.exists() for folder in folders(group))


@pytest.mark.parametrize("name", ["", ".", "..", "1..2", "1.", ".1", "a", "1/2", "../1", "1\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(tree: CgroupTree, name: str) -> None:
    with pytest.raises(ValueError, match="digits and dots"):
        tree.create(name, CgroupLimits())
    with pytest.raises(ValueError, match="digits and dots"):
        tree.find(name)


@pytest.mark.parametrize("instance", ["", "..", "a/b", "a b", "x" * 65])
def test_an_instance_that_could_lead_elsewhere_is_refused(instance: str) -> None:
    with pytest.raises(ValueError, match="an instance name consists of"):
        find_cgroups(instance)


# Who may have groups


def as_nobody(code: str) -> str:
    """What the code prints after `drop()` made it an ordinary user; imports happen before, as root."""
    start = f"""
import os
from pathlib import Path
from heliostat.engines.local.cgroups import find_cgroups, CgroupLimits
def drop():
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_ordinary_user_is_told_what_to_do(root: Path) -> None:
    said = as_nobody(f"drop(); print(find_cgroups({INSTANCE!r}, Path({str(root)!r})).reason)")
    assert "Permission denied. Run Heliostat as root, or" in said


@pytest.mark.parametrize("version", ["v2"])
def test_an_ordinary_user_gets_groups_in_what_was_delegated(root: Path) -> None:
    delegated = root / f"helio-user-{os.getpid()}"
    inside = delegated / "init.scope"
    inside.mkdir(parents=True)
    for path in (delegated, inside):
        for name in ("", "cgroup.procs", "cgroup.subtree_control"):
            os.chown(path / name, NOBODY, NOBODY)
    try:
        said = as_nobody(f"""
Path("{inside}/cgroup.procs").write_text("0")
drop()
tree = find_cgroups("x", Path({str(root)!r}))
group = tree.create("12.1", CgroupLimits(pids=5))
print(tree.description.partition(",")[0], end=" ")
if os.fork() == 0:
    for file in group.enter_files: Path(file).write_text("0")
    __import__("time").sleep(600)
while not group.pids(): pass
print(group.kill(), end=" ")
os.wait()
while not group.remove(): pass
print(tree.remove())
""")
        assert said == f"cgroup v2 at {delegated}/heliostat-x True True"
    finally:
        assert cgroup_files.wait_until(lambda: cgroup_files.remove_folder(str(delegated)), 120)


def test_a_machine_without_the_file_system_is_told_so(tmp_path: Path) -> None:
    found = find_cgroups("ab12", tmp_path / "none")
    assert isinstance(found, CgroupsUnavailable)
    assert f"{tmp_path}/none cannot be used: No such file or directory." in found.reason
    found = find_cgroups("ab12", tmp_path)
    assert isinstance(found, CgroupsUnavailable)
    assert "no cgroup hierarchy is mounted there" in found.reason
