"""Schedules: all of them, one with its firings and next times, and the form that shows when it would fire."""

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
from heliostat.services.schedules.requests import ScheduleRequest, schedule_request_of
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.job_form import job_file
from heliostat.web.job_form.job_body import duration_text, request_to_body
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import Confirmation

router = APIRouter()
ScheduleId = Annotated[int, Path(ge=1, le=2**53)]
_SCHEDULES = ("Schedules", "/schedules")
_FIRST_JOB = "command: python evaluate.py\ngpus: 1\ntime_limit: 4h\n"
_TIMES = 10
_FIRINGS = 50
_WRONG = (BadRequest, Conflict, NotFound, Forbidden)
_LOOKS = {
    "active": "running",
    "paused": "held",
    "finished": "completed",
    "succeeded": "completed",
    "skipped": "preempted",
    "missed": "lost",
    "refused": "failed",
}
_OVERLAPS = (
    ("skip", "skip this time"),
    ("queue", "start after it"),
    ("replace", "cancel it and start"),
    ("allow", "run beside it"),
)
_CATCH_UPS = (("last", "fire once"), ("none", "fire nothing"), ("all", "fire all that were missed"))


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    schedule: Schedule
    display_state: str
    parent_names: str  # whom it follows, if it has no times


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


@dataclass(frozen=True, slots=True)
class ScheduleFormView:
    form: FormState
    schedule: Schedule | None
    preview_times: tuple[datetime, ...] | None  # None: not asked for
    time_zone: str
    overlap_options: tuple[tuple[str, str], ...] = _OVERLAPS
    catch_up_options: tuple[tuple[str, str], ...] = _CATCH_UPS


@router.get("/schedules")
def show_schedules(visit: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False) -> Response:
    found = services.list_schedules(visit.context, visit.caller, all_users=all_users)
    names = {one.id: one.name for one in found}
    manages = visit.user.is_admin or any(visit.user.may_manage(one.project) for one in visit.user.memberships)
    view = SchedulesView(tuple(_row(one, names) for one in found), all_users, manages)
    return render_page(visit, PageSpec("schedules.html", "Schedules", live_topics=("jobs",)), view)


@router.get("/schedules/new")
def show_new_schedule_form(visit: AuthenticatedDep) -> Response:
    values = {"schedule": "0 2 * * *", "overlap": "skip", "catch_up": "last", "retries": "0", "job": _FIRST_JOB}
    return _form_page(visit, FormState(values))


@router.post("/schedules/new")
def create_schedule(visit: AuthenticatedDep, form: FormDep) -> Response:
    return _answered(visit, form, None, lambda wish: services.create_schedule(visit.context, visit.caller, wish))


@router.get("/schedules/{number}")
def show_schedule(visit: AuthenticatedDep, number: ScheduleId) -> Response:
    found = services.get_schedule(visit.context, visit.caller, str(number))
    names = {one.id: one.name for one in services.list_schedules(visit.context, visit.caller, all_users=True)}
    view = ScheduleDetailView(
        row=_row(found, names),
        job_yaml=_job_text(visit, found),
        next_times=tuple(services.next_times(visit.context, found, _TIMES)),
        firings=tuple(
            FiringRow(one, _LOOKS.get(one.state.value, one.state.value))
            for one in services.list_firings(visit.context, found, _FIRINGS)
        ),
        is_mine=found.user == visit.user.name,
    )
    return render_page(
        visit, PageSpec("schedule.html", found.name, live_topics=("jobs",), breadcrumbs=(_SCHEDULES,)), view
    )


@router.get("/schedules/{number}/edit")
def show_edit_schedule_form(visit: AuthenticatedDep, number: ScheduleId) -> Response:
    found = services.get_schedule(visit.context, visit.caller, str(number))
    return _form_page(visit, FormState(_texts(visit, found)), found)


@router.post("/schedules/{number}/edit")
def update_schedule(visit: AuthenticatedDep, number: ScheduleId, form: FormDep) -> Response:
    found = services.get_schedule(visit.context, visit.caller, str(number))

    def change(wish: ScheduleRequest) -> Schedule:
        changes = {name: getattr(wish, name) for name in _OF_THE_FORM}
        if found.timing is None:
            changes.pop("timing")
        return services.edit_schedule(visit.context, visit.caller, str(number), changes)

    return _answered(visit, form, found, change)


@router.post("/schedules/{number}/{verb}")
def perform_schedule_action(visit: AuthenticatedDep, number: ScheduleId, verb: str, form: FormDep) -> Response:
    """pause, resume, run, remove."""
    here, context, caller = f"/schedules/{number}", visit.context, visit.caller
    found = services.get_schedule(context, caller, str(number))
    if verb == "pause":
        services.pause_schedule(context, caller, str(number))
        return redirect(visit, here, "It fires no more until it is resumed.")
    if verb == "resume":
        services.resume_schedule(context, caller, str(number))
        return redirect(visit, here, "It fires again, from now on.")
    if verb == "run":
        fired = services.run_schedule(context, caller, str(number))
        return redirect(visit, here, f"Job {fired.job_id} is in the queue.")
    if verb != "remove":
        raise NotFound("There is nothing here.", "Go back to the schedule.")
    if form.get("confirmed") != "yes":
        return _ask_to_remove(visit, found)
    services.remove_schedule(context, caller, str(number))
    return redirect(visit, "/schedules", f"The schedule {found.name} is removed.")


def _ask_to_remove(visit: AuthenticatedRequest, found: Schedule) -> Response:
    view = Confirmation(
        question=f"Remove the schedule {found.name}?",
        consequence="It fires no more, and what is known of its firings is gone. Its jobs stay.",
        action=f"/schedules/{found.id}/remove",
        label=f"Remove {found.name}",
        fields=(("confirmed", "yes"),),
        back=f"/schedules/{found.id}",
    )
    return render_page(visit, PageSpec("confirmation.html", "Remove", breadcrumbs=(_SCHEDULES,)), view)


def _answered(
    visit: AuthenticatedRequest,
    form: SubmittedForm,
    found: Schedule | None,
    make: Callable[[ScheduleRequest], Schedule],
) -> Response:
    """Saved; or the form again, with what is wrong, or with the times at which it would fire."""
    try:
        wish = _wish(visit, form, found)
        if form.get("do") == "preview":
            times = services.preview_times(visit.context, visit.caller, wish.timing or "", wish.zone, _TIMES)
            return _form_page(visit, form_with_errors(form, HeliostatError(), {}), found, tuple(times))
        made = make(wish)
    except _WRONG as error:
        return _form_page(visit, form_with_errors(form, _in_form_words(error), {"job": ""}), found)
    return redirect(visit, f"/schedules/{made.id}", f"The schedule {made.name} is {made.state.value}.")


def _in_form_words(error: HeliostatError) -> HeliostatError:
    """What is wrong with a field of the job is said at the job."""
    known = {"name", "schedule", "time_zone", "overlap", "catch_up", "epsilon", "retries", "ends_after"}
    fields: dict[str, str] = {}
    for name, why in error.fields.items():
        fields |= (
            {name: why} if name in known else {"job": why if name == job_file.IMPORT_FIELD else f"{name}: {why}"}
        )
    return type(error)(error.message, error.hint, fields=fields)


def _wish(visit: AuthenticatedRequest, form: SubmittedForm, found: Schedule | None) -> ScheduleRequest:
    reading = FormReader(form)
    follows = found is not None and found.timing is None
    name = reading.read_line("name", needed=True)
    timing = None if follows else reading.read_line("schedule", needed=True)
    zone = reading.read_line("time_zone")
    retries = reading.read_integer("retries", 0, 100)
    ends_after = reading.read_integer("ends_after", 1, 10**9)
    epsilon = _seconds(reading, form.get("epsilon"))
    overlap = next((one for one in OverlapPolicy if one.value == form.get("overlap")), OverlapPolicy.SKIP)
    catch_up = next((one for one in CatchUpMode if one.value == form.get("catch_up")), CatchUpMode.LAST)
    reading.raise_if_invalid()
    return ScheduleRequest(
        name=name,
        request=_job(visit, form),
        timing=timing,
        zone=zone or None,
        overlap=overlap,
        catch_up=catch_up,
        epsilon_seconds=epsilon,
        retries=retries or 0,
        ends_after=ends_after,
        parents=schedule_request_of(found).parents if found is not None else (),
    )


_OF_THE_FORM = (
    *("name", "request", "timing", "zone", "overlap", "catch_up", "epsilon_seconds", "retries", "ends_after"),
)


def _seconds(reading: FormReader, text: str) -> int | None:
    from heliostat.models.quantities import parse_duration

    try:
        return parse_duration(text[:40]) if text else None
    except ValueError as error:
        reading.add_error("epsilon", str(error))
        return None


def _job(visit: AuthenticatedRequest, form: SubmittedForm) -> JobRequest:
    body = job_file.parse_job_file(form.get_raw("job"))
    request: JobRequest = visit.request.app.state.read_job(body)
    return request


def _form_page(
    visit: AuthenticatedRequest,
    form: FormState,
    found: Schedule | None = None,
    times: tuple[datetime, ...] | None = None,
) -> Response:
    if times is not None:
        form = FormState(form.values)
    here = _SCHEDULES if found is None else (found.name, f"/schedules/{found.id}")
    crumbs = (_SCHEDULES,) if found is None else (_SCHEDULES, here)
    title = "New schedule" if found is None else "Edit"
    view = ScheduleFormView(form, found, times, visit.context.settings.server.effective_time_zone)
    return render_page(visit, PageSpec("schedule_form.html", title, breadcrumbs=crumbs, status=form.status), view)


def _texts(visit: AuthenticatedRequest, found: Schedule) -> dict[str, str]:
    return {
        "name": found.name,
        "schedule": found.timing or "",
        "time_zone": found.zone,
        "overlap": found.overlap.value,
        "catch_up": found.catch_up.value,
        "epsilon": duration_text(found.epsilon_seconds) if found.epsilon_seconds else "",
        "retries": str(found.retries),
        "ends_after": str(found.ends_after or ""),
        "job": _job_text(visit, found),
    }


def _job_text(visit: AuthenticatedRequest, found: Schedule) -> str:
    """Values of variables are their owner's."""
    body = request_to_body(found.request)
    if found.user != visit.user.name and "env" in body:
        body["env"] = dict.fromkeys(body["env"], "(hidden)")
    return job_file.body_to_yaml(body)


def _row(one: Schedule, names: dict[int, str]) -> ScheduleRow:
    after = ", ".join(names.get(parent, str(parent)) for parent in one.parents)
    return ScheduleRow(one, _LOOKS[one.state.value], after)
