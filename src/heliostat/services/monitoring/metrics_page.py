"""The metrics page, from what is in memory: a scrape asks neither Slurm, nor a driver, nor the database writer."""

from collections import Counter
from collections.abc import Iterator, Mapping

from heliostat import __version__
from heliostat.controller.background_loop import LoopRecord, started_loops
from heliostat.metrics import MetricFamily, Samples, format_labels, render_families
from heliostat.models import ACTIVE_STATES, WAITING_STATES, JobState
from heliostat.services.cluster.outage import find_outage
from heliostat.services.context import Context
from heliostat.services.monitoring import families
from heliostat.services.monitoring.cluster_metrics import collect_cluster

BLOCKED_SECONDS = 300.0  # without a start, before a free queue counts as blocked
_STATES = [state for state in JobState if state in WAITING_STATES | ACTIVE_STATES]

Collected = Iterator[tuple[MetricFamily, Samples]]


def render_metrics(context: Context) -> bytes:
    """At most a second old."""
    return context.monitoring.metrics_page.get_or_load(lambda: render_families(_collect(context)))


def _collect(context: Context) -> Collected:
    queue = context.controller.queue_figures()
    yield from _jobs(context, queue.unfinished, queue.longest_wait_seconds)
    yield from _server(context)
    yield from _forecasts(context)
    yield from collect_cluster(context.node_inventory.fresh_nodes(), queue.active)
    yield from _areas(context)


def _jobs(
    context: Context, unfinished: Mapping[tuple[str, JobState], int], longest_wait_seconds: float
) -> Collected:
    counts, controller = context.controller.job_counts, context.controller
    jobs, sessions = Counter[JobState](), Counter[JobState]()
    for (kind, state), number in unfinished.items():
        jobs[state] += number
        sessions[state] += number if kind == "session" else 0
    yield families.JOBS, [(format_labels({"state": state}), jobs[state]) for state in _STATES]
    yield families.SESSIONS, [(format_labels({"state": state}), sessions[state]) for state in _STATES]
    yield families.JOB_WAIT, counts.waits.samples(families.JOB_WAIT.labels)
    yield families.JOB_STARTS, [("", counts.starts)]
    ends = counts.ends.counts().items()
    yield families.JOB_ENDS, [(format_labels({"cause": cause}), number) for (cause,), number in ends]
    yield families.PENDING_OLDEST, [("", longest_wait_seconds)]
    yield families.QUEUE_BLOCKED, [("", int(controller.is_blocked_while_free(BLOCKED_SECONDS)))]


def _server(context: Context) -> Collected:
    yield families.PLAN_DURATION, context.controller.plan_seconds.samples()
    yield families.COMMIT_DURATION, context.store.commit_seconds.samples()
    yield from _loops([context.controller.loop_record, *(loop.record for loop in started_loops())])
    requests = families.REQUEST_DURATION
    yield requests, context.monitoring.request_seconds.samples(requests.labels)
    yield families.PAUSED, [("", int(context.pause.current is not None))]
    yield families.ENGINE_UP, [("", int(find_outage(context) is None))]
    build = {"version": __version__, "engine": context.engine.name}
    yield families.BUILD_INFO, [(format_labels(build), 1)]


def _loops(records: list[LoopRecord]) -> Collected:
    labels = [format_labels({"loop": record.name}) for record in records]
    yield families.LOOP_FAILURES, [(label, one.failures) for label, one in zip(labels, records, strict=True)]
    yield (
        families.LOOP_SUCCESS,
        [
            (label, one.last_success_at)
            for label, one in zip(labels, records, strict=True)
            if one.last_success_at is not None
        ],
    )


def _forecasts(context: Context) -> Collected:
    """Without known outcomes there are no fractions."""
    accuracy = context.forecaster.accuracy()
    counts = {
        families.FORECAST_WITHIN: accuracy.within,
        families.FORECAST_EARLY: accuracy.early,
        families.FORECAST_LATE: accuracy.late,
    }
    for family, count in counts.items():
        yield family, [("", count / accuracy.of)] if accuracy.of else []
    yield families.FORECAST_OUTCOMES, [("", accuracy.of)]


def _areas(context: Context) -> Collected:
    areas = {format_labels({"area": name}): space for name, space in context.monitoring.areas.items()}
    yield families.AREA_FREE, [(label, space.free_bytes) for label, space in areas.items()]
    yield families.AREA_SIZE, [(label, space.size_bytes) for label, space in areas.items()]
