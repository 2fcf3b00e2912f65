"""The life of a job: a bar of its states over time, its attempts, and what happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from heliostat.models import ACTIVE_STATES, AttemptRecord, JobEvent, JobState
from heliostat.services.jobs.job_history import JobHistory
from heliostat.web import formatting

_WIDTH, _HEIGHT, _LEAST = 1000.0, 18, 3.0

EVENT_DESCRIPTIONS = {
    "submitted": "submitted",
    "held": "held",
    "released": "released",
    "starting": "being started",
    "running": "runs",
    "ended": "over",
    "cancel_requested": "asked to stop",
    "kill_requested": "told to stop at once",
    "requeue_requested": "asked to go back to the queue",
    "preempt_requested": "asked to make room",
    "overtime_requested": "asked to stop: its time is over",
    "limit_changed": "has another time limit",
    "requeued": "back in the queue",
    "preempted": "made room, back in the queue",
    "lost": "lost, back in the queue",
    "failed": "failed, back in the queue",
    "timed_out": "out of time, back in the queue",
    "late": "will start later than foretold",
    "ends_soon": "ends soon",
    "not_started": "could not start, back in the queue",
    "checkpointed": "saved its work",
    "parents_over": "took its place in the queue",
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
    log_url: str  # address; empty: it is the one that is shown


@dataclass(frozen=True, slots=True)
class StateDuration:
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    svg: Markup
    state_durations: tuple[StateDuration, ...]  # the legend: how long in each state
    begin_at: datetime
    end_at: datetime
    attempts: tuple[AttemptRow, ...]
    events: tuple[EventRow, ...]


@dataclass(frozen=True, slots=True)
class _Stretch:
    state: JobState
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())


def build_timeline(story: JobHistory, now: datetime, shown_attempt: int) -> Timeline:
    job = story.job
    end = job.ended_at or now
    stretches = _stretches(story.events, job.submitted_at, end)
    return Timeline(
        svg=_bar(stretches),
        state_durations=_phases(stretches),
        begin_at=job.submitted_at,
        end_at=end,
        attempts=_attempts(story, now, shown_attempt),
        events=tuple(_happening(event) for event in story.events),
    )


def _stretches(events: Sequence[JobEvent], begin: datetime, end: datetime) -> list[_Stretch]:
    """One for each time it was in one state."""
    found: list[_Stretch] = []
    state, since = JobState.PENDING, begin
    for event in events:
        if event.state is state:
            continue
        found.append(_Stretch(state, since, event.at))
        state, since = event.state, event.at
    if state in ACTIVE_STATES or state in (JobState.PENDING, JobState.HELD):
        found.append(_Stretch(state, since, end))
    return [stretch for stretch in found if stretch.seconds > 0]


def _phases(stretches: Sequence[_Stretch]) -> tuple[StateDuration, ...]:
    totals: dict[str, float] = {}
    for stretch in stretches:
        totals[stretch.state.value] = totals.get(stretch.state.value, 0.0) + stretch.seconds
    return tuple(
        StateDuration(state, seconds) for state, seconds in totals.items() if seconds >= 1 or len(totals) == 1
    )


def _bar(stretches: Sequence[_Stretch]) -> Markup:
    """Wide as the time is long, but never too thin to be seen."""
    total = sum(stretch.seconds for stretch in stretches) or 1.0
    widths = [max(_LEAST, _WIDTH * stretch.seconds / total) for stretch in stretches]
    scale = _WIDTH / sum(widths) if widths else 1.0
    rect = Markup('<rect class="phase-{}" x="{:.1f}" width="{:.1f}" height="{}"><title>{}</title></rect>')
    parts, at = [], 0.0
    for stretch, width in zip(stretches, widths, strict=True):
        said = f"{formatting.format_state(stretch.state.value)} {formatting.format_duration(stretch.seconds)}"
        parts.append(rect.format(stretch.state.value, at, width * scale, _HEIGHT, said))
        at += width * scale
    spoken = ", then ".join(f"{one.state.value} {formatting.format_duration(one.seconds)}" for one in stretches)
    return Markup(
        '<svg class="lifebar" viewBox="0 0 {:.0f} {}" preserveAspectRatio="none" role="img">'
        "<title>{}</title>{}</svg>"
    ).format(_WIDTH, _HEIGHT, spoken or "just submitted", Markup("").join(parts))


def _attempts(story: JobHistory, now: datetime, shown: int) -> tuple[AttemptRow, ...]:
    rows, free_at = [], story.job.submitted_at
    for attempt in story.attempts:
        rows.append(_attempt(story, attempt, free_at, now, shown))
        free_at = attempt.ended_at or now
    return tuple(rows)


def _attempt(story: JobHistory, one: AttemptRecord, free_at: datetime, now: datetime, shown: int) -> AttemptRow:
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
        log_url="" if one.number == shown else f"/jobs/{story.job.id}?attempt={one.number}#log",
    )


def _happening(event: JobEvent) -> EventRow:
    said = EVENT_DESCRIPTIONS.get(event.kind, event.kind.replace("_", " "))
    if event.kind == "ended":
        said = formatting.format_state(event.state.value)
    return EventRow(event.at, said, event.detail, event.attempt)
