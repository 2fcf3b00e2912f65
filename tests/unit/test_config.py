from pathlib import Path

import pytest

from heliostat.config import Home, Settings, load_settings
from heliostat.errors import Invalid


def load(folder: Path, text: str) -> Settings:
    (folder / "cluster.toml").write_text(text)
    return load_settings(Home(folder))


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    assert load_settings(Home(tmp_path)) == Settings(Home(tmp_path))


def test_settings_of_the_queue_are_read(tmp_path: Path) -> None:
    settings = load(tmp_path, "half_life_days = 14\npreemption = false\ngpu_charges = { a100 = 2.0, t4 = 1 }\n")
    assert (settings.half_life_days, settings.preemption) == (14, False)
    assert settings.gpu_charges == {"a100": 2.0, "t4": 1}


def test_settings_of_containers_are_read(tmp_path: Path) -> None:
    settings = load(tmp_path, 'mount_paths = ["{home}", "/data:ro"]\noci_runtimes = { patients = "kata" }\n')
    assert settings.mount_paths == ("{home}", "/data:ro")
    assert settings.oci_runtimes == {"patients": "kata"}


def test_the_time_zone_is_that_of_the_server_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert load(tmp_path, "").zone == "Asia/Tokyo"
    assert load(tmp_path, 'time_zone = "Europe/Berlin"').zone == "Europe/Berlin"
    monkeypatch.setenv("TZ", "nonsense")
    assert load(tmp_path, "").zone


@pytest.mark.parametrize(
    "line",
    [
        "half_life_days = 0",
        "half_life_days = -1.0",
        "half_life_days = nan",
        "share_weight_hours = inf",
        "share_weight_hours = true",
        'size_weight_hours = "6"',
        "assumed_limit_hours = 0",
        "backfill_reservations = 0",
        "backfill_reservations = 1.5",
        "preemption = 1",
        "cpu_charge = -0.1",
        "keep_job_folders_days = -1",
        "keep_job_folders_days = 0.5",
        'time_zone = "Mars/Base"',
        'time_zone = "../../etc/passwd"',
        "time_zone = 1",
        "preemption_protection_seconds = 0",
        "urgent_gpu_hours_per_month = -1",
        "gpu_charges = 2.0",
        "gpu_charges = { a100 = 0 }",
        "gpu_charges = { a100 = -1 }",
        "gpu_charges = { a100 = nan }",
        'gpu_charges = { a100 = "2" }',
        "gpu_charges = { a100 = true }",
        "gpu_charges = { a100 = { x = 1 } }",
        "gpu_charge = { a100 = 1 }",
        'runtimes = "podman"',
        'runtimes = ["podman", "rocket"]',
        "runtimes = [1]",
        'container_runtime = "rocket"',
        'container_runtime = "process"',
        'container_networks = ["everything"]',
        "containers_required = 1",
        'containers_required_for = "patients"',
        'allowed_registries = [""]',
        'known_digests = ["python:3.11"]',
        "mount_paths = [true]",
        'mount_paths = ["relative"]',
        'mount_paths = ["/data:rw"]',
        'mount_paths = ["/srv/{group}"]',
        "oci_runtime = 1",
        "oci_runtimes = { patients = 1 }",
        'oci_runtimes = { patients = "" }',
    ],
)
def test_a_setting_that_makes_no_sense_stops_the_start_and_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, line)
    assert line.partition(" ")[0] in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["slurm_api", "slurm_token_file", "slurm_api_user"])
def test_a_setting_for_slurmrestd_is_refused_and_the_hint_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, f'engine = "slurm"\n{name} = "x"\n')
    assert f"there is no setting {name!r}" in caught.value.message
    assert caught.value.hint == f"Heliostat speaks to Slurm by its command-line tools; remove {name}."
