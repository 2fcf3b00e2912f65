"""The API's words for what was typed: fields of a request become the options of the command. Needed only when
something was refused."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_RENAMED = {
    "time_limit_seconds": "time_limit",
    "gpu_memory_mib": "gpu_memory",
    "memory_mib": "memory",
    "labels": "label",
    "splits_devices": "split_gpus",
}
_ABOUT_FIELDS = re.compile(r"The fields are described at \S+|Change that field and try again\.")


def in_options(text: str, options: Mapping[str, str]) -> str:
    """A field is known by its place at the beginning (`cpus: must be…`), or by its underscore."""
    text = re.sub(r"^(\w+)(?:\.\d+)?(?=[:.])", lambda found: options.get(found[1], found[1]), text)
    return re.sub(r"(?<![\w-])[a-z]+(?:_[a-z]+)+\b", lambda found: options.get(found[0], found[0]), text)


def hint_in_options(hint: str, options: Mapping[str, str], command: str) -> str:
    return in_options(_ABOUT_FIELDS.sub(f"See helio {command} --help.", hint), options)


def options_of(root: Any, words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The command these words begin with, and by what option it takes each field. None for `submit`, which reads
    the API's own words from a file."""
    command = root
    path: list[str] = []
    for word in words:
        below = command.get_command(None, word) if hasattr(command, "get_command") else None
        if below is None:
            break
        command, path = below, [*path, word]
    if path in ([], ["submit"]):
        return " ".join(path), {}
    typed = [param for param in command.params if param.opts[0].startswith("-")]
    options = {param.name: max(param.opts, key=len) for param in typed}
    renamed = {field: options[name] for field, name in _RENAMED.items() if name in options}
    return " ".join(path), renamed | options
