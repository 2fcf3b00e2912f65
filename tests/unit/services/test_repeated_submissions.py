"""Repeated requests with an idempotency key."""

from types import SimpleNamespace

import pytest

from heliostat.api.job_schemas import BulkSubmitBody
from heliostat.errors import Conflict
from heliostat.services.jobs.submission import SubmissionResult, submit_jobs
from unit.services.site import Site


@pytest.fixture(autouse=True)
def _controller(site: Site) -> None:
    site.context.controller = SimpleNamespace(count_unfinished_jobs=lambda user: 0)  # type: ignore[misc,assignment]


def submit(site: Site, *commands: str, says_what: bool = True) -> SubmissionResult:
    body = BulkSubmitBody.model_validate({"jobs": [{"command": command} for command in commands]})
    about = body.fingerprint() if says_what else None
    return submit_jobs(site.context, site.root, body.to_requests(), "key", about)


def test_a_repeated_request_returns_the_same_jobs(site: Site) -> None:
    assert submit(site, "a", "b").job_ids == submit(site, "a", "b").job_ids


def test_another_request_with_the_same_key_is_refused(site: Site) -> None:
    submit(site, "a", "b")
    for others in (("a",), ("b", "a"), ("a", "b", "b"), ("a\nb",)):
        with pytest.raises(Conflict, match="another request"):
            submit(site, *others)


def test_a_key_stored_by_an_earlier_version_is_known(site: Site) -> None:
    first = submit(site, "a", "b", says_what=False)
    assert submit(site, "a", "b").job_ids == first.job_ids
    with pytest.raises(Conflict, match="another request"):
        submit(site, "a", "c")
