import getpass
import pwd

import pytest

from heliostat.engines.folders import Refused, person_of


def test_a_person_that_was_made_a_moment_ago_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those who are there are remembered: a job that is refused stays refused."""
    ours = pwd.getpwnam(getpass.getuser())
    with pytest.raises(Refused, match="no Unix user ann-of-the-test"):
        person_of("ann-of-the-test")
    monkeypatch.setattr(pwd, "getpwnam", lambda name: ours)
    assert person_of("ann-of-the-test").uid == ours.pw_uid
