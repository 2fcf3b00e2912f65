"""View model of the job form: fields, start preview, suggestions and exports."""

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
from heliostat.web.job_form.fields import DEFAULT_TEXTS, FIELD_GROUPS, FORM_FIELDS, ChoiceOptions, FormField
from heliostat.web.job_form.job_file import IMPORT_FIELD, body_to_json, body_to_yaml
from heliostat.web.job_form.request_to_body import changes_to_body, duration_text, request_to_body
from heliostat.web.job_form.text_conversion import value_to_text


@dataclass(frozen=True, slots=True)
class FormErrors:
    message: str = ""
    hint: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestSuggestion:
    """A smaller or different request that would start earlier."""

    description: str
    changes_query: str  # changed fields as a URL query
    starts_now: bool
    likely_at: datetime
    by_backfill: bool


@dataclass(frozen=True, slots=True)
class StartPreview:
    state: Literal["now", "later", "unknown", "wrong", "busy"]
    forecast: Forecast | None = None
    suggestions: tuple[RequestSuggestion, ...] = ()
    notes: tuple[str, ...] = ()
    no_forecast_reason: str | None = None
    errors: FormErrors = FormErrors()
    hints: tuple[str, ...] = ()  # what earlier jobs with the same name used


@dataclass(frozen=True, slots=True)
class JobExports:
    command: str
    yaml: str
    json: str


@dataclass(frozen=True, slots=True)
class JobDraft:
    """Current input of the form, with errors and preview."""

    field_texts: Mapping[str, str]
    idempotency_key: str  # a form submitted twice creates one job
    source_note: str = ""  # origin of the values
    errors: FormErrors = FormErrors()
    preview: StartPreview | None = None
    import_text: str = ""


@dataclass(frozen=True, slots=True)
class FormFieldView:
    """A field with its value."""

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


def build_form_view(draft: JobDraft, choices: JobChoices, exports: JobExports | None) -> JobFormView:
    first, *more = [_shown_group(index, draft, choices) for index in range(len(FIELD_GROUPS))]
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
    """None: the input is not a valid job yet."""
    try:
        body = request_to_body(read())
    except HeliostatError:
        return None
    return JobExports(build_command_line(body), body_to_yaml(body), body_to_json(body))


def build_preview(answer: StartEstimate, request: JobRequest) -> StartPreview:
    notes = ["The job is held first; it starts after you release it."] if request.held else []
    if request.array is not None:
        notes.append("This forecast is for the first job of the array.")
    state: Literal["now", "later", "unknown"] = (
        "now" if answer.starts_now else "later" if answer.forecast is not None else "unknown"
    )
    suggestions = () if answer.starts_now else tuple(_suggestion(option, request) for option in answer.options)
    return StartPreview(state, answer.forecast, suggestions, tuple(notes), answer.no_forecast_reason)


def _suggestion(option: EarlierStartOption, request: JobRequest) -> RequestSuggestion:
    by_backfill = option.starts_now and "time_limit" in option.change
    change = urlencode(_texts_of(_without_default_resources(option.change, request)))
    return RequestSuggestion(option.description, change, option.starts_now, option.forecast.likely_at, by_backfill)


def _without_default_resources(change: Mapping[str, object], request: JobRequest) -> Mapping[str, object]:
    """Without requested CPUs and memory, the defaults apply also to the changed GPUs."""
    if not change.keys() & {"gpus", "gpu_type"}:
        return change
    requested = {"cpus": request.cpus, "memory": request.memory_mib}
    return {
        name: value
        for name, value in change.items()
        if requested.get(name, value) is not None or name not in requested
    }


def _texts_of(change: Mapping[str, object]) -> dict[str, str]:
    changed = changes_to_body(change)
    return {
        name: value_to_text(name, value) if value is not False else ""
        for name, value in changed.items()
        if name in FORM_FIELDS
    }


def _shown_group(index: int, draft: JobDraft, choices: JobChoices) -> FieldGroupView:
    group = FIELD_GROUPS[index]
    return FieldGroupView(group.title, tuple(_shown(form_field, draft, choices) for form_field in group.fields))


def _shown(form_field: FormField, draft: JobDraft, choices: JobChoices) -> FormFieldView:
    text = draft.field_texts.get(form_field.name, form_field.default)
    placeholder = _time_limit_text(choices) if form_field.name == "time_limit" else form_field.placeholder
    options = _options(form_field, text, choices) if form_field.kind == "choice" else ()
    return FormFieldView(form_field, text, draft.errors.fields.get(form_field.name, ""), placeholder, options)


def _time_limit_text(choices: JobChoices) -> str:
    limit = choices.default_time_limit_seconds
    return "none" if limit is None else duration_text(limit)


def _options(form_field: FormField, text: str, choices: JobChoices) -> ChoiceOptions:
    """Options of a choice field, including the current value if it is not among them."""
    options = list(form_field.options)
    if form_field.name == "gpu_type":
        types = [
            (gpu.name, f"{gpu.name} · {gpu.count} of {formatting.format_size(gpu.memory_mib)}")
            for gpu in choices.gpu_types
        ]
        options = [("", "any"), *types]
    elif form_field.name == "project":
        default = (
            []
            if choices.default_project in choices.projects
            else [("", choices.default_project or "choose a project")]
        )
        options = [*default, *((name, name) for name in choices.projects)]
    return options if text in dict(options) else [*options, (text, text or "default")]
