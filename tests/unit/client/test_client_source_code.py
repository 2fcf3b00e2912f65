"""With which code a job is submitted."""

import os
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

from heliostat.client import source_code
from heliostat.client.source_code import with_source_code
from heliostat.models.provenance import MAX_DIFF_BYTES

code_of = partial(source_code.read_source_code, cache_seconds=0.0)  # no cache
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def _no_word_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOSTAT_RECORD", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)


def _git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=Anna", "-c", "user.email=anna@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    _git(folder, "init", "--initial-branch", "main")
    (folder / "train.py").write_text("print(1)\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "-m", "begin")
    return folder


def test_a_clean_folder_is_its_commit(repository: Path) -> None:
    code = code_of(repository)
    assert code is not None
    assert code.commit == _git(repository, "rev-parse", "HEAD")
    assert (code.branch, code.folder, code.is_clean) == ("main", str(repository), True)


def test_what_is_not_committed_is_told(repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n")
    (repository / "notes é.txt").write_text("")
    code = code_of(repository)
    assert code is not None
    assert "+print(2)" in code.diff
    assert (code.untracked, code.untracked_count, code.is_clean) == (("notes é.txt",), 1, False)


def test_a_folder_below_is_in_the_same_repository(repository: Path) -> None:
    (repository / "sub").mkdir()
    code = code_of(repository / "sub")
    assert code is not None
    assert code.commit is not None


def test_a_large_diff_is_cut(repository: Path) -> None:
    (repository / "train.py").write_text("é" * MAX_DIFF_BYTES + "\n")
    code = code_of(repository)
    assert code is not None
    assert code.is_diff_cut
    assert len(code.diff.encode()) <= MAX_DIFF_BYTES


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("https://anna:hunter2@example.org/lab/code.git", "https://example.org/lab/code.git"),
        ("https://ghp_token@example.org:8443/code?private_token=x#y", "https://example.org:8443/code"),
        ("ssh://git:hunter2@example.org/code", "ssh://git@example.org/code"),
        ("git@example.org:lab/code.git", "git@example.org:lab/code.git"),
        ("/srv/git/code", "/srv/git/code"),
    ],
)
def test_a_remote_is_told_without_credentials(repository: Path, remote: str, expected: str) -> None:
    _git(repository, "remote", "add", "origin", remote)
    code = code_of(repository)
    assert code is not None
    assert code.remote == expected


def test_a_repository_without_a_commit_has_none(tmp_path: Path) -> None:
    _git(tmp_path, "init")
    (tmp_path / "a").write_text("")
    code = code_of(tmp_path)
    assert code is not None
    assert (code.commit, code.untracked_count) == (None, 1)


def test_without_git_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert code_of(tmp_path) is None
    assert code_of(tmp_path / "nothing") is None


def test_a_broken_repository_stops_no_job(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("nonsense")
    assert code_of(tmp_path) is None


def test_programs_named_in_the_folder_are_not_run(repository: Path, tmp_path: Path) -> None:
    for name in ("diff.external", "core.fsmonitor"):
        _git(repository, "config", name, f"touch {tmp_path}/ran; false")
    (repository / "train.py").write_text("print(3)\n")
    assert code_of(repository) is not None
    assert not (tmp_path / "ran").exists()


def test_who_does_not_want_it_noted_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "record" in with_source_code({}, None, str(repository))
    assert with_source_code({}, False, str(repository)) == {}
    monkeypatch.setenv("HELIOSTAT_RECORD", "0")
    assert with_source_code({}, None, str(repository)) == {}


def test_a_repository_that_never_answers_holds_nobody_up(tmp_path: Path) -> None:
    """Anybody may make one in a folder that all share, above ours."""
    for name in ("objects", "refs"):
        (tmp_path / ".git" / name).mkdir(parents=True)
    os.mkfifo(tmp_path / ".git" / "HEAD")
    found: list[object] = []
    asking = threading.Thread(target=lambda: found.append(code_of(tmp_path, git_seconds=0.3)), daemon=True)
    asking.start()
    asking.join(120)
    assert found == [None]
