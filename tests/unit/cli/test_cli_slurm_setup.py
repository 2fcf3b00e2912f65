"""`helio slurm setup`, as it is typed."""

import errno
import json
import os
import socket
import stat
from pathlib import Path

NODES = """\
controller = "{controller}"

[[nodes]]
name = "gpu[1-2]"
cpus = 8
memory = "10G"
gpus = {{ a100 = 2 }}
"""
SAID = "NodeName=gpu1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000\n"


def nodes(tmp_path, controller="gpu1"):
    path = tmp_path / "nodes.toml"
    path.write_text(NODES.format(controller=controller))
    return str(path)


def test_a_plan_shows_every_file_and_changes_nothing(helio, tmp_path):
    ran = helio("slurm", "setup", "plan", "--nodes", nodes(tmp_path), "--prefix", "/srv/no/such")
    assert ran.code == 0
    for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"):
        assert f"+++ /srv/no/such/etc/slurm/{name}" in ran.out
    assert "StoragePass=(made when it is applied)" in ran.out
    assert "slurmctld -D" in ran.out
    assert not os.path.exists("/srv/no/such")


def test_a_plan_can_be_written_to_a_folder_once(helio, tmp_path):
    words = ("slurm", "setup", "plan", "--nodes", nodes(tmp_path), "--to", str(tmp_path / "out"), "--json")
    said = json.loads(helio(*words).out)
    expected = ["cgroup.conf", "gres.conf", "heliostat-slurmd.conf", "slurm.conf", "slurmdbd.conf"]
    assert sorted(os.listdir(tmp_path / "out")) == expected
    assert len(said["written"]) == 5
    again = helio(*words)
    assert again.code == 6
    assert "is there already" in again.err


def test_what_is_wrong_in_the_description_is_said_with_a_hint(helio, tmp_path):
    path = nodes(tmp_path, "gpu 1")
    ran = helio("slurm", "setup", "plan", "--nodes", path)
    assert ran.code == 2
    assert f"In {path}: controller: 'gpu 1' cannot be the name of a machine" in ran.err
    assert "hint: " in ran.err
    assert helio("slurm", "setup", "plan", "--nodes", str(tmp_path / "none.toml")).code == 4


def test_only_the_controller_is_set_up_and_only_by_root(helio, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    words = ("slurm", "setup", "apply", "--prefix", "/srv/no/such")
    ran = helio(*words, "--nodes", nodes(tmp_path, "surely-elsewhere"))
    assert ran.code == 6
    assert "nodes.toml says controller" in ran.err
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert helio(*words, "--nodes", nodes(tmp_path)).code == 5
    assert not (tmp_path / "p").exists()


def test_what_is_not_installed_is_named(helio, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("heliostat.provision.slurm.setup_host.shutil.which", lambda name, path: None)
    here = socket.gethostname().partition(".")[0]
    prefix = "/srv/no/such"
    ran = helio("slurm", "setup", "apply", "--nodes", nodes(tmp_path, here), "--prefix", prefix)
    assert ran.code == 6
    assert "Not installed: mariadb-server, munge" in ran.err
    assert "--install" in ran.err
    assert not os.path.exists(prefix)


def test_use_is_not_for_a_try(helio, tmp_path):
    ran = helio("slurm", "setup", "apply", "--nodes", nodes(tmp_path), "--use", "--prefix", "/srv/no/such")
    assert ran.code == 2


def test_that_slurm_is_used_from_now_on_is_said(helio, tmp_path, monkeypatch):
    monkeypatch.setattr("heliostat.provision.slurm.setup.apply_setup", lambda sources, install: iter(()))
    monkeypatch.setattr("heliostat.cli.slurm_setup._use", lambda: iter(["Heliostat is set to Slurm."]))
    ran = helio("slurm", "setup", "apply", "--nodes", nodes(tmp_path), "--use")
    assert ran.out == "Heliostat is set to Slurm.\nSlurm is set up.\n"


def test_who_may_not_read_the_password_is_shown_the_rest_of_the_plan(helio, tmp_path, monkeypatch):
    reads = Path.read_text

    def reads_what_it_may(path, **how):
        if path.name == "slurmdbd.conf":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return reads(path, **how)

    monkeypatch.setattr(Path, "read_text", reads_what_it_may)
    ran = helio("slurm", "setup", "plan", "--nodes", nodes(tmp_path), "--prefix", "/srv/no/such")
    assert ran.code == 0
    assert "/srv/no/such/etc/slurm/slurmdbd.conf can be read only by root\n" in ran.out
    assert "+++ /srv/no/such/etc/slurm/slurm.conf" in ran.out


def test_what_a_machine_said_becomes_a_part_of_the_description(helio, tmp_path):
    (tmp_path / "said").write_text(SAID + "GPU 0: Tesla T4 (UUID: GPU-1)\n")
    ran = helio("slurm", "setup", "node", "--from", str(tmp_path / "said"))
    assert '[[nodes]]\nname = "gpu1"\ncpus = 8\n' in ran.out
    assert 'gpus = { "t4" = 1 }' in ran.out
    assert "nodes_toml" in json.loads(
        helio("slurm", "setup", "node", "--from", str(tmp_path / "said"), "--json").out
    )


def test_the_script_goes_to_a_file_for_oneself_alone(helio, tmp_path):
    target = tmp_path / "node.sh"
    words = ("slurm", "setup", "node-script", "--nodes", nodes(tmp_path), "--to", str(target))
    assert helio(*words).code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert helio(*words).code == 6
    assert "main() {" in helio(*words[:5]).out


def test_a_key_that_is_not_there_is_said(helio, tmp_path):
    words = ("slurm", "setup", "node-script", "--nodes", nodes(tmp_path), "--with-key", "--prefix", "/srv/no/such")
    ran = helio(*words)
    assert ran.code == 4
    assert "setup apply" in ran.err
