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
    assert load(tmp_path, "").server.zone == "Asia/Tokyo"
    assert load(tmp_path, 'server.time_zone = "Europe/Berlin"').server.zone == "Europe/Berlin"
    monkeypatch.setenv("TZ", "nonsense")
    assert load(tmp_path, "").server.zone


@pytest.mark.parametrize(
    "line",
    [
        "queue.half_life_days = 0",
        "queue.half_life_days = -1.0",
        "queue.half_life_days = nan",
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


@pytest.mark.parametrize("name", ["slurm_api", "slurm_token_file", "slurm_api_user"])
def test_a_setting_for_slurmrestd_is_refused_and_the_hint_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, f'server.engine = "slurm"\n{name} = "x"\n')
    assert f"there is no setting {name!r}" in caught.value.message
    assert caught.value.hint == f"Heliostat speaks to Slurm by its command-line tools; remove {name}."
