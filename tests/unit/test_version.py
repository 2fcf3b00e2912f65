"""The version carries the commit: of a git checkout as it is now, of a built package as it was built."""

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from heliostat import __version__
from heliostat.cli.main import main
from heliostat.version import RELEASE, make_version, read_commit

ROOT = Path(__file__).parents[2]
COMMIT, OTHER = "abc1234" + "0" * 33, "def5678" + "1" * 33


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package in a checkout on the branch main."""
    package = tmp_path / "src" / "heliostat"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    heads = tmp_path / ".git" / "refs" / "heads"
    heads.mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (heads / "main").write_text(f"{COMMIT}\n")
    return package


def test_the_command_prints_the_version_with_its_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"heliostat {__version__}\n"
    assert __version__ == make_version(read_commit(ROOT / "src" / "heliostat"))


def test_a_checkout_has_the_commit_of_its_branch(package: Path) -> None:
    assert read_commit(package) == COMMIT
    assert make_version(COMMIT) == f"{RELEASE}+gabc1234"


def test_a_checkout_with_packed_branches_has_its_commit(package: Path) -> None:
    git = package.parents[1] / ".git"
    (git / "refs" / "heads" / "main").unlink()
    (git / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{OTHER} refs/heads/old\n{COMMIT} refs/heads/main\n"
    )
    assert read_commit(package) == COMMIT


def test_a_checkout_of_a_commit_without_a_branch_has_it(package: Path) -> None:
    (package.parents[1] / ".git" / "HEAD").write_text(f"{OTHER}\n")
    assert read_commit(package) == OTHER


def test_a_worktree_has_the_commit_of_its_own_branch(package: Path, tmp_path: Path) -> None:
    git = package.parents[1] / ".git"
    (git / "worktrees" / "second").mkdir(parents=True)
    (git / "worktrees" / "second" / "HEAD").write_text("ref: refs/heads/next\n")
    (git / "worktrees" / "second" / "commondir").write_text("../..\n")
    (git / "refs" / "heads" / "next").write_text(f"{OTHER}\n")
    second = tmp_path / "second" / "src" / "heliostat"
    second.mkdir(parents=True)
    (tmp_path / "second" / "pyproject.toml").touch()
    (tmp_path / "second" / ".git").write_text(f"gitdir: {git / 'worktrees' / 'second'}\n")
    assert read_commit(second) == OTHER


def test_a_built_package_has_its_recorded_commit_and_no_other(package: Path) -> None:
    (package / "COMMIT").write_text(f"{OTHER}\n")
    assert read_commit(package) == OTHER
    (package / "COMMIT").write_text("not a commit\n")
    assert read_commit(package) is None


def test_a_package_inside_the_repository_of_another_project_has_no_commit(package: Path) -> None:
    (package.parents[1] / "pyproject.toml").unlink()
    assert read_commit(package) is None
    assert make_version(None) == RELEASE


@pytest.mark.parametrize(
    ("target", "version", "path"),
    [
        ("wheel", "standard", "heliostat/COMMIT"),
        ("sdist", "standard", "src/heliostat/COMMIT"),
        ("wheel", "editable", None),  # it would stay at the commit of the installation
    ],
)
def test_a_build_records_the_commit(
    package: Path, monkeypatch: pytest.MonkeyPatch, target: str, version: str, path: str | None
) -> None:
    (package / "version.py").write_text((ROOT / "src" / "heliostat" / "version.py").read_text())
    interface: Any = ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = SimpleNamespace
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    hook = runpy.run_path(str(ROOT / "scripts" / "hatch_build.py"))["CommitHook"]
    build_data: dict[str, Any] = {"force_include": {}}
    build = hook(root=str(package.parents[1]), target_name=target)
    build.initialize(version, build_data)
    included = build_data["force_include"]
    assert list(included.values()) == ([] if path is None else [path])
    assert all(Path(file).read_text().strip() == COMMIT for file in included)
    build.finalize(version, build_data, "")
    assert not any(Path(file).exists() for file in included)
