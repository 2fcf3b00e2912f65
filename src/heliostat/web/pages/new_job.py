"""Add a job: the form, what would come of it while one types, and the same job for files and the terminal."""

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
from heliostat.services.cluster.choices import JobChoices, job_choices_for
from heliostat.services.jobs.explanation import forecast_request
from heliostat.services.jobs.submission import SubmissionResult, submit_jobs
from heliostat.services.permissions import may_see_env_values, require_inspectable_job
from heliostat.web import formatting
from heliostat.web.job_form import job_file
from heliostat.web.job_form.field_texts import FieldTexts, body_to_texts, texts_to_body
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
from heliostat.web.job_form.job_body import JobBodyDict, job_to_request, request_to_body
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm

router = APIRouter()
SourceJobId = Annotated[int | None, Query(alias="from", ge=1, le=2**53)]
_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")
_KINDS = {"yaml": (job_file.body_to_yaml, "application/yaml"), "json": (job_file.body_to_json, "application/json")}


@dataclass(frozen=True, slots=True)
class _Desk:
    """One who writes a job, and what they have written so far."""

    visit: AuthenticatedRequest
    draft: JobDraft

    def read(self, *, to_ask: bool = False) -> JobRequest:
        """Raises Invalid with the API's own words."""
        body, problems = texts_to_body(self.draft.field_texts)
        if problems:
            name, why = next(iter(problems.items()))
            raise Invalid(
                f"{FORM_FIELDS[name].label}: {why}.", "Correct it and send the form again.", fields=problems
            )
        return _read(self.visit, body, to_ask=to_ask)

    def with_(self, **changes: object) -> "_Desk":
        return replace(self, draft=replace(self.draft, **changes))  # type: ignore[arg-type]


@router.get("/jobs/new")
def show_job_form(visit: AuthenticatedDep, job_id: SourceJobId = None) -> Response:
    """Empty, or as some job was; any field of it as the address says."""
    texts, source = _usual(job_choices_for(visit.context, visit.caller)), ""
    if job_id is not None:
        job = require_inspectable_job(visit.context, visit.caller, job_id)
        texts, source = _as_it_was(job, visit.user)
    given = {name: text for name, text in visit.request.query_params.items() if name in FORM_FIELDS}
    if given and not source:
        source = "Filled in by the link you followed: look at all of it before you submit."
    elif changed := [FORM_FIELDS[name].label for name, text in given.items() if text != texts[name]]:
        source += f" The link you followed changed: {', '.join(changed)}."
    return _page(_Desk(visit, JobDraft(texts | given, _new_key(), source)))


def _as_it_was(job: Job, user: User) -> tuple[FieldTexts, str]:
    """The fields of a form that makes it again, and a word about them. Values of variables are their owner's."""
    source = f"Filled in as job {job.id} was."
    if job.origin_system is not None:
        source += f" It was imported from {job.origin_system}: what it ran is not known, so add its command."
    if may_see_env_values(user, job) or not job.spec.env:
        return body_to_texts(request_to_body(job_to_request(job))), source
    without = replace(job, spec=replace(job.spec, env={}))
    return body_to_texts(
        request_to_body(job_to_request(without))
    ), f"{source} Its environment variables are left out: not yours."


@router.post("/jobs/new")
def submit_job_form(visit: AuthenticatedDep, form: FormDep) -> Response:
    """Submits it, unless the button was another one: preview, import, apply a suggestion, download."""
    desk = _Desk(visit, JobDraft(_typed(form), _key(form), import_text=form.get_raw(job_file.IMPORT_FIELD)))
    if form.has("apply"):
        changes = dict(parse_qsl(form.get("apply")[:2000], keep_blank_values=True))
        known = {name: text for name, text in changes.items() if name in FORM_FIELDS}
        return _previewed(desk.with_(texts={**desk.draft.field_texts, **known}))
    act = _ACTS.get(form.get("do"), _submitted)
    try:
        return act(desk)
    except HeliostatError as error:
        # Nothing was stored, so a new key is safe; with the old one this form could perhaps never be sent.
        again = desk.with_(trouble=_trouble(error), key=_new_key())
        return _page(again, status=error.status)


def _submitted(desk: _Desk) -> Response:
    visit = desk.visit
    began = visit.context.now()
    submitted = submit_jobs(visit.context, visit.caller, [desk.read()], f"web-{desk.draft.idempotency_key}")
    first = submitted.jobs[0]
    path = "/jobs?whose=mine" if submitted.array_ids else f"/jobs/{first.id}"
    if first.submitted_at < began:
        return redirect(visit, path, f"This form had been sent before: {_what(submitted)} was made then.", "note")
    return redirect(visit, path, f"{_what(submitted)} is in the queue.")


def _what(submitted: SubmissionResult) -> str:
    if not submitted.array_ids:
        return f"Job {submitted.job_ids[0]}"
    return f"Array {submitted.array_ids[0]} of {formatting.format_count(len(submitted.job_ids), 'job')}"


def _previewed(desk: _Desk) -> Response:
    """Not an error, whatever is wrong: somebody is still typing."""
    try:
        request = desk.read(to_ask=True)
    except Invalid as error:
        trouble = _trouble(error)
        shown = desk.with_(
            trouble=FormErrors(fields=trouble.fields), preview=StartPreview("wrong", errors=trouble)
        )
        return _page(shown)
    return _page(desk.with_(preview=_foreseen(desk.visit, request)))


def _foreseen(visit: AuthenticatedRequest, request: JobRequest) -> StartPreview:
    try:
        answer = forecast_request(visit.context, visit.caller, request)
    except TooManyRequests as error:
        return StartPreview("busy", errors=_trouble(error))
    except HeliostatError as error:
        return StartPreview("wrong", errors=_trouble(error))
    return build_preview(answer, request)


def _exported(desk: _Desk) -> Response:
    """Only what the page shows of the same job elsewhere; nobody is asked when it would start."""
    return _page(desk)


def _imported(desk: _Desk) -> Response:
    """What can be read fills the form, also when some of it is not right."""
    with desk.visit.context.import_limit.acquire(desk.visit.user.name):
        body = job_file.parse_job_file(desk.draft.import_text)
    filled = desk.with_(texts=body_to_texts(body), import_text="", source="Filled in from the file.")
    try:
        return _page(filled.with_(texts=body_to_texts(request_to_body(_read(desk.visit, body)))))
    except HeliostatError as error:
        return _page(filled.with_(trouble=_trouble(error)), status=error.status)


def _download(kind: str) -> Callable[[_Desk], Response]:
    write, media_type = _KINDS[kind]

    def download(desk: _Desk) -> Response:
        headers = {**PAGE_HEADERS, "Content-Disposition": f'attachment; filename="job.{kind}"'}
        return Response(write(request_to_body(desk.read())), media_type=media_type, headers=headers)

    return download


_ACTS: Mapping[str, Callable[[_Desk], Response]] = {
    "preview": _previewed,
    "export": _exported,
    "import": _imported,
    "yaml": _download("yaml"),
    "json": _download("json"),
}


def _page(desk: _Desk, status: int = 200) -> Response:
    visit = desk.visit
    view: JobFormView = build_form_view(
        desk.draft, job_choices_for(visit.context, visit.caller), build_exports(desk.read)
    )
    return render_page(
        visit, PageSpec("new_job.html", "Add job", breadcrumbs=(("Jobs", "/jobs"),), status=status), view
    )


def _read(visit: AuthenticatedRequest, body: JobBodyDict, *, to_ask: bool = False) -> JobRequest:
    request: JobRequest = visit.request.app.state.read_job(body, to_ask=to_ask)
    return request


def _trouble(error: HeliostatError) -> FormErrors:
    """Beside the field it is about, if it says which or names one."""
    if isinstance(error, Conflict) and "idempotency" in error.message:
        return FormErrors("This form has made a job already.", "Submit it once more to make another one.")
    fields = {name.partition(".")[0]: why for name, why in error.fields.items()}
    if not fields and isinstance(error, Invalid):
        named = next((word for word in re.findall(r"\w+", error.message) if word in FORM_FIELDS), None)
        fields = {named: error.message} if named else {}
    return FormErrors(_in_labels(error.message), error.hint or "", fields)


def _in_labels(message: str) -> str:
    """`time_limit: must be…` as the form calls it."""
    name, colon, rest = message.partition(": ")
    if colon and name in FORM_FIELDS:
        return f"{FORM_FIELDS[name].label}: {rest}"
    return message[:1].upper() + message[1:]


def _usual(offer: JobChoices) -> FieldTexts:
    """What most people want."""
    return body_to_texts({"gpus": 1 if offer.gpu_types else 0, "project": offer.default_project})


def _typed(form: SubmittedForm) -> FieldTexts:
    return {name: form.get_raw(name) for name in FORM_FIELDS}


def _key(form: SubmittedForm) -> str:
    sent = form.get("key")
    return sent if _KEY.fullmatch(sent) else _new_key()


def _new_key() -> str:
    return secrets.token_urlsafe(18)
