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
from heliostat.web import formatting
from heliostat.web.job_form.command_line import build_command_line
from heliostat.web.job_form.field_texts import value_to_text
from heliostat.web.job_form.fields import DEFAULT_TEXTS, FIELD_GROUPS, FORM_FIELDS, ChoiceOptions, FormField
from heliostat.web.job_form.job_body import changes_to_body, duration_text, request_to_body
from heliostat.web.job_form.job_file import IMPORT_FIELD, body_to_json, body_to_yaml


@dataclass(frozen=True, slots=True)
class FormErrors:
    message: str = ""
    hint: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestSuggestion:
    """A smaller or different request that would start earlier."""

    description: str
    changes_query: str  # fields and their texts, as in an address
    starts_now: bool
    likely_at: datetime
    by_backfill: bool


@dataclass(frozen=True, slots=True)
class StartPreview:
    state: Literal["now", "later", "unknown", "wrong", "busy"]
    forecast: Forecast | None = None
    suggestions: tuple[RequestSuggestion, ...] = ()
    notes: tuple[str, ...] = ()
    errors: FormErrors = FormErrors()


@dataclass(frozen=True, slots=True)
class JobExports:
    command: str
    yaml: str
    json: str


@dataclass(frozen=True, slots=True)
class JobDraft:
    """What somebody has typed so far, and what is to be said about it."""

    field_texts: Mapping[str, str]
    idempotency_key: str  # the same form sent twice makes one job
    source_note: str = ""  # where its values come from
    errors: FormErrors = FormErrors()
    preview: StartPreview | None = None
    import_text: str = ""


@dataclass(frozen=True, slots=True)
class FormFieldView:
    """A field with what is in it."""

    field: FormField
    text: str
    error: str
    placeholder: str
    options: ChoiceOptions


@dataclass(frozen=True, slots=True)
class FieldGroupView:
    title: str
    fields: tuple[FormFieldView, ...]


@dataclass(frozen=True, slots=True)
class JobFormView:
    draft: JobDraft
    main_fields: tuple[FormFieldView, ...]
    more_groups: tuple[FieldGroupView, ...]
    is_more_open: bool
    exports: JobExports | None
    import_error: str


def build_form_view(draft: JobDraft, offer: JobChoices, exports: JobExports | None) -> JobFormView:
    first, *more = [_shown_group(index, draft, offer) for index in range(len(FIELD_GROUPS))]
    inside = [shown for group in more for shown in group.fields]
    return JobFormView(
        draft=draft,
        main_fields=first.fields,
        more_groups=tuple(more),
        is_more_open=any(shown.error or shown.text != DEFAULT_TEXTS[shown.field.name] for shown in inside),
        exports=exports,
        import_error=draft.errors.fields.get(IMPORT_FIELD, ""),
    )


def build_exports(read: Callable[[], JobRequest]) -> JobExports | None:
    """None: it is not a job yet."""
    try:
        body = request_to_body(read())
    except HeliostatError:
        return None
    return JobExports(build_command_line(body), body_to_yaml(body), body_to_json(body))


def build_preview(answer: StartEstimate, request: JobRequest) -> StartPreview:
    notes = ["Once you release it: it is held first."] if request.held else []
    if request.array is not None:
        notes.append("This is about one job of the array; the others come after it.")
    state: Literal["now", "later", "unknown"] = (
        "now" if answer.starts_now else "later" if answer.forecast is not None else "unknown"
    )
    suggestions = () if answer.starts_now else tuple(_suggestion(option, request) for option in answer.options)
    return StartPreview(state, answer.forecast, suggestions, tuple(notes))


def _suggestion(option: EarlierStartOption, request: JobRequest) -> RequestSuggestion:
    by_backfill = option.starts_now and "time_limit" in option.change
    change = urlencode(_texts_of(_without_fair_parts(option.change, request)))
    return RequestSuggestion(option.description, change, option.starts_now, option.forecast.likely_at, by_backfill)


def _without_fair_parts(change: Mapping[str, object], request: JobRequest) -> Mapping[str, object]:
    """Who left cpus and memory open has a fair part of them, also with other GPUs."""
    if not change.keys() & {"gpus", "gpu_type"}:
        return change
    asked = {"cpus": request.cpus, "memory": request.memory_mib}
    return {
        name: value for name, value in change.items() if asked.get(name, value) is not None or name not in asked
    }


def _texts_of(change: Mapping[str, object]) -> dict[str, str]:
    changed = changes_to_body(change)
    return {
        name: value_to_text(name, value) if value is not False else ""
        for name, value in changed.items()
        if name in FORM_FIELDS
    }


def _shown_group(index: int, draft: JobDraft, offer: JobChoices) -> FieldGroupView:
    group = FIELD_GROUPS[index]
    return FieldGroupView(group.title, tuple(_shown(one, draft, offer) for one in group.fields))


def _shown(one: FormField, draft: JobDraft, offer: JobChoices) -> FormFieldView:
    text = draft.field_texts.get(one.name, one.default)
    placeholder = _limit_words(offer) if one.name == "time_limit" else one.placeholder
    options = _options(one, text, offer) if one.kind == "choice" else ()
    return FormFieldView(one, text, draft.errors.fields.get(one.name, ""), placeholder, options)


def _limit_words(offer: JobChoices) -> str:
    limit = offer.default_time_limit_seconds
    return "none" if limit is None else duration_text(limit)


def _options(one: FormField, text: str, offer: JobChoices) -> ChoiceOptions:
    """What is not among them stays to be seen: nothing that was typed or read is lost."""
    options = list(one.options)
    if one.name == "gpu_type":
        types = [
            (gpu.name, f"{gpu.name} · {gpu.count} of {formatting.format_size(gpu.memory_mib)}")
            for gpu in offer.gpu_types
        ]
        options = [("", "any"), *types]
    elif one.name == "project":
        usual = [] if offer.default_project in offer.projects else [("", offer.default_project or "choose one")]
        options = [*usual, *((name, name) for name in offer.projects)]
    return options if text in dict(options) else [*options, (text, text or "as usual")]
