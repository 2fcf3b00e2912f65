"""Files that a job of Chronos wants before it begins: fetched by the job itself, as its user, into its folder."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from urllib.parse import SplitResult, unquote, urlsplit

_TAR = re.compile(r".*\.(tar|tgz|tar\.gz|tbz2|tar\.bz2|txz|tar\.xz)", re.IGNORECASE)
_MOST = 100
_SWITCHES = ("extract", "executable", "cache")  # nothing is kept for other runs: without `cache` it is the same

Wrong = Callable[[str, str], Exception]


def script_with_fetches(fetches: object, command: str | Sequence[str], wrong: Wrong) -> str:
    """A script that fetches them and then runs the line or the words."""
    if not isinstance(fetches, list) or len(fetches) > _MOST:
        raise wrong("fetch", f"must be a list of at most {_MOST}")
    lines = [line for one in fetches for line in _fetch_lines(one, wrong)]
    last = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return "\n".join(["#!/bin/sh", "set -e", *lines, "set +e", last, ""])


def _fetch_lines(one: object, wrong: Wrong) -> list[str]:
    uri = one.get("uri") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(uri, str) or not uri.isprintable() or len(uri) > 4000:
        raise wrong("fetch", "each has a uri")
    for field, value in one.items():
        if field != "uri" and (field not in _SWITCHES or not isinstance(value, bool)):
            raise wrong(
                f"fetch.{str(field)[:40]}", f"is not possible here: {', '.join(_SWITCHES)} are true or false"
            )
    parts = _parts(uri, wrong)
    name = PurePosixPath(unquote(parts.path)).name
    if not name or name in (".", ".."):
        raise wrong("fetch", f"{uri[:60]!a} names no file")
    file = shlex.quote(f"./{name}")
    if parts.scheme in ("http", "https", "ftp"):
        lines = [f"curl -fsSL --retry 3 -o {file} -- {shlex.quote(uri)}"]
    elif parts.scheme in ("", "file") and parts.path.startswith("/") and not parts.netloc:
        lines = [f"cp -R -- {shlex.quote(unquote(parts.path))} {file}"]
    else:
        raise wrong("fetch", f"{uri[:60]!a}: only http, https, ftp and files of the node can be fetched here")
    if one.get("extract", True) and _TAR.fullmatch(name):
        lines.append(f"tar -xf {file}")
    elif one.get("extract", True) and name.lower().endswith(".zip"):
        lines.append(f"unzip -o -q {file}")
    return [*lines, f"chmod +x {file}"] if one.get("executable") else lines


def _parts(uri: str, wrong: Wrong) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        raise wrong("fetch", f"{uri[:60]!a} is no address") from None
