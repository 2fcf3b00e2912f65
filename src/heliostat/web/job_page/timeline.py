"""Timeline of a job: bar of its states over time, attempts and events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from heliostat.models import ACTIVE_STATES, AttemptRecord, JobEvent, JobState
from heliostat.services.jobs.job_history import JobHistory
from heliostat.web import formatting

_WIDTH, _HEIGHT, _MIN_WIDTH = 1000.0, 18, 3.0

EVENT_DESCRIPTIONS = {
    "submitted": "submitted",
    "held": "held",
    "released": "released",
    "starting": "starting",
    "running": "running",
    "ended": "ended",
    "cancel_requested": "cancellation requested",
    "kill_requested": "kill requested",
    "requeue_requested": "requeue requested",
    "preempt_requested": "preemption requested",
    "overtime_requested": "stop requested: time limit reached",
    "limit_changed": "time limit changed",
    "requeued": "requeued",
    "preempted": "preempted, requeued",
    "lost": "lost, requeued",
    "failed": "failed, requeued",
    "timed_out": "timed out, requeued",
    "late": "will start later than forecast",
    "booked": "resources booked for its start",
    "booking_withdrawn": "booking withdrawn: it cannot start now even with its booking",
    "ends_soon": "ends soon",
    "device_failed": "its GPU failed, requeued",
    "not_started": "could not start, requeued",
    "checkpointed": "checkpoint saved",
    "idle_note": "GPUs not used",
    "idle": "GPUs not used, message to the owner",
    "idle_manager": "GPUs not used, message to the managers",
    "kept": "GPUs kept by an answer",
    "credited": "credit for GPUs given back early",
    "parents_over": "dependencies finished, entered the queue",
}


@dataclass(frozen=True, slots=True)
class EventRow:
    at: datetime
    description: str
    detail: str | None
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    number: int
    state: str
    nodes: str
    waited_seconds: float | None
    started_at: datetime | None
    ran_seconds: float | None
    running_since: datetime | None
    ended_at: datetime | None
    outcome: str
    log_url: str  # empty: this log is already shown


@dataclass(frozen=True, slots=True)
class StateDuration:
    state: str
    seconds: float
    since: datetime | None = None  # the current state: the browser keeps counting from here


@dataclass(frozen=True, slots=True)
class Timeline:
    svg: Markup
    state_durations: tuple[StateDuration, ...]  # legend: time in each state
    begin_at: datetime
    end_at: datetime
    attempts: tuple[AttemptRow, ...]
    events: tuple[EventRow, ...]


@dataclass(frozen=True, slots=True)
class _StateInterval:
    state: JobState
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())


def build_timeline(history: JobHistory, now: datetime, shown_attempt: int) -> Timeline:
    job = history.job
    end = job.ended_at or now
    intervals = _intervals(history.events, job.submitted_at, end)
    return Timeline(
        svg=_bar(intervals),
        state_durations=_state_durations(intervals, None if job.is_terminal else end),
        begin_at=job.submitted_at,
        end_at=end,
        attempts=_attempts(history, now, shown_attempt),
        events=tuple(_event_row(event) for event in history.events),
    )


def _intervals(events: Sequence[JobEvent], begin: datetime, end: datetime) -> list[_StateInterval]:
    """One interval per period in a state."""
    intervals: list[_StateInterval] = []
    state, since = JobState.PENDING, begin
    for event in events:
        if event.state is state:
            continue
        intervals.append(_StateInterval(state, since, event.at))
        state, since = event.state, event.at
    if state in ACTIVE_STATES or state in (JobState.PENDING, JobState.HELD):
        intervals.append(_StateInterval(state, since, end))
    return [interval for interval in intervals if interval.seconds > 0]


def _state_durations(intervals: Sequence[_StateInterval], now: datetime | None) -> tuple[StateDuration, ...]:
    """`now`: None if the job has ended."""
    totals: dict[str, float] = {}
    for interval in intervals:
        totals[interval.state.value] = totals.get(interval.state.value, 0.0) + interval.seconds
    current = intervals[-1].state.value if intervals and now else None
    return tuple(
        StateDuration(state, seconds, now - timedelta(seconds=seconds) if now and state == current else None)
        for state, seconds in totals.items()
        if seconds >= 1 or len(totals) == 1 or state == current
    )


def _bar(intervals: Sequence[_StateInterval]) -> Markup:
    """Widths are proportional to the durations, with a minimum."""
    total = sum(interval.seconds for interval in intervals) or 1.0
    widths = [max(_MIN_WIDTH, _WIDTH * interval.seconds / total) for interval in intervals]
    scale = _WIDTH / sum(widths) if widths else 1.0
    rect = Markup('<rect class="phase-{}" x="{:.1f}" width="{:.1f}" height="{}"><title>{}</title></rect>')
    parts, at = [], 0.0
    for interval, width in zip(intervals, widths, strict=True):
        label = f"{formatting.format_state(interval.state.value)} {formatting.format_duration(interval.seconds)}"
        parts.append(rect.format(interval.state.value, at, width * scale, _HEIGHT, label))
        at += width * scale
    description = ", then ".join(
        f"{one.state.value} {formatting.format_duration(one.seconds)}" for one in intervals
    )
    return Markup(
        '<svg class="lifebar" viewBox="0 0 {:.0f} {}" preserveAspectRatio="none" role="img">'
        "<title>{}</title>{}</svg>"
    ).format(_WIDTH, _HEIGHT, description or "just submitted", Markup("").join(parts))


def _attempts(history: JobHistory, now: datetime, shown: int) -> tuple[AttemptRow, ...]:
    rows, free_at = [], history.job.submitted_at
    for attempt in history.attempts:
        rows.append(_attempt(history, attempt, free_at, now, shown))
        free_at = attempt.ended_at or now
    return tuple(rows)


def _attempt(history: JobHistory, one: AttemptRecord, free_at: datetime, now: datetime, shown: int) -> AttemptRow:
    places = one.places or ()
    nodes = dict.fromkeys([place.node for place in places] or [one.node])
    ran = ((one.ended_at or now) - one.started_at).total_seconds() if one.started_at else None
    return AttemptRow(
        number=one.number,
        state=one.state.value,
        nodes=", ".join(nodes),
        waited_seconds=max(0.0, (one.created_at - free_at).total_seconds()),
        started_at=one.started_at,
        ran_seconds=ran,
        running_since=one.started_at if one.ended_at is None else None,
        ended_at=one.ended_at,
        outcome=one.reason or ("exit code 0" if one.exit_code == 0 else ""),
        log_url="" if one.number == shown else f"/jobs/{history.job.id}?attempt={one.number}#log",
    )


def _event_row(event: JobEvent) -> EventRow:
    description = EVENT_DESCRIPTIONS.get(event.kind, event.kind.replace("_", " "))
    if event.kind == "ended":
        description = formatting.format_state(event.state.value)
    return EventRow(event.at, description, event.detail, event.attempt)
