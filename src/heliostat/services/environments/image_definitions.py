"""What an image is built from: a Containerfile or definition file as it was sent, or one written for a list of
packages. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from heliostat.errors import Invalid
from heliostat.models.environments import EnvironmentSpec
from heliostat.runtimes.container_policy import ContainerPolicy, check_registry
from heliostat.runtimes.image_names import ImageName, parse_image

MAX_CHARACTERS = 256 * 1024
CONTAINERFILE_ENTRY, DEFINITION_ENTRY, UPLOAD_ENTRY, NAME_ENTRY = "Containerfile", "image.def", "upload", "name"
_FROM = re.compile(
    r"(?P<before>\s*FROM\s+(?:--platform=\S+\s+)?)(?P<image>\S+)(?P<after>(?:\s+AS\s+(?P<stage>\S+))?\s*)", re.I
)
_NO_TEXT = set("\0\x1c\x1d\x1e\x1f")  # the last ones are blanks to Python, and none to the tools that build
_CONTINUED = re.compile(r"\\[ \t]*\n")
_BEGINS = re.compile(r"\s*FROM\b", re.I)
_OTHER_FROM = re.compile(r"\bfrom=(?P<image>[^,]+)", re.I)
_PIP = "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir"
_UV_EXPORT = "uv export --quiet --frozen --no-emit-project --no-dev --no-header --output-file requirements.txt"
_INSTALL = {
    "requirements": f"{_PIP} --requirement /heliostat/requirements.txt",
    "pyproject": f"{_PIP} --requirement /heliostat/requirements.txt",
    "uv": f"{_PIP} uv && cd /heliostat && {_UV_EXPORT} && {_PIP} --requirement requirements.txt",
    "conda": "if command -v micromamba > /dev/null; "
    "then micromamba install --yes --name base --file /heliostat/environment.yml; "
    "else conda env update --name base --file /heliostat/environment.yml; fi",
}


@dataclass(frozen=True, slots=True)
class ResolvedImageFile:
    """A file whose images to begin with are written in full."""

    text: str
    base_images: tuple[str, ...]  # as far as they are named


def validate_containerfile(text: str, rules: ContainerPolicy) -> ResolvedImageFile:
    """Raises Invalid for a file that cannot be read, or begins with an image the admins do not allow."""
    lines = _checked_text(text, CONTAINERFILE_ENTRY).split("\n")
    stages: list[str] = []
    bases: list[str] = []
    for number, line in enumerate(lines):
        _check_line(lines, number)
        if _BEGINS.match(line):
            lines[number] = _begun(line, number, (stages, bases), rules)
    _check_whole_lines(lines, rules)
    if not any(_BEGINS.match(line) for line in lines):
        raise _wrong("The Containerfile has no FROM.", "Begin it with one: FROM python:3.11.")
    return ResolvedImageFile("\n".join(lines), tuple(dict.fromkeys(bases)))


def _check_whole_lines(lines: list[str], rules: ContainerPolicy) -> None:
    """Of stages only those count that stand before: other names are images."""
    stages: list[str] = []
    for line in _whole_lines(lines):
        if _BEGINS.match(line):
            if line not in lines:
                raise _wrong(f"{line.strip()[:80]!a} goes over several lines.", "Write FROM in one.")
            begun = _FROM.fullmatch(line)
            stages += [begun["stage"].lower()] if begun and begun["stage"] else []
        for image in _other_images(line):
            _check_other(image, stages, rules)


def _other_images(line: str) -> Iterator[str]:
    """Of the words that may name one: `--from=`, `--mount=…,from=`."""
    for word in line.split():
        if "--from=" in word.lower() or "--mount=" in word.lower():
            yield from (found["image"] for found in _OTHER_FROM.finditer(word))


def _whole_lines(lines: list[str]) -> list[str]:
    """As the tool that builds reads them: without comments, and what a backslash breaks put together again."""
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    return _CONTINUED.sub("", text).split("\n")


def validate_apptainer_definition(text: str, rules: ContainerPolicy) -> ResolvedImageFile:
    """Of apptainer. Raises Invalid."""
    text = _checked_text(text, "definition file")
    begun = list(_headers(text))
    said = dict(begun)
    if "bootstrap" not in said:
        raise _wrong(
            "The definition file has no Bootstrap.", "Begin it with Bootstrap: docker and From: python:3.11."
        )
    if not rules.container_settings.allowed_registries:
        return ResolvedImageFile(text, ())
    if said["bootstrap"].lower() != "docker" or len(begun) != 2:
        raise _wrong(
            "Only images of some registries are allowed here.",
            "Begin with one of them: Bootstrap: docker, From: …",
        )
    _check_base(said.get("from", ""), rules)
    return ResolvedImageFile(text, ())


def _headers(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() in ("bootstrap", "from"):
            yield name.strip().lower(), value.strip()


def generate_containerfile(software: EnvironmentSpec, base: str, rules: ContainerPolicy) -> ResolvedImageFile:
    """A Containerfile that installs these packages on top of an image. Raises Invalid."""
    image = str(_check_base(base, rules))
    copied = " ".join(name for name, _ in software.files)
    text = f"FROM {image}\nCOPY {copied} /heliostat/\nRUN {_INSTALL[software.kind]}\n"
    return ResolvedImageFile(text, (image,))


def _checked_text(text: str, name: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise _wrong(
            f"The {name} has more than {MAX_CHARACTERS // 1024} KiB.", "Copy what is large from the folder."
        )
    if _NO_TEXT & set(text) or not text.strip():
        raise _wrong(f"The {name} is empty, or no text.", "Send a text.")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")  # the tool that builds passes over such a mark


def _check_line(lines: list[str], number: int) -> None:
    line = lines[number]
    if re.match(r"\s*#\s*(escape|syntax)\s*=", line, re.I):
        raise _wrong(f"Line {number + 1}: such a directive is not possible here.", "Leave that line out.")
    if _BEGINS.match(line) and line.rstrip().endswith("\\"):
        raise _wrong(f"Line {number + 1}: FROM goes over several lines.", "Write it in one.")
    if re.fullmatch(r"\s*FROM\s*", line, re.I):
        raise _wrong(f"Line {number + 1}: FROM names no image.", "Write FROM python:3.11.")


def _begun(line: str, number: int, known: tuple[list[str], list[str]], rules: ContainerPolicy) -> str:
    """The line with the name in full; stages and bases are added to those that are known."""
    stages, bases = known
    found = _FROM.fullmatch(line)
    if found is None:
        raise _wrong(f"Line {number + 1}: {line.strip()[:80]!a} cannot be read.", "Write FROM IMAGE [AS NAME].")
    named = found["image"]
    is_stage = named.lower() in stages or named == "scratch"
    if found["stage"]:
        stages.append(found["stage"].lower())
    if is_stage:
        return line
    if "$" in named:
        _check_open(named, rules)
        return line
    image = str(_check_base(named, rules))
    bases.append(image)
    return f"{found['before']}{image}{found['after']}"


def _check_other(named: str, stages: list[str], rules: ContainerPolicy) -> None:
    if named.lower() in stages or named.isdecimal() or not rules.container_settings.allowed_registries:
        return
    if "$" in named:
        _check_open(named, rules)
    _check_base(named, rules)


def _check_open(named: str, rules: ContainerPolicy) -> None:
    if rules.container_settings.allowed_registries:
        raise _wrong(
            f"{named[:80]!a} leaves open which image it is.",
            "Only images of some registries are allowed here: name it without variables.",
        )


def _check_base(named: str, rules: ContainerPolicy) -> ImageName:
    try:
        image = parse_image(named)
    except ValueError as error:
        raise _wrong(f"{named[:100]!a} {error}.", "Such as python:3.11.") from None
    check_registry(image, rules)
    return image


def inline_files(software: EnvironmentSpec) -> Iterator[tuple[str, str]]:
    """What is copied into it besides the folder that was uploaded."""
    yield from (
        (name, text)
        for name, text in software.files
        if name not in (CONTAINERFILE_ENTRY, DEFINITION_ENTRY, UPLOAD_ENTRY, NAME_ENTRY)
    )


def _wrong(message: str, hint: str) -> Invalid:
    return Invalid(message, hint, fields={"image": message.rstrip(".")})
