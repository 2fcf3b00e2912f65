import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound
from heliostat.models import Job
from heliostat.services.context import Context
from heliostat.services.logs.search import MAX_MATCHES, LogSearchRequest, search_log
from heliostat.services.logs.windows import (
    WINDOW_BYTES,
    LogWindow,
    LogWindowRequest,
    read_log_since,
    read_log_window,
)
from support.fake_engines import FilesEngine
from unit.services.site import Site


@dataclass
class Printed:
    site: Site
    logs: FilesEngine
    job: Job

    @property
    def context(self) -> Context:
        parts = self.site.context
        parts.engine = self.logs  # type: ignore[misc, assignment]
        return parts

    def log(self, stream: str) -> str:
        folder = self.logs.job_folder(self.job.id)
        os.makedirs(folder.path, exist_ok=True)
        return folder.log_path(1, stream)

    def say(self, stream: str, data: bytes) -> None:
        with open(self.log(stream), "ab") as file:
            file.write(data)

    def window(self, **wish: object) -> LogWindow:
        return read_log_window(self.context, self.site.root, self.job.id, LogWindowRequest(**wish))  # type: ignore[arg-type]

    def since(self, offsets: dict[str, int]) -> LogWindow:
        return read_log_since(self.context, self.site.root, self.job.id, None, offsets)


@pytest.fixture
def printed(site: Site, tmp_path: Path) -> Printed:
    return Printed(site, FilesEngine(tmp_path), site.add_job(1, attempt=1))


def _said(window: LogWindow) -> Sequence[tuple[str, bytes]]:
    return [(line.stream, line.data) for line in window.lines]


def test_both_streams_are_in_the_order_they_were_written(printed: Printed) -> None:
    printed.say("stdout", b"one\ntwo\n")
    printed.say("stderr", b"oh\n")
    printed.logs.stream_order = [("stdout", 4), ("stderr", 3)]
    assert _said(printed.window()) == [("stdout", b"one"), ("stderr", b"oh"), ("stdout", b"two")]
    assert _said(printed.window(streams=("stderr",))) == [("stderr", b"oh")]


def test_a_huge_log_is_paged_through_and_removed_output_is_skipped(printed: Printed) -> None:
    printed.say("stdout", b"beginning\n" * 2**14)
    os.truncate(printed.log("stdout"), 2**40)  # a terabyte of nothing
    printed.say("stdout", b"\nthe end\n")
    printed.say("stderr", b"oh\n")
    last = printed.window(streams=("stdout",))
    assert _said(last) == [("stdout", b""), ("stdout", b"the end")]
    earlier = printed.window(streams=("stdout",), end_offset=last.start)
    assert earlier.end == 10 * 2**14
    assert set(_said(earlier)) == {("stdout", b"beginning")}
    later = printed.window(start_offset=earlier.end)
    assert _said(later) == [*_said(last), ("stderr", b"oh")]
    assert printed.window(start_offset=2**50).lines == ()
    assert _said(printed.since(dict(earlier.next_offsets)))[-1] == ("stdout", b"the end")


def test_search_skips_removed_output(printed: Printed) -> None:
    printed.say("stdout", b"needle" + b"\n" * (2**16 - 6))
    os.truncate(printed.log("stdout"), 2**40)
    printed.say("stdout", b"needle\n")
    found = search_log(printed.context, printed.site.root, 1, LogSearchRequest("needle"))
    assert [hit.line_offset for hit in found.matches] == [0, 2**40]
    assert found.is_complete


def test_a_window_begins_with_a_complete_line(printed: Printed) -> None:
    printed.say("stdout", b"".join(b"%d\n" % number for number in range(1, 20_001)))
    last = printed.window()
    earlier = printed.window(end_offset=last.start)
    numbers = [int(line.data) for line in (*earlier.lines, *last.lines)]
    assert numbers == list(range(numbers[0], 20_001))
    assert earlier.end == last.start


def test_the_first_line_of_each_stream_is_complete(printed: Printed) -> None:
    printed.say("stdout", b"x" * 100 + b"\n")
    printed.say("stderr", b"first\n" + b"y\n" * (WINDOW_BYTES // 2 - 3))
    printed.logs.stream_order = [("stdout", 101), ("stderr", 2**20)]
    assert _said(printed.window())[0] == ("stderr", b"first")


def test_following_continues_and_repeats_an_incomplete_last_line(printed: Printed) -> None:
    printed.say("stdout", b"one\ntw")
    first = printed.window()
    assert [line.is_incomplete for line in first.lines] == [False, True]
    printed.say("stdout", b"o\nthree\n")
    printed.say("stderr", b"oh\n")
    more = printed.since({"stdout": 0, "stderr": 0} | dict(first.next_offsets))
    assert _said(more) == [("stdout", b"two"), ("stdout", b"three"), ("stderr", b"oh")]
    assert dict(more.next_offsets) == {"stdout": 14, "stderr": 3}
    assert printed.since(dict(more.next_offsets)).lines == ()


def test_a_long_progress_bar_is_read_in_constant_time(printed: Printed) -> None:
    printed.say("stderr", b"".join(b"\r%d%%" % number for number in range(5000)))
    first = printed.window()
    assert first.next_offsets["stderr"] == first.total - len(b"\r4999%")
    again = printed.since(dict(first.next_offsets))
    assert _said(again) == [("stderr", b"\r4999%")]
    assert again.lines[0].is_incomplete


def test_a_very_long_line_is_split(printed: Printed) -> None:
    printed.say("stdout", b"x" * 50_000)
    first = printed.window()
    assert first.next_offsets["stdout"] == 50_000
    assert not first.lines[0].is_incomplete


def test_a_client_far_behind_continues_at_the_end(printed: Printed) -> None:
    printed.say("stdout", b"0123456789abcde\n" * 100_000)
    more = printed.since({"stdout": 16})
    assert more.skipped_bytes == 1_600_000 - 16 - WINDOW_BYTES
    assert len(more.lines) == WINDOW_BYTES // 16
    assert more.next_offsets["stdout"] == 1_600_000


def test_a_job_that_never_ran_has_an_empty_log(printed: Printed) -> None:
    printed.job = printed.site.add_job(2)
    assert printed.window().lines == ()
    with pytest.raises(NotFound):
        printed.window(attempt=1)


def test_users_cannot_read_logs_of_other_users_jobs(printed: Printed) -> None:
    nosy = printed.site.person("nosy")
    context = printed.context
    with pytest.raises(Forbidden):
        read_log_window(context, nosy, 1, LogWindowRequest())
    with pytest.raises(Forbidden):
        read_log_since(context, nosy, 1, None, {"stdout": 0})
    with pytest.raises(Forbidden):
        search_log(context, nosy, 1, LogSearchRequest("x"))


def test_a_match_has_its_line_and_offset(printed: Printed) -> None:
    printed.say("stdout", b"epoch 1\nLoss is NaN\nepoch 2\n")
    printed.say("stderr", b"nan again")
    found = search_log(printed.context, printed.site.root, 1, LogSearchRequest("nan"))
    assert [(hit.stream, hit.line_offset, hit.data) for hit in found.matches] == [
        ("stdout", 8, b"Loss is NaN"),
        ("stderr", 0, b"nan again"),
    ]
    assert found.is_complete


def test_matches_are_found_across_blocks(printed: Printed) -> None:
    printed.say("stdout", b"filler line\n" * 200_000 + b"needle here\n" + b"filler line\n" * 10)
    (hit,) = search_log(printed.context, printed.site.root, 1, LogSearchRequest("needle")).matches
    assert (hit.line_offset, hit.data) == (2_400_000, b"needle here")


def test_only_the_first_matches_are_returned(printed: Printed) -> None:
    printed.say("stdout", b"needle\n" * 5000)
    found = search_log(printed.context, printed.site.root, 1, LogSearchRequest("needle"))
    assert len(found.matches) == MAX_MATCHES
    assert not found.is_complete


def test_a_match_in_a_very_long_line_is_cut_around_the_text(printed: Printed) -> None:
    printed.say("stdout", b"x" * 3_000_000 + b"needle" + b"y" * 1000)
    (hit,) = search_log(printed.context, printed.site.root, 1, LogSearchRequest("needle")).matches
    assert b"needle" in hit.data
    assert len(hit.data) <= 400


@pytest.mark.parametrize("text", ["", "x" * 201])
def test_an_empty_or_long_search_text_is_refused(printed: Printed, text: str) -> None:
    with pytest.raises(Invalid):
        search_log(printed.context, printed.site.root, 1, LogSearchRequest(text))


def test_an_engine_without_logs_refuses_before_the_job_runs(site: Site) -> None:
    site.machines.name = "simulated"  # type: ignore[attr-defined]
    waiting = site.add_job(1)
    with pytest.raises(Conflict, match="are simulated"):
        read_log_window(site.context, site.root, waiting.id, LogWindowRequest())
