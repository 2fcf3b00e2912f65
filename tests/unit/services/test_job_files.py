import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.engines.job_file_reader import MAX_ENTRIES, _make_entry
from heliostat.errors import Conflict, Forbidden, NotFound
from heliostat.models import JobSpec
from heliostat.services.context import Context
from heliostat.services.jobs.files import has_own_folder, list_files, open_file
from support.fake_engines import FilesEngine
from unit.services.site import Site


@pytest.fixture
def context(site: Site, tmp_path: Path) -> Context:
    site.context.engine = FilesEngine(tmp_path)  # type: ignore[misc, assignment]
    site.add_job(1, attempt=1)
    work = tmp_path / "jobs/1/work"
    (work / "models").mkdir(parents=True)
    (work / "models" / "best.pt").write_bytes(b"weights")
    (work / "note.txt").write_text("hello")
    (tmp_path / "secret").write_text("of the server")
    return site.context


def test_the_files_of_a_job_are_listed_and_read(site: Site, context: Context) -> None:
    top = list_files(context, site.root, 1, "")
    assert [(entry.name, entry.kind, entry.size_bytes) for entry in top.entries if entry.kind == "file"] == [
        ("note.txt", "file", 5)
    ]
    assert [entry.name for entry in top.entries] == ["models", "note.txt"]
    assert [entry.name for entry in list_files(context, site.root, 1, "models/").entries] == ["best.pt"]
    opened = open_file(context, site.root, 1, "models/best.pt")
    assert (opened.name, b"".join(opened.chunks())) == ("best.pt", b"weights")


@pytest.mark.parametrize(
    "path", ["../secret", "models/../../secret", "/etc/passwd", "missing", "note.txt/more", "a\0b", "x" * 300, "."]
)
def test_paths_outside_and_missing_files_are_not_opened(site: Site, context: Context, path: str) -> None:
    with pytest.raises(NotFound):
        open_file(context, site.root, 1, path)


def test_links_and_pipes_are_shown_but_never_opened(site: Site, context: Context, tmp_path: Path) -> None:
    work = tmp_path / "jobs/1/work"
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "door").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    kinds = {entry.name: entry.kind for entry in list_files(context, site.root, 1, "").entries}
    assert {name: kinds[name] for name in ("link", "door", "pipe")} == dict.fromkeys(
        ("link", "door", "pipe"), "other"
    )
    for path in ("link", "door/secret", "pipe", "models"):
        with pytest.raises(NotFound):
            open_file(context, site.root, 1, path)
    with pytest.raises(NotFound):
        list_files(context, site.root, 1, "door")


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a file, which needs root")
def test_files_of_other_unix_users_are_not_opened(site: Site, context: Context, tmp_path: Path) -> None:
    os.chown(tmp_path / "jobs/1/work" / "note.txt", 65534, 65534)
    os.chown(tmp_path / "jobs/1/work" / "models", 65534, 65534)
    with pytest.raises(NotFound):
        open_file(context, site.root, 1, "note.txt")
    with pytest.raises(NotFound):
        list_files(context, site.root, 1, "models")


def test_a_folder_replaced_by_a_link_is_not_opened(site: Site, context: Context, tmp_path: Path) -> None:
    (tmp_path / "jobs/1/work").rename(tmp_path / "away")
    (tmp_path / "jobs/1/work").symlink_to(tmp_path)
    with pytest.raises((NotFound, Conflict)):
        list_files(context, site.root, 1, "")


def test_long_listings_are_cut(site: Site, context: Context, tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES + 5):
        (tmp_path / "jobs/1/work" / f"{number}.txt").touch()
    listed = list_files(context, site.root, 1, "")
    assert (len(listed.entries), listed.is_cut) == (MAX_ENTRIES, True)


def test_only_a_private_folder_is_listed(site: Site, context: Context) -> None:
    job = site.add_job(2, attempt=1, spec=JobSpec(("true",), workdir="/etc"))
    assert not has_own_folder(context, job)
    with pytest.raises(NotFound):
        list_files(context, site.root, 2, "")


def test_users_cannot_see_files_of_other_users_jobs(site: Site, context: Context) -> None:
    nosy = site.person("nosy")
    with pytest.raises(Forbidden):
        list_files(context, nosy, 1, "")
    with pytest.raises(Forbidden):
        open_file(context, nosy, 1, "note.txt")


def test_a_file_with_an_invalid_date_is_listed(tmp_path: Path) -> None:
    (tmp_path / "far").touch()
    about = list(os.stat(tmp_path / "far"))
    about[8] = 10**15  # some file systems keep such a time
    found = SimpleNamespace(name="far", stat=lambda follow_symlinks: os.stat_result(about))
    entry = _make_entry(cast("os.DirEntry[str]", found))
    assert entry is not None
    assert entry.changed_at.year == 9999
