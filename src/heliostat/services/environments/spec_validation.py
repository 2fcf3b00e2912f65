"""Validation of environment files: no local paths, no secrets, no unencrypted sources.

Users who request the same content share one folder, so the content must mean the same for all of them: a local
path does not, and a password must not be shared. Pure functions.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from heliostat.errors import Invalid
from heliostat.models.environments import MAX_ENVIRONMENT_CHARACTERS, PACKAGE_ENVIRONMENT_KINDS, EnvironmentSpec
from heliostat.services.yaml_safety import find_yaml_problem

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_EXTRAS = r"(?:\s*\[[A-Za-z0-9._,\s-]*\])?"
_PLAIN = re.compile(rf"{_NAME}{_EXTRAS} ?(?:\(? ?[<>=!~][^@/\\;]*)?(?:;[^@\\]*)?")  # with single spaces
_BY_URL = re.compile(rf"{_NAME}{_EXTRAS}\s*@\s*(?P<url>\S+)(?:\s+;.*)?")
_HASH = re.compile(r"\s--hash[= ](?:sha256|sha384|sha512):[0-9a-f]+")
_FLAGS = ("--pre", "--prefer-binary")
_INDEXES = ("--index-url", "-i", "--extra-index-url")
_LINE_HINT = "Write names as on PyPI: torch==2.4.1, numpy>=2, or NAME @ https://…"
_PYTHON = re.compile(r"3\.\d{1,2}")
_TOML_SEPARATORS = re.compile(r"[=\[\]{},\n]")
_MAX_DOTS = 100  # in one TOML key: parsing takes quadratic time
_LOCK_KEYS = {  # other keys might be older names for packages, which uv still reads
    *("version", "revision", "requires-python", "resolution-markers", "supported-markers", "required-markers"),
    *("conflicts", "options", "manifest", "package"),
}
_LOCK_SOURCES = {"registry", "url", "git", "virtual", "editable", "subdirectory"}

_MAX_CONDA_CHARACTERS = 64 * 1024
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,100}|https://[A-Za-z0-9.-]+(/[A-Za-z0-9._/-]*)?")
_CONDA_PACKAGE = re.compile(
    r"([a-z0-9-]{1,40}::)?[A-Za-z0-9_][A-Za-z0-9._-]*(\s*[<>=!~][A-Za-z0-9.,*<>=!~|_\s-]*)?"
)
_CONDA_HINT = "Write channels and dependencies: - python=3.11, - pytorch, - pip: [einops]."


def validate_environment_spec(spec: EnvironmentSpec, trusted: tuple[str, ...] = ()) -> EnvironmentSpec:
    """The spec in a normal form. `trusted`: URLs that the admins have configured. Raises Invalid."""
    if spec.kind not in PACKAGE_ENVIRONMENT_KINDS:
        raise _invalid(
            f"There is no environment kind {spec.kind[:40]!a}.", f"Kinds: {', '.join(PACKAGE_ENVIRONMENT_KINDS)}."
        )
    texts = {name: text.replace("\r\n", "\n") for name, text in spec.files}
    if sum(map(len, texts.values())) > MAX_ENVIRONMENT_CHARACTERS:
        raise _invalid(
            f"Its files have more than {MAX_ENVIRONMENT_CHARACTERS // 2**20} MiB.",
            "List only packages that the job needs.",
        )
    if any("\0" in text for text in texts.values()):
        raise _invalid("A file contains a NUL character.", "Send a text file.")
    if spec.python is not None and not _PYTHON.fullmatch(spec.python):
        raise _invalid(f"{spec.python[:20]!a} is not a Python version.", "Write 3.11.", "python")
    files, python = _normalise(spec.kind, texts, trusted)
    return EnvironmentSpec(spec.kind, tuple(sorted(files.items())), spec.python or python)


def _normalise(kind: str, texts: Mapping[str, str], trusted: tuple[str, ...]) -> tuple[dict[str, str], str | None]:
    if kind == "requirements":
        return {"requirements.txt": _requirements(_require_text(texts, "requirements.txt"), trusted)}, None
    if kind == "conda":
        return {"environment.yml": _conda(_require_text(texts, "environment.yml"), trusted)}, None
    project, python = _project(_require_text(texts, "pyproject.toml"))
    if kind == "pyproject":
        return {"requirements.txt": _requirements("\n".join(_dependencies(project)), trusted)}, python
    lock = _require_text(texts, "uv.lock")
    _check_lock(lock, trusted)
    return {"pyproject.toml": _bare_project(project), "uv.lock": lock}, python


def _require_text(texts: Mapping[str, str], name: str) -> str:
    if not texts.get(name, "").strip():
        raise _invalid(f"{name} is empty.", "Name at least one package.")
    return texts[name]


def _requirements(text: str, trusted: tuple[str, ...]) -> str:
    lines = list(_requirement_lines(text, trusted))
    if not any(not line.startswith("-") for line in lines):
        raise _invalid("requirements.txt contains no package.", "Name at least one package.")
    return "\n".join(lines) + "\n"


def _requirement_lines(text: str, trusted: tuple[str, ...]) -> Iterator[str]:
    """Without comments, each requirement in one line. Raises Invalid."""
    document = re.sub(r"\\\n", " ", text)
    for number, line in enumerate(document.split("\n"), 1):
        stripped = re.sub(r"(^|\s)#.*$", "", line).strip()
        if stripped:
            _check_line(stripped, f"Line {number}", trusted)
            yield " ".join(stripped.split())


def _check_line(line: str, where: str, trusted: tuple[str, ...]) -> None:
    if not line.isprintable():
        raise _invalid(f"{where} contains unprintable characters.", _LINE_HINT)
    if "$" in line or "\\" in line:  # uv expands variables and joins lines
        hint = "Write the value itself, in one line: it must be the same for all users."
        raise _invalid(f"{where}: {line[:80]!a} contains a variable or a backslash.", hint)
    if line.startswith("-"):
        _check_option(line, where, trusted)
        return
    stripped = " ".join(_HASH.sub("", f" {line}").split())
    match = _BY_URL.fullmatch(stripped)
    if match and " -" not in stripped:
        _check_url(match["url"], where, trusted, also="git+https")
    elif not _PLAIN.fullmatch(stripped) or " -" in stripped:
        raise _invalid(f"{where}: {line[:80]!a} is not the name of a package.", _LINE_HINT)


def _check_option(line: str, where: str, trusted: tuple[str, ...]) -> None:
    option, _, value = line.replace("=", " ", 1).partition(" ")
    if option in _INDEXES:
        _check_url(value.strip(), where, trusted)
    elif line not in _FLAGS:
        shortened = option[:40]
        raise _invalid(
            f"{where}: the option {shortened!a} is not allowed.",
            f"Allowed options: {', '.join((*_FLAGS, *_INDEXES[::2]))}. Users share environments with the same "
            "content, so local files are not possible.",
        )


def _check_url(url: str, where: str, trusted: tuple[str, ...], also: str = "") -> None:
    if any(url == base or url.startswith(base.rstrip("/") + "/") for base in trusted) and ".." not in url:
        return
    try:
        parts = urlsplit(url)
        host, secret = parts.hostname, parts.username or parts.password
    except ValueError:
        raise _invalid(f"{where}: {url[:80]!a} is not a URL.", "Write https://HOST/PATH.") from None
    if parts.scheme not in ("https", also or "https") or not host or not url.isprintable() or " " in url:
        raise _invalid(
            f"{where}: {url[:80]!a} cannot be used.",
            f"Only https://{f' and {also}://' if also else ''} is allowed: users share the result.",
        )
    if secret:
        raise _invalid(
            f"{where}: the URL contains a user name or password.",
            "Other users can read it. Ask an admin to configure an index without a login.",
        )


def _project(text: str) -> tuple[dict[str, Any], str | None]:
    document = _toml(text, "pyproject.toml")
    project = document.get("project")
    if not isinstance(project, dict):
        raise _invalid(
            "pyproject.toml has no [project].", "Add [project] with dependencies, or use requirements.txt."
        )
    uv_settings = document.get("tool", {}).get("uv", {}) if isinstance(document.get("tool"), dict) else {}
    return {**project, "_uv": uv_settings}, _python_of(project.get("requires-python"))


def _dependencies(project: dict[str, Any]) -> list[str]:
    names = project.get("dependencies", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _invalid("The dependencies of [project] are not a list of names.", 'Write dependencies = ["torch"].')
    if "dependencies" in project.get("dynamic", []):
        raise _invalid(
            "The dependencies of [project] are dynamic.", "List them in [project], or use requirements.txt."
        )
    uv = project["_uv"] if isinstance(project["_uv"], dict) else {}
    if any(uv.get(name) for name in ("sources", "index", "find-links", "index-url", "extra-index-url")):
        raise _invalid("[tool.uv] changes the source of packages.", "Run `uv lock` and send uv.lock too.")
    return names


def _bare_project(project: dict[str, Any]) -> str:
    """Only what uv needs to find the root package of the lock, without settings for uv."""
    name = project.get("name")
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise _invalid("[project] has no name.", 'Write name = "my-project".')
    requirement = project.get("requires-python")
    python = (
        f'requires-python = "{requirement}"\n' if isinstance(requirement, str) and _is_range(requirement) else ""
    )
    return f'[project]\nname = "{name}"\nversion = "0"\n{python}'


def _is_range(text: str) -> bool:
    return re.fullmatch(r"[0-9.,<>=!~*\s]{1,100}", text) is not None


def _python_of(requirement: object) -> str | None:
    """The version from `==3.11.*` or `~=3.11.2`; None for a range."""
    match = (
        re.fullmatch(r"(?:==|~=)\s*(3\.\d{1,2})\.[\d*]+", requirement.strip())
        if isinstance(requirement, str)
        else None
    )
    return match[1] if match else None


def _check_lock(text: str, trusted: tuple[str, ...]) -> None:
    document = _toml(text, "uv.lock")
    packages = document.get("package", [])
    if document.keys() - _LOCK_KEYS or not isinstance(packages, list) or not all(map(_is_table, packages)):
        raise _invalid("The format of uv.lock is not supported.", "Run `uv lock` again with a current uv.")
    for package in packages:
        where = f"uv.lock, {str(package.get('name'))[:60]!a}"
        source = package.get("source", {})
        _check_source(source if isinstance(source, dict) else {"": ""}, where, trusted)
        files = [package.get("sdist"), *(package.get("wheels") or [])]
        for file in filter(_is_table, files):
            for address in (file[key] for key in ("url", "path") if key in file):
                _check_url(str(address), where, trusted)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _check_source(source: dict[str, Any], where: str, trusted: tuple[str, ...]) -> None:
    for kind, value in source.items():
        if kind not in _LOCK_SOURCES or (kind in ("virtual", "editable") and value != "."):
            raise _invalid(f"{where} has a local source ({kind[:20]}).", "Use packages from an index or https://.")
        if kind in ("registry", "url", "git"):
            _check_url(str(value), where, trusted)


def _toml(text: str, name: str) -> dict[str, Any]:
    if any(part.count(".") > _MAX_DOTS for part in _TOML_SEPARATORS.split(text)):
        raise _invalid(f"{name} has a key with too many dots.", "Fix that line; the format is TOML.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError includes huge numbers
        raise _invalid(
            f"{name} cannot be read: {str(error)[:200]}.", "Fix that line; the format is TOML."
        ) from None


def _invalid(message: str, hint: str, field: str = "environment") -> Invalid:
    return Invalid(message, hint, fields={field: message.rstrip(".")})


def _conda(text: str, trusted: tuple[str, ...]) -> str:
    """A YAML file with only channels and dependencies. Raises Invalid."""
    if len(text) > _MAX_CONDA_CHARACTERS:
        raise _invalid(f"environment.yml has more than {_MAX_CONDA_CHARACTERS // 1024} KiB.", _CONDA_HINT)
    if problem := find_yaml_problem(text):
        raise _invalid(f"environment.yml {problem}.", _CONDA_HINT)
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(
            f"environment.yml cannot be read: {' '.join(str(error).split())[:200]}.", _CONDA_HINT
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise _invalid("environment.yml has no dependencies.", _CONDA_HINT)
    channels = document.get("channels", ["conda-forge"])
    if not isinstance(channels, list) or not all(
        _matches(_CHANNEL, name) and ".." not in name for name in channels
    ):
        raise _invalid("The channels of environment.yml must be names or https:// addresses.", _CONDA_HINT)
    dependencies = [_conda_dependency(item, trusted) for item in document["dependencies"]]
    normal: str = yaml.safe_dump({"channels": channels, "dependencies": dependencies}, sort_keys=False)
    return normal


def _conda_dependency(item: object, trusted: tuple[str, ...]) -> Any:
    if isinstance(item, str) and _matches(_CONDA_PACKAGE, item.strip()):
        return " ".join(item.split())
    if isinstance(item, dict) and list(item) == ["pip"] and isinstance(item["pip"], list):
        return {"pip": list(_requirement_lines("\n".join(map(str, item["pip"])), trusted))}
    raise _invalid(f"environment.yml: {str(item)[:80]!a} is not the name of a package.", _CONDA_HINT)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
