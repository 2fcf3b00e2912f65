"""Sweep files: parameter grids, lists or random samples, and the values of each run."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliostat.errors import TooLarge
from heliostat.models.quantities import parse_duration
from heliostat.workflows.expressions import Value, as_number, as_text
from heliostat.workflows.matrix import MAX_VARIANTS, ValueMap, parse_matrix
from heliostat.workflows.parameters import environment_variable
from heliostat.workflows.validation_errors import format_list, invalid_field, suggest_name

_TITLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,62}", re.ASCII)
_FIELDS = ("name", "job", "grid", "list", "random", "at_once", "retries", "retry_wait")
_SOURCES = ("grid", "list", "random")
_FORBIDDEN_FIELDS = ("array", "after_each", "name", "record")
_MAX_BYTES = 64 * 2**20
_ESCAPED = r"\{[A-Za-z_][\w-]*\}"
_PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][\w-]*)\}", re.ASCII)
_LARGEST_LOG = 709.78  # math.exp overflows above
_DIGITS = 6  # of a random number


@dataclass(frozen=True, slots=True)
class SweepDocument:
    name: str
    job_fields: Mapping[str, object]  # the fields of a job, with its array
    variants: tuple[ValueMap, ...]  # the values of each array element
    retries: int = 0
    retry_seconds: int = 30


def parse_sweep(given: object) -> SweepDocument:
    """Raises Invalid, with the field, or TooLarge."""
    if not isinstance(given, Mapping):
        raise invalid_field("sweep", f"must be a mapping with the fields {format_list(_FIELDS)}")
    if unknown := sorted(set(map(str, given)) - set(_FIELDS)):
        raise invalid_field(unknown[0][:60], f"unknown field{suggest_name(unknown[0], _FIELDS)}")
    name, job = given.get("name", "sweep"), given.get("job")
    if not isinstance(name, str) or _TITLE.fullmatch(name) is None:
        raise invalid_field(
            "name", "must be 1 to 63 letters, digits, spaces, _ . - and begin with a letter or digit"
        )
    if not isinstance(job, Mapping):
        raise invalid_field(
            "job", "must be a mapping of fields, such as `command: [python, train.py, --lr, '{lr}']`"
        )
    for field in _FORBIDDEN_FIELDS:
        if field in job:
            raise invalid_field(f"job.{field}", "is not allowed in a sweep", "Remove it.")
    sources = [source for source in _SOURCES if given.get(source) is not None]
    if len(sources) != 1:
        raise invalid_field("grid", "a sweep needs exactly one of grid, list and random")
    table = _sample(given["random"]) if sources == ["random"] else parse_matrix(sources[0], given[sources[0]])
    _check_no_shell(job, table[0])
    _check_names(job, table[0])
    body = {str(key): value for key, value in job.items()}
    at_once = "" if given.get("at_once") is None else f"%{_count('at_once', given['at_once'], 1, MAX_VARIANTS)}"
    return SweepDocument(
        name=name,
        job_fields={**body, "name": name, "array": f"0-{len(table) - 1}{at_once}"},
        variants=table,
        retries=_count("retries", given.get("retries", 0), 0, 100),
        retry_seconds=_seconds(given.get("retry_wait", 30)),
    )


def fill_words(words: Sequence[str], values: ValueMap) -> tuple[str, ...]:
    """Replace `{lr}` by its value, in arguments that no shell reads; `{{lr}}` becomes `{lr}`."""
    names = "|".join(map(re.escape, values))
    pattern = re.compile(rf"\{{({_ESCAPED})\}}|\{{({names})\}}", re.ASCII)
    return tuple(pattern.sub(lambda match: match[1] or as_text(values[match[2]]), word) for word in words)


def parameter_environment(values: ValueMap) -> dict[str, str]:
    return {environment_variable(name): as_text(value) for name, value in values.items()}


def check_expanded_size(words: Sequence[str], table: Sequence[ValueMap]) -> None:
    """Checked before expansion: many names with long values could expand to gigabytes."""
    longest = {name: max(len(as_text(row[name])) for row in table) for name in table[0]}
    size = sum(
        len(word) + sum(word.count(f"{{{name}}}") * most for name, most in longest.items()) for word in words
    )
    if (size + sum(longest.values())) * len(table) > _MAX_BYTES:
        raise TooLarge(f"The expanded sweep is larger than {_MAX_BYTES // 2**20} MiB.", "Use shorter values.")


def _check_no_shell(job: Mapping[str, object], values: ValueMap) -> None:
    for field in ("command", "script"):
        text = job.get(field)
        if isinstance(text, str) and (name := next((key for key in values if f"{{{key}}}" in text), None)):
            hint = f"Write the command as a list, or use ${environment_variable(name)}."
            raise invalid_field(f"job.{field}", f"{{{name}}} is not allowed in text that a shell reads", hint)


def _check_names(job: Mapping[str, object], values: ValueMap) -> None:
    """A misspelled name would be passed to every run as it is."""
    command, env = job.get("command"), job.get("env")
    texts = {
        "command": command if isinstance(command, list) else (),
        "env": env.values() if isinstance(env, Mapping) else (),
    }
    for field, words in texts.items():
        for name in _PLACEHOLDER.findall(" ".join(word for word in words if isinstance(word, str))):
            if name not in values:
                reason = (
                    f"there is no parameter {name[:60]}{suggest_name(name, values)}; known: {format_list(values)}"
                )
                raise invalid_field(f"job.{field}", reason, f"Write {{{{{name[:60]}}}}} for a word in braces.")


def _sample(given: object) -> tuple[ValueMap, ...]:
    """Random samples; the same seed gives the same samples."""
    if not isinstance(given, Mapping) or set(map(str, given)) - {"count", "seed", "values"}:
        raise invalid_field(
            "random", "must have count, seed and values: {count: 20, seed: 7, values: {lr: {from: 1, to: 2}}}"
        )
    count = _count("random.count", given.get("count"), 1, MAX_VARIANTS)
    seed, values = given.get("seed", 0), given.get("values")
    if isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) >= 2**53:
        raise invalid_field("random.seed", "must be a whole number")
    if not isinstance(values, Mapping) or not values:
        raise invalid_field("random.values", "must be a mapping of names, each to a list or {from, to}")
    generator = random.Random(seed)
    ranges = {str(name): _range(f"random.values.{name}", item) for name, item in values.items()}
    rows = [{name: item.draw(generator) for name, item in ranges.items()} for _ in range(count)]
    return parse_matrix("random.values", rows)


@dataclass(frozen=True, slots=True)
class _Range:
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 1.0
    is_log: bool = False
    is_whole: bool = False

    def draw(self, generator: random.Random) -> Value:
        if self.choices:
            return generator.choice(self.choices)
        if self.is_whole:
            return generator.randint(int(self.low), int(self.high))
        if self.is_log:
            value = math.exp(min(generator.uniform(math.log(self.low), math.log(self.high)), _LARGEST_LOG))
        else:
            value = generator.uniform(self.low, self.high)
        return float(f"{value:.{_DIGITS}g}")


def _range(field: str, given: object) -> _Range:
    if isinstance(given, list) and given:
        return _Range(tuple(given))
    if not isinstance(given, Mapping) or set(map(str, given)) - {"from", "to", "log"}:
        raise invalid_field(field, "must be a list of values, or {from: 0.001, to: 0.1, log: true}")
    low, high, is_log = given.get("from"), given.get("to"), given.get("log", False)
    ends = [as_number(item) if isinstance(item, int | float) else None for item in (low, high)]
    if ends[0] is None or ends[1] is None or ends[0] > ends[1] or not isinstance(is_log, bool):
        raise invalid_field(field, "from and to must be numbers, from at most to; log must be true or false")
    if is_log and ends[0] <= 0:
        raise invalid_field(field, "with log, from must be above 0")
    is_whole = not is_log and isinstance(low, int) and isinstance(high, int)
    return _Range((), ends[0], ends[1], is_log, is_whole)


def _count(field: str, given: object, least: int, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise invalid_field(field, f"must be a whole number from {least} to {most}")
    return given


def _seconds(given: object) -> int:
    try:
        seconds = parse_duration(given[:40]) if isinstance(given, str) else given
    except ValueError as error:
        raise invalid_field("retry_wait", str(error)) from None
    return _count("retry_wait", seconds, 0, 86400)
