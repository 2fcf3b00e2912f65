import asyncio
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.api.event_feed import EventFeed
from heliostat.api.event_streams import FolderWatcher, _AccessCheck, _LogSource
from heliostat.engines.job_file_reader import LogChunk
from heliostat.models import JobId, JobState
from support.fake_engines import FilesEngine
from unit.services.site import new_site

SIZE = 300_000


class WatchedEngine(FilesEngine):
    """Remembers which threads read logs."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.reads: list[tuple[threading.Thread, int]] = []

    def read_log(self, job_id: JobId, attempt: int, stream: str, offset: int, limit: int) -> LogChunk:
        self.reads.append((threading.current_thread(), limit))
        return super().read_log(job_id, attempt, stream, offset, limit)


class Access:
    """Everybody stays authenticated; counts the checks."""

    checks = 0

    async def check(self) -> None:
        self.checks += 1


@dataclass
class Followed:
    """A completed job with a large log."""

    source: _LogSource
    engine: WatchedEngine
    access: Access


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    engine, access = WatchedEngine(tmp_path), Access()
    folder = engine.job_folder(1)
    os.makedirs(folder.path)
    Path(folder.log_path(1, "stdout")).write_bytes(b"x" * SIZE)
    with new_site(tmp_path) as site:
        site.context.engine = engine  # type: ignore[misc, assignment]
        job = site.add_job(1, attempt=1, state=JobState.COMPLETED, ended_at=site.clock.at)
        state = cast("Any", SimpleNamespace(feed=EventFeed(site.context.store), folder_watch=FolderWatcher()))
        source = _LogSource(site.context, job, {"stdout": 0}, cast("_AccessCheck", access), state)
        yield Followed(source, engine, access)


def test_a_log_is_followed_in_small_parts_outside_of_the_event_loop(followed: Followed) -> None:
    async def collect() -> list[str]:
        return [text async for text in followed.source.run(None, None)]

    *blocks, end = asyncio.run(collect())
    chunks = [json.loads(line[6:]) for block in blocks for line in block.splitlines() if line.startswith("data:")]
    assert sum(len(chunk["text"]) for chunk in chunks) == SIZE
    assert end.startswith("event: end")
    assert len(blocks) >= SIZE // 65_536
    assert followed.access.checks >= len(blocks)
    assert threading.main_thread() not in {thread for thread, _ in followed.engine.reads}
    assert max(limit for _, limit in followed.engine.reads) <= 65_536


def test_nothing_more_is_read_for_a_client_that_has_disconnected(followed: Followed) -> None:
    async def receive_one_block() -> None:
        events = followed.source.run(None, None)
        while "event: chunk" not in await anext(events):
            pass
        reads = len(followed.engine.reads)
        await events.aclose()
        assert len(followed.engine.reads) == reads < SIZE // 65_536

    asyncio.run(receive_one_block())
