from dataclasses import fields, replace

import pytest

from heliostat.models import JobState, Resources, changed
from unit.scheduling.made_up import a_job

JOB = a_job(1, Resources(2, 100))


def test_a_changed_job_is_what_replace_would_make() -> None:
    values = {"state": JobState.RUNNING, "node": "a", "attempt": 3}
    new = changed(JOB, **values)
    assert new == replace(JOB, **values)  # type: ignore[arg-type]
    assert all(hasattr(new, field.name) for field in fields(JOB))
    assert JOB.node is None


def test_a_name_that_a_job_has_not_is_refused() -> None:
    with pytest.raises(AttributeError):
        changed(JOB, nod="a")
