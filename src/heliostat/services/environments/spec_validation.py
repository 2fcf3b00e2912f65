"""What may stand in the files of an environment: nothing of this machine, nothing secret, nothing unencrypted.

Whoever asks for the same contents gets the same folder, so they must mean the same for everybody: a path means
something else for each, and a password is nobody else's business. Pure.
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
_PLAIN = re.compile(rf"{_NAME}{_EXTRAS} ?(?:\(? ?[<>=!~][^@/\\;]*)?(?:;[^@\\]*)?")  # of single blanks
_BY_URL = re.compile(rf"{_NAME}{_EXTRAS}\s*@\s*(?P<url>\S+)(?:\s+;.*)?")
_HASH = re.compile(r"\s--hash[= ](?:sha256|sha384|sha512):[0-9a-f]+")
_FLAGS = ("--pre", "--prefer-binary")
_INDEXES = ("--index-url", "-i", "--extra-index-url")
_LINE_HINT = "Write names as on PyPI: torch==2.4.1, numpy>=2, or NAME @ https://…; the rest belongs elsewhere."
_PYTHON = re.compile(r"3\.\d{1,2}")
_BETWEEN = re.compile(r"[=\[\]{},\n]")
_MOST_DOTS = 100  # of one name in TOML: the time to read it grows with their square
_LOCK_KEYS = {  # others might be older words for packages, which uv reads too
    *("version", "revision", "requires-python", "resolution-markers", "supported-markers", "required-markers"),
    *("conflicts", "options", "manifest", "package"),
}
_LOCK_SOURCES = {"registry", "url", "git", "virtual", "editable", "subdirectory"}

_MOST_CONDA_CHARACTERS = 64 * 1024
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,100}|https://[A-Za-z0-9.-]+(/[A-Za-z0-9._/-]*)?")
_CONDA_PACKAGE = re.compile(
    r"([a-z0-9-]{1,40}::)?[A-Za-z0-9_][A-Za-z0-9._-]*(\s*[<>=!~][A-Za-z0-9.,*<>=!~|_\s-]*)?"
)
_CONDA_HINT = "Write channels and dependencies: - python=3.11, - pytorch, - pip: [einops]."


def validate_environment_spec(software: EnvironmentSpec, trusted: tuple[str, ...] = ()) -> EnvironmentSpec:
    """In a normal form, without what makes no difference. Raises Invalid. `trusted`: the admins' own addresses."""
    if software.kind not in PACKAGE_ENVIRONMENT_KINDS:
        raise _wrong(
            f"There is no kind {software.kind[:40]!a}.", f"Kinds are: {', '.join(PACKAGE_ENVIRONMENT_KINDS)}."
        )
    texts = {name: text.replace("\r\n", "\n") for name, text in software.files}
    if sum(map(len, texts.values())) > MAX_ENVIRONMENT_CHARACTERS:
        raise _wrong(
            f"Its files have more than {MAX_ENVIRONMENT_CHARACTERS // 2**20} MiB.", "List only what the job needs."
        )
    if any("\0" in text for text in texts.values()):
        raise _wrong("A file holds a NUL character.", "Send text.")
    if software.python is not None and not _PYTHON.fullmatch(software.python):
        raise _wrong(f"{software.python[:20]!a} is no version of Python.", "Write 3.11.", "python")
    files, python = _normal(software.kind, texts, trusted)
    return EnvironmentSpec(software.kind, tuple(sorted(files.items())), software.python or python)


def _normal(kind: str, texts: Mapping[str, str], trusted: tuple[str, ...]) -> tuple[dict[str, str], str | None]:
    if kind == "requirements":
        return {"requirements.txt": _requirements(_only(texts, "requirements.txt"), trusted)}, None
    if kind == "conda":
        return {"environment.yml": _conda(_only(texts, "environment.yml"), trusted)}, None
    project, python = _project(_only(texts, "pyproject.toml"))
    if kind == "pyproject":
        return {"requirements.txt": _requirements("\n".join(_dependencies(project)), trusted)}, python
    lock = _only(texts, "uv.lock")
    _check_lock(lock, trusted)
    return {"pyproject.toml": _bare_project(project), "uv.lock": lock}, python


def _only(texts: Mapping[str, str], name: str) -> str:
    if not texts.get(name, "").strip():
        raise _wrong(f"{name} is empty.", "Name at least one package.")
    return texts[name]


def _requirements(text: str, trusted: tuple[str, ...]) -> str:
    lines = list(_requirement_lines(text, trusted))
    if not any(not line.startswith("-") for line in lines):
        raise _wrong("requirements.txt names no package.", "Name at least one.")
    return "\n".join(lines) + "\n"


def _requirement_lines(text: str, trusted: tuple[str, ...]) -> Iterator[str]:
    """Without comments, each in one line. Raises Invalid."""
    whole = re.sub(r"\\\n", " ", text)
    for number, line in enumerate(whole.split("\n"), 1):
        bare = re.sub(r"(^|\s)#.*$", "", line).strip()
        if bare:
            _check_line(bare, f"Line {number}", trusted)
            yield " ".join(bare.split())


def _check_line(line: str, where: str, trusted: tuple[str, ...]) -> None:
    if not line.isprintable():
        raise _wrong(f"{where} holds signs that cannot be printed.", _LINE_HINT)
    if "$" in line or "\\" in line:  # which uv fills in, or joins with the next line
        hint = "Write out what it means, in one line: it must be the same for all."
        raise _wrong(f"{where}: {line[:80]!a} holds a variable or a backslash.", hint)
    if line.startswith("-"):
        _check_option(line, where, trusted)
        return
    bare = " ".join(_HASH.sub("", f" {line}").split())
    found = _BY_URL.fullmatch(bare)
    if found and " -" not in bare:
        _check_url(found["url"], where, trusted, also="git+https")
    elif not _PLAIN.fullmatch(bare) or " -" in bare:
        raise _wrong(f"{where}: {line[:80]!a} is not the name of a package.", _LINE_HINT)


def _check_option(line: str, where: str, trusted: tuple[str, ...]) -> None:
    option, _, value = line.replace("=", " ", 1).partition(" ")
    if option in _INDEXES:
        _check_url(value.strip(), where, trusted)
    elif line not in _FLAGS:
        shown = option[:40]
        raise _wrong(
            f"{where}: {shown!a} is not possible here.",
            f"Of the options only {', '.join((*_FLAGS, *_INDEXES[::2]))} are taken: the same words must mean the "
            "same for everybody, and files of one's own do not.",
        )


def _check_url(url: str, where: str, trusted: tuple[str, ...], also: str = "") -> None:
    if any(url == one or url.startswith(one.rstrip("/") + "/") for one in trusted) and ".." not in url:
        return
    try:
        parts = urlsplit(url)
        host, secret = parts.hostname, parts.username or parts.password
    except ValueError:
        raise _wrong(f"{where}: {url[:80]!a} is no address.", "Write https://HOST/PATH.") from None
    if parts.scheme not in ("https", also or "https") or not host or not url.isprintable() or " " in url:
        raise _wrong(
            f"{where}: {url[:80]!a} cannot be used.",
            f"Only https://{f' and {also}://' if also else ''}: all who ask for the same share the result.",
        )
    if secret:
        raise _wrong(
            f"{where}: the address holds a password or name.",
            "Others can read it there. Ask an admin for an index that needs none.",
        )


def _project(text: str) -> tuple[dict[str, Any], str | None]:
    whole = _toml(text, "pyproject.toml")
    project = whole.get("project")
    if not isinstance(project, dict):
        raise _wrong(
            "pyproject.toml has no [project].", "Add one with its dependencies, or send requirements.txt."
        )
    settled_by_lock = whole.get("tool", {}).get("uv", {}) if isinstance(whole.get("tool"), dict) else {}
    return {**project, "_uv": settled_by_lock}, _python_of(project.get("requires-python"))


def _dependencies(project: dict[str, Any]) -> list[str]:
    names = project.get("dependencies", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong("The dependencies of [project] are not a list of names.", 'Write dependencies = ["torch"].')
    if "dependencies" in project.get("dynamic", []):
        raise _wrong("The dependencies of [project] are dynamic.", "List them there, or send requirements.txt.")
    uv = project["_uv"] if isinstance(project["_uv"], dict) else {}
    if any(uv.get(name) for name in ("sources", "index", "find-links", "index-url", "extra-index-url")):
        raise _wrong(
            "[tool.uv] says where packages come from.", "Run `uv lock`: with uv.lock beside it, it is clear."
        )
    return names


def _bare_project(project: dict[str, Any]) -> str:
    """Only what uv needs to know which package of the lock is the root. Nothing in it can steer uv."""
    name = project.get("name")
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise _wrong("[project] has no name.", 'Write name = "my-project".')
    wanted = project.get("requires-python")
    python = f'requires-python = "{wanted}"\n' if isinstance(wanted, str) and _is_range(wanted) else ""
    return f'[project]\nname = "{name}"\nversion = "0"\n{python}'


def _is_range(text: str) -> bool:
    return re.fullmatch(r"[0-9.,<>=!~*\s]{1,100}", text) is not None


def _python_of(wanted: object) -> str | None:
    """`==3.11.*` and `~=3.11.2` say which; a range leaves it open."""
    found = re.fullmatch(r"(?:==|~=)\s*(3\.\d{1,2})\.[\d*]+", wanted.strip()) if isinstance(wanted, str) else None
    return found[1] if found else None


def _check_lock(text: str, trusted: tuple[str, ...]) -> None:
    whole = _toml(text, "uv.lock")
    packages = whole.get("package", [])
    if whole.keys() - _LOCK_KEYS or not isinstance(packages, list) or not all(map(_is_table, packages)):
        raise _wrong("uv.lock is not as a uv of today writes it.", "Run `uv lock` again.")
    for one in packages:
        where = f"uv.lock, {str(one.get('name'))[:60]!a}"
        source = one.get("source", {})
        _check_source(source if isinstance(source, dict) else {"": ""}, where, trusted)
        files = [one.get("sdist"), *(one.get("wheels") or [])]
        for file in filter(_is_table, files):
            for address in (file[key] for key in ("url", "path") if key in file):
                _check_url(str(address), where, trusted)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _check_source(source: dict[str, Any], where: str, trusted: tuple[str, ...]) -> None:
    for kind, value in source.items():
        if kind not in _LOCK_SOURCES or (kind in ("virtual", "editable") and value != "."):
            raise _wrong(f"{where} comes from this machine ({kind[:20]}).", "Only what an index or https:// has.")
        if kind in ("registry", "url", "git"):
            _check_url(str(value), where, trusted)


def _toml(text: str, name: str) -> dict[str, Any]:
    if any(part.count(".") > _MOST_DOTS for part in _BETWEEN.split(text)):
        raise _wrong(f"{name} has a name of too many parts.", "Mend that line; the format is TOML.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # among them numbers that nobody needs
        raise _wrong(
            f"{name} cannot be read: {str(error)[:200]}.", "Mend that line; the format is TOML."
        ) from None


def _wrong(message: str, hint: str, field: str = "environment") -> Invalid:
    return Invalid(message, hint, fields={field: message.rstrip(".")})


def _conda(text: str, trusted: tuple[str, ...]) -> str:
    """Only channels and dependencies, in YAML. Raises Invalid."""
    if len(text) > _MOST_CONDA_CHARACTERS:
        raise _wrong(f"environment.yml has more than {_MOST_CONDA_CHARACTERS // 1024} KiB.", _CONDA_HINT)
    if fault := find_yaml_problem(text):
        raise _wrong(f"environment.yml {fault}.", _CONDA_HINT)
    try:
        whole = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _wrong(
            f"environment.yml cannot be read: {' '.join(str(error).split())[:200]}.", _CONDA_HINT
        ) from None
    if not isinstance(whole, dict) or not isinstance(whole.get("dependencies"), list):
        raise _wrong("environment.yml has no dependencies.", _CONDA_HINT)
    channels = whole.get("channels", ["conda-forge"])
    if not isinstance(channels, list) or not all(_is(_CHANNEL, one) and ".." not in one for one in channels):
        raise _wrong("The channels of environment.yml must be names or https:// addresses.", _CONDA_HINT)
    dependencies = [_conda_dependency(one, trusted) for one in whole["dependencies"]]
    normal: str = yaml.safe_dump({"channels": channels, "dependencies": dependencies}, sort_keys=False)
    return normal


def _conda_dependency(one: object, trusted: tuple[str, ...]) -> Any:
    if isinstance(one, str) and _is(_CONDA_PACKAGE, one.strip()):
        return " ".join(one.split())
    if isinstance(one, dict) and list(one) == ["pip"] and isinstance(one["pip"], list):
        return {"pip": list(_requirement_lines("\n".join(map(str, one["pip"])), trusted))}
    raise _wrong(f"environment.yml: {str(one)[:80]!a} is not the name of a package.", _CONDA_HINT)


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
