"""Validation of request bodies, and its errors in plain words."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from heliostat.errors import Invalid
from heliostat.models.job_fields import JOB_FIELDS

FIELDS_HINT = "The fields are described in docs/api.md."
JOB_FIELDS_HINT = "The fields of a job are described in docs/researchers.md#every-field."
_MAX_ECHOED_CHARACTERS = 300
MAX_PROBLEMS = 20
# Parts of a location that name no field.
_UNION_MEMBERS = ("constrained-", "list[", "function-", "EnvironmentBody")
# By type of the problem, or by the first word of its type.
_SENTENCES = {
    "bool": "must be true or false",
    "date": "must be a day: 2026-12-01",
    "datetime": "must be a time: 2026-12-01T08:00Z",
    "dict": "must be a mapping of names to values",
    "enum": "must be {expected}",
    "extra_forbidden": "there is no such field",
    "finite_number": "must be a finite number",
    "float": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "int": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "less_than_equal": "must be at most {le}",
    "list": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model": "must be a mapping of fields",
    "string": "must be text",
    "string_pattern_mismatch": "does not have the expected form",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} items",
    "too_short": "must have at least {min_length} items",
    "value_error": "{error}",
}
_FIELD_NAMES = [field.name for field in JOB_FIELDS]
Place = tuple[Any, ...]
ModelType = TypeVar("ModelType", bound=BaseModel)


def validation_error(
    problems: Sequence[Mapping[str, Any]], hint: str | None = None, body: object = None
) -> Invalid:
    """One line for each wrong field. `problems` are the errors of pydantic, their locations without `body`."""
    fields: dict[str, str] = {}
    lines: dict[str, None] = {}
    for place, sentences in _sentences_by_place(problems).items():
        sentence = _join(sentences)
        fields |= {_field(place): sentence} if place else {}
        subject = _subject(place, body)
        lines[f"{subject}: {sentence}." if subject else f"{sentence}."] = None
    return Invalid("\n".join(lines), hint, fields=fields)


def read_model(model: type[ModelType], value: object) -> ModelType:
    """Raises Invalid."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        hint = getattr(model, "fields_hint", FIELDS_HINT)
        raise validation_error(error.errors(include_url=False, include_input=False), hint, value) from None


def _sentences_by_place(problems: Sequence[Mapping[str, Any]]) -> dict[Place, list[str]]:
    """The first problems. A field with several types has a problem for each; those of the deepest place count."""
    found: dict[Place, list[str]] = {}
    for problem in problems[:MAX_PROBLEMS]:
        found.setdefault(_place(problem["loc"]), []).append(_sentence(problem))
    inner = {place[:depth] for place in found for depth in range(1, len(place))}
    return {place: sentences for place, sentences in found.items() if place not in inner}


def _place(location: tuple[Any, ...]) -> Place:
    return tuple(part for part in location if not str(part).startswith(_UNION_MEMBERS))


def _field(place: Place) -> str:
    return _short(".".join(map(str, place)))


def _subject(place: Place, body: object) -> str:
    """`gpus`; for a field of one of several jobs `job train: gpus`, or `job 3 of 7: gpus` without a name."""
    jobs = body.get("jobs") if isinstance(body, Mapping) else None
    if not (place[:1] == ("jobs",) and len(place) > 1 and isinstance(jobs, list)):
        return _field(place)
    title = _job_title(jobs, place[1])
    return ": ".join(filter(None, (title, _field(place[2:]))))


def _job_title(jobs: Sequence[object], index: int) -> str:
    if len(jobs) == 1:
        return ""
    job = jobs[index]
    name = job.get("name") if isinstance(job, Mapping) else None
    if isinstance(name, str) and name.strip():
        return f"job {_short(name)}"
    return f"job {index + 1} of {len(jobs)}"


def _join(sentences: Sequence[str]) -> str:
    """`must be text or a list`."""
    first, *others = dict.fromkeys(sentences)
    if not all(sentence.startswith("must be ") for sentence in (first, *others)):
        return first
    return " or ".join([first, *(sentence.removeprefix("must be ") for sentence in others)])


def _sentence(problem: Mapping[str, Any]) -> str:
    """In our words: those of pydantic are for programmers."""
    kind, context = problem["type"], dict(problem.get("ctx", {}))
    if context.get("min_length") == 1:
        return "must not be empty"
    if kind == "extra_forbidden":
        matches = difflib.get_close_matches(str(problem["loc"][-1])[:50], _FIELD_NAMES, 1)
        return _SENTENCES[kind] + (f" (did you mean {matches[0]}?)" if matches else "")
    sentence = _SENTENCES.get(kind) or _SENTENCES.get(kind.partition("_")[0], "is not valid")
    return _short(sentence.format_map(context).rstrip("."))


def _short(text: str) -> str:
    """Sent texts are repeated in messages: limits their length and escapes what UTF-8 cannot encode."""
    return text[:_MAX_ECHOED_CHARACTERS].encode("utf-8", "backslashreplace").decode()
