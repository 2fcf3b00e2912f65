"""What the doctor says of the tools that build environments and images."""

from dataclasses import replace
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.engines.local.checks import Account, Machine, examine_local, findings

SETTINGS = Settings(Home(Path("/srv/h")))
BUILDER = Account("heliostat-build", 990, "/usr/sbin/nologin")
ANN = Account("ann", 1001, "/bin/bash")
WELL = Machine(lambda program: True, True, (BUILDER, ANN), frozenset({"ann"}))


def without(*programs: str) -> Machine:
    return replace(WELL, has=lambda program: program not in programs)


def levels(machine: Machine, settings: Settings = SETTINGS) -> dict[str, str]:
    return {found.check: found.level for found in findings(settings, machine)}


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
        (replace(WELL, has_ranges=frozenset()), "images", "warning", "without one: ann", "usermod --add-subuids"),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(machine, check, level, word, hint):
    found = next(one for one in findings(SETTINGS, machine) if one.check == check)
    assert (found.level, word in found.message, hint in (found.hint or "")) == (level, True, True), found


def test_nobody_without_root_needs_the_builder():
    assert levels(replace(WELL, is_root=False, accounts=()))["environments"] == "ok"


def test_ranges_by_number_or_kept_elsewhere_are_enough():
    assert levels(replace(WELL, has_ranges=frozenset({"1001"})))["images"] == "ok"
    assert levels(replace(WELL, has_ranges=None))["images"] == "ok"


def test_services_need_no_range():
    postgres = Account("postgres", 105, "/bin/bash")
    assert levels(replace(WELL, accounts=(BUILDER, ANN, postgres)))["images"] == "ok"


def test_many_are_not_all_named():
    many = tuple(Account(f"u{number}", 2000 + number, "/bin/sh") for number in range(9))
    told = next(
        one for one in findings(SETTINGS, replace(WELL, accounts=(BUILDER, *many))) if one.check == "images"
    )
    assert "u4 and 4 more" in told.message


def test_where_images_are_not_run_nobody_asks_for_podman():
    assert "images" not in levels(without("podman"), replace(SETTINGS, runtimes=("process",)))


def test_this_machine_can_be_looked_at():
    assert {found.level for found in examine_local(SETTINGS)} <= {"ok", "warning", "problem"}
