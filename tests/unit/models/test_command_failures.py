"""The command that a job with exit code 127 did not find."""

import pytest

from heliostat.models.command_failures import explain_command_not_found


@pytest.mark.parametrize(
    "output",
    [
        "/proc/self/fd/8: 5: exec: python: not found",
        "sh: 1: python: not found",
        "epoch 1\n/bin/bash: line 1: python: command not found",
        "bash: python: command not found",
        "zsh:1: command not found: python",
        "/usr/bin/env: \u2018python\u2019: No such file or directory",
        "env: 'python': No such file or directory",
        "/var/spool/slurmd/job00012/slurm_script: 31: exec: python: not found",
        "setpriv: failed to execute python: No such file or directory",
        "Error: crun: executable file `python` not found in $PATH: No such file or directory: OCI runtime error",
        'Error: runc: exec: "python": executable file not found in $PATH: OCI runtime error',
        "sh: 1: first: not found\npython: not found",
    ],
)
def test_it_is_read_from_what_shells_and_runtimes_print(output: str) -> None:
    assert explain_command_not_found(output, "on this node") == (
        "python: not found on this node; try python3 or --env"
    )


def test_the_hint_fits_the_command() -> None:
    assert explain_command_not_found("sh: 1: trian: not found", "in its image") == (
        "trian: not found in its image; check the name, or provide it with --env or --image"
    )
    assert explain_command_not_found("sh: 1: exec: ./run.sh: not found", "on this node") == (
        "./run.sh: not found on this node; check the path and the first line of the file"
    )


def test_without_a_name_it_says_what_the_exit_code_means() -> None:
    for output in ("", "KeyError: no such key", "it is lost"):
        assert explain_command_not_found(output, "on this node") == (
            "exit code 127: a command was not found on this node"
        ), output
