"""Options in scripts, personal defaults, and --dry-run."""

import json
import os

import pytest

from heliostat.cli.sbatch_options import translate_sbatch_options
from unit.client.stand_in_server import answer

JOB = {"id": 7, "state": "pending"}
SCRIPT = """#!/bin/bash
#SBATCH --job-name=resnet --partition gpu
#SBATCH -t 90 -c4
#HELIO --gpus 2 --env SEED=3   # a comment

#HELIO --time 4h
echo "$1"
#HELIO --gpus 8
"""


def sent(request):
    return json.loads(request.split(b"\r\n\r\n", 1)[1])


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.sh").write_text(SCRIPT)
    return str(tmp_path / "train.sh")


@pytest.fixture
def defaults(tmp_path):
    (tmp_path / "config/heliostat").mkdir(parents=True)
    path = tmp_path / "config/heliostat/defaults.toml"
    path.write_text('project = "vision"\ntime = "1h"\nenv = {WANDB_MODE = "offline", SEED = "1"}\n')
    return path


def test_a_script_says_what_it_needs_and_the_command_line_wins(helio, serve, script, defaults):
    server = serve(answer(JOB, 201))
    ran = helio("run", "--gpus", "1", "--env", "SEED=4", script, "epoch")
    assert "Ignored #SBATCH options: --partition=gpu\n" in ran.err
    assert "Ignored line 8, below the first command: #HELIO --gpus 8\n" in ran.err
    assert sent(server.requests[0]) == {
        "name": "resnet",
        "project": "vision",
        "gpus": 1,
        "cpus": 4,
        "time_limit": "4h",
        "env": {"WANDB_MODE": "offline", "SEED": "4"},
        "script": SCRIPT,
        "command": ["epoch"],
        "workdir": os.getcwd(),
    }


@pytest.mark.parametrize("words", [("run", "--script"), ("submit",)])
def test_a_script_may_be_given_as_an_option_or_submitted(helio, serve, script, words):
    server = serve(answer(JOB, 201))
    assert helio(*words, script).code == 0
    assert (sent(server.requests[0])["gpus"], sent(server.requests[0])["script"]) == (2, SCRIPT)


def test_options_that_are_all_below_the_first_command_are_ignored_with_a_warning(helio, serve, tmp_path):
    server = serve(answer(JOB, 201))
    (tmp_path / "late.sh").write_text("#!/bin/sh\necho hi\n#HELIO --gpus 4\n")
    ran = helio("run", str(tmp_path / "late.sh"))
    assert "Ignored line 3, below the first command: #HELIO --gpus 4\n" in ran.err
    assert "gpus" not in sent(server.requests[0])


def test_a_wrong_line_of_a_script_is_named(helio, tmp_path):
    (tmp_path / "x.sh").write_text("#!/bin/sh\n#HELIO --gpuz 2\n")
    assert "Line 2, #HELIO: No such option: --gpuz" in helio("run", str(tmp_path / "x.sh")).err


@pytest.mark.parametrize(
    ("words", "fields", "ignored"),
    [
        ("-J a -t 1-12 -n 2 -c 3 --mem=16G", {"name": "a", "time": 129600, "cpus": 6, "memory": 16384}, []),
        ("--time=1:30:00 --mem-per-cpu 500 -c 2", {"time": 5400, "cpus": 2, "memory": 1000}, []),
        ("-t 0:30", {"time": 30}, []),
        ("--gres=gpu:1g.10gb:2", {"gpus": 2, "gpu_type": "1g.10gb"}, []),
        ("--gres=gpu:a100:2 --exclusive", {"gpus": 2, "gpu_type": "a100", "exclusive": True}, []),
        ("-n 4 --gpus-per-task=1", {"cpus": 4, "gpus": 4}, []),
        ("-G 1 -N 1 --array=0-9%2 -H", {"gpus": 1, "array": "0-9%2", "held": True}, []),
        (
            "-N 4 --mem=0 -t UNLIMITED -o out.log --requeue --gres=nvme:1",
            {},
            ["--nodes=4", "--mem=0", "--time=UNLIMITED", "-o=out.log", "--requeue", "--gres=nvme:1"],
        ),
    ],
)
def test_options_of_slurm_are_understood_or_named(words, fields, ignored):
    assert translate_sbatch_options(words.split()) == (fields, ignored)


def test_defaults_apply_to_commands_with_these_options(helio, serve, defaults):
    server = serve(answer({"starts_now": True, "forecast": None, "smaller": []}))
    helio("when", "--json", "--gpus", "1")
    assert (sent(server.requests[0])["project"], sent(server.requests[0])["time_limit"]) == ("vision", "1h")
    assert "env" not in sent(server.requests[0])


def test_a_wrong_default_is_named_with_its_file(helio, defaults):
    defaults.write_text("gpuz = 1")
    assert f"{defaults}: gpuz cannot have a default (did you mean gpus?)." in helio("run", "true").err
    defaults.write_text("gpus =")
    assert f"{defaults}: Invalid value" in helio("run", "true").err


def test_a_dry_run_shows_each_value_and_where_it_is_from(helio, serve, script, defaults):
    request = {"gpus": 2, "time_limit": 14400, "name": "resnet", "project": "vision", "memory": 8192}
    server = serve(answer({"count": 1, "jobs": [{"id": None, "request": request}]}))
    ran = helio("run", "--dry-run", "--upload", "/src", script)
    assert b"POST /api/v1/jobs/bulk?dry_run=true" in server.requests[0]
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines()[1:-1]}
    assert rows["gpus"] == ["2", "#HELIO"]
    assert rows["name"] == ["resnet", "#SBATCH"]
    assert rows["project"] == ["vision", "defaults.toml"]
    assert rows["memory"] == ["8G", "server"]
    assert rows["upload"] == ["/src", "command", "line"]
    assert "1 job would be accepted. Nothing is submitted." in ran.out


def test_a_time_needs_a_unit(helio):
    assert "5 has no unit; write 5m, 5h or 5s" in helio("run", "--time", "5", "--", "true").err


def test_from_another_machine_a_job_without_code_is_said_to_start_in_an_empty_folder(helio, monkeypatch, tmp_path):
    monkeypatch.setenv("HELIOSTAT_URL", "http://127.0.0.1:1")  # nothing listens there
    assert "an empty folder there. --upload . sends this folder" in helio("run", "--", "true").err
    assert "empty folder" not in helio("run", "--workdir", "/data", "--", "true").err
    (tmp_path / "job.yaml").write_text("command: 'true'")
    assert "`upload: .` sends this folder" in helio("submit", str(tmp_path / "job.yaml")).err
