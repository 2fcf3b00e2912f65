import tomllib
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import Home, NotificationSettings, ServerSettings, Settings
from heliostat.config.effective_settings import effective_settings
from heliostat.config.setting_rules import REDACTED_TEXT, format_toml, redact_value


@pytest.mark.parametrize("name", ["ldap_password", "oidc_client_secret", "key", "api_token"])
def test_a_secret_is_never_shown(name: str) -> None:
    assert redact_value(name, "hunter2") == REDACTED_TEXT
    assert redact_value("variables", {name.upper(): "hunter2"}) == {name.upper(): REDACTED_TEXT}


def test_a_login_within_an_address_is_never_shown() -> None:
    assert redact_value("database_url", "postgresql://me:p@ss@db:5432/x") == "postgresql://…@db:5432/x"
    assert redact_value("urls", ("https://me@x/",)) == ("https://…@x/",)


def test_the_name_of_a_file_with_a_password_is_no_secret() -> None:
    settings = Settings(Home(Path("/")), notifications=NotificationSettings(smtp_password_file="/etc/smtp"))
    shown = {one.key: one.value for one in effective_settings(settings)}
    assert shown["notifications.smtp_password_file"] == "/etc/smtp"


@pytest.mark.parametrize(
    "value", ['a "b" \\ ü', True, 3, 1.5, ["a", "b"], [], {}, {"disk=ssd": "feature=ssd", "x": "y"}]
)
def test_values_are_shown_as_they_are_written(value: Any) -> None:
    assert tomllib.loads(f"x = {format_toml(value)}") == {"x": value}


def test_what_a_program_has_set_is_told_so() -> None:
    settings = Settings(Home(Path("/")), server=ServerSettings(port=9))
    sources = {one.key: one.source for one in effective_settings(settings)}
    assert (sources["server.port"], sources["server.host"]) == ("at the start", "default")
