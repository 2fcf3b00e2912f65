"""What the doctor says of the tools that build environments and images."""

from dataclasses import replace
from pathlib import Path

import pytest

from heliostat.config import Home, ServerSettings, Settings
from heliostat.doctor import check_environments
from heliostat.engines.local import installation_checks
from heliostat.engines.local.installation_checks import HostAccount, HostFacts, examine_host, examine_local

SETTINGS = Settings(Home(Path("/srv/h")))
BUILDER = HostAccount("heliostat-build", 990, "/usr/sbin/nologin")
ANN = HostAccount("ann", 1001, "/bin/bash")
WELL = HostFacts(lambda program: True, True, (BUILDER, ANN), frozenset({"ann"}))


def without(*programs: str) -> HostFacts:
    return replace(WELL, has_program=lambda program: program not in programs)


def levels(machine: HostFacts, settings: Settings = SETTINGS) -> dict[str, str]:
    return {found.check: found.level for found in examine_host(settings, machine)}


def test_where_all_is_there_all_is_well():
    assert levels(WELL) == {"environments": "ok", "images": "ok"}


@pytest.mark.parametrize(
    ("machine", "check", "level", "word", "hint"),
    [
        (without("uv"), "environments", "warning", "uv is missing", "pip install"),
        (without("bwrap"), "environments", "warning", "bubblewrap is missing", "apt install bubblewrap"),
        (replace(WELL, accounts=(ANN,)), "environments", "warning", "no account heliostat-build", "useradd"),
        (replace(WELL, accounts=(replace(BUILDER, uid=0),)), "environments", "problem", "is root", "useradd"),
        (
            replace(WELL, accounts=(replace(BUILDER, shell="/bin/sh"),)),
            "environments",
            "warning",
            "log in",
            "usermod",
        ),
        (without("podman"), "images", "warning", "podman is missing", "apt install podman"),
        (without("newuidmap"), "images", "warning", "newuidmap is missing", "apt install uidmap"),
        (
            replace(WELL, subuid_owners=frozenset()),
            "images",
            "warning",
            "without one: ann",
            "usermod --add-subuids",
        ),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(machine, check, level, word, hint):
    found = next(one for one in examine_host(SETTINGS, machine) if one.check == check)
    assert (found.level, word in found.message, hint in (found.hint or "")) == (level, True, True), found


def test_the_start_says_only_what_prevents_shared_environments(monkeypatch):
    machine = replace(WELL, accounts=(ANN,))
    monkeypatch.setattr(installation_checks, "_this_machine", lambda: machine)
    (found,) = check_environments(SETTINGS)
    assert "no account heliostat-build" in found.message
    machine = WELL
    assert check_environments(SETTINGS) == []
    machine = replace(WELL, is_root=False, accounts=())
    assert check_environments(SETTINGS) == []
    assert check_environments(replace(SETTINGS, server=ServerSettings(engine="slurm"))) == []


def test_nobody_without_root_needs_the_builder():
    assert levels(replace(WELL, is_root=False, accounts=()))["environments"] == "ok"


def test_ranges_by_number_or_kept_elsewhere_are_enough():
    assert levels(replace(WELL, subuid_owners=frozenset({"1001"})))["images"] == "ok"
    assert levels(replace(WELL, subuid_owners=None))["images"] == "ok"


def test_services_need_no_range():
    postgres = HostAccount("postgres", 105, "/bin/bash")
    assert levels(replace(WELL, accounts=(BUILDER, ANN, postgres)))["images"] == "ok"


def test_many_are_not_all_named():
    many = tuple(HostAccount(f"u{number}", 2000 + number, "/bin/sh") for number in range(9))
    told = next(
        one for one in examine_host(SETTINGS, replace(WELL, accounts=(BUILDER, *many))) if one.check == "images"
    )
    assert "u4 and 4 more" in told.message


def test_where_images_are_not_run_nobody_asks_for_podman():
    assert "images" not in levels(
        without("podman"), replace(SETTINGS, containers=replace(SETTINGS.containers, runtimes=("process",)))
    )


def test_this_machine_can_be_looked_at():
    assert {found.level for found in examine_local(SETTINGS)} <= {"ok", "warning", "problem"}
