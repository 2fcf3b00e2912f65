"""Page to add a job: form, start forecast, import, and export as command, YAML or JSON."""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.errors import Conflict, HeliostatError, Invalid, TooManyRequests
from heliostat.models import Job, JobRequest, User
from heliostat.models.gpu_types import is_slice
from heliostat.services.cluster.choices import JobChoices, job_choices_for
from heliostat.services.jobs.explanation import forecast_request
from heliostat.services.jobs.submission import SubmissionResult, submit_jobs
from heliostat.services.jobs.usage_hints import find_usage_hints_of_request
from heliostat.services.permissions import may_see_env_values, require_inspectable_job
from heliostat.web import formatting
from heliostat.web.job_form import job_file
from heliostat.web.job_form.fields import FORM_FIELDS
from heliostat.web.job_form.form_view import (
    FormErrors,
    JobDraft,
    JobFormView,
    StartPreview,
    build_exports,
    build_form_view,
    build_preview,
)
from heliostat.web.job_form.request_to_body import JobBodyDict, job_to_request, request_to_body
from heliostat.web.job_form.text_conversion import FieldTexts, body_to_texts, texts_to_body
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm

router = APIRouter()
SourceJobId = Annotated[int | None, Query(alias="from", ge=1, le=2**53)]
_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")
_EXPORT_FORMATS = {
    "yaml": (job_file.body_to_yaml, "application/yaml"),
    "json": (job_file.body_to_json, "application/json"),
}


@dataclass(frozen=True, slots=True)
class _JobEditor:
    """The request of the form page and the current draft."""

    request: AuthenticatedRequest
    draft: JobDraft

    def read(self, *, for_forecast: bool = False) -> JobRequest:
        """Raises Invalid with the messages of the API."""
        body, problems = texts_to_body(self.draft.field_texts)
        if problems:
            name, why = next(iter(problems.items()))
            raise Invalid(
                f"{FORM_FIELDS[name].label}: {why}.", "Correct it and submit the form again.", fields=problems
            )
        return _read(self.request, body, for_forecast=for_forecast)

    def with_changes(self, **changes: object) -> "_JobEditor":
        return replace(self, draft=replace(self.draft, **changes))  # type: ignore[arg-type]


@router.get("/jobs/new")
def show_job_form(request: AuthenticatedDep, job_id: SourceJobId = None) -> Response:
    """Empty or with the values of a job; query parameters override fields."""
    texts, source = _default_texts(job_choices_for(request.context, request.caller)), ""
    if job_id is not None:
        job = require_inspectable_job(request.context, request.caller, job_id)
        texts, source = _texts_of_job(job, request.user)
    query_texts = {name: text for name, text in request.http.query_params.items() if name in FORM_FIELDS}
    if query_texts and not source:
        source = "Filled in from a link. Check all fields before you submit."
    elif changed := [FORM_FIELDS[name].label for name, text in query_texts.items() if text != texts[name]]:
        source += f" Changed by the link: {', '.join(changed)}."
    return _page(_JobEditor(request, JobDraft(texts | query_texts, _new_key(), source)))


def _texts_of_job(job: Job, user: User) -> tuple[FieldTexts, str]:
    """Field texts of a job and a note. Environment values are included only for their owner."""
    source = f"Filled in from job {job.id}."
    if job.origin_system is not None:
        source += f" The job was imported from {job.origin_system} without its command; enter the command."
    if may_see_env_values(user, job) or not job.spec.env:
        return body_to_texts(request_to_body(job_to_request(job))), source
    without = replace(job, spec=replace(job.spec, env={}))
    return body_to_texts(
        request_to_body(job_to_request(without))
    ), f"{source} Its environment variables are omitted because they belong to another user."


@router.post("/jobs/new")
def submit_job_form(request: AuthenticatedDep, form: FormDep) -> Response:
    """Submit, or the action of another button: preview, import, apply a suggestion, download."""
    editor = _JobEditor(
        request, JobDraft(_submitted_texts(form), _key(form), import_text=form.get_raw(job_file.IMPORT_FIELD))
    )
    if form.has("apply"):
        changes = dict(parse_qsl(form.get("apply")[:2000], keep_blank_values=True))
        known = {name: text for name, text in changes.items() if name in FORM_FIELDS}
        return _preview(editor.with_changes(field_texts={**editor.draft.field_texts, **known}))
    action = _ACTIONS.get(form.get("do"), _submit)
    try:
        return action(editor)
    except HeliostatError as error:
        # Nothing was stored, so a new idempotency key is safe; with the old one a retry could be refused.
        again = editor.with_changes(errors=_form_errors(error), idempotency_key=_new_key())
        return _page(again, status=error.status)


def _submit(editor: _JobEditor) -> Response:
    request = editor.request
    started_at = request.context.now()
    submitted = submit_jobs(
        request.context, request.caller, [editor.read()], f"web-{editor.draft.idempotency_key}"
    )
    first = submitted.jobs[0]
    path = "/jobs?whose=mine" if submitted.array_ids else f"/jobs/{first.id}"
    if first.submitted_at < started_at:
        return redirect(request, path, f"This form was already submitted as {_describe(submitted)}.", "note")
    return redirect(request, path, f"{_describe(submitted)} submitted.")


def _describe(submitted: SubmissionResult) -> str:
    if not submitted.array_ids:
        return f"Job {submitted.job_ids[0]}"
    return f"Array {submitted.array_ids[0]} of {formatting.format_count(len(submitted.job_ids), 'job')}"


def _preview(editor: _JobEditor) -> Response:
    """Always status 200: the user may still be typing."""
    try:
        job_request = editor.read(for_forecast=True)
    except Invalid as error:
        errors = _form_errors(error)
        shown = editor.with_changes(
            errors=FormErrors(fields=errors.fields), preview=StartPreview("wrong", errors=errors)
        )
        return _page(shown)
    return _page(editor.with_changes(preview=_forecast(editor.request, job_request)))


def _forecast(request: AuthenticatedRequest, job_request: JobRequest) -> StartPreview:
    try:
        answer = forecast_request(request.context, request.caller, job_request)
        hints = find_usage_hints_of_request(request.context, request.caller, job_request)
    except TooManyRequests as error:
        return StartPreview("busy", errors=_form_errors(error))
    except HeliostatError as error:
        return StartPreview("wrong", errors=_form_errors(error))
    return replace(build_preview(answer, job_request), hints=tuple(hint.text for hint in hints))


def _export(editor: _JobEditor) -> Response:
    """The exports only, without a forecast."""
    return _page(editor)


def _import(editor: _JobEditor) -> Response:
    """Fills the form from the file, also if some values are invalid."""
    with editor.request.context.import_limit.acquire(editor.request.user.name):
        body = job_file.parse_job_file(editor.draft.import_text)
    filled = editor.with_changes(
        field_texts=body_to_texts(body), import_text="", source_note="Filled in from the file."
    )
    try:
        return _page(filled.with_changes(field_texts=body_to_texts(request_to_body(_read(editor.request, body)))))
    except HeliostatError as error:
        return _page(filled.with_changes(errors=_form_errors(error)), status=error.status)


def _download(kind: str) -> Callable[[_JobEditor], Response]:
    write, media_type = _EXPORT_FORMATS[kind]

    def download(editor: _JobEditor) -> Response:
        headers = {**PAGE_HEADERS, "Content-Disposition": f'attachment; filename="job.{kind}"'}
        return Response(write(request_to_body(editor.read())), media_type=media_type, headers=headers)

    return download


_ACTIONS: Mapping[str, Callable[[_JobEditor], Response]] = {
    "preview": _preview,
    "export": _export,
    "import": _import,
    "yaml": _download("yaml"),
    "json": _download("json"),
}


def _page(editor: _JobEditor, status: int = 200) -> Response:
    request = editor.request
    view: JobFormView = build_form_view(
        editor.draft, job_choices_for(request.context, request.caller), build_exports(editor.read)
    )
    return render_page(
        request, PageSpec("new_job.html", "Add job", breadcrumbs=(("Jobs", "/jobs"),), status=status), view
    )


def _read(request: AuthenticatedRequest, body: JobBodyDict, *, for_forecast: bool = False) -> JobRequest:
    job_request: JobRequest = request.http.app.state.read_job(body, for_forecast=for_forecast)
    return job_request


def _form_errors(error: HeliostatError) -> FormErrors:
    """Assigns the error to the field that it names, if any."""
    if isinstance(error, Conflict) and "idempotency" in error.message:
        return FormErrors("This form was already submitted.", "Submit it again to create another job.")
    fields = {name.partition(".")[0]: why for name, why in error.fields.items()}
    if not fields and isinstance(error, Invalid):
        named = next((word for word in re.findall(r"\w+", error.message) if word in FORM_FIELDS), None)
        fields = {named: error.message} if named else {}
    return FormErrors(_with_label(error.message), error.hint or "", fields)


def _with_label(message: str) -> str:
    """`time_limit: must be…` with the label of the field."""
    name, colon, rest = message.partition(": ")
    if colon and name in FORM_FIELDS:
        return f"{FORM_FIELDS[name].label}: {rest}"
    return message[:1].upper() + message[1:]


def _default_texts(choices: JobChoices) -> FieldTexts:
    """Default values of the form."""
    has_whole_gpus = any(not is_slice(gpu.name) for gpu in choices.gpu_types)
    return body_to_texts({"gpus": int(has_whole_gpus), "project": choices.default_project})


def _submitted_texts(form: SubmittedForm) -> FieldTexts:
    return {name: form.get_raw(name) for name in FORM_FIELDS}


def _key(form: SubmittedForm) -> str:
    sent = form.get("key")
    return sent if _KEY.fullmatch(sent) else _new_key()


def _new_key() -> str:
    return secrets.token_urlsafe(18)
