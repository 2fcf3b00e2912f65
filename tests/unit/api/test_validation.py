"""What is wrong with a body, in words, and what to do about it."""

import pytest

from heliostat.api.validation import read_job
from heliostat.errors import Invalid


@pytest.mark.parametrize("body", [{"command": ["true"], "LD_PRELOAD": "%"}, {"command": 5}, {"gpus": -1}])
def test_whatever_is_wrong_with_a_job_there_is_a_hint(body: dict[str, object]) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(body)
    assert caught.value.hint
    assert caught.value.fields
