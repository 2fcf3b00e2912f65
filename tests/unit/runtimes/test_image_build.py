"""The scripts that build and push images, word for word; and that nothing people typed reaches a shell unquoted.

After a change that is meant, UPDATE_CASES=1 writes them anew; read the difference.
"""

import os
import subprocess
from pathlib import Path

import pytest

from heliostat.runtimes.image_build import ImagePushInputs, ImageRecipe, render_image_build, render_image_push

CASES = Path(__file__).parents[2] / "cases" / "images"
BASE = "/var/tmp/heliostat-"
NAME = "localhost/torch:2-0123456789abcdef"
RECIPES = {
    "containerfile": ImageRecipe(
        "image", NAME, "FROM docker.io/library/python:3.11\n", bases=("docker.io/library/python:3.11",)
    ),
    "containerfile_with_folder": ImageRecipe("image", NAME, "FROM scratch\nCOPY . /\n", has_context=True),
    "packages": ImageRecipe(
        "image", NAME, "FROM x\nCOPY requirements.txt /\n", (("requirements.txt", "torch\n"),)
    ),
    "definition": ImageRecipe("definition", NAME, "Bootstrap: docker\nFrom: python:3.11\n"),
    "definition_with_folder": ImageRecipe("definition", NAME, "Bootstrap: docker\n", has_context=True),
}
SHIPMENTS = {
    "push": ImagePushInputs(
        NAME, "/srv/h/environments/ready/abc/image.tar", "registry.example.org/lab/torch:2", None
    ),
    "push_with_login": ImagePushInputs(
        NAME, "/srv/h/environments/ready/abc/image.tar", "registry.example.org/lab/torch:2", "/srv/h/logins/77"
    ),
}
SCRIPTS = {name: render_image_build(recipe, BASE) for name, recipe in RECIPES.items()} | {
    name: render_image_push(shipment, BASE) for name, shipment in SHIPMENTS.items()
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_is_exactly_this(name):
    case = CASES / f"{name}.sh"
    if os.environ.get("UPDATE_CASES"):
        case.write_text(SCRIPTS[name])
    assert SCRIPTS[name] == case.read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_shell_can_read_it(name):
    subprocess.run(["sh", "-n", CASES / f"{name}.sh"], check=True)


def test_apptainer_builds_one_file_in_the_folder_that_was_sent(tmp_path):
    script = SCRIPTS["definition_with_folder"]
    assert 'apptainer build --fakeroot "$room/env/image.sif" "$room/image.def"' in script
    assert "cd ../.heliostat-context/files" in script


def test_a_stand_in_for_apptainer_finds_the_files_and_leaves_the_image(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_text("of the folder")
    tool = tmp_path / "bin" / "apptainer"
    tool.write_text('#!/bin/sh\n[ "$1 $2" = "build --fakeroot" ] && cat data "$4" > "$3"\n')
    tool.chmod(0o755)
    script = SCRIPTS["definition_with_folder"].replace("export PATH=", f"export PATH={tmp_path}/bin:")
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work/room/env/image.sif").read_text() == "of the folderBootstrap: docker\n"


def test_a_missing_tool_is_told(tmp_path):
    script = SCRIPTS["definition"].replace("export PATH=", "HELIOSTAT_NODE=here; NO=")
    bare = {"PATH": str(tmp_path / "bin")}
    (tmp_path / "bin").mkdir()
    for name in ("sh", "rm", "mkdir", "tee", "cat", "tail"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    (tmp_path / "work").mkdir()
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path / "work", env=bare, capture_output=True, check=False)
    assert done.returncode == 1
    assert (tmp_path / "work/why").read_text() == "apptainer is not installed on here.\n"


def test_what_a_file_holds_is_only_written_down(tmp_path):
    evil = f"x'; touch {tmp_path}/evil; echo '\n$(touch {tmp_path}/evil)`touch {tmp_path}/evil`\n"
    recipe = ImageRecipe("definition", NAME, evil, (("requirements.txt", evil),))
    script = render_image_build(recipe, BASE)
    subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "room/context/requirements.txt").read_text() == evil
    assert not (tmp_path / "evil").exists()


def test_the_login_is_gone_from_the_disk_before_anything_else_happens():
    lines = SCRIPTS["push_with_login"].splitlines()
    gone = lines.index("rm -f /srv/h/logins/77/login")
    assert all("podman" not in line for line in lines[lines.index("exec 7</srv/h/logins/77/login") : gone])
    assert not any("registry.example.org" in line for line in lines[:gone])
