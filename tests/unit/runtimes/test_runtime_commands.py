"""Golden cases: what is asked for in NAME.json, the exact words of every runtime in NAME.txt.

After a change that is meant, UPDATE_CASES=1 writes them anew; read the difference.
"""

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliostat.models import Mount
from heliostat.runtimes import shell
from heliostat.runtimes.catalogue import RUNTIMES
from heliostat.runtimes.contract import (
    CannotContain,
    Command,
    Confinement,
    Container,
    Environment,
    Identity,
    Limits,
    Task,
)
from heliostat.runtimes.oci import as_lines, is_heeded

CASES = Path(__file__).parents[2] / "cases" / "runtimes"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
SECRET = "hunter2"


def load(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return case


def container_of(case: dict[str, Any]) -> Container:
    confinement = Confinement(
        store="/var/lib/heliostat/images/ann",
        scratch="/var/lib/heliostat/jobs/12/1.container",
        run="/run/heliostat-ab12/12.1",
        cgroup_parent="/heliostat-ab12/12.1",
        tool_environment={"CONTAINERS_CONF": "/dev/null"},
        **case.get("confinement", {}),
    )
    uid = case.get("uid", 1001)
    return Container(
        Task(
            tuple(case["command"]),
            case.get("workdir", "/home/ann"),
            Identity("ann", uid, uid, "/home/ann"),
            case.get("image"),
            case.get("network", "host"),
        ),
        Environment(case.get("env", {}), case.get("task_env", {})),
        tuple(Mount(*mount) for mount in case.get("mounts", ())),
        tuple(case.get("devices", ())),
        Limits(4096, 2, 500, open_files=20000, processes=30000),
        confinement,
    )


def told(command: Command) -> str:
    parts = [
        "\n".join(map(repr, command.argv)),
        f"environment: {json.dumps(dict(command.environment), sort_keys=True)}",
        f"of the task: {json.dumps(dict(command.task_environment), sort_keys=True)}",
        f"sealed: {command.sealed!r}",
        f"before: {command.before}",
        *([f"holds: {command.holds}"] if command.holds else []),
    ]
    return "\n".join(parts)


def outcome(name: str, container: Container) -> str:
    try:
        return told(RUNTIMES[name].command(container))
    except CannotContain as error:
        return f"refused: {error}"


def test_there_are_cases() -> None:
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_the_words_of_every_runtime_are_exactly_these(name: str) -> None:
    expected = CASES / f"{name}.txt"
    container = container_of(load(name))
    text = "\n\n".join(f"== {runtime}\n{outcome(runtime, container)}" for runtime in RUNTIMES) + "\n"
    if os.environ.get("UPDATE_CASES"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_command_stands_last_and_untouched_and_no_value_is_among_the_words(name: str, runtime: str) -> None:
    case = load(name)
    try:
        command = RUNTIMES[runtime].command(container_of(case))
    except CannotContain:
        return
    assert list(command.argv[-len(case["command"]) :]) == case["command"]
    assert not [word for word in command.argv if SECRET in word]
    assert SECRET not in command.before


def _outside(name: str) -> bool:
    return is_heeded(name) and not name.startswith("APPTAINERENV_")


def hostile(case: dict[str, Any]) -> list[str]:
    return [value for value in case.get("env", {}).values() if SECRET in value]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name != "process"])
def test_a_tool_sees_nothing_of_the_job_that_it_would_heed(name: str, runtime: str) -> None:
    case = load(name)
    try:
        command = RUNTIMES[runtime].command(container_of(case))
    except CannotContain:
        return
    assert not [name for name, value in command.environment.items() if _outside(name) and value in hostile(case)]


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "CONTAINERS_CONF",
        "CONTAINER_HOST",
        "DOCKER_HOST",
        "XDG_RUNTIME_DIR",
        "PATH",
        "HOME",
        "GODEBUG",
        "STORAGE_DRIVER",
        "_CONTAINERS_USERNS_CONFIGURED",
        "TMPDIR",
        "APPTAINERENV_X",
        "APPTAINER_BIND",
    ],
)
def test_these_are_heeded_by_tools(name: str) -> None:
    assert is_heeded(name)


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "GOAL", "LDAP_PASSWORD", "HF_TOKEN", "TEMPERATURE", "HELIOSTAT_MARK"]
)
def test_these_are_not(name: str) -> None:
    assert not is_heeded(name)


def test_what_a_file_of_variables_cannot_hold_is_refused() -> None:
    with pytest.raises(CannotContain, match="LD_X"):
        as_lines({"LD_X": "a\nB=c"})


def with_image_in(store: Path, digest_file: Path | None = None) -> Command:
    """Of podman, whose store knows the image and others."""
    (store / "overlay-images").mkdir(parents=True)
    images = [
        {"id": letter * 64, "digest": f"sha256:{letter * 64}", "names": [name], "layer": "x"}
        for letter, name in (("a", "docker.io/library/python:3x11"), ("b", "docker.io/library/python:3.11"))
    ]
    (store / "overlay-images" / "images.json").write_text(json.dumps(images, separators=(",", ":")))
    asked = container_of({"command": ["true"], "image": "docker.io/library/python:3.11"})
    place = replace(asked.confinement, store=str(store), run=str(store.parent / "a run"))
    task = replace(asked.task, digest_file=None if digest_file is None else str(digest_file))
    return RUNTIMES["podman"].command(replace(asked, confinement=place, task=task))


def run_lines(*lines: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    words = ["sh", "-c", "\n".join(lines)]
    return subprocess.run(
        words, cwd=cwd, env={"PATH": "/usr/bin:/bin"}, check=False, capture_output=True, text=True
    )


def test_the_line_before_podman_fetches_nothing_that_is_there(tmp_path: Path) -> None:
    command = with_image_in(store := tmp_path / "a store; touch hacked")
    for _ in range(2):  # tasks of a gang share it
        assert run_lines(command.before, cwd=tmp_path).returncode == 0
    assert not (tmp_path / "hacked").exists()
    assert os.readlink(tmp_path / "a run/c/overlay").startswith(f"{store}/features/")


def test_what_the_image_is_is_noted_beside_the_run(tmp_path: Path) -> None:
    note = tmp_path / "a note; touch hacked"
    command = with_image_in(tmp_path / "store", note)
    assert run_lines(command.before, "wait", cwd=tmp_path).returncode == 0
    assert note.read_text().startswith(f'"digest":"sha256:{"b" * 64}"')
    assert not (tmp_path / "hacked").exists()


def test_an_image_is_held_as_long_as_its_container_runs(tmp_path: Path) -> None:
    command = with_image_in(tmp_path / "a store")
    alone = f"flock -n {shlex.quote(command.holds)} true"
    done = run_lines(
        *shell.hold(command, 125), f"{alone} 8<&-; echo $?; exec sh -c {shlex.quote(alone)}", cwd=tmp_path
    )
    assert (done.stdout, done.returncode) == ("1\n", 1), done.stderr
    assert run_lines(alone, cwd=tmp_path).returncode == 0


def test_a_script_seals_what_may_not_be_exported_and_leaves_no_file(tmp_path: Path) -> None:
    given = {"LD_X": "a 'b' \\0 %s", "KEY": "x\ny"}
    asked = container_of({"command": ["true"], "env": given})
    sealed = RUNTIMES["bubblewrap"].command(asked)
    shown = Command(
        ("cat", "/proc/self/fd/7"), {"PATH": "/usr/bin:/bin", "A": "'; exit 9 #"}, sealed=sealed.sealed
    )
    file = tmp_path / "a file; exit 8"
    script = "\n".join(
        [*shell.seal(shlex.quote(shell.octal(shown.sealed)), str(file)), *shell.prelude(shown), shell.run(shown)]
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, env={}, check=True)
    assert done.stdout == sealed.sealed
    assert not file.exists()
