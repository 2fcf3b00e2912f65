import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from heliostat.errors import Conflict
from heliostat.models import ArrayRange, Caller, JobRequest, JobSpec, JobState
from heliostat.models.uploads import FileTree, TreeFile, make_tree
from heliostat.services.jobs.uploads import UploadReceiver, check_uploads, register_upload
from heliostat.store.uploads import UploadStore
from unit.services.site import Site


@pytest.fixture
def ann(site: Site, tmp_path: Path) -> Caller:
    storage = replace(site.context.settings.storage, upload_quota="1M", upload_copies_quota="1M")
    site.context.settings = replace(site.context.settings, storage=storage)  # type: ignore[misc]
    site.context.uploads = UploadStore(tmp_path / "uploads")  # type: ignore[misc]
    caller = site.person("ann")
    return replace(caller, user=replace(caller.user, unix_user="ann"))


def _tree(contents: Iterable[bytes], folder: str = "src") -> FileTree:
    return make_tree(
        TreeFile(f"{folder}/{number}", hashlib.sha256(content).hexdigest(), len(content))
        for number, content in enumerate(contents)
    )


def _upload(site: Site, caller: Caller, contents: list[bytes], folder: str = "src") -> str:
    receiver = UploadReceiver(site.context, caller)
    for content in contents:
        receiver.feed(f"{hashlib.sha256(content).hexdigest()} {len(content)}\n".encode() + content)
    register_upload(site.context, caller, _tree(contents, folder))
    return _tree(contents, folder).id


def _request(upload: str, jobs: int) -> JobRequest:
    return JobRequest(spec=JobSpec(("true",), upload=upload), array=ArrayRange(tuple(range(jobs))))


def test_many_small_files_fill_the_quota_as_few_large_ones_do(site: Site, ann: Caller) -> None:
    contents = [b"%d" % number for number in range(64)]  # and the list of their paths
    with pytest.raises(Conflict, match="quota of 1M, in which each file counts at least 16 KiB"):
        register_upload(site.context, ann, _tree(contents))
    _upload(site, ann, contents[:63])
    assert site.context.uploads.used_bytes("ann") == 2**20
    with pytest.raises(Conflict):
        _upload(site, ann, [b"one more"])


def test_lists_of_files_count_in_the_quota_too(site: Site, ann: Caller) -> None:
    _upload(site, ann, [b"the same"])
    for number in range(62):
        register_upload(site.context, ann, _tree([b"the same"], f"folder-{number}"))
    with pytest.raises(Conflict):
        register_upload(site.context, ann, _tree([b"the same"], "one-more"))


def test_copies_for_unfinished_jobs_have_a_quota(site: Site, ann: Caller) -> None:
    upload = _upload(site, ann, [b"x"])
    check_uploads(site.context, ann.user, [_request(upload, 64)])
    with pytest.raises(Conflict, match=r"The copies for these jobs count 1\.0 MiB"):
        check_uploads(site.context, ann.user, [_request(upload, 60), _request(upload, 5)])


def test_only_unfinished_jobs_count_beside_new_ones(site: Site, ann: Caller) -> None:
    upload = _upload(site, ann, [b"x"])
    spec = JobSpec(("true",), upload=upload)
    site.add_job(1, user="ann", spec=spec)
    site.add_job(2, user="ann", spec=spec, state=JobState.COMPLETED, ended_at=site.clock.at)
    site.add_job(3, user="ann")
    check_uploads(site.context, ann.user, [_request(upload, 63)])
    with pytest.raises(Conflict, match=r"your other unfinished jobs 0\.0 MiB"):
        check_uploads(site.context, ann.user, [_request(upload, 64)])
