"""Containers on Slurm: the exact scripts, and what they do in a real shell with stand-ins for tools.

After a change that is meant, UPDATE_CASES=1 writes the cases anew; read the difference.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import ContainerSettings, Home, Settings
from heliostat.engines.containers import ContainerInputs
from heliostat.engines.job_folders import AttemptRefused
from heliostat.engines.job_variables import RunAsUser, job_variables
from heliostat.engines.slurm import containers as module
from heliostat.engines.slurm.arrays import (
    ArrayScriptContext,
    SubmissionChunk,
    array_container_inputs,
    render_array_script,
)
from heliostat.engines.slurm.batch_script import render_batch_script
from heliostat.engines.slurm.containers import check_container, make_container_script, signal_to_send
from heliostat.errors import Invalid
from heliostat.models import Attempt, Mount
from heliostat.runtimes.contract import TOOL_PATH
from unit.engines.slurm.test_slurm_script import ANN, AROUND, attempt_of, paths_in

CASES = Path(__file__).parents[3] / "cases" / "slurm_containers"
HOSTILE = {"KEY": "'; $(id)\n`id`", "LD_PRELOAD": "/x.so", "heliostat_folder": "/", "SLURM_JOB_ID": "9"}
WORDS = ("a'b", "$(id)", "; exit 1", "\n", "-v", "/:/host", '"$heliostat_folder"')
ASKED: dict[str, dict[str, Any]] = {
    "podman": {"image": "docker.io/library/python:3.11", "runtime": "podman", "env": HOSTILE},
    "bubblewrap": {"runtime": "bubblewrap", "env": HOSTILE, "mounts": (Mount("/home/ann/it s", "/data", True),)},
    "apptainer": {"image": "docker.io/library/python:3.11", "runtime": "apptainer", "env": HOSTILE},
}
SHAPES: dict[str, dict[str, Any]] = {"one": {"gpus": 2}, "gang": {"placement": {"tasks": 2}}}


def asked(spec: dict[str, Any], **fields: Any) -> Attempt:
    attempt = attempt_of({"command": list(WORDS), **fields})
    return replace(attempt, job=replace(attempt.job, spec=replace(attempt.job.spec, **spec)))


def settings(**more: Any) -> Settings:
    return Settings(Home(Path("/var/lib/heliostat")), containers=ContainerSettings(**more))


def script_of(attempt: Attempt, person: RunAsUser = ANN, folder: str = "/srv/it's/12", **more: Any) -> str:
    paths = paths_in(folder, f"{folder}/work")
    variables = job_variables(attempt, person, AROUND, {})
    inner = make_container_script(
        attempt, person, ContainerInputs(paths.workdir, f"{folder}/c", None, variables), settings(**more)
    )
    return render_batch_script(attempt, person, paths, AROUND, inner)


def array_script_of(attempt: Attempt) -> str:
    chunk = SubmissionChunk({3: replace(attempt, job=replace(attempt.job, array_id=1, array_index=3))})
    inner = make_container_script(chunk.first, ANN, array_container_inputs(chunk, ANN, AROUND, "ab12"), settings())
    return render_array_script(chunk, ANN, AROUND, ArrayScriptContext("/srv/it's/jobs", "ab12", inner))


@pytest.mark.parametrize("shape", [*SHAPES, "array"])
@pytest.mark.parametrize("runtime", ASKED)
def test_the_script_is_exactly_this(runtime: str, shape: str) -> None:
    attempt, expected = asked(ASKED[runtime], **SHAPES.get(shape, {})), CASES / f"{runtime}_{shape}.txt"
    script = array_script_of(attempt) if shape == "array" else script_of(attempt)
    for text in (module._text(), module._text().replace("'", "'\"'\"'")):
        script = script.replace(text, "# containers.sh")
    if os.environ.get("UPDATE_CASES"):
        expected.write_text(script, encoding="utf-8")
    assert script == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("shape", [*SHAPES, "array"])
@pytest.mark.parametrize("runtime", ASKED)
def test_every_shell_can_read_it(runtime: str, shape: str) -> None:
    attempt = asked(ASKED[runtime], **SHAPES.get(shape, {}))
    script = array_script_of(attempt) if shape == "array" else script_of(attempt)
    for shell in filter(shutil.which, ("dash", "bash")):
        done = subprocess.run([shell, "-n"], input=script.encode(), capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def node() -> Iterator[Path]:
    """A node with stand-ins for its tools; its name must be short."""
    with tempfile.TemporaryDirectory(prefix="hs", dir="/tmp") as folder:
        node = Path(folder)
        (node / "bin").mkdir()
        stand_in(node, "bwrap", f'for word; do printf "%s\\0" "$word"; done >{node}/argv; cat <&7 >{node}/sealed')
        stand_in(node, "nvidia-smi", 'echo "$2" >&2; echo GPU-1a; echo GPU-2b')
        (node / "1.receipt").touch()
        (node / "1.tasks").mkdir()
        yield node


def stand_in(node: Path, name: str, line: str) -> None:
    (node / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
    (node / "bin" / name).chmod(0o755)


def run_on(node: Path, attempt: Attempt, **given: str) -> subprocess.CompletedProcess[bytes]:
    me = replace(ANN, uid=os.getuid(), gid=os.getgid())
    script = script_of(attempt, me, str(node), scratch=str(node))
    script = script.replace(TOOL_PATH, f"{node}/bin:{TOOL_PATH}")
    known = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", **given}
    return subprocess.run(["sh"], input=script.encode(), env=known, capture_output=True, cwd="/", check=False)


def test_the_tool_gets_words_and_variables_untouched_and_the_gpus_by_uuid(node: Path) -> None:
    done = run_on(node, asked(ASKED["bubblewrap"], gpus=2), CUDA_VISIBLE_DEVICES="0,1")
    assert (done.returncode, done.stderr) == (0, b"0,1\n")
    words = (node / "argv").read_text().split("\0")[:-1]
    assert tuple(words[-len(WORDS) :]) == WORDS
    assert words[words.index("CUDA_VISIBLE_DEVICES") + 1] == "GPU-1a,GPU-2b"
    assert words[words.index("HELIOSTAT_NODE") + 1] == "n1"
    sealed = (node / "sealed").read_text().split("\0")
    for name, value in HOSTILE.items():
        assert sealed[sealed.index(name) + 1] == value
    assert not {HOSTILE["KEY"], HOSTILE["LD_PRELOAD"]} & set(words)
    assert (node / "1.receipt").read_text() == "begun 77 0 n1\nended 77 0 0\n"


def test_nothing_is_left_on_the_node_and_what_was_left_is_swept(node: Path) -> None:
    base = node / f"heliostat-{os.getuid()}"
    (base / "5.0.0").mkdir(parents=True)
    (base / "5.0.0" / "left").touch()
    (base / "5.0.0.lock").touch()
    assert run_on(node, asked(ASKED["bubblewrap"])).returncode == 0
    deadline = time.monotonic() + 60
    while (left := [path.name for path in base.iterdir()]) != ["images"]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def test_too_few_gpus_and_missing_tools_are_said(node: Path) -> None:
    done = run_on(node, asked(ASKED["bubblewrap"], gpus=1), CUDA_VISIBLE_DEVICES="0,1")
    assert (done.returncode, b"has 2 visible GPUs, expected 1" in done.stderr) == (126, True)
    (node / "1.receipt").write_text("")
    done = run_on(node, asked(ASKED["apptainer"]))
    assert (done.returncode, done.stderr) == (126, b"heliostat: apptainer is not installed on n1\n")


@pytest.mark.parametrize("signal_name", ["TERM", "USR1"])
def test_only_a_container_hears_another_signal(signal_name: str) -> None:
    plain, inner = asked({}).job.spec, asked(ASKED["podman"]).job.spec
    assert signal_to_send(signal_name, plain) == signal_name
    assert signal_to_send(signal_name, inner) == ("URG" if signal_name == "TERM" else signal_name)


def test_what_would_leave_slurms_limits_and_what_admins_forbid_is_refused() -> None:
    docker = asked({"image": "docker.io/library/python:3.11", "runtime": "docker"})
    with pytest.raises(Invalid, match="outside of Slurm's limits"):
        check_container(docker.job)
    of_root = asked(ASKED["podman"])
    with pytest.raises(Invalid, match="podman as root"):
        check_container(replace(of_root.job, unix_user="root"))
    on_slice = asked(ASKED["podman"], gpus=1, gpu_type="1g.10gb").job
    with pytest.raises(Invalid, match="cannot use MIG slices on Slurm"):
        check_container(on_slice)
    with pytest.raises(AttemptRefused, match="not allowed here"):
        script_of(of_root, allowed_registries=("registry.example.org",))
    with pytest.raises(AttemptRefused, match="too long"):
        script_of(asked({**ASKED["bubblewrap"], "env": {"A": "x" * 50_000}}, placement={"tasks": 2}))
