"""Requests of every kind, hostile ones among them, for the tests that turn them over."""

from hypothesis import strategies as st

from heliostat.api.validation import read_job
from heliostat.errors import Invalid
from heliostat.models import JobRequest
from heliostat.models.jobs import PRIORITY_CLASSES
from heliostat.models.quantities import STOP_SIGNALS

# A browser sends every line's end the same way, so a lone \r does not come through a form.
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")
nasty = st.sampled_from(
    [
        *("", " ", "-", "--", "--name", "=x", "~", "$HOME", "`id`", "a b", "'", '"', "\\", "!", "*", "#", "\n"),
        *("é\t", "\x1b[2J", "\u202e"),
    ]
)
texts = st.one_of(nasty, st.text(letters, max_size=12), st.lists(nasty, max_size=3).map("".join))
lines = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12) | st.sampled_from(
    ["-x", "--gpus", "a b", "<script>alert(1)</script>", "'; rm -rf ~; '", "=ls", "null", "yes", "1:30"]
)
labels = st.lists(st.sampled_from(["fast", "disk=ssd", "a=", "x/y-z"]), max_size=3, unique=True)
commands = st.one_of(
    texts.filter(str.strip),
    st.lists(texts, min_size=1, max_size=4),
    st.just(["/bin/sh", "-c", "a;b"]),
    st.just([]),
)
arrays = st.sampled_from(["0-99", "0-99%8", "1,3,5-9", "7", "9,1-3%1", "0,1,2"])
parents = st.sampled_from([12, "12", [12, 13], "array:5", ["array:5", "prepare", 7], "prepare,12"])
bodies = st.fixed_dictionaries(
    {},
    optional={
        "command": commands,
        "script": texts.filter(lambda text: bool(text.strip())),
        "name": lines,
        "project": lines,
        "cpus": st.integers(1, 512),
        "memory": st.integers(16, 10**9),
        "gpus": st.integers(0, 64) | st.sampled_from([0.5, 0.25, 0.01, 0.99]),
        "gpu_type": lines,
        "gpu_memory": st.integers(16, 10**6),
        "tasks": st.integers(1, 100),
        "layout": st.sampled_from(["pack", "spread"]),
        "exclusive": st.booleans(),
        "labels": labels,
        "time_limit": st.integers(1, 10**7),
        "workdir": lines.map("/".__add__)
        | st.sampled_from(["/a/../b", "/a b/", "//x"]),  # fits an input of one line
        "env": st.dictionaries(st.sampled_from(["A", "PATH", "_x"]), texts, max_size=3),
        "priority": st.integers(-1000, 1000),
        "priority_class": st.sampled_from(PRIORITY_CLASSES),
        "preemptible": st.booleans(),
        "preempt_signal": st.sampled_from(STOP_SIGNALS),
        "overtime": st.booleans(),
        "held": st.booleans(),
        "after": parents,
        "after_any": parents,
        "after_failed": parents,
        "after_each": parents,
        "begin": st.sampled_from(["+90s", "+2h", "2026-12-01T08:00", "2026-12-01T08:00:30+02:00"]),
        "max_retries": st.integers(0, 100),
        "retry_on": st.sampled_from(["lost", ["exit:75", "lost"], "timed_out,exit", ["lost", "preempted"]]),
        "retry_delay": st.sampled_from([0, 30, "90s", "1h"]),
        "notify": st.sampled_from(["ended", ["started", "failed"], "late,ends_soon"]),
        "array": arrays,
        "grace_seconds": st.integers(0, 3600) | st.sampled_from([2.5, 0.125]),
    },
)


def _request(body: dict[str, object]) -> JobRequest | None:
    try:
        return read_job(body)
    except Invalid:
        return None


requests = bodies.map(_request).filter(lambda request: request is not None)
