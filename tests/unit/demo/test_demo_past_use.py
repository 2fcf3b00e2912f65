"""What the made-up month used."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from heliostat.demo.usage_samples import JobRun, StepRange, generate_usage_samples
from heliostat.demo.workload import generate_history
from heliostat.engines.simulated.cluster import demo_nodes
from heliostat.models.samples import CLUSTER_COLUMNS, CLUSTER_SUBJECT
from heliostat.store.sample_chunks import SampleChunk

NOW = datetime(2026, 11, 16, 12, 3, 20, tzinfo=UTC)
COLUMN = {name: at for at, (name, _) in enumerate(CLUSTER_COLUMNS)}


@pytest.fixture(scope="module")
def week() -> dict[str, SampleChunk]:
    jobs = generate_history(1, NOW, days=7)
    ran = [
        JobRun(number, job.submitted_at, job.started_at, job.ended_at, job.resources, job.node, job.devices)
        for number, job in enumerate(jobs, 1)
    ]
    return dict(generate_usage_samples(ran, demo_nodes(), StepRange.between(NOW - timedelta(days=7), NOW)))


def test_a_week_has_a_value_for_every_five_minutes_and_all_are_possible(week: dict[str, SampleChunk]) -> None:
    total = week[CLUSTER_SUBJECT].mean
    assert total.shape == (7 * 288, len(CLUSTER_COLUMNS))
    for part, whole in (
        ("gpus_allocated", "gpus"),
        ("cpus_allocated", "cpus"),
        ("cpus_used", "cpus"),
        ("memory_held", "memory"),
    ):
        assert (total[:, COLUMN[part]] <= total[:, COLUMN[whole]] + 1e-6).all()
    assert (total >= 0).all()
    assert 20 < total[288:, COLUMN["gpu_utilisation"]].mean() < 80


def test_every_node_is_there_and_none_does_more_than_it_can(week: dict[str, SampleChunk]) -> None:
    for node in demo_nodes():
        values = week[f"node/{node.name}"].mean
        assert values.shape == (7 * 288, 2 + 2 * len(node.devices))
        assert (values[:, 0] <= node.cpus).all()
        assert (values[:, 2::2] <= 100).all()
    assert not np.isnan(week["node/a100-01"].mean).any()


def test_a_job_uses_something_while_it_runs_and_its_chunk_is_as_long(week: dict[str, SampleChunk]) -> None:
    chunks = [chunk for name, chunk in week.items() if name.startswith("job/")]
    assert len(chunks) > 500
    assert all(chunk.mean[:, 0].max() > 0 and chunk.end <= NOW.timestamp() for chunk in chunks)


def test_what_ran_for_a_part_of_a_step_counts_for_that_part() -> None:
    month = StepRange.between(NOW - timedelta(hours=1), NOW)
    begin = datetime.fromtimestamp(month.first_step * 300 + 150, UTC)
    where, part = month.overlap(begin, begin + timedelta(seconds=300))
    assert (where, part.tolist()) == (slice(0, 2), [0.5, 0.5])
    where, part = month.overlap(begin - timedelta(days=2), begin - timedelta(days=1))
    assert len(part) == 0
