"""Conda environments, built by a stand-in for micromamba: with which words, and what it may touch.

Real packages are in `test_local_environments_of_conda_packages`.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from heliostat.models.environments import EnvironmentSpec
from heliostat.runtimes.environment_build import EnvironmentRecipe, render_environment_build

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="builds in bubblewrap, which is not installed"
)
STAND_IN = """#!/bin/sh
case $1 in
create)
    echo "$@" >&2
    while [ "$1" != --prefix ]; do shift; done
    mkdir -p "$2/bin" && echo "#!/bin/sh" > "$2/bin/python" && echo "$2" > "$2/where"
    cat environment.yml > "$2/asked"
    echo x > OUTSIDE/evil
    [ -e "$2/fails" ] || ! grep -q broken environment.yml || { echo "nothing provides broken" >&2; exit 1; } ;;
list) echo '[{"name": "python", "version": "3.11.9"}]' ;;
esac
exit 0
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


def run(tmp_path: Path, outside: Path, text: str) -> "subprocess.CompletedProcess[str]":
    tool, work = tmp_path / "micromamba", tmp_path / "work"
    tool.write_text(STAND_IN.replace("OUTSIDE", str(outside)))
    tool.chmod(0o755)
    work.mkdir()
    recipe = EnvironmentRecipe(
        spec=EnvironmentSpec("conda", (("environment.yml", text),)),
        tool_path=str(tool),
        python_path="",
        install_folder="/srv/heliostat/environments/ready/abc",
        variables={},
    )
    words = ["sh", "-c", render_environment_build(recipe)]
    return subprocess.run(words, cwd=work, capture_output=True, text=True, check=False, timeout=120)


def test_it_is_built_at_the_place_it_will_be_found_at_and_touches_nothing_else(
    tmp_path: Path, outside: Path
) -> None:
    done = run(tmp_path, outside, "dependencies: [python]\n")
    assert done.returncode == 0, done
    made = tmp_path / "work/room/env"
    assert (made / "where").read_text() == "/srv/heliostat/environments/ready/abc\n"
    assert (made / "asked").read_text() == "dependencies: [python]\n"
    assert "create --yes --no-rc --no-env --root-prefix cache/conda --prefix" in done.stdout
    assert json.loads((tmp_path / "work/lock").read_text())[0]["name"] == "python"
    assert not (outside / "evil").exists()


def test_what_cannot_be_had_is_told_in_the_tools_own_words(tmp_path: Path, outside: Path) -> None:
    done = run(tmp_path, outside, "dependencies: [broken]\n")
    assert done.returncode == 1
    assert "nothing provides broken" in (tmp_path / "work/why").read_text()
    assert not (tmp_path / "work/room/env").exists()
