"""Lines of the server's log, in a process of its own: the format is that of the whole process."""

import json
import subprocess
import sys

_LINES = """
import logging
from heliostat.server_log import bind_log_context, configure_logging, get_logger
configure_logging({log_format!r})
bind_log_context(request_id="r-1", user="ann")
get_logger().error("not_done", path='/a "b"\\n')
logging.getLogger("uvicorn").warning("odd: %s", "x")
try:
    1 / 0
except ZeroDivisionError:
    get_logger().exception("broken")
"""


def lines_of(log_format: str) -> list[str]:
    code = _LINES.format(log_format=log_format)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.splitlines()


def test_every_line_is_json_also_those_of_libraries() -> None:
    first, second, third = map(json.loads, lines_of("json"))
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "not_done", "level": "error", "path": '/a "b"\n', "request_id": "r-1", "user": "ann"
    }  # fmt: skip
    assert (second["event"], second["level"], second["user"]) == ("odd: x", "warning", "ann")
    assert "ZeroDivisionError" in third["exception"]


def test_the_default_is_logfmt() -> None:
    first, second, *_ = lines_of("logfmt")
    assert "level=error event=not_done" in first
    assert {"request_id=r-1", "user=ann"} < set(first.split())
    assert 'level=warning event="odd: x"' in second
