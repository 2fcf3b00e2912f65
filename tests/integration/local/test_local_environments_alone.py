"""Environments where nothing can be shared safely: each person's are their own, built as themselves."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.package_index import PackageIndex, running_package_index
from support.server_process import ServerProcess

pytest.importorskip("uv", reason="uv builds environments, and is not installed")
pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/python3"), reason="needs a Python that every user may run"
)
PATIENCE_SECONDS = 150.0
HOME = pwd.getpwuid(os.geteuid()).pw_dir  # which containers may always mount


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        index.add_wheel("tiny", "1.0")
        yield index


@pytest.fixture(scope="module")
def server(index: PackageIndex, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("home")
    variables = {"UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(home / "uv")}
    with ServerProcess(home, environments={"builder": "nobody-has-this", "uv_variables": variables}) as server:
        yield server


def helio(server: ServerProcess, *words: str, cwd: Path | None = None, **variables: str) -> Any:
    return subprocess.run(
        [str(Path(sys.executable).with_name("helio")), *words],
        env={**os.environ, "HELIOSTAT_HOME": str(server.home), "COLUMNS": "120", **variables},
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=PATIENCE_SECONDS,
    )


def test_a_job_of_the_command_line_runs_with_the_packages_of_a_file(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tiny\n")
    done = helio(server, "run", "--env", "requirements.txt", "--env", "A=1", "--wait", "--", "tiny", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = server.client.environments.list()[0]
    assert (found["state"], found["shared"], found["kind"]) == ("ready", False, "requirements")


def test_the_commands_build_list_show_and_remove(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tiny<3\n")
    done = helio(server, "env", "build", "requirements.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    digest = done.stdout.split()[0]
    assert "+ tiny==1.0" in done.stderr
    assert digest in helio(server, "env", "list").stdout
    shown = helio(server, "env", "show", digest).stdout
    assert "1 installed; --full lists them" in shown
    assert "tiny<3" not in shown
    assert "tiny<3" in helio(server, "env", "show", digest, "--full").stdout
    run = helio(server, "run", "--env", f"@{digest}", "--wait", "--", "tiny")
    assert run.returncode == 0, run.stderr
    assert "removed" in helio(server, "env", "remove", digest).stdout
    gone = helio(server, "env", "show", digest)
    assert (gone.returncode, "Traceback" in gone.stderr) == (4, False), gone


def test_a_broken_requirement_is_told_on_the_command_line(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tiny>4\n")
    done = helio(server, "env", "build", "requirements.txt", cwd=tmp_path)
    assert done.returncode == 1
    assert "tiny" in done.stdout
    assert "failed: its environment cannot be built" in done.stdout


def test_a_shell_has_the_programs_of_the_environment_first(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tiny\n")
    (tmp_path / "sh").write_text("#!/bin/sh\ntiny\n")
    (tmp_path / "sh").chmod(0o755)
    done = helio(server, "env", "shell", "requirements.txt", cwd=tmp_path, SHELL=str(tmp_path / "sh"))
    assert done.stdout == "tiny 1.0\n", done.stderr


def test_a_job_file_names_its_software_by_file_by_text_or_as_an_image(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("tiny\n")
    (tmp_path / "jobs.yaml").write_text(
        "- command: tiny\n  environment: requirements.txt\n"
        "- command: tiny\n  environment:\n    requirements: tiny\n"
    )
    done = helio(server, "submit", "jobs.yaml", "--wait", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with_image = server.client.submit("true", environment="image:busybox", held=True, workdir=HOME)
    assert with_image.refresh().data["spec"]["image"].endswith("busybox:latest")
    server.client.jobs.cancel(with_image)


def test_the_same_job_can_be_asked_for_again(server: ServerProcess) -> None:
    first = server.client.submit("tiny", environment={"requirements": "tiny<8"}).wait(PATIENCE_SECONDS)
    assert first.ok, first.reason
    request = server.client.jobs.get(first.id).data["request"]
    assert "after" not in request
    again = server.client.submit_bodies([request])["job_ids"]
    assert server.client.wait(again, PATIENCE_SECONDS)[0].ok


@pytest.mark.parametrize("name", ["nothing.txt", "setup.py", "uv.lock", "/etc/shadow.d/x.txt"])
def test_a_file_that_cannot_be_used_is_told_with_a_hint(server: ServerProcess, tmp_path: Path, name: str) -> None:
    done = helio(server, "env", "build", name, cwd=tmp_path)
    assert done.returncode != 0
    assert "requirements.txt" in done.stderr
    assert "Traceback" not in done.stderr


def test_conda_files_are_refused_where_nobody_can_build_them(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.11]\n")
    done = helio(server, "env", "build", "environment.yml", cwd=tmp_path)
    assert done.returncode != 0
    assert "micromamba, which builds conda environments, is not installed on the server." in done.stderr
    assert "Use requirements.txt or pyproject.toml" in done.stderr


def test_an_image_and_an_environment_together_are_refused(server: ServerProcess) -> None:
    from heliostat.errors import Invalid

    with pytest.raises(Invalid, match="contains its own software"):
        server.client.submit("true", image="busybox", environment={"requirements": "tiny"}, workdir=HOME)
