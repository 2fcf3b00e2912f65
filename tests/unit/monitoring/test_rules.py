"""The rules that Prometheus evaluates: every alert fires, is silent, and names a command."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import heliostat
from heliostat.cli.command_tree import build_root_command
from heliostat.notifications.messages import find_safe_command

RULES = Path(heliostat.__file__).parent / "monitoring" / "rules.yml"
CASES = Path(__file__).parents[2] / "cases" / "monitoring" / "rules_test.yml"


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_the_rules_are_valid_and_do_in_prometheus_what_their_cases_say() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: scripts/install-test-parts installs it")
    for command in (["promtool", "check", "rules", RULES], ["promtool", "test", "rules", CASES]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    checks = [
        (check["alertname"], bool(check.get("exp_alerts")))
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for check in test.get("alert_rule_test", ())
    ]
    for fires in (True, False):
        assert {name for name, does in checks if does is fires} == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_an_alert_has_a_severity_a_sentence_and_a_command(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert re.fullmatch(r"\S.* .*\.", rule["annotations"]["summary"])
    command = rule["annotations"]["command"].replace("{{ $labels.node }}", "gpu1").replace("{{ $value }}", "79")
    parse_command(command)
    assert find_safe_command(command) == command, "messages would not show it"


def parse_command(line: str) -> None:
    """Fails if `helio` does not understand it."""
    program, name, *words = line.split()
    assert program == "helio"
    command: Any = build_root_command().get_command(None, name)
    while getattr(command, "commands", None):
        name, *words = words
        command = command.commands[name]
    command.make_context(name, words)
