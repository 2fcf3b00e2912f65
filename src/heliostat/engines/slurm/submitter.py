"""Submission of attempts to Slurm, exactly once each: their files, the journal, and recovery of lost responses.

Every method of `Submitter` may raise EngineUnavailable midway. The next call does the rest.
"""

import contextlib
import errno
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from heliostat.config import Settings
from heliostat.engines.containers import ContainerInputs
from heliostat.engines.job_folders import (
    AttemptRefused,
    JobFolder,
    create_log,
    make_private_folder,
    prepare_job_folder,
    require_run_as_user,
)
from heliostat.engines.job_variables import AttemptContext, RunAsUser, job_variables
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import (
    ArrayScriptContext,
    SubmissionChunk,
    array_container_inputs,
    array_sbatch_argv,
    render_array_script,
)
from heliostat.engines.slurm.batch_script import (
    AttemptPaths,
    SubmissionContext,
    common_sbatch_options,
    render_batch_script,
    sbatch_argv,
    slurm_time_limit_minutes,
)
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.command_output import ArrayElementId
from heliostat.engines.slurm.containers import make_container_script
from heliostat.engines.slurm.job_lookup import JobLookup
from heliostat.engines.slurm.journal import JournalEntry
from heliostat.engines.slurm.mapping import (
    UnsupportedRequest,
    choose_partition,
    describe_refusal,
    is_job_count_limit,
    is_temporary_refusal,
)
from heliostat.engines.slurm.polling import SubmissionDelayed
from heliostat.engines.slurm.reservations import reservation_option
from heliostat.engines.slurm.tracked_jobs import TrackedJob, TrackedJobs, with_time_limit
from heliostat.errors import Conflict
from heliostat.models import Attempt, AttemptId, EndCause

_TEMPORARY_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.ESTALE)
_DEPENDENCY_PROBLEM = "dependency problem"
_LATE_SUBMISSION_SECONDS = 180.0  # longer than any submission takes


class Submitter:
    """Submits attempts, and withdraws them before they start. Several may be submitted at the same time."""

    def __init__(
        self,
        settings: Settings,
        client: SlurmClient,
        tracked: TrackedJobs,
        cluster: ClusterState,
        accounts: SlurmAccounts | None = None,
    ) -> None:
        self._settings, self._client, self._accounts = settings, client, accounts
        self._tracked, self._cluster = tracked, cluster
        self.job_lookup = JobLookup(client, cluster.submission_context.instance)
        self._abandoned: dict[AttemptId, tuple[float, JournalEntry]] = {}  # with the end of late arrival
        self._earlier_parts: dict[int, int] = {}  # Slurm job id of the last part, for arrays with further parts
        self._is_only_submitter = False

    def submit_chunk(self, chunk: SubmissionChunk) -> None:
        follows = chunk.max_running is not None and chunk.first.job.array_id in self._earlier_parts
        if len(chunk.elements) == 1 and not chunk.has_more and not follows:
            self.submit(chunk.first)
        else:
            self.submit_array(chunk)

    def submit(self, attempt: Attempt) -> None:
        """Written to the journal before and after. If an earlier response was lost, searches Slurm first."""
        try:
            person = require_run_as_user(attempt.job.unix_user)
            argv, script = prepare_submission(attempt, person, self._settings, self._site_for(attempt))
            argv += self._reservation(attempt)
        except (AttemptRefused, UnsupportedRequest) as error:
            self._tracked.end_attempt(attempt, EndCause.REFUSED, str(error))
            return
        except OSError as error:
            self._tracked.end_attempt(attempt, EndCause.NOT_STARTED, _file_error_message(error))
            return
        tracked = make_tracked_job(self._settings, attempt, person.uid)
        if self._find_again([tracked]):
            return
        self._tracked.journal.put(attempt.id, JournalEntry(person.uid))
        try:
            number = self._client.submit(argv, script)
        except SlurmRefused as error:
            self._handle_refusal([attempt], error)
        else:
            self._tracked.record_job_id(tracked, number)

    def submit_array(self, chunk: SubmissionChunk) -> None:
        """As `submit`, for several attempts. The parts of an array with a limit run one after the other."""
        try:
            person = require_run_as_user(chunk.first.job.unix_user)
        except AttemptRefused as error:
            self._end_all(chunk.attempts, EndCause.REFUSED, str(error))
            return
        found = self._find_again(
            [make_tracked_job(self._settings, attempt, person.uid) for attempt in chunk.attempts]
        )
        broken = self._make_files([attempt for attempt in chunk.attempts if attempt.id not in found], person)
        left = chunk.without_attempts([*found, *broken])
        if left is None:
            return
        array_id = left.first.job.array_id or 0
        after = None if left.max_running is None else self._earlier_parts.get(array_id)
        number = self._submit_elements(left, person, after)
        if number is None:
            return
        self._earlier_parts.pop(array_id, None)
        if left.has_more:
            self._earlier_parts[array_id] = number

    def withdraw(self, attempt: Attempt) -> None:
        """Prevents the submission of a waiting attempt. If Slurm has it already, it is tracked."""
        entry = self._tracked.journal.find(attempt.id)
        uid = None if entry is None else entry.uid
        if uid is not None and self._find_again([make_tracked_job(self._settings, attempt, uid)]):
            return
        self.abandon(attempt, entry)
        self._tracked.end_attempt(attempt, EndCause.STOPPED)

    def forecast_start(self, attempt: Attempt) -> datetime:
        """When Slurm would start the attempt if it were submitted now; submits nothing. Raises Conflict or
        EngineUnavailable."""
        try:
            person = require_run_as_user(attempt.job.unix_user)
            argv = ["sbatch", "--test-only", "--wrap=:"]
            argv += common_sbatch_options(attempt, person, self._site_for(attempt)) + self._reservation(attempt)
            start = self._client.forecast_start(argv)
        except SlurmRefused as error:
            raise Conflict(f"{describe_refusal(error)}.", "Change the request, or ask an admin.") from error
        except (AttemptRefused, UnsupportedRequest) as error:
            raise Conflict(f"Slurm cannot run this job: {error}.", "Change the request.") from error
        if start is None:
            raise Conflict("Slurm does not say when it would start this job.", "Submit it; helio why explains it.")
        return start

    def extend(self, attempt: Attempt, limit_seconds: int) -> None:
        """Raises the time limit of a job in Slurm. Changed in Slurm first: after a crash in between, Slurm's limit
        counts. Raises Conflict or EngineUnavailable."""
        job_id, tracked = attempt.job.id, self._tracked.jobs.get(attempt.id)
        if tracked is None or tracked.slurm_job_id is None:
            raise Conflict(f"Job {job_id} is not in Slurm.", "Try again in a moment.")
        longer = with_time_limit(tracked.attempt, limit_seconds)
        if longer is tracked.attempt:
            return
        site = self._cluster.submission_context
        try:
            _check_partition(longer, limit_seconds, site)
            minutes = slurm_time_limit_minutes(longer, site)
            if minutes is not None:
                self._client.set_time_limit(tracked.slurm_job_id, minutes)
        except (SlurmRefused, UnsupportedRequest) as error:
            raise Conflict(
                f"Slurm refused a longer time limit for job {job_id}: {error}.",
                "Only root or an operator of Slurm can raise a limit: ask an admin.",
            ) from error
        tracked.attempt = longer

    @property
    def is_only_submitter(self) -> bool:
        """No submission of an earlier server is still running. The caller must hold the Slurm lock."""
        self._is_only_submitter = self._is_only_submitter or not self._client.has_unfinished_submissions()
        return self._is_only_submitter

    def cancel_orphans(self, attempt_ids: Collection[AttemptId]) -> None:
        """Cancels jobs in Slurm that are no longer needed. Their journal entries stay."""
        journal = self._tracked.journal
        self._cancel({id_: entry for id_ in attempt_ids if (entry := journal.find(id_))})

    def cancel_late_submissions(self) -> None:
        """Cancels abandoned attempts that reached Slurm nevertheless. They do not start, but wait in its queue."""
        now = time.monotonic()
        self._abandoned = {id_: (until, entry) for id_, (until, entry) in self._abandoned.items() if now < until}
        if self._abandoned:
            self._cancel({id_: entry for id_, (_, entry) in self._abandoned.items()})

    def _cancel(self, unwanted: Mapping[AttemptId, JournalEntry]) -> None:
        """Except jobs of a later attempt, which were requeued."""
        ours = self._tracked.slurm_job_ids
        self._client.cancel(*(number for number in self.job_lookup.find_orphans(unwanted) if number not in ours))

    def abandon(self, attempt: Attempt, tried: JournalEntry | None) -> None:
        """The attempt must never run: without its receipt it does not start. `tried`: it may still reach Slurm."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(receipt_path(self._settings, attempt))
        if tried is not None:
            self._abandoned[attempt.id] = (time.monotonic() + _LATE_SUBMISSION_SECONDS, tried)
        self._tracked.journal.put(attempt.id, JournalEntry(None))

    def _reservation(self, attempt: Attempt) -> list[str]:
        name = attempt.job.placement.reservation
        return [] if name is None else [reservation_option(name, self._cluster.reservation_names)]

    def _site_for(self, attempt: Attempt) -> SubmissionContext:
        if self._accounts is None:
            return self._cluster.submission_context
        return replace(
            self._cluster.submission_context,
            account=self._accounts.find_account(attempt.job.unix_user, attempt.job.project),
        )

    def _find_again(self, candidates: Sequence[TrackedJob]) -> set[AttemptId]:
        """The attempts that Slurm already has, although its response was lost."""
        tried: list[TrackedJob] = []
        for tracked in candidates:
            if entry := self._tracked.journal.find(tracked.attempt.id):
                tracked.element = entry.element
                tried.append(tracked)
        found = self.job_lookup.find_job_ids(tried) if tried else {}
        for tracked in tried:
            if tracked.attempt.id in found:
                self._tracked.record_job_id(tracked, found[tracked.attempt.id])
        return set(found)

    def _make_files(self, attempts: Sequence[Attempt], person: RunAsUser) -> list[AttemptId]:
        """Creates the files of each attempt. Returns those that failed, whose end is reported."""
        broken: list[AttemptId] = []
        for attempt in attempts:
            try:
                make_attempt_files(attempt, person, self._settings)
            except OSError as error:
                self._tracked.end_attempt(attempt, EndCause.NOT_STARTED, _file_error_message(error))
                broken.append(attempt.id)
            except AttemptRefused as error:
                self._tracked.end_attempt(attempt, EndCause.REFUSED, str(error))
                broken.append(attempt.id)
        return broken

    def _submit_elements(self, chunk: SubmissionChunk, person: RunAsUser, after: int | None) -> int | None:
        """The Slurm job id of the array; None: Slurm refused it."""
        try:
            argv, script = prepare_array_submission(chunk, person, self._settings, self._site_for(chunk.first))
            argv += self._reservation(chunk.first) + ([] if after is None else [f"--dependency=afterany:{after}"])
        except (AttemptRefused, UnsupportedRequest) as error:
            self._end_all(chunk.attempts, EndCause.REFUSED, str(error))
            return None
        for index, attempt in chunk.elements.items():
            self._tracked.journal.put(attempt.id, JournalEntry(person.uid, element=chunk.element_at(index)))
        try:
            number = self._client.submit(argv, script)
        except SlurmRefused as error:
            if _DEPENDENCY_PROBLEM in str(error).lower():  # Slurm no longer has the previous part
                self._earlier_parts.pop(chunk.first.job.array_id or 0, None)
            self._handle_array_refusal(chunk, error)
            return None
        for index, attempt in chunk.elements.items():
            tracked = make_tracked_job(self._settings, attempt, person.uid)
            tracked.element = chunk.element_at(index)
            self._tracked.record_job_id(tracked, ArrayElementId.of(number, index))
        return number

    def _handle_array_refusal(self, chunk: SubmissionChunk, error: SlurmRefused) -> None:
        """If there are too many jobs, submits as many as Slurm accepts. Jobs that are not an array are tried one
        by one: Slurm may accept some of them."""
        split = len(chunk.elements) > 1 and is_job_count_limit(error)
        if chunk.is_array and not split:
            self._handle_refusal(chunk.attempts, error)
            return
        self._tracked.journal.remove(attempt.id for attempt in chunk.attempts)
        for part in chunk.split_in_half() if split else chunk.split_into_singles():
            self.submit_chunk(part)

    def _handle_refusal(self, attempts: Sequence[Attempt], error: SlurmRefused) -> None:
        """After a temporary refusal the caller tries again, without limit."""
        message = describe_refusal(error)
        if is_temporary_refusal(error):
            self._tracked.journal.remove(attempt.id for attempt in attempts)
            raise SubmissionDelayed(message) from error
        self._end_all(attempts, EndCause.REFUSED, message)

    def _end_all(self, attempts: Sequence[Attempt], cause: EndCause, detail: str) -> None:
        for attempt in attempts:
            self._tracked.end_attempt(attempt, cause, detail)


def _file_error_message(error: OSError) -> str:
    """Raises SubmissionDelayed for a temporary error."""
    message = f"its files could not be created: {error.strerror}"
    if error.errno in _TEMPORARY_ERRORS:
        raise SubmissionDelayed(message) from error
    return message


def _check_partition(attempt: Attempt, limit_seconds: int, site: SubmissionContext) -> None:
    """Slurm lets root exceed the partition's limit; Heliostat does not."""
    partition = choose_partition(attempt.job, attempt.data_class, site.name_mapping).partition or ""
    allowed = site.max_run_seconds.get(partition)
    if allowed is not None and limit_seconds > allowed:
        raise Conflict(
            f"The partition {partition or 'of this job'} has a time limit of {allowed // 60} minutes.",
            "Request less time, or ask an admin.",
        )


def make_tracked_job(settings: Settings, attempt: Attempt, uid: int) -> TrackedJob:
    return TrackedJob(attempt, receipt_path(settings, attempt), uid)


def receipt_path(settings: Settings, attempt: Attempt) -> str:
    return JobFolder.for_job(settings.home.jobs, attempt.job.id).log_path(attempt.job.attempt, "receipt")


def prepare_submission(
    attempt: Attempt, person: RunAsUser, settings: Settings, site: SubmissionContext
) -> tuple[list[str], str]:
    """Arguments of `sbatch`, and the script. Repeatable. Raises AttemptRefused, and OSError if files cannot be
    created."""
    paths = make_attempt_files(attempt, person, settings)
    context = _attempt_context(attempt, settings, site)
    argv = sbatch_argv(attempt, person, paths, site)
    variables = job_variables(attempt, person, context, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    inputs = ContainerInputs(paths.workdir, context.checkpoint_folder, paths.script, variables)
    container_script = make_container_script(attempt, person, inputs, settings)
    return argv, render_batch_script(attempt, person, paths, context, container_script)


def prepare_array_submission(
    chunk: SubmissionChunk, person: RunAsUser, settings: Settings, site: SubmissionContext
) -> tuple[list[str], str]:
    """Arguments and script for all of them; `make_attempt_files` creates their files. Raises AttemptRefused."""
    context = _attempt_context(chunk.first, settings, site)
    container_script = make_container_script(
        chunk.first, person, array_container_inputs(chunk, person, context, site.instance), settings
    )
    script = render_array_script(
        chunk, person, context, ArrayScriptContext(str(settings.home.jobs), site.instance, container_script)
    )
    return array_sbatch_argv(chunk, person, site), script


def make_attempt_files(attempt: Attempt, person: RunAsUser, settings: Settings) -> AttemptPaths:
    """Repeatable. Raises OSError if they cannot be created."""
    folder = JobFolder.for_job(settings.home.jobs, attempt.job.id)
    workdir, script = prepare_job_folder(attempt, person, folder, settings.home)
    paths = AttemptPaths(
        workdir=workdir,
        script=script,
        stdout=folder.log_path(attempt.job.attempt, "stdout"),
        stderr=folder.log_path(attempt.job.attempt, "stderr"),
        receipt=receipt_path(settings, attempt),
        tasks_folder=folder.log_path(attempt.job.attempt, "tasks"),
    )
    _make_logs(paths, person)
    return paths


def _attempt_context(attempt: Attempt, settings: Settings, site: SubmissionContext) -> AttemptContext:
    checkpoints = JobFolder.for_job(settings.home.jobs, attempt.job.id).checkpoint_folder
    return AttemptContext(str(settings.home.path), f"{site.instance}-{attempt.id}", checkpoints)


def rotate_logs_after_requeue(
    settings: Settings, attempt: Attempt, first: int, person: RunAsUser, *, runs: bool
) -> None:
    """Separates the output of a requeued job, which always writes to the files of its first attempt: unless it
    runs again already, the output so far becomes that of the previous attempt. Raises OSError."""
    folder, newest = JobFolder.for_job(settings.home.jobs, attempt.job.id), attempt.job.attempt
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder.log_path(first, 'tasks')}/first")
    for stream in ("stdout", "stderr", "receipt"):
        path = folder.log_path(first, stream)
        if not runs:
            previous = previous_log_path(folder, first, stream)
            if newest == first + 1 and not os.path.exists(previous):
                os.rename(path, previous)
            else:
                os.unlink(path)  # the previous attempt has a link to it
            with create_log(path, person):
                pass
        with contextlib.suppress(FileExistsError):
            os.link(path, folder.log_path(newest, stream), follow_symlinks=False)


def previous_log_path(folder: JobFolder, attempt: int, stream: str) -> str:
    """Output of an attempt after Slurm has requeued its job."""
    return folder.log_path(attempt, f"former.{stream}")


def _make_logs(paths: AttemptPaths, person: RunAsUser) -> None:
    """Created here because the folder belongs to the server, so that users cannot replace its entries."""
    for path in (paths.stdout, paths.stderr, paths.receipt):
        with contextlib.suppress(FileExistsError), create_log(path, person):
            pass
    make_private_folder(paths.tasks_folder, person)
    os.chmod(paths.tasks_folder, 0o700)
