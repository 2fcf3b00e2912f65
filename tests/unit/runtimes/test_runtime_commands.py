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
from heliostat.runtimes import shell_lines
from heliostat.runtimes.all_runtimes import RUNTIMES
from heliostat.runtimes.contract import (
    ContainerIsolation,
    ContainerLimits,
    ContainerSpec,
    ContainerTask,
    ContainerUser,
    ContainerVariables,
    RuntimeCommand,
    UnsupportedByRuntime,
)
from heliostat.runtimes.oci_options import affects_container_tool, format_env_file

CASES = Path(__file__).parents[2] / "cases" / "runtimes"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
SECRET = "hunter2"


def load(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return case


def container_of(case: dict[str, Any]) -> ContainerSpec:
    confinement = ContainerIsolation(
        image_store="/var/lib/heliostat/images/ann",
        scratch_folder="/var/lib/heliostat/jobs/12/1.container",
        runtime_folder="/run/heliostat-ab12/12.1",
        cgroup_parent="/heliostat-ab12/12.1",
        tool_variables={"CONTAINERS_CONF": "/dev/null"},
        **case.get("confinement", {}),
    )
    uid = case.get("uid", 1001)
    return ContainerSpec(
        ContainerTask(
            tuple(case["command"]),
            case.get("workdir", "/home/ann"),
            ContainerUser("ann", uid, uid, "/home/ann"),
            case.get("image"),
            case.get("network", "host"),
        ),
        ContainerVariables(case.get("env", {}), case.get("task_env", {})),
        tuple(Mount(*mount) for mount in case.get("mounts", ())),
        tuple(case.get("devices", ())),
        ContainerLimits(4096, 2, 500, open_files=20000, processes=30000),
        confinement,
    )


def told(command: RuntimeCommand) -> str:
    parts = [
        "\n".join(map(repr, command.argv)),
        f"environment: {json.dumps(dict(command.tool_variables), sort_keys=True)}",
        f"of the task: {json.dumps(dict(command.task_variables), sort_keys=True)}",
        f"sealed: {command.sealed_content!r}",
        f"before: {command.setup_line}",
        *([f"holds: {command.lock_file}"] if command.lock_file else []),
    ]
    return "\n".join(parts)


def outcome(name: str, container: ContainerSpec) -> str:
    try:
        return told(RUNTIMES[name].make_command(container))
    except UnsupportedByRuntime as error:
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
        command = RUNTIMES[runtime].make_command(container_of(case))
    except UnsupportedByRuntime:
        return
    assert list(command.argv[-len(case["command"]) :]) == case["command"]
    assert not [word for word in command.argv if SECRET in word]
    assert SECRET not in command.setup_line


def _outside(name: str) -> bool:
    return affects_container_tool(name) and not name.startswith("APPTAINERENV_")


def hostile(case: dict[str, Any]) -> list[str]:
    return [value for value in case.get("env", {}).values() if SECRET in value]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name != "process"])
def test_a_tool_sees_nothing_of_the_job_that_it_would_heed(name: str, runtime: str) -> None:
    case = load(name)
    try:
        command = RUNTIMES[runtime].make_command(container_of(case))
    except UnsupportedByRuntime:
        return
    assert not [
        name for name, value in command.tool_variables.items() if _outside(name) and value in hostile(case)
    ]


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
    assert affects_container_tool(name)


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "GOAL", "LDAP_PASSWORD", "HF_TOKEN", "TEMPERATURE", "HELIOSTAT_MARK"]
)
def test_these_are_not(name: str) -> None:
    assert not affects_container_tool(name)


def test_what_a_file_of_variables_cannot_hold_is_refused() -> None:
    with pytest.raises(UnsupportedByRuntime, match="LD_X"):
        format_env_file({"LD_X": "a\nB=c"})


def with_image_in(store: Path, digest_file: Path | None = None) -> RuntimeCommand:
    """Of podman, whose store knows the image and others."""
    (store / "overlay-images").mkdir(parents=True)
    images = [
        {"id": letter * 64, "digest": f"sha256:{letter * 64}", "names": [name], "layer": "x"}
        for letter, name in (("a", "docker.io/library/python:3x11"), ("b", "docker.io/library/python:3.11"))
    ]
    (store / "overlay-images" / "images.json").write_text(json.dumps(images, separators=(",", ":")))
    asked = container_of({"command": ["true"], "image": "docker.io/library/python:3.11"})
    place = replace(asked.isolation, image_store=str(store), runtime_folder=str(store.parent / "a run"))
    task = replace(asked.task, digest_file=None if digest_file is None else str(digest_file))
    return RUNTIMES["podman"].make_command(replace(asked, isolation=place, task=task))


def run_lines(*lines: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    words = ["sh", "-c", "\n".join(lines)]
    return subprocess.run(
        words, cwd=cwd, env={"PATH": "/usr/bin:/bin"}, check=False, capture_output=True, text=True
    )


def test_the_line_before_podman_fetches_nothing_that_is_there(tmp_path: Path) -> None:
    command = with_image_in(store := tmp_path / "a store; touch hacked")
    for _ in range(2):  # tasks of a gang share it
        assert run_lines(command.setup_line, cwd=tmp_path).returncode == 0
    assert not (tmp_path / "hacked").exists()
    assert os.readlink(tmp_path / "a run/c/overlay").startswith(f"{store}/features/")


def test_what_the_image_is_is_noted_beside_the_run(tmp_path: Path) -> None:
    note = tmp_path / "a note; touch hacked"
    command = with_image_in(tmp_path / "store", note)
    assert run_lines(command.setup_line, "wait", cwd=tmp_path).returncode == 0
    assert note.read_text().startswith(f'"digest":"sha256:{"b" * 64}"')
    assert not (tmp_path / "hacked").exists()


def test_an_image_is_held_as_long_as_its_container_runs(tmp_path: Path) -> None:
    command = with_image_in(tmp_path / "a store")
    alone = f"flock -n {shlex.quote(command.lock_file)} true"
    done = run_lines(
        *shell_lines.lock_lines(command, 125),
        f"{alone} 8<&-; echo $?; exec sh -c {shlex.quote(alone)}",
        cwd=tmp_path,
    )
    assert (done.stdout, done.returncode) == ("1\n", 1), done.stderr
    assert run_lines(alone, cwd=tmp_path).returncode == 0


def test_a_script_seals_what_may_not_be_exported_and_leaves_no_file(tmp_path: Path) -> None:
    given = {"LD_X": "a 'b' \\0 %s", "KEY": "x\ny"}
    asked = container_of({"command": ["true"], "env": given})
    sealed = RUNTIMES["bubblewrap"].make_command(asked)
    shown = RuntimeCommand(
        ("cat", "/proc/self/fd/7"),
        {"PATH": "/usr/bin:/bin", "A": "'; exit 9 #"},
        sealed_content=sealed.sealed_content,
    )
    file = tmp_path / "a file; exit 8"
    script = "\n".join(
        [
            *shell_lines.seal_lines(shlex.quote(shell_lines.octal_escapes(shown.sealed_content)), str(file)),
            *shell_lines.setup_lines(shown),
            shell_lines.run_line(shown),
        ]
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, env={}, check=True)
    assert done.stdout == sealed.sealed_content
    assert not file.exists()
