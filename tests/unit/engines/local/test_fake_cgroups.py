"""Control groups of kernels that this machine does not have: folders stand in for their file system."""

import os
from pathlib import Path

import pytest

from heliostat.engines.local import cgroup_files, cgroup_v2
from heliostat.engines.local.cgroup_v1 import CgroupV1
from heliostat.engines.local.cgroups import CgroupLimits, CgroupsUnavailable, CgroupTree, find_cgroups
from heliostat.engines.local.process_usage import ProcessUsage

V2_FILES = {
    "cgroup": {"procs": "", "kill": "", "freeze": "0", "events": "populated 0\nfrozen 0\n"},
    "memory": {"max": "max", "swap.max": "max", "oom.group": "0", "events": "", "peak": "0", "stat": "anon 0\n"},
    "cpu": {"max": "max 100000", "stat": "usage_usec 0\n"},
    "pids": {"max": "max"},
}


class StandIn:
    """Folders in which mkdir brings the control files along and rmdir takes them away, as in the kernel."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.offered = ["cpuset", "cpu", "io", "memory", "pids"]
        self.absent: set[str] = set()  # files an older kernel does not have
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        monkeypatch.setattr(os, "mkdir", self.mkdir)
        monkeypatch.setattr(os, "rmdir", self.rmdir)
        monkeypatch.setattr(cgroup_v2, "own_cgroup", lambda: "/system.slice/heliostat.service")

    def boot(self) -> CgroupTree:
        (self.root / "cgroup.controllers").write_text(" ".join(self.offered))
        (self.root / "cgroup.subtree_control").write_text("")
        (self.root / "cgroup.procs").write_text("")
        tree = find_cgroups("ab12", self.root)
        assert not isinstance(tree, CgroupsUnavailable)
        return tree

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        (Path(path) / "cgroup.controllers").write_text(" ".join(self.offered))
        (Path(path) / "cgroup.subtree_control").write_text("")
        for controller in {"cgroup", *self.offered} & V2_FILES.keys():
            for name, text in V2_FILES[controller].items():
                if f"{controller}.{name}" not in self.absent:
                    (Path(path) / f"{controller}.{name}").write_text(text)

    def rmdir(self, path: str) -> None:
        for file in Path(path).glob("*.*"):
            if file.is_file():
                file.unlink()
        self._rmdir(path)

    def text(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(tmp_path, monkeypatch)


def test_v2_enables_its_controllers_on_every_level(stand_in: StandIn) -> None:
    tree = stand_in.boot()
    assert stand_in.text("cgroup.subtree_control") == "+cpu +memory +pids"
    assert stand_in.text("heliostat-ab12/cgroup.subtree_control") == "+cpu +memory +pids"
    assert tree.controllers == {"cpu", "memory", "pids"}
    assert tree.description == f"cgroup v2 at {stand_in.root}/heliostat-ab12"


def test_v2_writes_exactly_these_limits(stand_in: StandIn) -> None:
    group = stand_in.boot().create("12.1", CgroupLimits(memory_mib=2048, cpus=4, pids=512))
    folder = "heliostat-ab12/12.1"
    assert group.enter_files == (f"{stand_in.root}/{folder}/cgroup.procs",)
    assert stand_in.text(f"{folder}/memory.max") == "2147483648"
    assert stand_in.text(f"{folder}/memory.swap.max") == "0"
    assert stand_in.text(f"{folder}/memory.oom.group") == "1"
    assert stand_in.text(f"{folder}/cpu.max") == "400000 100000"
    assert stand_in.text(f"{folder}/pids.max") == "512"


def test_v2_without_limits_changes_nothing_but_the_oom_group(stand_in: StandIn) -> None:
    stand_in.boot().create("12.1", CgroupLimits())
    folder = "heliostat-ab12/12.1"
    assert stand_in.text(f"{folder}/memory.max") == "max"
    assert stand_in.text(f"{folder}/memory.swap.max") == "max"
    assert stand_in.text(f"{folder}/memory.oom.group") == "1"
    assert stand_in.text(f"{folder}/cpu.max") == "max 100000"


def test_v2_lifts_the_limits_of_a_group_that_is_there(stand_in: StandIn) -> None:
    tree = stand_in.boot()
    tree.create("12.1", CgroupLimits(memory_mib=1, cpus=1, pids=1))
    tree.create("12.1", CgroupLimits())
    files = ("memory.max", "memory.swap.max", "cpu.max", "pids.max")
    assert [stand_in.text(f"heliostat-ab12/12.1/{file}") for file in files] == ["max"] * 4


def test_v2_copes_with_a_missing_controller(stand_in: StandIn) -> None:
    stand_in.offered = ["memory", "pids"]
    tree = stand_in.boot()
    assert tree.controllers == {"memory", "pids"}
    assert tree.description.endswith(", without cpu")
    tree.create("12.1", CgroupLimits(memory_mib=1, cpus=1, pids=1))
    assert stand_in.text("heliostat-ab12/12.1/pids.max") == "1"


def test_v2_copes_with_a_controller_that_cannot_be_enabled(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = cgroup_files.write_file

    def refuse_cpu(path: str, text: str) -> None:
        if "+cpu" in text:
            raise OSError(22, "Invalid argument", path)
        write(path, text)

    monkeypatch.setattr(cgroup_files, "write_file", refuse_cpu)
    tree = stand_in.boot()
    assert tree.controllers == {"memory", "pids"}
    tree.create("12.1", CgroupLimits(cpus=4))
    assert stand_in.text("heliostat-ab12/12.1/cpu.max") == "max 100000"


def test_v2_copes_with_an_old_kernel(stand_in: StandIn) -> None:
    stand_in.absent = {"memory.swap.max", "memory.oom.group", "memory.peak", "cgroup.kill"}
    group = stand_in.boot().create("12.1", CgroupLimits(memory_mib=1))
    assert stand_in.text("heliostat-ab12/12.1/memory.max") == "1048576"
    assert group.memory_peak_mib() is None
    assert group.kill()


def test_v2_reads_what_the_kernel_counted(stand_in: StandIn) -> None:
    group = stand_in.boot().create("12.1", CgroupLimits())
    folder = stand_in.root / "heliostat-ab12/12.1"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 41\noom 2\noom_kill 3\noom_group_kill 1\n")
    (folder / "memory.peak").write_text("5242881\n")
    (folder / "cgroup.procs").write_text("101\n0\n102\n")  # 0: a process of another namespace
    assert group.oom_kills() == 3
    assert group.memory_peak_mib() == 6
    assert group.pids() == [101, 102]


def test_v2_kills_with_one_write(stand_in: StandIn) -> None:
    group = stand_in.boot().create("12.1", CgroupLimits())
    (stand_in.root / "heliostat-ab12/12.1/cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert group.kill(0) is False  # nobody dies in a stand-in
    assert stand_in.text("heliostat-ab12/12.1/cgroup.kill") == "1"


def test_a_group_whose_limit_is_refused_is_not_left_behind(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = stand_in.boot()

    def refuse(path: str, _text: str) -> None:
        raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(cgroup_files, "write_file", refuse)
    with pytest.raises(OSError, match="Invalid argument"):
        tree.create("12.1", CgroupLimits(pids=1))
    assert tree.names() == []


def test_v1_finds_controllers_that_share_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mount in ("cpu,cpuacct", "memory,pids", "systemd"):
        (tmp_path / mount).mkdir()
        (tmp_path / mount / "cgroup.procs").write_text("")
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "unified").mkdir()
    mkdir = os.mkdir

    def mkdir_with_files(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        for file in ("cgroup.procs", "cpu.cfs_quota_us", "memory.limit_in_bytes", "pids.max"):
            if "cpu," in path or not file.startswith("cpu"):
                (Path(path) / file).write_text("")

    monkeypatch.setattr(os, "mkdir", mkdir_with_files)
    tree = find_cgroups("ab12", tmp_path)
    assert not isinstance(tree, CgroupsUnavailable)
    assert tree.controllers == {"cpu", "memory", "pids"}
    group = tree.create("12.1", CgroupLimits(memory_mib=1, cpus=3, pids=9))
    shared, cpu = tmp_path / "memory,pids/heliostat-ab12/12.1", tmp_path / "cpu,cpuacct/heliostat-ab12/12.1"
    assert group.enter_files == (f"{shared}/tasks", f"{cpu}/tasks")
    assert (shared / "memory.limit_in_bytes").read_text() == "1048576"
    assert (shared / "pids.max").read_text() == "9"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "300000"


def test_v2_counts_cpu_and_memory_without_the_page_cache(stand_in: StandIn) -> None:
    group = stand_in.boot().create("12.1", CgroupLimits())
    folder = stand_in.root / "heliostat-ab12" / "12.1"
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    (folder / "memory.stat").write_text(f"anon {200 << 20}\nfile {900 << 20}\nshmem {8 << 20}\nanon_thp 0\n")
    assert group.usage() == ProcessUsage(2.5, 208.0)


def test_v2_without_the_memory_controller_counts_its_processes(stand_in: StandIn) -> None:
    stand_in.offered = ["cpu", "pids"]
    group = stand_in.boot().create("12.1", CgroupLimits())
    folder = stand_in.root / "heliostat-ab12" / "12.1"
    (folder / "cpu.stat").write_text("usage_usec 1000000\n")
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    used = group.usage()
    assert used.cpu_seconds == 1.0
    assert used.memory_mib is not None
    assert 5 < used.memory_mib < 4096


@pytest.mark.parametrize("counts_cpu", [True, False])
def test_v1_counts_cpu_by_cpuacct_where_that_is_mounted_with_cpu(tmp_path: Path, counts_cpu: bool) -> None:
    mine = os.times()
    for name, text in {
        "memory.stat": f"cache {900 << 20}\ntotal_rss {100 << 20}\ntotal_shmem {4 << 20}\n",
        "cpuacct.usage": "1500000000\n",
        "cgroup.procs": f"{os.getpid()}\n",
    }.items():
        (tmp_path / name).write_text(text)
    used = CgroupV1({"cpu": str(tmp_path), "memory": str(tmp_path)}, counts_cpu).usage()
    assert used.memory_mib == 104.0
    assert used.cpu_seconds is not None
    assert used.cpu_seconds == 1.5 if counts_cpu else used.cpu_seconds >= mine.user + mine.system - 0.1


def test_a_group_that_is_gone_has_used_nothing_that_is_known(stand_in: StandIn) -> None:
    group = stand_in.boot().create("12.1", CgroupLimits())
    assert group.remove()
    assert group.usage() == ProcessUsage()
