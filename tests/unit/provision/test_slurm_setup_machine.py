"""How programs are asked and services started while Slurm is set up, with stand-ins for them."""

from pathlib import Path

import pytest

from heliostat.errors import Conflict, EngineUnavailable
from heliostat.provision.setup_host import SetupHost
from heliostat.provision.slurm.daemons import accounting_daemon
from heliostat.provision.slurm.paths import SlurmPaths


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetupHost:
    """With a systemctl and an apt-get that note what they are told; there is no network for its lists."""
    for name in ("systemctl", "apt-get"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/told\ncase $* in *update) exit 100 ;; esac\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    machine = SetupHost()
    machine.has_systemd = True
    return machine


def test_a_service_is_enabled_started_and_waited_for(machine: SetupHost, tmp_path: Path) -> None:
    looks = iter([False, True])
    assert machine.start_daemon(accounting_daemon(SlurmPaths()), lambda: next(looks)) == "Started slurmdbd."
    assert (tmp_path / "told").read_text() == "daemon-reload\nenable slurmdbd\nrestart slurmdbd\n"
    assert machine.start_command(accounting_daemon(SlurmPaths())) == "systemctl enable --now slurmdbd"


def test_packages_are_looked_for_in_new_lists_or_else_in_old_ones(machine: SetupHost, tmp_path: Path) -> None:
    machine.install(["slurmctld", "slurmdbd"])
    told = "-q update\n-q -y install --no-install-recommends slurmctld slurmdbd\n"
    assert (tmp_path / "told").read_text() == told


@pytest.mark.usefixtures("machine")
def test_a_service_that_never_answers_is_said_with_where_to_look() -> None:
    machine = SetupHost(answer_seconds=0)
    machine.has_systemd = True
    with pytest.raises(EngineUnavailable, match="does not respond") as refused:
        machine.start_daemon(accounting_daemon(SlurmPaths()), lambda: False)
    assert "journalctl -u slurmdbd" in (refused.value.hint or "")


def test_without_systemd_the_command_line_is_said() -> None:
    layout = SlurmPaths("/srv/try")
    with pytest.raises(Conflict) as stopped:
        SetupHost(layout.prefix).start_daemon(accounting_daemon(layout), lambda: False)
    assert stopped.value.fields["start"] == "env SLURM_CONF=/srv/try/etc/slurm/slurm.conf slurmdbd -D"


def test_what_is_secret_is_in_no_error() -> None:
    with pytest.raises(EngineUnavailable) as refused:
        SetupHost().run(["sh"], "echo near pa55word >&2; exit 1", secret="pa55word")
    assert "near …" in refused.value.message
    assert "pa55word" not in str(refused.value) + str(refused.value.__cause__)


def test_a_program_that_is_not_there_is_said() -> None:
    with pytest.raises(EngineUnavailable, match="no-such-program could not be run"):
        SetupHost().run(["no-such-program"])
