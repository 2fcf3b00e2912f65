import pytest

from heliostat.client.address import find_address, parse_server_url
from heliostat.client.stored_login import StoredLogin, delete_login, read_login, write_login
from heliostat.errors import Invalid


@pytest.fixture
def environ(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HELIOSTAT_HOME": ""}


def test_the_environment_points_elsewhere(environ):
    environ |= {"HELIOSTAT_URL": "https://gpu1", "HELIOSTAT_TOKEN": "t"}
    address = find_address(environ=environ)
    assert (address.host, address.port, address.tls, address.token) == ("gpu1", 443, True, "t")


def test_a_home_means_its_socket(environ, tmp_path):
    assert find_address(home=tmp_path, environ=environ).socket == tmp_path / "heliostat.sock"
    assert find_address(environ=environ | {"HELIOSTAT_HOME": str(tmp_path)}).is_local_socket


def test_a_token_is_not_sent_to_another_server_than_its_own(environ):
    environ |= {"HELIOSTAT_URL": "http://a", "HELIOSTAT_TOKEN": "t"}
    assert find_address("http://evil", environ=environ).token is None
    assert find_address("http://a:8470/", environ=environ).token == "t"


def test_a_stored_login_is_private_and_used_for_its_url(environ):
    path = write_login(StoredLogin("http://gpu1:8470", "secret"), environ)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_address("gpu1", environ=environ).token == "secret"
    assert find_address("gpu2", environ=environ).token is None
    assert delete_login(environ)
    assert not delete_login(environ)
    assert read_login(environ) is None


def test_a_stored_login_counts_less_than_a_home_that_was_named(environ, tmp_path):
    write_login(StoredLogin("http://gpu1:8470", "secret"), environ)
    assert find_address(environ=environ | {"HELIOSTAT_HOME": str(tmp_path)}).is_local_socket


def test_a_damaged_login_is_no_login(environ):
    write_login(StoredLogin("http://gpu1:8470", "secret"), environ).write_text("{")
    assert read_login(environ) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("gpu1", "http://gpu1:8470"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("https://lab.example/helio/", "https://lab.example:443/helio"),
        ("unix:/run/h.sock", "/run/h.sock"),
    ],
)
def test_addresses_are_understood(url, shown):
    assert str(parse_server_url(url)) == shown


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port", "http://x:99999999"])
def test_nonsense_is_refused(url):
    with pytest.raises(Invalid):
        parse_server_url(url)


def test_only_plain_http_to_another_machine_can_be_read_along():
    assert parse_server_url("http://localhost").is_confidential
    assert parse_server_url("https://gpu1").is_confidential
    assert not parse_server_url("http://gpu1").is_confidential
