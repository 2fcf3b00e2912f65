import pytest

from heliostat.auth.client_address import can_identify_local_users
from heliostat.config import ServerSettings
from heliostat.doctor import _web

HTTPS = "https://gpu.example.org"


@pytest.mark.parametrize(
    ("server", "level", "words"),
    [
        (ServerSettings(host="0.0.0.0"), "warning", "without TLS"),
        (ServerSettings(host="0.0.0.0", public_url=HTTPS), "warning", "address of the reverse proxy"),
        (ServerSettings(public_url=HTTPS, trusted_proxies=("127.0.0.1",)), "ok", "by TLS"),
        (ServerSettings(), "ok" if can_identify_local_users() else "warning", "of connections|Unix user"),
    ],
)
def test_the_doctor_says_how_safe_the_logins_of_browsers_are(
    server: ServerSettings, level: str, words: str
) -> None:
    (finding,) = _web(server)
    assert finding.level == level
    assert any(part in finding.message for part in words.split("|"))
    assert (not finding.hint) is (level == "ok")
