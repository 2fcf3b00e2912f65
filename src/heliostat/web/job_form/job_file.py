"""Job files: a body as YAML or JSON, and what somebody pasted as a body."""

import json
from datetime import date
from typing import Any

import yaml

from heliostat.errors import Invalid
from heliostat.models.job_fields import FIELD_ALIASES, normalize_yaml_job
from heliostat.services.yaml_safety import find_yaml_problem
from heliostat.web.job_form.job_body import JobBodyDict

IMPORT_FIELD = "import"
MAX_FILE_CHARACTERS = 2 * 2**20
MAX_YAML_CHARACTERS = 64 * 2**10  # which takes a hundred times as long to read as JSON
_LONGEST_NUMBER = 1000
_EXAMPLE = "A job is a set of fields, such as `command: python train.py`."


def body_to_json(body: JobBodyDict) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def body_to_yaml(body: JobBodyDict) -> str:
    text: str = yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def parse_job_file(text: str) -> JobBodyDict:
    """The one job of a YAML or JSON file, not yet checked. Raises Invalid."""
    if len(text) > MAX_FILE_CHARACTERS:
        raise _wrong(
            f"it is longer than {MAX_FILE_CHARACTERS // 1024} KiB", "Put it into the queue with `helio submit`."
        )
    if not text.strip():
        raise _wrong("there is nothing in it", _EXAMPLE)
    return _tidied(_only_job(_parsed(text)))


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # YAML may begin so too
    if len(text) > MAX_YAML_CHARACTERS:
        raise _too_long(MAX_YAML_CHARACTERS)
    if fault := find_yaml_problem(text):
        raise _wrong(f"it {fault}", _EXAMPLE)
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise _wrong("it is neither YAML nor JSON", _where(error)) from None


def _where(error: Exception) -> str:
    """The place is worth more than the parser's words."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error)[:120]
    return f"Line {mark.line + 1}: {problem}." if mark else f"{problem[:1].upper()}{problem[1:]}."


def _only_job(content: object) -> dict[Any, Any]:
    if isinstance(content, dict) and isinstance(content.get("jobs"), list) and len(content) == 1:
        content = content["jobs"]
    if isinstance(content, list) and len(content) > 1:
        raise _wrong(
            f"there are {len(content)} jobs in it, and the form takes one", "Use `helio submit` for many."
        )
    job = content[0] if isinstance(content, list) and content else content
    if not isinstance(job, dict) or not job:
        raise _wrong("there is no job in it", _EXAMPLE)
    return job


def _tidied(job: dict[Any, Any]) -> JobBodyDict:
    tidy = normalize_yaml_job(job)
    if isinstance(tidy.get("begin"), date):
        tidy["begin"] = tidy["begin"].isoformat()
    for other, name in FIELD_ALIASES.items():
        if other in tidy and name not in tidy:
            tidy[name] = tidy.pop(other)
    return tidy


def _too_long(most: int) -> Invalid:
    return _wrong(f"it is longer than {most // 1024} KiB", "Put it into the queue with `helio submit`.")


def _wrong(why: str, hint: str) -> Invalid:
    return Invalid(f"This cannot be read: {why}.", hint, fields={IMPORT_FIELD: why})


class _Dumper(yaml.SafeDumper):
    """Scripts as one reads them."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """Only in double quotation marks all of it is escaped that YAML takes for the end of a line."""
    if not all(letter.isprintable() or letter in "\n\t" for letter in text):
        return '"'
    return "|" if "\n" in text and not text[0].isspace() else None


_Dumper.add_representer(str, _text_node)


class _Loader(yaml.SafeLoader):
    """Leaves `1:30` as it is: YAML 1.1 would make 90 of it; and numbers without end."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        is_text = ":" in node.value or len(node.value) > _LONGEST_NUMBER
        return node.value if is_text else super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
