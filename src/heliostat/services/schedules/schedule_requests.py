"""Schedule requests: validation and completion of a new or edited schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from heliostat.errors import invalid_field
from heliostat.models import Caller, JobRequest
from heliostat.models.schedules import CatchUpMode, OverlapPolicy, Schedule, ScheduleState
from heliostat.schedules.due_times import Timing, choose_zone, parse_timing
from heliostat.schedules.iso8601 import RepeatingInterval
from heliostat.services.context import Context
from heliostat.services.jobs.submission import draft_jobs

MAX_NAME_LENGTH = 100
_DAY_SECONDS = 86400
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A new schedule, or the desired state of an existing one."""

    name: str
    request: JobRequest
    timing: str | None = None
    zone: str | None = None  # None: UTC if the start is in UTC, else that of the cluster
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    catch_up: CatchUpMode = CatchUpMode.LAST
    epsilon_seconds: int | None = None
    retries: int = 0
    ends_after: int | None = None
    soft_error: bool = False
    parents: tuple[str, ...] = ()  # names or ids of other schedules of the same owner
    paused: bool = False
    document: Mapping[str, object] = field(default_factory=dict)


def schedule_request_of(schedule: Schedule) -> ScheduleRequest:
    """The request that would create the same schedule."""
    return ScheduleRequest(
        name=schedule.name,
        request=replace(schedule.request, project=schedule.project),
        timing=schedule.timing,
        zone=schedule.zone,
        overlap=schedule.overlap,
        catch_up=schedule.catch_up,
        epsilon_seconds=schedule.epsilon_seconds,
        retries=schedule.retries,
        ends_after=schedule.ends_after,
        soft_error=schedule.soft_error,
        parents=tuple(str(parent) for parent in schedule.parents),
        paused=schedule.state is ScheduleState.PAUSED,
        document=schedule.document,
    )


def draft_schedule(context: Context, caller: Caller, desired: ScheduleRequest) -> Schedule:
    """The schedule to store, without its id and parents. Raises Invalid."""
    now = context.now()
    _check_request(desired)
    job = draft_jobs(context, caller, [desired.request])[0]
    timing = None if desired.timing is None else parse_allowed_timing(context, desired.timing, desired.zone, now)
    next_at = None if timing is None or desired.paused else timing.next_after(just_before_this_second(now))
    if timing is not None and not desired.paused and next_at is None:
        raise invalid_field("schedule", "all its times are in the past")
    return Schedule(
        id=0,
        name=desired.name,
        user=caller.user.name,
        project=job.project,
        state=ScheduleState.PAUSED if desired.paused else ScheduleState.ACTIVE,
        timing=None if timing is None else str(timing),
        zone=desired.zone or "UTC" if timing is None else timing.zone,
        request=replace(desired.request, project=job.project),
        created_at=now,
        overlap=desired.overlap,
        catch_up=desired.catch_up,
        epsilon_seconds=_epsilon(desired),
        retries=desired.retries,
        ends_after=desired.ends_after,
        soft_error=desired.soft_error,
        next_at=next_at,
        document=desired.document,
    )


def _check_request(desired: ScheduleRequest) -> None:
    name = desired.name
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
        raise invalid_field("name", f"must be one line of 1 to {MAX_NAME_LENGTH} characters")
    if name.isdecimal() or "/" in name:
        raise invalid_field("name", "must not be a number or contain a slash, because URLs use names and ids")
    if (desired.timing is None) == (not desired.parents):
        raise invalid_field("schedule", "give either a schedule or parents, not both")
    if desired.request.after or isinstance(desired.request.begin, datetime):
        field_name = "after" if desired.request.after else "begin"
        raise invalid_field(f"job.{field_name}", "is not allowed for a job of a schedule")


def parse_allowed_timing(context: Context, text: str, zone: str | None, now: datetime) -> Timing:
    """Raises Invalid, also if it fires more often than the settings allow."""
    try:
        timing = parse_timing(text, choose_zone(text, zone, context.settings.server.effective_time_zone), now)
    except ValueError as error:
        field_name = "time_zone" if "time zone" in str(error) else "schedule"
        raise invalid_field(field_name, str(error)) from None
    min_seconds = context.settings.queue.min_schedule_seconds
    is_once = isinstance(timing, RepeatingInterval) and timing.repetitions == 1
    if not is_once and timing.typical_seconds < min_seconds:
        raise invalid_field("schedule", f"fires more often than every {min_seconds} seconds, the minimum interval")
    return timing


def _epsilon(desired: ScheduleRequest) -> int | None:
    if desired.catch_up is CatchUpMode.ALL and desired.epsilon_seconds is None:
        return _DAY_SECONDS
    return desired.epsilon_seconds


def just_before_this_second(now: datetime) -> datetime:
    """A schedule that starts now can fire in the current second."""
    return now.replace(microsecond=0) - _INSTANT
