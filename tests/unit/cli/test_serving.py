"""What a server says that cannot start in the background: whoever started it shows the last lines of its log."""

import os
import subprocess
import sys
from pathlib import Path


def last_lines(home: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "heliostat.cli.serving", '{"port": 0, "host": null}'],
        env={**os.environ, "HELIOSTAT_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines()[-4:] if line]


def test_what_nobody_expected_is_one_line_with_the_place_above_it(tmp_path: Path) -> None:
    (tmp_path / "server.lock").mkdir()
    assert last_lines(tmp_path) == [
        f"helio: IsADirectoryError: [Errno 21] Is a directory: '{tmp_path}/server.lock'"
    ]


def test_what_is_wrong_with_the_settings_is_said_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('engine = "wooden"\n')
    assert last_lines(tmp_path)[-2:] == [
        "helio: There is no engine 'wooden'.",
        "hint: Engines are: local, simulated, slurm.",
    ]
