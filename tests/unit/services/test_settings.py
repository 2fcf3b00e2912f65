from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.config import load_settings
from heliostat.config.effective_settings import EffectiveSetting
from heliostat.errors import Forbidden
from heliostat.services.context import Context
from heliostat.services.effective_settings import list_effective_settings
from unit.services.site import Site


def shown(site: Site) -> dict[str, EffectiveSetting]:
    return {one.key: one for one in list_effective_settings(site.context, site.root)}


def test_every_setting_has_its_source(site: Site) -> None:
    home = site.context.settings.home
    home.config_file.write_text(
        'queue.share_weight = 3.0\nserver.time_zone = "Europe/Berlin"\nqueue.gpu_charges = { a100 = 2.0 }\n'
    )
    settings = load_settings(home, {"server": {"port": 9}})
    context = cast(Context, SimpleNamespace(settings=settings))
    found = {one.key: one for one in list_effective_settings(context, site.root)}
    weight = EffectiveSetting("queue", "share_weight", 3.0, 2.0, "cluster.toml")
    assert found["queue.share_weight"] == weight
    assert found["queue.gpu_charges"].value_text == "{ a100 = 2.0 }"
    assert found["server.time_zone"].value_text == '"Europe/Berlin"'
    assert (found["server.port"].value_text, found["server.port"].source) == ("9", "command line")
    assert (found["queue.preemption"].value_text, found["queue.preemption"].source) == ("true", "default")


def test_a_computed_default_has_its_own_source(site: Site) -> None:
    changed = replace(site.context.settings, auth=replace(site.context.settings.auth, token_days=5))
    context = cast(Context, SimpleNamespace(settings=changed))
    found = {one.key: one for one in list_effective_settings(context, site.root)}
    assert (found["auth.token_days"].source, found["auth.token_days"].is_set) == ("at the start", True)
    assert not shown(site)["auth.token_days"].is_set


def test_only_admins_see_settings(site: Site) -> None:
    with pytest.raises(Forbidden):
        list_effective_settings(site.context, site.person("anna"))
