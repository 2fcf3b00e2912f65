"""What may stand in the file of a conda environment. Pure."""

import re
from typing import Any

import yaml

from heliostat.errors import Invalid
from heliostat.services.yaml_check import fault_of

_MOST_CHARACTERS = 64 * 1024
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,100}|https://[A-Za-z0-9.-]+(/[A-Za-z0-9._/-]*)?")
_PACKAGE = re.compile(r"([a-z0-9-]{1,40}::)?[A-Za-z0-9_][A-Za-z0-9._-]*(\s*[<>=!~][A-Za-z0-9.,*<>=!~|_\s-]*)?")


def normal_conda(text: str, trusted: tuple[str, ...]) -> str:
    """Only channels and dependencies, in YAML. Raises Invalid."""
    if len(text) > _MOST_CHARACTERS:
        raise _wrong(f"environment.yml has more than {_MOST_CHARACTERS // 1024} KiB.")
    if fault := fault_of(text):
        raise _wrong(f"environment.yml {fault}.")
    try:
        whole = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _wrong(f"environment.yml cannot be read: {' '.join(str(error).split())[:200]}.") from None
    if not isinstance(whole, dict) or not isinstance(whole.get("dependencies"), list):
        raise _wrong("environment.yml has no dependencies.")
    channels = whole.get("channels", ["conda-forge"])
    if not isinstance(channels, list) or not all(_is(_CHANNEL, one) and ".." not in one for one in channels):
        raise _wrong("The channels of environment.yml must be names or https:// addresses.")
    dependencies = [_dependency(one, trusted) for one in whole["dependencies"]]
    normal: str = yaml.safe_dump({"channels": channels, "dependencies": dependencies}, sort_keys=False)
    return normal


def _dependency(one: object, trusted: tuple[str, ...]) -> Any:
    from heliostat.services.environments.contents import requirement_lines

    if isinstance(one, str) and _is(_PACKAGE, one.strip()):
        return " ".join(one.split())
    if isinstance(one, dict) and list(one) == ["pip"] and isinstance(one["pip"], list):
        return {"pip": list(requirement_lines("\n".join(map(str, one["pip"])), trusted))}
    raise _wrong(f"environment.yml: {str(one)[:80]!a} is not the name of a package.")


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _wrong(message: str) -> Invalid:
    hint = "Write channels and dependencies: - python=3.11, - pytorch, - pip: [einops]."
    return Invalid(message, hint, fields={"environment": message.rstrip(".")})
