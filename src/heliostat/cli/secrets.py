"""Passwords from a person or a pipe, never from the command line, where others can read them."""

import getpass
import sys

from heliostat.errors import Invalid


def ask_password(prompt: str, *, from_stdin: bool, twice: bool = False) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise Invalid("There is nobody to ask for a password.", "Pipe it in with --password-stdin.")
    password = getpass.getpass(f"{prompt}: ")
    if twice and getpass.getpass(f"{prompt} again: ") != password:
        raise Invalid("The two passwords differ.", "Try again.")
    return password
