from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliostat.engines.environment import IMAGE_FILE
from heliostat.engines.folders import JobFolder
from heliostat.loops.recorder import Recorder, Seen
from heliostat.models import JobSpec, JobState
from heliostat.models.records import Machine
from heliostat.store import moves
from heliostat.store.job_records import add_machines, record_of
from support.engines import FilesEngine
from unit.services.site import Site, new_site

DIGEST = "sha256:" + "a" * 64
MACHINE = Machine(nodes=("gpu1",), heliostat="0.1.0")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as site:
        yield site


def recorder_of(site: Site) -> Recorder:
    context = site.context
    engine: Any = FilesEngine(context.settings.home.path)
    return Recorder(Seen(context.store, engine, context.fleet), context.settings, context.now)


def digest_of(site: Site, job_id: int) -> str | None:
    with site.context.store.read() as conn:
        return dict(record_of(conn, job_id).machines)[1].image_digest


def test_what_an_image_was_found_to_be_is_noted_after_a_restart_too(site: Site) -> None:
    job = site.add_job(1, state=JobState.RUNNING, attempt=1, spec=JobSpec(command=("true",), image="python:3.11"))
    store = site.context.store
    store.write(lambda tx: add_machines(tx, {(1, 1): MACHINE}))
    recorder = recorder_of(site)
    recorder.start()
    found = Path(JobFolder.of(site.context.settings.home.jobs, 1).checkpoints) / IMAGE_FILE
    found.parent.mkdir(parents=True)
    found.write_text(f'"docker.io/library/python@{DIGEST}"')
    over = moves.Move(1, JobState.COMPLETED, "ended", job.submitted_at, 1, {"ended_at": job.submitted_at})
    store.write(lambda tx: moves.move_jobs(tx, [over]))
    recorder.close()
    recorder.record()
    assert digest_of(site, 1) == DIGEST


def test_jobs_that_only_speak_of_images_are_recorded_like_others(site: Site) -> None:
    spec = JobSpec(command=("echo", '"image": "mounts": '))
    for number in range(1, 40):
        site.add_job(number, state=JobState.RUNNING, attempt=1, node="gpu1", spec=spec)
    recorder = recorder_of(site)
    recorder._add([(number, 1) for number in range(1, 40)])
    assert recorder.record() == 39
    with site.context.store.read() as conn:
        ((_, machine),) = record_of(conn, 39).machines
    assert machine == replace(MACHINE, heliostat=machine.heliostat)
