"""`helio migrate slurm`, as it is typed."""

import json
import os


def test_without_slurm_it_says_what_is_missing_and_changes_nothing(helio, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "home").mkdir()
    ran = helio("migrate", "slurm", "--dry-run")
    assert ran.code != 0
    assert "problem: Not installed: sbatch" in ran.out
    assert "0 waiting jobs would be kept" in ran.out
    assert "Not ready for Slurm" in ran.err
    assert helio("migrate", "slurm").code == ran.code
    assert os.listdir(tmp_path / "home") == ["server.lock"]


def test_where_it_is_done_already_that_is_all_there_is_to_say(helio, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cluster.toml").write_text('server.engine = "slurm"\n')
    assert helio("migrate", "slurm").out == "Heliostat uses Slurm already.\n"
    assert json.loads(helio("migrate", "slurm", "--json").out)["is_done"] is True
