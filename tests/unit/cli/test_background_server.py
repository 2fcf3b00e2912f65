"""Errors of a server that cannot start in the background: `helio up` shows the last lines of its log."""

import os
import subprocess
import sys
from pathlib import Path

from heliostat.cli.server_process import _last_error
from heliostat.config import Home


def last_error(home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "heliostat.cli.background_server", '{"server": {"port": 0, "host": null}}'],
        env={**os.environ, "HELIOSTAT_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    Home(home).server_log.write_text(done.stderr)
    return _last_error(Home(home))


def test_what_nobody_expected_is_one_line_with_the_place_above_it(tmp_path: Path) -> None:
    (tmp_path / "server.lock").mkdir()
    assert last_error(tmp_path) == f"IsADirectoryError: [Errno 21] Is a directory: '{tmp_path}/server.lock'"
    assert "Traceback" in Home(tmp_path).server_log.read_text()


def test_what_is_wrong_with_the_settings_is_said_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('server.engine = "wooden"\n')
    assert last_error(tmp_path) == (
        f'{tmp_path}/cluster.toml: [server] engine = "wooden" is not valid.'
        " / hint: Choose from: local, simulated, slurm."
    )
