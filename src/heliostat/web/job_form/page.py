"""What the page of the form shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from urllib.parse import urlencode

from heliostat.errors import HeliostatError
from heliostat.models import JobRequest
from heliostat.services.cluster.choices import JobChoices
from heliostat.services.jobs.explanation import EarlierStartOption, Forecast, StartEstimate
from heliostat.web import words
from heliostat.web.job_form.bodies import body_of, duration_text, plain_changes
from heliostat.web.job_form.command_line import command_line
from heliostat.web.job_form.fields import DEFAULTS, FIELDS, GROUPS, Field, Options
from heliostat.web.job_form.files import FIELD, to_json, to_yaml
from heliostat.web.job_form.texts import text_of


@dataclass(frozen=True, slots=True)
class Trouble:
    message: str = ""
    hint: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A smaller or different request that would start earlier."""

    words: str
    change: str  # fields and their texts, as in an address
    now: bool
    likely_at: datetime
    by_backfill: bool


@dataclass(frozen=True, slots=True)
class Preview:
    state: Literal["now", "later", "unknown", "wrong", "busy"]
    forecast: Forecast | None = None
    suggestions: tuple[Suggestion, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: Trouble = Trouble()


@dataclass(frozen=True, slots=True)
class Exports:
    command: str
    yaml: str
    json: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What somebody has typed so far, and what is to be said about it."""

    texts: Mapping[str, str]
    key: str  # the same form sent twice makes one job
    source: str = ""  # where its values come from
    trouble: Trouble = Trouble()
    preview: Preview | None = None
    import_text: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A field with what is in it."""

    field: Field
    text: str
    error: str
    placeholder: str
    options: Options


@dataclass(frozen=True, slots=True)
class ShownGroup:
    title: str
    fields: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class AddView:
    draft: Draft
    first: tuple[Shown, ...]
    more: tuple[ShownGroup, ...]
    more_open: bool
    exports: Exports | None
    import_error: str


def add_view(draft: Draft, offer: JobChoices, exports: Exports | None) -> AddView:
    first, *more = [_shown_group(index, draft, offer) for index in range(len(GROUPS))]
    inside = [shown for group in more for shown in group.fields]
    return AddView(
        draft=draft,
        first=first.fields,
        more=tuple(more),
        more_open=any(shown.error or shown.text != DEFAULTS[shown.field.name] for shown in inside),
        exports=exports,
        import_error=draft.trouble.fields.get(FIELD, ""),
    )


def exports_of(read: Callable[[], JobRequest]) -> Exports | None:
    """None: it is not a job yet."""
    try:
        body = body_of(read())
    except HeliostatError:
        return None
    return Exports(command_line(body), to_yaml(body), to_json(body))


def preview_of(answer: StartEstimate, request: JobRequest) -> Preview:
    notes = ["Once you release it: it is held first."] if request.held else []
    if request.array is not None:
        notes.append("This is about one job of the array; the others come after it.")
    state: Literal["now", "later", "unknown"] = (
        "now" if answer.starts_now else "later" if answer.forecast is not None else "unknown"
    )
    suggestions = () if answer.starts_now else tuple(_suggestion(option, request) for option in answer.options)
    return Preview(state, answer.forecast, suggestions, tuple(notes))


def _suggestion(option: EarlierStartOption, request: JobRequest) -> Suggestion:
    by_backfill = option.starts_now and "time_limit" in option.change
    change = urlencode(_texts_of(_without_fair_parts(option.change, request)))
    return Suggestion(option.description, change, option.starts_now, option.forecast.likely_at, by_backfill)


def _without_fair_parts(change: Mapping[str, object], request: JobRequest) -> Mapping[str, object]:
    """Who left cpus and memory open has a fair part of them, also with other GPUs."""
    if not change.keys() & {"gpus", "gpu_type"}:
        return change
    asked = {"cpus": request.cpus, "memory": request.memory_mib}
    return {
        name: value for name, value in change.items() if asked.get(name, value) is not None or name not in asked
    }


def _texts_of(change: Mapping[str, object]) -> dict[str, str]:
    changed = plain_changes(change)
    return {
        name: text_of(name, value) if value is not False else ""
        for name, value in changed.items()
        if name in FIELDS
    }


def _shown_group(index: int, draft: Draft, offer: JobChoices) -> ShownGroup:
    group = GROUPS[index]
    return ShownGroup(group.title, tuple(_shown(one, draft, offer) for one in group.fields))


def _shown(one: Field, draft: Draft, offer: JobChoices) -> Shown:
    text = draft.texts.get(one.name, one.default)
    placeholder = _limit_words(offer) if one.name == "time_limit" else one.placeholder
    options = _options(one, text, offer) if one.kind == "choice" else ()
    return Shown(one, text, draft.trouble.fields.get(one.name, ""), placeholder, options)


def _limit_words(offer: JobChoices) -> str:
    limit = offer.default_time_limit_seconds
    return "none" if limit is None else duration_text(limit)


def _options(one: Field, text: str, offer: JobChoices) -> Options:
    """What is not among them stays to be seen: nothing that was typed or read is lost."""
    options = list(one.options)
    if one.name == "gpu_type":
        types = [
            (gpu.name, f"{gpu.name} · {gpu.count} of {words.size(gpu.memory_mib)}") for gpu in offer.gpu_types
        ]
        options = [("", "any"), *types]
    elif one.name == "project":
        usual = [] if offer.default_project in offer.projects else [("", offer.default_project or "choose one")]
        options = [*usual, *((name, name) for name in offer.projects)]
    return options if text in dict(options) else [*options, (text, text or "as usual")]
