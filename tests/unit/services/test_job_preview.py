"""Previews of submissions: all checks, at little cost to others."""

from types import SimpleNamespace

import pytest

from heliostat.api.job_schemas import BulkSubmitBody
from heliostat.errors import Invalid, TooManyRequests
from heliostat.models import JobRequest
from heliostat.services.jobs.submission import preview_jobs
from heliostat.store import job_writes
from unit.services.site import Site


@pytest.fixture(autouse=True)
def _controller(site: Site) -> None:
    site.context.controller = SimpleNamespace(count_unfinished_jobs=lambda user: 0)  # type: ignore[misc,assignment]


def requests(*jobs: dict[str, object]) -> list[JobRequest]:
    return BulkSubmitBody.model_validate({"jobs": list(jobs)}).to_requests()


def test_a_preview_checks_every_element_of_an_array_and_adds_no_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_writes, "add_jobs", lambda *_: pytest.fail("jobs were added"))
    prep: dict[str, object] = {"name": "prep", "command": "true", "array": "0-2"}
    after_prep: dict[str, object] = {"command": "true", "after_each": "prep"}
    preview = preview_jobs(site.context, site.root, requests(prep, after_prep | {"array": "1-2"}))
    assert (preview.count, [job.array_index for job in preview.jobs]) == (5, [0, 1])
    with pytest.raises(Invalid, match="has no element 3"):
        preview_jobs(site.context, site.root, requests(prep, after_prep | {"array": "1-3"}))


def test_a_user_has_one_preview_at_a_time(site: Site) -> None:
    one = requests({"command": "true"})
    with site.context.preview_limit.acquire(site.root.user.name):
        with pytest.raises(TooManyRequests, match="Your previous preview is still running"):
            preview_jobs(site.context, site.root, one)
    assert preview_jobs(site.context, site.root, one).jobs
