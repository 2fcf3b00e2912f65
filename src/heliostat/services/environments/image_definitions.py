"""Image definitions: validation of Containerfiles and Apptainer definition files, and a generated Containerfile
for a list of packages. Pure functions."""

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
_NO_TEXT = set("\0\x1c\x1d\x1e\x1f")  # Python treats the last ones as white space, the build tools do not
_CONTINUED = re.compile(r"\\[ \t]*\n")
_FROM_LINE = re.compile(r"\s*FROM\b", re.I)
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
    """An image definition with full names of its base images."""

    text: str
    base_images: tuple[str, ...]  # without those given by variables


def validate_containerfile(text: str, rules: ContainerPolicy) -> ResolvedImageFile:
    """Raises Invalid if the file cannot be parsed, or a base image is not allowed."""
    lines = _checked_text(text, CONTAINERFILE_ENTRY).split("\n")
    stages: list[str] = []
    bases: list[str] = []
    for number, line in enumerate(lines):
        _check_line(lines, number)
        if _FROM_LINE.match(line):
            lines[number] = _resolve_from(line, number, (stages, bases), rules)
    _check_joined_lines(lines, rules)
    if not any(_FROM_LINE.match(line) for line in lines):
        raise _invalid("The Containerfile has no FROM.", "Add one at the beginning: FROM python:3.11.")
    return ResolvedImageFile("\n".join(lines), tuple(dict.fromkeys(bases)))


def _check_joined_lines(lines: list[str], rules: ContainerPolicy) -> None:
    """Only names of earlier stages are stages: other names are images."""
    stages: list[str] = []
    for line in _joined_lines(lines):
        if _FROM_LINE.match(line):
            if line not in lines:
                raise _invalid(f"{line.strip()[:80]!a} spans several lines.", "Write FROM in one line.")
            parsed = _FROM.fullmatch(line)
            stages += [parsed["stage"].lower()] if parsed and parsed["stage"] else []
        for image in _copied_images(line):
            _check_copied_image(image, stages, rules)


def _copied_images(line: str) -> Iterator[str]:
    """Images in `--from=` and `--mount=…,from=`."""
    for word in line.split():
        if "--from=" in word.lower() or "--mount=" in word.lower():
            yield from (match["image"] for match in _OTHER_FROM.finditer(word))


def _joined_lines(lines: list[str]) -> list[str]:
    """As the build tool reads them: without comments, with continued lines joined."""
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    return _CONTINUED.sub("", text).split("\n")


def validate_apptainer_definition(text: str, rules: ContainerPolicy) -> ResolvedImageFile:
    """Raises Invalid."""
    text = _checked_text(text, "definition file")
    parsed = list(_headers(text))
    values_by_name = dict(parsed)
    if "bootstrap" not in values_by_name:
        raise _invalid(
            "The definition file has no Bootstrap.",
            "Add Bootstrap: docker and From: python:3.11 at the beginning.",
        )
    if not rules.container_settings.allowed_registries:
        return ResolvedImageFile(text, ())
    if values_by_name["bootstrap"].lower() != "docker" or len(parsed) != 2:
        raise _invalid(
            "Only images of certain registries are allowed.",
            "Use one of them: Bootstrap: docker, From: …",
        )
    _check_base(values_by_name.get("from", ""), rules)
    return ResolvedImageFile(text, ())


def _headers(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() in ("bootstrap", "from"):
            yield name.strip().lower(), value.strip()


def generate_containerfile(spec: EnvironmentSpec, base: str, rules: ContainerPolicy) -> ResolvedImageFile:
    """A Containerfile that installs these packages on top of an image. Raises Invalid."""
    image = str(_check_base(base, rules))
    names = " ".join(name for name, _ in spec.files)
    text = f"FROM {image}\nCOPY {names} /heliostat/\nRUN {_INSTALL[spec.kind]}\n"
    return ResolvedImageFile(text, (image,))


def _checked_text(text: str, name: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise _invalid(
            f"The {name} has more than {MAX_CHARACTERS // 1024} KiB.",
            "Move large parts into files of the build context.",
        )
    if _NO_TEXT & set(text) or not text.strip():
        raise _invalid(f"The {name} is empty or not a text file.", "Send a text file.")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")  # the build tool ignores a byte order mark


def _check_line(lines: list[str], number: int) -> None:
    line = lines[number]
    if re.match(r"\s*#\s*(escape|syntax)\s*=", line, re.I):
        raise _invalid(f"Line {number + 1}: this directive is not allowed.", "Remove that line.")
    if _FROM_LINE.match(line) and line.rstrip().endswith("\\"):
        raise _invalid(f"Line {number + 1}: FROM spans several lines.", "Write it in one line.")
    if re.fullmatch(r"\s*FROM\s*", line, re.I):
        raise _invalid(f"Line {number + 1}: FROM has no image.", "Write FROM python:3.11.")


def _resolve_from(line: str, number: int, known: tuple[list[str], list[str]], rules: ContainerPolicy) -> str:
    """The line with the full image name. Adds its stage and base image to the known ones."""
    stages, bases = known
    match = _FROM.fullmatch(line)
    if match is None:
        raise _invalid(f"Line {number + 1}: {line.strip()[:80]!a} cannot be read.", "Write FROM IMAGE [AS NAME].")
    name = match["image"]
    is_stage = name.lower() in stages or name == "scratch"
    if match["stage"]:
        stages.append(match["stage"].lower())
    if is_stage:
        return line
    if "$" in name:
        _check_variable_allowed(name, rules)
        return line
    image = str(_check_base(name, rules))
    bases.append(image)
    return f"{match['before']}{image}{match['after']}"


def _check_copied_image(name: str, stages: list[str], rules: ContainerPolicy) -> None:
    if name.lower() in stages or name.isdecimal() or not rules.container_settings.allowed_registries:
        return
    if "$" in name:
        _check_variable_allowed(name, rules)
    _check_base(name, rules)


def _check_variable_allowed(name: str, rules: ContainerPolicy) -> None:
    if rules.container_settings.allowed_registries:
        raise _invalid(
            f"{name[:80]!a} contains a variable.",
            "Only images of certain registries are allowed: write the image without variables.",
        )


def _check_base(name: str, rules: ContainerPolicy) -> ImageName:
    try:
        image = parse_image(name)
    except ValueError as error:
        raise _invalid(f"{name[:100]!a} {error}.", "Write a name such as python:3.11.") from None
    check_registry(image, rules)
    return image


def inline_files(spec: EnvironmentSpec) -> Iterator[tuple[str, str]]:
    """Files that are copied into the image, without the uploaded folder."""
    yield from (
        (name, text)
        for name, text in spec.files
        if name not in (CONTAINERFILE_ENTRY, DEFINITION_ENTRY, UPLOAD_ENTRY, NAME_ENTRY)
    )


def _invalid(message: str, hint: str) -> Invalid:
    return Invalid(message, hint, fields={"image": message.rstrip(".")})
