import os
import tomllib
from pathlib import Path

import pytest

from heliostat.config import Home, Settings, load_settings
from heliostat.config.effective_settings import default_value
from heliostat.config.load import check_config, find_problems
from heliostat.config.renamed_settings import RENAMED_SETTINGS
from heliostat.config.setting_rules import describe_type, find_value_fault, rules_of_setting
from heliostat.config.settings import SECTIONS, section_fields
from heliostat.errors import Invalid


def load(folder: Path, text: str) -> Settings:
    (folder / "cluster.toml").write_text(text)
    return load_settings(Home(folder))


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    assert load_settings(Home(tmp_path)) == Settings(Home(tmp_path))


def test_settings_of_the_queue_are_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "queue.half_life_days = 14\nqueue.preemption = false\nqueue.gpu_charges = { a100 = 2.0, t4 = 1 }\n",
    )
    assert (settings.queue.half_life_days, settings.queue.preemption) == (14, False)
    assert settings.queue.gpu_charges == {"a100": 2.0, "t4": 1}


def test_settings_of_containers_are_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        'containers.mount_paths = ["{home}", "/data:ro"]\ncontainers.oci_runtimes = { patients = "kata" }\n',
    )
    assert settings.containers.mount_paths == ("{home}", "/data:ro")
    assert settings.containers.oci_runtimes == {"patients": "kata"}


def test_the_time_zone_is_that_of_the_server_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert load(tmp_path, "").server.effective_time_zone == "Asia/Tokyo"
    assert load(tmp_path, 'server.time_zone = "Europe/Berlin"').server.effective_time_zone == "Europe/Berlin"
    monkeypatch.setenv("TZ", "nonsense")
    assert load(tmp_path, "").server.effective_time_zone


@pytest.mark.parametrize(
    "line",
    [
        "queue.half_life_days = 0",
        "queue.half_life_days = -1.0",
        "queue.half_life_days = nan",
        f"queue.half_life_days = 1{'0' * 400}",
        "queue.share_weight = inf",
        "queue.share_weight = true",
        'queue.size_weight = "6"',
        "queue.assumed_limit_hours = 0",
        "queue.backfill_reservations = 0",
        "queue.backfill_reservations = 1.5",
        "queue.preemption = 1",
        "queue.cpu_charge = -0.1",
        "storage.keep_job_folders_days = -1",
        "storage.keep_job_folders_days = 0.5",
        'server.time_zone = "Mars/Base"',
        'server.time_zone = "../../etc/passwd"',
        "server.time_zone = 1",
        'server.host = "not a host"',
        'server.host = "10.0.0.999"',
        'server.host = "::zz"',
        'server.public_url = "javascript:1"',
        'server.public_url = "gpu.example.org"',
        'server.public_url = "http://gpu.example.org"',
        'server.public_url = "http://127.evil.example"',
        'server.public_url = "https://gpu.example.org/heliostat"',
        'server.public_url = "https://me:secret@gpu.example.org"',
        'server.simulate_gpus = "zz"',
        'server.simulate_gpus = "0xA100"',
        'server.simulate_gpus = "200xA100,200xT4"',
        'server.simulated_nodes = "zz"',
        "auth.token_days = 900",
        "queue.preemption_protection_seconds = 0",
        "queue.urgent_gpu_hours_per_month = -1",
        "queue.gpu_charges = 2.0",
        "queue.gpu_charges = { a100 = 0 }",
        "queue.gpu_charges = { a100 = -1 }",
        "queue.gpu_charges = { a100 = nan }",
        'queue.gpu_charges = { a100 = "2" }',
        "queue.gpu_charges = { a100 = true }",
        "queue.gpu_charges = { a100 = { x = 1 } }",
        "queue.gpu_charge = { a100 = 1 }",
        'containers.runtimes = "podman"',
        'containers.runtimes = ["podman", "rocket"]',
        "containers.runtimes = [1]",
        'containers.default_runtime = "rocket"',
        'containers.default_runtime = "process"',
        'containers.networks = ["everything"]',
        "containers.required = 1",
        'containers.required_for = "patients"',
        'containers.allowed_registries = [""]',
        'containers.allowed_digests = ["python:3.11"]',
        "containers.mount_paths = [true]",
        'containers.mount_paths = ["relative"]',
        'containers.mount_paths = ["/data:rw"]',
        'containers.mount_paths = ["/srv/{group}"]',
        "containers.oci_runtime = 1",
        "containers.oci_runtimes = { patients = 1 }",
        'containers.oci_runtimes = { patients = "" }',
    ],
)
def test_a_setting_that_makes_no_sense_stops_the_start_and_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, line)
    section, _, name = line.partition(" ")[0].partition(".")
    assert f"[{section}]" in caught.value.message
    assert name in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        'server.host = "::"',
        'server.host = "gpu1.example.org"',
        'server.public_url = "https://gpu.example.org:8443/"',
        'server.public_url = "https://[2001:db8::1]"',
        'server.public_url = "http://localhost:8470"',
        'server.public_url = "http://[::1]:8470"',
        'server.simulate_gpus = " 2xa100, 12xRTX-4090 "',
        'server.simulated_nodes = "8x4xA100, 3xcpu"',
        "auth.token_days = 366",
    ],
)
def test_addresses_and_simulated_hardware_in_every_spelling_are_accepted(tmp_path: Path, line: str) -> None:
    load(tmp_path, line)


def test_a_file_that_is_no_file_or_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for depth in (5000, 300, 90):
        (tmp_path / f"deep{depth}").write_text(f"server.port = {'[' * depth}{']' * depth}")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "deep5000", "deep300", "deep90", "folder"):
        (problem,) = check_config(tmp_path / name)
        assert problem.message
        assert problem.hint


@pytest.mark.parametrize("name", ["slurm_api", "slurm_token_file", "slurm_api_user"])
def test_a_setting_for_slurmrestd_is_refused_and_the_hint_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, f'server.engine = "slurm"\n{name} = "x"\n')
    assert f"there is no setting {name!r}" in caught.value.message
    assert caught.value.hint == f"Remove {name}: Heliostat uses the command-line tools of Slurm."


def test_every_setting_of_a_flat_file_is_refused_with_its_new_place() -> None:
    problems = {problem.key: problem.message for problem in find_problems(dict.fromkeys(RENAMED_SETTINGS, 1))}
    assert problems.keys() == RENAMED_SETTINGS.keys()
    assert problems["images_keep_days"] == "images_keep_days is now keep_days in [containers]"
    assert problems["host"] == "host is now in [server]"


def test_every_new_place_of_an_old_setting_is_there() -> None:
    assert set(RENAMED_SETTINGS.values()) <= {
        f"{section}.{name}" for section in SECTIONS for name in section_fields(section)
    }


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[contaners]\na = 1", "no section [contaners]", "Did you mean [containers]?"),
        ("[containers]\nkeep_day = 1", "[containers] has no setting 'keep_day'", "Did you mean keep_days?"),
        ("[containers]\nimages_max_size = 1", "images_max_size is now max_size in [containers]", "below a line"),
        ("[auth]\nhalf_life_days = 1", "[auth] has no setting 'half_life_days'", "It belongs in [queue]."),
        ("[auth]\nzzz = 1", "[auth] has no setting 'zzz'", "Settings of this section: admit_local_users, "),
        ("keep_days = 1", "keep_days must be in a section", "below a line [containers] or [environments]."),
        ("server = 1", "server is a section", "Write [server] on a line"),
        (
            "half_live_days = 1",
            "no setting or section 'half_live_days'",
            "Did you mean half_life_days in [queue]?",
        ),
        ("zzz = 1", "no setting or section 'zzz'", "Sections: server, queue, "),
    ],
)
def test_a_key_that_is_not_known_is_refused_with_the_nearest(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path}/cluster.toml: ")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("size", ["512K", "0", "none"])
def test_a_maximum_size_of_logs_that_is_refused_names_the_smallest_and_the_largest(size: str) -> None:
    (problem,) = find_problems({"storage": {"log_max_size": size}})
    assert problem.hint == 'Write a size of at least 1M: "500M", "2G"; as good as no limit: "1000T".'
    assert find_problems({"storage": {"log_max_size": "1000T"}}) == []


def test_all_problems_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, "port = 1\n[queue]\nshare_weight = -1\n[slurm]\nfoo = 1\n")
    for key in ("port is now", "share_weight = -1", "'foo'"):
        assert key in caught.value.message
    assert caught.value.hint == "`helio config check` shows how to fix them."


def test_options_win_over_the_file_and_are_checked_as_well(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[server]\nport = 1\nengine = "slurm"\n')
    settings = load_settings(
        Home(tmp_path), {"server": {"port": 0, "engine": None}, "queue": {"preemption": False}}
    )
    assert (settings.server.port, settings.server.engine, settings.queue.preemption) == (0, "slurm", False)
    assert settings.sources["server.port"] == "command line"
    assert settings.sources["server.engine"] == "cluster.toml"
    assert settings.command_line_options == {"server": {"port": 0}, "queue": {"preemption": False}}
    with pytest.raises(Invalid, match=r"command line: \[server\] engine"):
        load_settings(Home(tmp_path), {"server": {"engine": "wooden"}})


@pytest.mark.parametrize("section", SECTIONS)
def test_the_defaults_and_examples_of_a_section_are_good_settings(section: str) -> None:
    for name, one in section_fields(section).items():
        default, example = default_value(one), rules_of_setting(one).example
        assert "number" not in describe_type(one) or rules_of_setting(one).minimum is not None, name
        assert default is None or find_value_fault(one, default) is None, name
        if example and "…" not in example:
            assert find_value_fault(one, tomllib.loads(f"x = {example}")["x"]) is None, name
