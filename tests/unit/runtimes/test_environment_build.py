"""The scripts that build environments, word for word; and that nothing in a file reaches a shell unquoted.

After a change that is meant, UPDATE_CASES=1 writes them anew; read the difference.
"""

import os
import subprocess
from pathlib import Path

import pytest

from heliostat.models.environments import EnvironmentSpec
from heliostat.runtimes.environment_build import EnvironmentRecipe, render_environment_build

CASES = Path(__file__).parents[2] / "cases" / "building"
CACHE = "/srv/h/environments/cache"
RECIPES = {
    "shared_requirements": ("requirements", {"requirements.txt": "torch\n"}, CACHE),
    "own_requirements": ("requirements", {"requirements.txt": "torch\n"}, None),
    "shared_uv": (
        "uv",
        {"pyproject.toml": "[project]\n", "uv.lock": "version = 1\n"},
        "/srv/h/environments/cache",
    ),
    "shared_uv_without_hashes": (
        "uv",
        {
            "pyproject.toml": "[project]\n",
            "uv.lock": '[[package]]\nname = "a"\nwheels = [{ url = "https://x/a.whl" }]\n',
        },
        CACHE,
    ),
    "own_conda": ("conda", {"environment.yml": "dependencies: [python]\n"}, None),
}


def recipe(kind: str, files: dict[str, str], cache: str | None) -> EnvironmentRecipe:
    tool = "micromamba" if kind == "conda" else "uv"
    return EnvironmentRecipe(
        spec=EnvironmentSpec(kind, tuple(files.items()), "3.11"),
        tool_path=f"/srv/h/environments/tools/{tool}",
        python_path="/usr/bin/python3.11",
        install_folder="/srv/h/environments/ready/abc",
        variables={"UV_DEFAULT_INDEX": "https://pypi.example.org/simple", "UV_FIND_LINKS": "/srv/wheels"},
        shared_cache=cache,
    )


@pytest.mark.parametrize("name", RECIPES)
def test_the_script_is_exactly_this(name):
    script, case = render_environment_build(recipe(*RECIPES[name])), CASES / f"{name}.sh"
    if os.environ.get("UPDATE_CASES"):
        case.write_text(script)
    assert script == case.read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_a_shell_can_read_it(name):
    subprocess.run(["sh", "-n", CASES / f"{name}.sh"], check=True)


def test_what_a_file_holds_is_only_written_down(tmp_path):
    hostile = f"x'; touch {tmp_path}/evil; echo '\n$(touch {tmp_path}/evil)`touch {tmp_path}/evil`\n"
    script = render_environment_build(recipe("requirements", {"requirements.txt": hostile}, None))
    subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "room/requirements.txt").read_text() == hostile
    assert not (tmp_path / "evil").exists()


def test_the_shared_cache_is_not_in_the_room():
    script = render_environment_build(recipe(*RECIPES["shared_requirements"]))
    room = next(line for line in script.splitlines() if line.startswith("inside()"))
    assert "environments/cache" not in room
    assert "--unshare-all" in room
    assert '--bind "$PWD" "$PWD"' in room


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("requirements", {"requirements.txt": "torch\nmine @ git+https://example.org/mine\n"}),
        ("uv", {"uv.lock": '[[package]]\nname = "a"\nsource = { git = "https://example.org/a" }\n'}),
        ("uv", {"uv.lock": '[[package]]\nname = "a"\nwheels = [{ url = "https://x/a.whl", hash = "md5:0" }]\n'}),
        ("uv", {"uv.lock": '[[package]]\nname = "a"\nwheels = ["a"]\n'}),
    ],
)
def test_what_is_no_wheel_or_not_proven_is_fetched_in_the_room_alone(kind, files):
    """There the cache that all share is not."""
    lines = render_environment_build(recipe(kind, files, CACHE)).splitlines()
    assert [line for line in lines if "/tools/uv " in line and "inside" not in line] == []
    alone = render_environment_build(recipe(kind, files, None))
    assert "--only-binary" in alone or "--no-build" in alone
