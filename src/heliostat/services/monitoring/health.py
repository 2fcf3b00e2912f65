"""Health (the process works) and readiness (jobs can be accepted and started) of the server."""

from collections.abc import Iterator

from heliostat.controller.background_loop import started_loops
from heliostat.errors import HeliostatError
from heliostat.services.cluster.outage import find_outage
from heliostat.services.context import Context

_WRITE_SECONDS = 2.0


def find_health_problems(context: Context) -> list[str]:
    """Threads that have ended although they are needed. A restart of the server helps."""
    threads = {"controller": context.controller.is_running, "store-writer": context.store.is_running}
    threads |= {loop.record.name: loop.is_running for loop in started_loops()}
    return [f"The thread {name} has ended." for name, is_running in threads.items() if not is_running]


def find_readiness_problems(context: Context) -> list[str]:
    """For everybody: without details of the installation."""
    return [*find_health_problems(context), *_readiness_problems(context)]


def _readiness_problems(context: Context) -> Iterator[str]:
    if problem := context.monitoring.write_problem.get_or_load(lambda: _find_write_problem(context)):
        yield problem
    if outage := find_outage(context):
        yield f"{outage}."
    if pause := context.pause.current:
        yield f"Heliostat is paused: {pause.reason}."


def _find_write_problem(context: Context) -> str | None:
    try:
        context.store.check_writable(_WRITE_SECONDS)
    except HeliostatError as error:
        return error.message
    except Exception:  # noqa: BLE001 - whatever it is, jobs cannot be accepted
        return "The database cannot be written."
    return None
