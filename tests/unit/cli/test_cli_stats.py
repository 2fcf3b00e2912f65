"""`helio stats`, as it is typed."""

import json
from typing import Any

from heliostat.cli.stats import SPARKLINE_BLOCKS, downsample, max_value, mean_value, sparkline
from unit.client.stand_in_server import answer


def series(name: str, unit: str, mean: list[float | None], last: float | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "start_at": "2026-11-16T01:00:00Z",
        "step_seconds": 60,
        "mean": mean,
        "max": mean,
        "last": last,
    }


JOB = {
    "id": 12,
    "name": "train",
    "state": "running",
    "node": "gpu1",
    "started_at": "2026-11-16T01:00:00Z",
    "ended_at": "2026-11-16T03:10:00Z",
    "time_limit_seconds": 28800,
}
STATS = {
    "job_id": 12,
    "requested": {"cpus": 8, "memory_mib": 65536, "gpus": 1},
    "device_names": ["GPU 3"],
    "device_memory_mib": [81920],
    "efficiency": {
        "sentences": ["used 1 of 4 GPUs"],
        "judged": True,
        "wasteful": True,
        "gpus_used": 1,
        "text": "used 1 of 4 GPUs",
        "advice": "`--gpus 1` would have been enough",
    },
    "summary": {},
    "series": [
        series("cpu", "cores", [0.0, 4.0, 8.0], 8.0),
        series("memory", "MiB", [1024, None, 3072], 3072),
        series("gpu0_utilisation", "%", [0, 50, 100], 100),
        series("gpu0_memory", "MiB", [0, 40960, 40960], 40960),
    ],
}
CLUSTER = {
    "span": "day",
    "series": [
        series("gpus", "GPUs", [8, 8], 8),
        series("gpus_allocated", "GPUs", [2, 4], 4),
        series("pending", "jobs", [0, 3], 3),
    ],
}


def test_a_job_is_shown_against_what_it_asked_for_and_judged(helio, serve):
    serve(answer(JOB), answer(STATS))
    ran = helio("stats", "12")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[:2] == [
        "Job 12 train running for 2h10m on gpu1",
        "Used 1 of 4 GPUs. `--gpus 1` would have been enough.",
    ]
    rows = {line[:12].strip(): line[12:].split() for line in lines[4:]}
    assert rows["CPUs busy"] == ["8", "4", "8", "8", "▁▅█"]
    assert rows["memory"][:4] == ["3G", "2G", "3G", "64G"]
    assert rows["GPU 3 load"] == ["100%", "50%", "100%", "-", "▁▅█"]
    assert rows["GPU 3 memory"][:4] == ["40G", "26.7G", "40G", "80G"]


def test_without_a_job_it_is_the_cluster(helio, serve):
    server = serve(answer(CLUSTER))
    ran = helio("stats", "--span", "week")
    assert ran.code == 0, ran.err
    assert b"GET /api/v1/cluster/stats?span=week" in server.requests[0]
    assert ran.out.splitlines()[0] == "Cluster, last week"
    assert "GPUs allocated    4     3     4      8" in ran.out
    assert "\ngpus " not in ran.out


def test_a_name_cannot_steer_the_terminal(helio, serve):
    serve(answer(JOB | {"name": "\x1b[2Jbad"}), answer(STATS))
    assert "\x1b" not in helio("stats", "12").out


def test_as_json_it_is_what_the_server_said(helio, serve):
    serve(answer(CLUSTER))
    assert json.loads(helio("stats", "--json").out) == CLUSTER


def test_following_a_job_ends_with_the_job(helio, serve):
    over = JOB | {"state": "completed"}
    serve(answer(over), answer(over), answer(STATS))
    ran = helio("stats", "12", "--follow", "--json")
    assert ran.code == 0, ran.err
    assert [json.loads(line)["job_id"] for line in ran.out.splitlines()] == [12]


def test_before_the_first_sample_it_says_so(helio, serve):
    serve(answer(CLUSTER | {"series": []}))
    assert "No usage data yet" in helio("stats").out


def test_a_job_and_a_node_at_once_are_refused(helio):
    ran = helio("stats", "12", "--node", "gpu1")
    assert ran.code == 2
    assert "not both" in ran.err


def test_a_span_that_is_none_is_refused(helio):
    assert helio("stats", "--span", "decade").code == 2


def test_a_line_of_blocks_is_as_high_as_its_values():
    assert (
        sparkline([0, None, 5, 10, 99], 10, 10)
        == f"{SPARKLINE_BLOCKS[0]} {SPARKLINE_BLOCKS[4]}{SPARKLINE_BLOCKS[7]}{SPARKLINE_BLOCKS[7]}"
    )
    assert sparkline([1, 1], 10, 0) == SPARKLINE_BLOCKS[0] * 2


def test_a_long_series_is_squeezed_into_means():
    assert downsample([1, 3, None, None, 5, 7], 3) == [2, None, 6]
    assert len(downsample(list(range(299)), 40)) == 40
    assert (mean_value([]), max_value([None])) == (None, None)


def test_usage_from_accounting_is_shown_without_samples(helio, serve):
    used = {
        "elapsed_seconds": 600.0,
        "cpu_seconds": 624.0,
        "memory_mib": 3174.4,
        "gpu_seconds": 1200.0,
        "out_of_memory": True,
    }
    serve(answer(JOB), answer({**STATS, "series": [], "accounting_usage": used}))
    ran = helio("stats", "12")
    assert "Total usage: 10m24s CPU time, 20m00s GPU time, 3.1G peak memory, out of memory." in ran.out
    assert "No usage data" not in ran.out


def test_the_efficiency_of_a_job_ends_with_the_command_for_its_next_run(helio, serve):
    statistics = {"mean": 80.0, "peak": 98.0, "last": 80.0}
    amounts = {"mean": 1024.0, "peak": 3072.0, "last": 1024.0}
    summary = {
        "cpus": {"mean": 1.0, "peak": 1.25, "last": 1.0},
        "memory_mib": amounts,
        "devices": [{"utilisation": statistics, "memory_mib": amounts}],
    }
    report = {
        **STATS["efficiency"],
        "command": "helio rerun 12 --set memory=4G",
        "findings": [{"rule": "unused-memory", "guide": "docs/researchers.md#memory-and-cpus"}],
    }
    serve(answer({**STATS, "summary": summary, "efficiency": report, "run_seconds": 7800.0}), answer(JOB))
    ran = helio("efficiency", "12")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[:2] == [
        "Job 12 train running for 2h10m on gpu1",
        "Used 1 of 4 GPUs. `--gpus 1` would have been enough.",
    ]
    rows = [line.split() for line in lines[3:]]
    assert rows[1] == ["GPU", "3", "-", "80%", "98%"]
    assert rows[2] == ["GPU", "3", "memory", "80G", "1G", "3G"]
    assert rows[3] == ["CPUs", "8", "1", "1.2"]
    assert rows[4] == ["memory", "64G", "1G", "3G"]
    assert rows[5] == ["time", "8h00m", "-", "2h10m"]
    assert lines[-2:] == [
        "Next run:  helio rerun 12 --set memory=4G",
        "Guide:     docs/researchers.md#memory-and-cpus",
    ]


def test_the_efficiency_of_several_jobs_is_a_table(helio, serve):
    item = {
        "job_id": 12,
        "name": "tr\x1bain",
        "user": "ada",
        "state": "completed",
        "run_seconds": 7800.0,
        "requested": {"cpus": 8, "memory_mib": 65536, "gpus": 1},
        "summary": {
            "cpus": {"mean": 1.0, "peak": None},
            "memory_mib": {"mean": 512.0, "peak": 3072.0},
            "devices": [{}],
        },
        "unused_gpu_hours": 1.25,
        "efficiency": {"gpus_used": 0, "options": "--gpus 0"},
    }
    server = serve(answer({"items": [item], "next_cursor": None}))
    ran = helio("efficiency", "--project", "vision", "--since", "30d")
    assert ran.code == 0, ran.err
    assert b"GET /api/v1/efficiency?project=vision&since=" in server.requests[0]
    row = ran.out.splitlines()[1]
    assert row.split()[2:] == "ada completed 2h10m 0/1 1/8 3G/64G 1.2 --gpus 0".split()
    assert "\x1b" not in row


def test_efficiency_takes_a_job_or_a_list(helio):
    assert helio("efficiency", "12", "--mine").code == 2
    assert helio("efficiency", "--mine", "--project", "vision").code == 2
    assert helio("efficiency", "--since", "ages").code == 2
