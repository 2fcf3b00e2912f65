"""What somebody wants of a schedule, checked and completed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from heliostat.errors import invalid_field
from heliostat.models import Caller, JobRequest
from heliostat.models.schedules import CatchUpMode, OverlapPolicy, Schedule, ScheduleState
from heliostat.schedules.iso8601 import RepeatingInterval
from heliostat.schedules.timing import Timing, choose_zone, parse_timing
from heliostat.services.context import Context
from heliostat.services.jobs.submission import draft_jobs

MAX_NAME_LENGTH = 100
_DAY_SECONDS = 86400
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A schedule to be made, or as it should be."""

    name: str
    request: JobRequest
    timing: str | None = None
    zone: str | None = None  # None: UTC for a start that says so, else that of the cluster
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    catch_up: CatchUpMode = CatchUpMode.LAST
    epsilon_seconds: int | None = None
    retries: int = 0
    ends_after: int | None = None
    soft_error: bool = False
    parents: tuple[str, ...] = ()  # names or numbers of other schedules of the same owner
    paused: bool = False
    document: Mapping[str, object] = field(default_factory=dict)


def schedule_request_of(schedule: Schedule) -> ScheduleRequest:
    """That would make the same again."""
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


def draft_schedule(context: Context, caller: Caller, wish: ScheduleRequest) -> Schedule:
    """As it will be stored, but for its number and parents."""
    now = context.now()
    _check_wish(wish)
    job = draft_jobs(context, caller, [wish.request])[0]
    timing = None if wish.timing is None else parse_allowed_timing(context, wish.timing, wish.zone, now)
    next_at = None if timing is None or wish.paused else timing.next_after(just_before_this_second(now))
    if timing is not None and not wish.paused and next_at is None:
        raise invalid_field("schedule", "all its times are in the past")
    return Schedule(
        id=0,
        name=wish.name,
        user=caller.user.name,
        project=job.project,
        state=ScheduleState.PAUSED if wish.paused else ScheduleState.ACTIVE,
        timing=None if timing is None else str(timing),
        zone=wish.zone or "UTC" if timing is None else timing.zone,
        request=replace(wish.request, project=job.project),
        created_at=now,
        overlap=wish.overlap,
        catch_up=wish.catch_up,
        epsilon_seconds=_epsilon(wish),
        retries=wish.retries,
        ends_after=wish.ends_after,
        soft_error=wish.soft_error,
        next_at=next_at,
        document=wish.document,
    )


def _check_wish(wish: ScheduleRequest) -> None:
    name = wish.name
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
        raise invalid_field("name", f"must be one line of 1 to {MAX_NAME_LENGTH} characters")
    if name.isdecimal() or "/" in name:
        raise invalid_field("name", "must not be a number and have no slash, to be told from numbers in addresses")
    if (wish.timing is None) == (not wish.parents):
        raise invalid_field("schedule", "say when it fires: by a schedule, or after parents; not both")
    if wish.request.after or isinstance(wish.request.begin, datetime):
        field_name = "after" if wish.request.after else "begin"
        raise invalid_field(f"job.{field_name}", "a job that is submitted again and again cannot have one")


def parse_allowed_timing(context: Context, text: str, zone: str | None, now: datetime) -> Timing:
    """Raises Invalid: also when it comes more often than the admins allow."""
    try:
        timing = parse_timing(text, choose_zone(text, zone, context.settings.server.effective_time_zone), now)
    except ValueError as error:
        about = "time_zone" if "time zone" in str(error) else "schedule"
        raise invalid_field(about, str(error)) from None
    least = context.settings.queue.min_schedule_seconds
    is_once = isinstance(timing, RepeatingInterval) and timing.repetitions == 1
    if not is_once and timing.typical_seconds < least:
        raise invalid_field("schedule", f"comes more often than every {least} seconds, which is not allowed here")
    return timing


def _epsilon(wish: ScheduleRequest) -> int | None:
    if wish.catch_up is CatchUpMode.ALL and wish.epsilon_seconds is None:
        return _DAY_SECONDS
    return wish.epsilon_seconds


def just_before_this_second(now: datetime) -> datetime:
    """What begins now has its first time in this second."""
    return now.replace(microsecond=0) - _INSTANT
