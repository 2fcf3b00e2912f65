"""`helio slurm setup` from nothing to a job, with the real daemons, and killed after each step of the way."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.errors import Conflict
from heliostat.provision.slurm.configuration import render_node_script
from heliostat.provision.slurm.setup import SetupInput, apply_setup, plan_setup
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.provisioned_slurm import FIRST_NODE, HOST, SECOND_NODE, ProvisionedSlurm

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(provisioned_slurm: ProvisionedSlurm) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', provisioned_slurm.env)
    yield server
    server.remove()


def test_it_was_killed_after_each_step_and_all_nodes_came_up(provisioned_slurm: ProvisionedSlurm) -> None:
    assert (
        provisioned_slurm.kill_count >= 8
    )  # the key, four files, the database's folder, the database, the cluster
    ready = [FIRST_NODE, "idle", SECOND_NODE, "idle"]
    wait_for(
        lambda: provisioned_slurm.run("sinfo", "-h", "-N", "-o", "%N %T").split() == ready,
        "nodes",
        provisioned_slurm.logs,
    )


def test_applied_once_more_it_changes_nothing(provisioned_slurm: ProvisionedSlurm) -> None:
    before = _contents(provisioned_slurm.conf_folder)
    assert list(apply_setup(provisioned_slurm.sources)) == []
    assert _contents(provisioned_slurm.conf_folder) == before
    assert {one.state for one in plan_setup(provisioned_slurm.sources).files} == {"same"}


def test_secrets_are_for_their_users_alone(provisioned_slurm: ProvisionedSlurm) -> None:
    key = provisioned_slurm.folder / "p" / "etc" / "munge" / "munge.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o400
    assert key.owner() == "munge"
    conf = provisioned_slurm.conf_folder / "slurmdbd.conf"
    assert stat.S_IMODE(conf.stat().st_mode) == 0o600
    assert conf.owner() == "slurm"
    password = conf.read_text().partition("StoragePass=")[2].strip()
    assert len(password) >= 24
    assert password not in json.dumps([one.diff for one in plan_setup(provisioned_slurm.sources).files])
    assert password not in provisioned_slurm.logs()


def test_the_doctor_finds_nothing_wrong_with_it(server: RunningServer) -> None:
    assert server.ask("POST", "/slurm/apply").status == 200
    found = server.ask("POST", "/doctor").json["findings"]
    of_slurm = [one for one in found if one["check"] == "slurm"]
    assert of_slurm
    assert [one for one in of_slurm if one["level"] != "ok"] == []


def test_slurm_has_all_that_its_accounts_want_of_it(server: RunningServer) -> None:
    said = server.ask("POST", "/slurm/apply").json["unsupported"]
    assert [line for line in said if line.strip().startswith("Slurm does not") or "QOS normal" in line] == []


def test_a_job_of_a_person_runs_with_its_gpus(
    provisioned_slurm: ProvisionedSlurm, server: RunningServer, two_unix_users: list[Person]
) -> None:
    person = two_unix_users[0]
    server.ask("GET", "/status", uid=person.uid)
    assert server.ask("POST", "/slurm/apply").status == 200
    job = server.run(
        person.uid,
        command=["sh", "-c", 'id -un; echo "$CUDA_VISIBLE_DEVICES"'],
        gpus=2,
        gpu_type="a100",
        memory="200M",
    )
    assert (job["state"], job["node"]) == ("completed", FIRST_NODE), provisioned_slurm.logs()
    assert server.output(job["id"], person.uid).split() == [person.name, "0,1"]


def test_a_file_somebody_changed_or_made_is_left_alone(provisioned_slurm: ProvisionedSlurm) -> None:
    conf = provisioned_slurm.conf_folder / "slurm.conf"
    ours = conf.read_bytes()
    moments = conf.stat()
    try:
        for text, words in (
            (ours + b"KillWait=5\n", "edited by hand"),
            (b"ClusterName=old\n", "not written by Heliostat"),
        ):
            conf.write_bytes(text)
            before = _contents(provisioned_slurm.conf_folder)
            with pytest.raises(Conflict, match=words) as refused:
                list(apply_setup(provisioned_slurm.sources))
            assert refused.value.hint
            assert _contents(provisioned_slurm.conf_folder) == before
    finally:
        conf.write_bytes(ours)
        os.utime(conf, ns=(moments.st_atime_ns, moments.st_mtime_ns))


def test_a_change_shows_in_the_plan_and_wants_a_new_start_of_the_controller(
    provisioned_slurm: ProvisionedSlurm,
) -> None:
    old = (provisioned_slurm.conf_folder / "slurm.conf").read_text()
    nodes = provisioned_slurm.sources.nodes_file
    nodes.write_text(nodes.read_text().replace('features = ["fast"]', 'features = ["fast", "new"]'))
    assert "Feature=fast,new" in "".join(one.diff for one in plan_setup(provisioned_slurm.sources).files)
    assert provisioned_slurm.run_one_step() is None
    assert [path.read_text() for path in provisioned_slurm.conf_folder.glob("slurm.conf.until-*")] == [old]
    with pytest.raises(Conflict, match="runs with an old configuration") as stopped:
        list(apply_setup(provisioned_slurm.sources))
    provisioned_slurm.restart(stopped.value.fields["start"])
    assert list(apply_setup(provisioned_slurm.sources)) == []
    assert "new" in provisioned_slurm.run("sinfo", "-h", "-n", FIRST_NODE, "-o", "%f")


def test_the_script_for_nodes_says_what_it_did_and_does_it_once(provisioned_slurm: ProvisionedSlurm) -> None:
    there = SetupInput(provisioned_slurm.sources.nodes_file, str(provisioned_slurm.folder / "node"))
    script = render_node_script(there.read_cluster_spec(), there.paths, b"k" * 128)
    first = _run_script(script)
    assert first.returncode == 0, first.stderr
    assert "writing" in first.stdout
    key = Path(there.paths.munge_key)
    assert (key.read_bytes(), stat.S_IMODE(key.stat().st_mode), key.owner()) == (b"k" * 128, 0o400, "munge")
    assert {path.name for path in Path(there.paths.config_folder).iterdir()} == {
        "slurm.conf",
        "gres.conf",
        "cgroup.conf",
    }
    again = _run_script(script)
    assert "writing" not in again.stdout
    assert "nothing to change" in again.stdout
    (Path(there.paths.config_folder) / "slurm.conf").write_text("ClusterName=old\n")
    refused = _run_script(script)
    assert refused.returncode == 1
    assert "was not written by Heliostat" in refused.stderr
    elsewhere = _run_script(script.replace(f"hosts={HOST}\n", "hosts=gpu7\n"))
    assert f"This host is {HOST}, which is not in nodes.toml" in elsewhere.stderr


def _run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """As it comes through ssh."""
    return subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=60, check=False)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
