"""Log reader: bytes of a job's output, and a tail of a growing log."""

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.engines.contract import RunsPrograms
from heliostat.engines.job_file_reader import LogChunk
from heliostat.errors import Conflict, HeliostatError, NotFound
from heliostat.models import Job
from heliostat.services.context import Context, require_program_engine

STREAMS = ("stdout", "stderr")
CHUNK_BYTES = 64 * 1024
_MAX_BYTES = 8 * 2**20  # per response


@dataclass(frozen=True, slots=True)
class LogRange:
    stream: str = "stdout"
    offset: int = 0  # negative: from the end
    limit: int = _MAX_BYTES
    attempt: int | None = None  # None: the newest


def require_log(context: Context, job: Job) -> RunsPrograms:
    """The engine that has the log. Raises Conflict or NotFound."""
    require_not_imported(job)
    engine = require_program_engine(context)
    if job.ended_at is not None and job.attempt and not engine.has_job_files(job.id):
        _check_not_deleted(context, job, job.ended_at)
    return engine


def read_stream_order(context: Context, job: Job, attempt: int | None) -> list[tuple[str, int]]:
    """The order in which the two streams were written: (stream, end offset), as far as it is known."""
    engine = context.engine
    return (
        engine.read_log_order(job.id, resolve_attempt_number(job, attempt))
        if isinstance(engine, RunsPrograms)
        else []
    )


def read_log(context: Context, job: Job, log_range: LogRange) -> LogChunk:
    """From any byte; a negative offset counts from the end. Empty beyond the end. Removed output is skipped."""
    number = resolve_attempt_number(job, log_range.attempt)
    engine = require_log(context, job)
    try:
        return engine.read_log(
            job.id, number, log_range.stream, log_range.offset, min(log_range.limit, _MAX_BYTES)
        )
    except OSError as error:
        raise HeliostatError(
            f"The log of job {job.id} cannot be read: {error.strerror}.",
            "Check the permissions of the data directory: `helio doctor`.",
            code="log_unreadable",
        ) from error


class LogTail:
    """Reads a growing log as text. An incomplete character is kept until its remaining bytes arrive."""

    def __init__(self, read: Callable[[int, int], LogChunk], stream: str, offset: int, attempt: int) -> None:
        """`read(offset, limit)` returns a part of the log."""
        self.stream = stream
        self._attempt = attempt
        self._read = read
        self._at = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read_new_chunks(self, up_to: int | None = None) -> Iterator[dict[str, object]]:
        """The text since the last call, at most up to that byte."""
        while True:
            part = self._read(self._at, CHUNK_BYTES)
            data = part.data if up_to is None else part.data[: max(0, up_to - part.offset)]
            if not data:
                return
            start = part.offset
            self._at = start + len(data)
            if text := self._decoder.decode(data):
                incomplete_bytes = len(self._decoder.getstate()[0])
                yield {
                    "stream": self.stream,
                    "attempt": self._attempt,
                    "offset": start,
                    "next_offset": self._at - incomplete_bytes,
                    "text": text,
                }


def open_log_tail(context: Context, job: Job, attempt: int, stream: str, offset: int) -> LogTail:
    engine = require_log(context, job)
    return LogTail(lambda at, limit: engine.read_log(job.id, attempt, stream, at, limit), stream, offset, attempt)


def require_not_imported(job: Job) -> None:
    """Raises Conflict for an imported job: it has no output here."""
    if job.origin_system is not None:
        raise Conflict(
            f"Job {job.id} was imported: it ran on {job.origin_system} as {job.origin_job_number},"
            " and has no output here.",
            "See the system where it ran; only its times and resources were imported.",
        )


def _check_not_deleted(context: Context, job: Job, ended_at: datetime) -> None:
    days = context.settings.storage.keep_job_folders_days
    if days and context.now() - ended_at > timedelta(days=days):
        raise NotFound(
            f"The output of job {job.id} has been deleted: job folders are kept for {days} days.",
            "Copy important files earlier, or write them to another folder with --workdir.",
        )


def resolve_attempt_number(job: Job, attempt: int | None) -> int:
    """This attempt, or the newest; 0: no attempt yet. Raises NotFound."""
    if attempt is None:
        return job.attempt
    if not 1 <= attempt <= job.attempt:
        raise NotFound(f"Job {job.id} has no attempt {attempt}.", f"It has {job.attempt} so far.")
    return attempt
