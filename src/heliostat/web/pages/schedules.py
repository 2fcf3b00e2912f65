"""Pages of schedules: list, one schedule with its firings, and the form with a preview of the next times."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, Forbidden, HeliostatError, NotFound
from heliostat.models import JobRequest
from heliostat.models.schedules import CatchUpMode, Firing, OverlapPolicy, Schedule
from heliostat.services.schedules import lifecycle as services
from heliostat.services.schedules.lifecycle import TimingPreview
from heliostat.services.schedules.schedule_requests import ScheduleRequest, schedule_request_of
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.job_form import job_file
from heliostat.web.job_form.request_to_body import duration_text, request_to_body
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import Confirmation

router = APIRouter()
ScheduleId = Annotated[int, Path(ge=1, le=2**53)]
_SCHEDULES = ("Schedules", "/schedules")
_EXAMPLE_JOB = "command: python evaluate.py\ngpus: 1\ntime_limit: 4h\n"
_TIMES = 10
_FIRINGS = 50
_FORM_ERRORS = (BadRequest, Conflict, NotFound, Forbidden)
_DISPLAY_STATES = {
    "active": "running",
    "paused": "held",
    "finished": "completed",
    "succeeded": "completed",
    "skipped": "preempted",
    "missed": "lost",
    "refused": "failed",
}
_OVERLAPS = (
    ("skip", "skip this firing"),
    ("queue", "start after it ends"),
    ("replace", "cancel it and start"),
    ("allow", "run concurrently"),
)
_CATCH_UPS = (("last", "fire once"), ("none", "do not fire"), ("all", "fire for each missed time"))


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    schedule: Schedule
    display_state: str
    parent_names: str  # schedules that it follows, if it has no times


@dataclass(frozen=True, slots=True)
class SchedulesView:
    rows: tuple[ScheduleRow, ...]
    shows_all_users: bool
    may_show_all_users: bool


@dataclass(frozen=True, slots=True)
class FiringRow:
    firing: Firing
    display_state: str


@dataclass(frozen=True, slots=True)
class ScheduleDetailView:
    row: ScheduleRow
    job_yaml: str
    next_times: tuple[datetime, ...]
    firings: tuple[FiringRow, ...]
    is_mine: bool
    overlap_text: str
    catch_up_text: str


@dataclass(frozen=True, slots=True)
class ScheduleFormView:
    form: FormState
    schedule: Schedule | None
    preview: TimingPreview | None  # None: not requested
    time_zone: str
    overlap_options: tuple[tuple[str, str], ...] = _OVERLAPS
    catch_up_options: tuple[tuple[str, str], ...] = _CATCH_UPS


@router.get("/schedules")
def show_schedules(request: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False) -> Response:
    schedule = services.list_schedules(request.context, request.caller, all_users=all_users)
    names = {one.id: one.name for one in schedule}
    manages = request.user.is_admin or any(
        request.user.may_manage(one.project) for one in request.user.memberships
    )
    view = SchedulesView(tuple(_schedule_row(one, names) for one in schedule), all_users, manages)
    return render_page(request, PageSpec("schedules.html", "Schedules", live_topics=("jobs",)), view)


@router.get("/schedules/new")
def show_new_schedule_form(request: AuthenticatedDep) -> Response:
    values = {"schedule": "0 2 * * *", "overlap": "skip", "catch_up": "last", "retries": "0", "job": _EXAMPLE_JOB}
    return _form_page(request, FormState(values))


@router.post("/schedules/new")
def create_schedule(request: AuthenticatedDep, form: FormDep) -> Response:
    return _save_or_preview(
        request,
        form,
        None,
        lambda schedule_request: services.create_schedule(request.context, request.caller, schedule_request),
    )


@router.get("/schedules/{number}")
def show_schedule(request: AuthenticatedDep, number: ScheduleId) -> Response:
    schedule = services.get_schedule(request.context, request.caller, str(number))
    names = {one.id: one.name for one in services.list_schedules(request.context, request.caller, all_users=True)}
    view = ScheduleDetailView(
        row=_schedule_row(schedule, names),
        job_yaml=_job_text(request, schedule),
        next_times=tuple(services.next_times(request.context, schedule, _TIMES)),
        firings=tuple(
            FiringRow(one, _DISPLAY_STATES.get(one.state.value, one.state.value))
            for one in services.list_firings(request.context, schedule, _FIRINGS)
        ),
        is_mine=schedule.user == request.user.name,
        overlap_text=dict(_OVERLAPS)[schedule.overlap.value],
        catch_up_text=dict(_CATCH_UPS)[schedule.catch_up.value],
    )
    return render_page(
        request, PageSpec("schedule.html", schedule.name, live_topics=("jobs",), breadcrumbs=(_SCHEDULES,)), view
    )


@router.get("/schedules/{number}/edit")
def show_edit_schedule_form(request: AuthenticatedDep, number: ScheduleId) -> Response:
    schedule = services.get_schedule(request.context, request.caller, str(number))
    return _form_page(request, FormState(_texts(request, schedule)), schedule)


@router.post("/schedules/{number}/edit")
def update_schedule(request: AuthenticatedDep, number: ScheduleId, form: FormDep) -> Response:
    schedule = services.get_schedule(request.context, request.caller, str(number))

    def change(schedule_request: ScheduleRequest) -> Schedule:
        changes = {name: getattr(schedule_request, name) for name in _FORM_FIELDS}
        if schedule.timing is None:
            changes.pop("timing")
        return services.edit_schedule(request.context, request.caller, str(number), changes)

    return _save_or_preview(request, form, schedule, change)


@router.post("/schedules/{number}/{verb}")
def perform_schedule_action(request: AuthenticatedDep, number: ScheduleId, verb: str, form: FormDep) -> Response:
    """Actions: pause, resume, run, remove."""
    url, context, caller = f"/schedules/{number}", request.context, request.caller
    schedule = services.get_schedule(context, caller, str(number))
    if verb == "pause":
        services.pause_schedule(context, caller, str(number))
        return redirect(request, url, "Schedule paused.")
    if verb == "resume":
        services.resume_schedule(context, caller, str(number))
        return redirect(request, url, "Schedule resumed.")
    if verb == "run":
        fired = services.run_schedule(context, caller, str(number))
        return redirect(request, url, f"Job {fired.job_id} submitted.")
    if verb != "remove":
        raise NotFound("The action does not exist.", "Go back to the schedule.")
    if form.get("confirmed") != "yes":
        return _confirm_removal(request, schedule)
    services.remove_schedule(context, caller, str(number))
    return redirect(request, "/schedules", f"Schedule {schedule.name} removed.")


def _confirm_removal(request: AuthenticatedRequest, schedule: Schedule) -> Response:
    view = Confirmation(
        question=f"Remove schedule {schedule.name}?",
        consequence="It no longer fires, and its history is deleted. Its jobs are kept.",
        action=f"/schedules/{schedule.id}/remove",
        label=f"Remove {schedule.name}",
        fields=(("confirmed", "yes"),),
        back=f"/schedules/{schedule.id}",
    )
    return render_page(request, PageSpec("confirmation.html", "Remove", breadcrumbs=(_SCHEDULES,)), view)


def _save_or_preview(
    request: AuthenticatedRequest,
    form: SubmittedForm,
    schedule: Schedule | None,
    save: Callable[[ScheduleRequest], Schedule],
) -> Response:
    """Save the schedule, or show the form again with errors or with the next times."""
    try:
        schedule_request = _read_request(request, form, schedule)
        if form.get("do") == "preview":
            preview = services.preview_timing(
                request.context, request.caller, schedule_request.timing or "", schedule_request.zone, _TIMES
            )
            return _form_page(request, form_with_errors(form, HeliostatError(), {}), schedule, preview)
        saved = save(schedule_request)
    except _FORM_ERRORS as error:
        return _form_page(request, form_with_errors(form, _map_field_errors(error), {"job": ""}), schedule)
    return redirect(request, f"/schedules/{saved.id}", f"Schedule {saved.name} saved; it is {saved.state.value}.")


def _map_field_errors(error: HeliostatError) -> HeliostatError:
    """Errors of job fields are assigned to the field `job`."""
    known = {"name", "schedule", "time_zone", "overlap", "catch_up", "epsilon", "retries", "ends_after"}
    fields: dict[str, str] = {}
    for name, why in error.fields.items():
        fields |= (
            {name: why} if name in known else {"job": why if name == job_file.IMPORT_FIELD else f"{name}: {why}"}
        )
    return type(error)(error.message, error.hint, fields=fields)


def _read_request(
    request: AuthenticatedRequest, form: SubmittedForm, schedule: Schedule | None
) -> ScheduleRequest:
    reader = FormReader(form)
    follows = schedule is not None and schedule.timing is None
    name = reader.read_line("name", required=True)
    timing = None if follows else reader.read_line("schedule", required=True)
    zone = reader.read_line("time_zone")
    retries = reader.read_integer("retries", 0, 100)
    ends_after = reader.read_integer("ends_after", 1, 10**9)
    epsilon = _seconds(reader, form.get("epsilon"))
    overlap = next((one for one in OverlapPolicy if one.value == form.get("overlap")), OverlapPolicy.SKIP)
    catch_up = next((one for one in CatchUpMode if one.value == form.get("catch_up")), CatchUpMode.LAST)
    reader.raise_if_invalid()
    return ScheduleRequest(
        name=name,
        request=_job(request, form),
        timing=timing,
        zone=zone or None,
        overlap=overlap,
        catch_up=catch_up,
        epsilon_seconds=epsilon,
        retries=retries or 0,
        ends_after=ends_after,
        parents=schedule_request_of(schedule).parents if schedule is not None else (),
    )


_FORM_FIELDS = (
    *("name", "request", "timing", "zone", "overlap", "catch_up", "epsilon_seconds", "retries", "ends_after"),
)


def _seconds(reader: FormReader, text: str) -> int | None:
    from heliostat.models.quantities import parse_duration

    try:
        return parse_duration(text[:40]) if text else None
    except ValueError as error:
        reader.add_error("epsilon", str(error))
        return None


def _job(request: AuthenticatedRequest, form: SubmittedForm) -> JobRequest:
    body = job_file.parse_job_file(form.get_raw("job"))
    job_request: JobRequest = request.http.app.state.read_job(body)
    return job_request


def _form_page(
    request: AuthenticatedRequest,
    form: FormState,
    schedule: Schedule | None = None,
    preview: TimingPreview | None = None,
) -> Response:
    if preview is not None:
        form = FormState(form.values)
    url = _SCHEDULES if schedule is None else (schedule.name, f"/schedules/{schedule.id}")
    breadcrumbs = (_SCHEDULES,) if schedule is None else (_SCHEDULES, url)
    title = "New schedule" if schedule is None else "Edit"
    view = ScheduleFormView(form, schedule, preview, request.context.settings.server.effective_time_zone)
    return render_page(
        request, PageSpec("schedule_form.html", title, breadcrumbs=breadcrumbs, status=form.status), view
    )


def _texts(request: AuthenticatedRequest, schedule: Schedule) -> dict[str, str]:
    return {
        "name": schedule.name,
        "schedule": schedule.timing or "",
        "time_zone": schedule.zone,
        "overlap": schedule.overlap.value,
        "catch_up": schedule.catch_up.value,
        "epsilon": duration_text(schedule.epsilon_seconds) if schedule.epsilon_seconds else "",
        "retries": str(schedule.retries),
        "ends_after": str(schedule.ends_after or ""),
        "job": _job_text(request, schedule),
    }


def _job_text(request: AuthenticatedRequest, schedule: Schedule) -> str:
    """Environment values are shown only to their owner."""
    body = request_to_body(schedule.request)
    if schedule.user != request.user.name and "env" in body:
        body["env"] = dict.fromkeys(body["env"], "(hidden)")
    return job_file.body_to_yaml(body)


def _schedule_row(one: Schedule, names: dict[int, str]) -> ScheduleRow:
    after = ", ".join(names.get(parent, str(parent)) for parent in one.parents)
    return ScheduleRow(one, _DISPLAY_STATES[one.state.value], after)
