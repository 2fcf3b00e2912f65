from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.config import load_settings
from heliostat.errors import Forbidden
from heliostat.services.context import Context
from heliostat.services.settings import HIDDEN, EffectiveSetting, _effective, effective_settings
from unit.services.site import Site


def shown(site: Site) -> dict[str, EffectiveSetting]:
    return {one.name: one for one in effective_settings(site.context, site.root)}


def test_every_setting_says_where_it_comes_from(site: Site) -> None:
    home = site.context.settings.home
    home.config.write_text('share_weight = 3.0\ntime_zone = "Europe/Berlin"\ngpu_charges = { a100 = 2.0 }\n')
    settings = load_settings(home, port=9)
    context = cast(Context, SimpleNamespace(settings=settings))
    found = {one.name: one for one in effective_settings(context, site.root)}
    assert found["share_weight"] == EffectiveSetting("share_weight", "3.0", "2.0", "cluster.toml", True)
    assert found["gpu_charges"].value == "{ a100 = 2.0 }"
    assert (found["port"].value, found["port"].source) == ("9", "command line")
    assert (found["preemption"].value, found["preemption"].source) == ("true", "default")
    assert {"home", "sources"}.isdisjoint(found)


def test_a_value_that_no_file_or_option_gave_is_told_so(site: Site) -> None:
    changed = replace(site.context.settings, token_days=5)
    context = cast(Context, SimpleNamespace(settings=changed))
    found = {one.name: one for one in effective_settings(context, site.root)}
    assert (found["token_days"].source, found["token_days"].is_set) == ("at the start", True)
    assert not shown(site)["token_days"].is_set


@pytest.mark.parametrize("name", ["ldap_password", "oidc_client_secret", "key", "api_token"])
def test_a_secret_is_never_shown(name: str) -> None:
    one = _effective(name, "hunter2", None, {name: "cluster.toml"})
    assert one.value == HIDDEN
    assert "hunter2" not in repr(one)


def test_a_login_within_an_address_is_never_shown() -> None:
    one = _effective("database_url", "postgresql://me:p@ss@db:5432/x", None, {})
    assert one.value == "postgresql://…@db:5432/x"


def test_only_admins_see_settings(site: Site) -> None:
    with pytest.raises(Forbidden):
        effective_settings(site.context, site.person("anna"))
