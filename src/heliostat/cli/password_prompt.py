"""Prompts for a password, or reads it from standard input."""

import getpass
import sys

from heliostat.errors import Invalid


def prompt_password(prompt: str, *, from_stdin: bool, twice: bool = False) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise Invalid("Cannot prompt for a password without a terminal.", "Pipe it in with --password-stdin.")
    password = getpass.getpass(f"{prompt}: ")
    if twice and getpass.getpass(f"{prompt} again: ") != password:
        raise Invalid("The two passwords differ.", "Try again.")
    return password
