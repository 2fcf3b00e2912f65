"""Job files: writing and parsing a job as YAML or JSON."""

import json
from datetime import date
from typing import Any

import yaml

from heliostat.errors import Invalid
from heliostat.models.job_fields import FIELD_ALIASES, normalize_yaml_job
from heliostat.services.yaml_safety import find_yaml_problem
from heliostat.web.job_form.request_to_body import JobBodyDict

IMPORT_FIELD = "import"
MAX_FILE_CHARACTERS = 2 * 2**20
MAX_YAML_CHARACTERS = 64 * 2**10  # parsing YAML takes about 100 times as long as JSON
_MAX_DIGITS = 1000
_EXAMPLE = "Write one field per line, for example `command: python train.py`."


def body_to_json(body: JobBodyDict) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def body_to_yaml(body: JobBodyDict) -> str:
    text: str = yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def parse_job_file(text: str) -> JobBodyDict:
    """The job of a YAML or JSON file, not yet validated. Raises Invalid."""
    if len(text) > MAX_FILE_CHARACTERS:
        raise _invalid_file(
            f"the file is longer than {MAX_FILE_CHARACTERS // 1024} KiB", "Submit it with `helio submit`."
        )
    if not text.strip():
        raise _invalid_file("the file is empty", _EXAMPLE)
    return _normalized(_only_job(_parsed(text)))


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # YAML may also start like this
    if len(text) > MAX_YAML_CHARACTERS:
        raise _too_long(MAX_YAML_CHARACTERS)
    if problem := find_yaml_problem(text):
        raise _invalid_file(f"the file {problem}", _EXAMPLE)
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid_file("the file is neither YAML nor JSON", _where(error)) from None


def _where(error: Exception) -> str:
    """The line of the error instead of the parser's message."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error)[:120]
    return f"Line {mark.line + 1}: {problem}." if mark else f"{problem[:1].upper()}{problem[1:]}."


def _only_job(content: object) -> dict[Any, Any]:
    if isinstance(content, dict) and isinstance(content.get("jobs"), list) and len(content) == 1:
        content = content["jobs"]
    if isinstance(content, list) and len(content) > 1:
        raise _invalid_file(
            f"the file has {len(content)} jobs, but the form takes one", "Use `helio submit` for several jobs."
        )
    job = content[0] if isinstance(content, list) and content else content
    if not isinstance(job, dict) or not job:
        raise _invalid_file("the file has no job", _EXAMPLE)
    return job


def _normalized(job: dict[Any, Any]) -> JobBodyDict:
    normalized = normalize_yaml_job(job)
    if isinstance(normalized.get("begin"), date):
        normalized["begin"] = normalized["begin"].isoformat()
    for alias, name in FIELD_ALIASES.items():
        if alias in normalized and name not in normalized:
            normalized[name] = normalized.pop(alias)
    return normalized


def _too_long(limit: int) -> Invalid:
    return _invalid_file(f"the file is longer than {limit // 1024} KiB", "Submit it with `helio submit`.")


def _invalid_file(why: str, hint: str) -> Invalid:
    return Invalid(f"The job file cannot be read: {why}.", hint, fields={IMPORT_FIELD: why})


class _Dumper(yaml.SafeDumper):
    """Writes scripts as block text."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """Only double quotes escape all characters that YAML treats as line breaks."""
    if not all(letter.isprintable() or letter in "\n\t" for letter in text):
        return '"'
    return "|" if "\n" in text and not text[0].isspace() else None


_Dumper.add_representer(str, _text_node)


class _Loader(yaml.SafeLoader):
    """Keeps `1:30` (90 in YAML 1.1) and very long numbers as text."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        is_text = ":" in node.value or len(node.value) > _MAX_DIGITS
        return node.value if is_text else super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
