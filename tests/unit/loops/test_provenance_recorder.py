from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliostat.engines.job_folders import JobFolder
from heliostat.engines.job_variables import IMAGE_DIGEST_FILE
from heliostat.loops.provenance_recorder import ProvenanceRecorder, ProvenanceSources
from heliostat.models import JobSpec, JobState
from heliostat.models.provenance import AttemptEnvironment
from heliostat.store import job_writes
from heliostat.store.provenance import add_attempt_environments, get_provenance
from support.fake_engines import FilesEngine
from unit.services.site import Site, new_site

DIGEST = "sha256:" + "a" * 64
MACHINE = AttemptEnvironment(nodes=("gpu1",), heliostat="0.1.0")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as site:
        yield site


def recorder_of(site: Site) -> ProvenanceRecorder:
    context = site.context
    engine: Any = FilesEngine(context.settings.home.path)
    return ProvenanceRecorder(
        ProvenanceSources(context.store, engine, context.node_inventory), context.settings.containers, context.now
    )


def digest_of(site: Site, job_id: int) -> str | None:
    with site.context.store.read() as conn:
        return dict(get_provenance(conn, job_id).attempt_environments)[1].image_digest


def test_what_an_image_was_found_to_be_is_noted_after_a_restart_too(site: Site) -> None:
    job = site.add_job(1, state=JobState.RUNNING, attempt=1, spec=JobSpec(command=("true",), image="python:3.11"))
    store = site.context.store
    store.write(lambda tx: add_attempt_environments(tx, {(1, 1): MACHINE}))
    recorder = recorder_of(site)
    recorder.start()
    found = Path(JobFolder.for_job(site.context.settings.home.jobs, 1).checkpoint_folder) / IMAGE_DIGEST_FILE
    found.parent.mkdir(parents=True)
    found.write_text(f'"docker.io/library/python@{DIGEST}"')
    over = job_writes.JobTransition(
        1, JobState.COMPLETED, "ended", job.submitted_at, 1, {"ended_at": job.submitted_at}
    )
    store.write(lambda tx: job_writes.apply_transitions(tx, [over]))
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
        ((_, machine),) = get_provenance(conn, 39).attempt_environments
    assert machine == replace(MACHINE, heliostat=machine.heliostat)
