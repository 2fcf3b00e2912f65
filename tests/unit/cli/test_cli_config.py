"""`helio config`, as it is typed; without a server."""

import json

import pytest

GOOD = """
[server]
port = 9000

[environments]
uv_variables = { UV_DEFAULT_INDEX = "https://me:hunter2@pypi.example.org/simple" }
"""
BAD = """
images_keep_days = 3

[containers]
keep_day = 3

[queue]
half_life_days = 0
preemption = 1
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "cluster.toml"


def test_a_good_file_has_no_problems(helio, file):
    file.write_text(GOOD)
    ran = helio("config", "check")
    assert (ran.code, ran.out) == (0, f"{file}: no problems.\n")


def test_without_a_file_every_setting_has_its_default(helio, file):
    assert helio("config", "check").code == 0
    settings = json.loads(helio("config", "show", "--json").out)["settings"]
    assert {one["source"] for one in settings} == {"default"}
    assert all(one["value"] == one["default"] for one in settings)


def test_all_that_is_wrong_with_a_file_is_said_at_once(helio, tmp_path):
    (tmp_path / "new.toml").write_text(BAD)
    ran = helio("config", "check", str(tmp_path / "new.toml"))
    assert ran.code == 1
    assert ran.out == (
        "problem  images_keep_days is now keep_days in [containers]\n"
        "    Write keep_days = … below a line [containers].\n"
        "problem  [containers] has no setting 'keep_day'\n"
        "    Did you mean keep_days?\n"
        "problem  [queue] half_life_days = 0 is out of range\n"
        "    Write a number from 0.001 to 1000000.\n"
        "problem  [queue] preemption = 1 is not true or false\n"
        "    Write true or false.\n"
        f"{tmp_path}/new.toml: 4 problems.\n"
    )
    told = json.loads(helio("config", "check", str(tmp_path / "new.toml"), "--json").out)
    keys = ["images_keep_days", "containers.keep_day", "queue.half_life_days", "queue.preemption"]
    assert [problem["key"] for problem in told["problems"]] == keys


def test_a_file_that_is_no_toml_or_is_not_there_is_a_problem(helio, tmp_path):
    (tmp_path / "new.toml").write_text("[server\n")
    assert "cannot be read" in helio("config", "check", str(tmp_path / "new.toml")).out
    missing = helio("config", "check", str(tmp_path / "nowhere.toml"))
    assert (missing.code, "does not exist" in missing.out) == (1, True)


def test_values_are_shown_with_where_they_come_from_and_without_logins(helio, file):
    file.write_text(GOOD)
    ran = helio("config", "show")
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines()}
    assert rows["server.port"] == ["9000", "cluster.toml"]
    assert rows["server.engine"] == ['"local"', "default"]
    assert rows["server.public_url"] == ["-", "default"]
    assert "hunter2" not in ran.out
    assert "hunter2" not in helio("config", "show", "--json").out


def test_a_file_with_problems_is_not_shown(helio, file):
    file.write_text(BAD)
    ran = helio("config", "show")
    assert (ran.code, ran.out) == (2, "")
    assert "images_keep_days is now keep_days in [containers]; [containers] has no" in ran.err
    assert "helio config check" in ran.err


@pytest.mark.parametrize("key", ["token_days", "auth.token_days"])
def test_a_setting_is_explained(helio, key):
    assert helio("config", "explain", key).out == (
        "token_days in [auth]\n"
        "Validity of new tokens in days, if not given at creation.\n"
        "\n"
        "type     a whole number\n"
        "values   from 1 to 366\n"
        "default  90\n"
    )
    assert json.loads(helio("config", "explain", key, "--json").out)["key"] == "auth.token_days"


@pytest.mark.parametrize(
    ("key", "code", "hint"),
    [
        ("keep_days", 2, "Choose one of: containers.keep_days, environments.keep_days."),
        ("keep_day", 4, "Did you mean containers.keep_days or environments.keep_days?"),
        ("containers.keep_day", 4, "Did you mean containers.keep_days?"),
        ("images_keep_days", 4, "It is now containers.keep_days."),
        ("slurm_api", 4, "Remove slurm_api: Heliostat uses the command-line tools of Slurm."),
        ("zzz", 4, "`helio config show` lists all settings."),
    ],
)
def test_a_key_that_is_no_setting_leads_to_the_nearest(helio, key, code, hint):
    ran = helio("config", "explain", key)
    assert (ran.code, ran.err.splitlines()[-1]) == (code, f"hint: {hint}")
