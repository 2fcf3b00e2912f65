"""Hands attempts to Slurm, once each: their files, what is noted before and after, and what is done when an answer
is lost.

Every method of `Submitter` may raise EngineUnavailable in the middle. What was not done is done by the next call.
"""

import contextlib
import errno
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from heliostat.config import Settings
from heliostat.engines.containers import Belongings
from heliostat.engines.environment import Person, Surroundings, job_environment
from heliostat.engines.folders import JobFolder, Refused, lay_out, make_private, new_log, person_of
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import ArraySite, Chunk, array_argv, array_belongings, array_script
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.containers import contained
from heliostat.engines.slurm.journal import JournalEntry
from heliostat.engines.slurm.mapping import Unfit, is_of_count, may_pass, place_of, refusal_in_words
from heliostat.engines.slurm.parse import ElementNumber
from heliostat.engines.slurm.reservations import reservation_option
from heliostat.engines.slurm.script import Paths, Site, batch_script, limit_minutes, sbatch_argv
from heliostat.engines.slurm.timing import NotNow
from heliostat.engines.slurm.tracked_job import Lookup, TrackedJob, TrackedJobs, with_limit
from heliostat.errors import Conflict
from heliostat.models import Attempt, AttemptId, Cause

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ESTALE)
_DEPENDENCY_PROBLEM = "dependency problem"
_LATE_SECONDS = 180.0  # longer than any submission takes


class Submitter:
    """The way of attempts to Slurm, and back before they begin. Several may be submitted at the same time."""

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
        self.lookup = Lookup(client, cluster.site.instance)
        self._abandoned: dict[AttemptId, tuple[float, JournalEntry]] = {}  # and until when they may come late
        self._earlier_parts: dict[int, int] = {}  # of arrays whose next part follows: Slurm's number of the last
        self._is_alone = False  # nothing of an earlier server is on its way to Slurm any more

    def submit_chunk(self, chunk: Chunk) -> None:
        follows = chunk.limit is not None and chunk.first.job.array_id in self._earlier_parts
        if len(chunk.elements) == 1 and not chunk.more and not follows:
            self.submit(chunk.first)
        else:
            self.submit_array(chunk)

    def submit(self, attempt: Attempt) -> None:
        """Noted before and after; if the answer was lost, Slurm is asked before it is handed over once more."""
        try:
            person = person_of(attempt.job.unix_user)
            argv, script = prepared(attempt, person, self._settings, self._site_for(attempt))
            argv += self._reservation(attempt)
        except (Refused, Unfit) as error:
            self._tracked.end(attempt, Cause.REFUSED, str(error))
            return
        except OSError as error:
            self._tracked.end(attempt, Cause.NOT_STARTED, _no_files(error))
            return
        tracked = new_tracked(self._settings, attempt, person.uid)
        if self._find_again([tracked]):
            return
        self._tracked.journal.put(attempt.id, JournalEntry(person.uid))
        try:
            number = self._client.submit(argv, script)
        except SlurmRefused as error:
            self._refused([attempt], error)
        else:
            self._tracked.note(tracked, number)

    def submit_array(self, chunk: Chunk) -> None:
        """As `submit`, all of them at once. Of an array with a limit, one part runs after the other."""
        try:
            person = person_of(chunk.first.job.unix_user)
        except Refused as error:
            self._end_all(chunk.attempts, Cause.REFUSED, str(error))
            return
        found = self._find_again([new_tracked(self._settings, attempt, person.uid) for attempt in chunk.attempts])
        broken = self._without_files([one for one in chunk.attempts if one.id not in found], person)
        left = chunk.without([*found, *broken])
        if left is None:
            return
        array_id = left.first.job.array_id or 0
        after = None if left.limit is None else self._earlier_parts.get(array_id)
        number = self._submit_elements(left, person, after)
        if number is None:
            return
        self._earlier_parts.pop(array_id, None)
        if left.more:
            self._earlier_parts[array_id] = number

    def withdraw(self, attempt: Attempt) -> None:
        """Keep one that waits to be submitted from ever being so; if Slurm has it all the same, it is tracked."""
        entry = self._tracked.journal.find(attempt.id)
        uid = None if entry is None else entry.uid
        if uid is not None and self._find_again([new_tracked(self._settings, attempt, uid)]):
            return
        self.abandon(attempt, entry)
        self._tracked.end(attempt, Cause.STOPPED)

    def extend(self, attempt: Attempt, limit_seconds: int) -> None:
        """More time for one that Slurm has. Told to Slurm first: after a crash in between it is Slurm's word that
        counts. Raises Conflict or EngineUnavailable."""
        job_id, tracked = attempt.job.id, self._tracked.jobs.get(attempt.id)
        if tracked is None or tracked.number is None:
            raise Conflict(f"Job {job_id} is not in Slurm now.", "Try again in a moment.")
        longer = with_limit(tracked.attempt, limit_seconds)
        if longer is tracked.attempt:
            return
        site = self._cluster.site
        try:
            _check_partition(longer, limit_seconds, site)
            minutes = limit_minutes(longer, site)
            if minutes is not None:
                self._client.set_time_limit(tracked.number, minutes)
        except (SlurmRefused, Unfit) as error:
            raise Conflict(
                f"Slurm gives job {job_id} no more time: {error}.",
                "Only root, or an operator of Slurm, may raise a limit: ask an admin.",
            ) from error
        tracked.attempt = longer

    @property
    def is_alone(self) -> bool:
        """Nothing that an earlier server has submitted can still come to Slurm. For whoever has the turn."""
        self._is_alone = self._is_alone or not self._client.has_earlier_submissions()
        return self._is_alone

    def cancel_orphans(self, attempt_ids: Collection[AttemptId]) -> None:
        """Take out of Slurm what is no longer wanted; their entries in the journal are left."""
        journal = self._tracked.journal
        self._cancel({one: entry for one in attempt_ids if (entry := journal.find(one))})

    def cancel_late(self) -> None:
        """What was given up and came to Slurm all the same. It does not begin, but waits in its queue."""
        now = time.monotonic()
        self._abandoned = {one: (until, entry) for one, (until, entry) in self._abandoned.items() if now < until}
        if self._abandoned:
            self._cancel({one: entry for one, (_, entry) in self._abandoned.items()})

    def _cancel(self, unwanted: Mapping[AttemptId, JournalEntry]) -> None:
        """But not what a later attempt has, which was requeued."""
        ours = self._tracked.numbers
        self._client.cancel(*(number for number in self.lookup.orphans(unwanted) if number not in ours))

    def abandon(self, attempt: Attempt, tried: JournalEntry | None) -> None:
        """It must never run: without its receipt it does not begin. `tried`: it may still come to Slurm."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(receipt_path(self._settings, attempt))
        if tried is not None:
            self._abandoned[attempt.id] = (time.monotonic() + _LATE_SECONDS, tried)
        self._tracked.journal.put(attempt.id, JournalEntry(None))

    def _reservation(self, attempt: Attempt) -> list[str]:
        name = attempt.job.placement.reservation
        return [] if name is None else [reservation_option(name, self._cluster.reservation_names)]

    def _site_for(self, attempt: Attempt) -> Site:
        if self._accounts is None:
            return self._cluster.site
        return replace(
            self._cluster.site, account=self._accounts.account_for(attempt.job.unix_user, attempt.job.project)
        )

    def _find_again(self, wanted: Sequence[TrackedJob]) -> set[AttemptId]:
        """Those that Slurm has already, though its answer was lost."""
        tried: list[TrackedJob] = []
        for tracked in wanted:
            if entry := self._tracked.journal.find(tracked.attempt.id):
                tracked.element = entry.element
                tried.append(tracked)
        found = self.lookup.numbers_of(tried) if tried else {}
        for tracked in tried:
            if tracked.attempt.id in found:
                self._tracked.note(tracked, found[tracked.attempt.id])
        return set(found)

    def _without_files(self, attempts: Sequence[Attempt], person: Person) -> list[AttemptId]:
        """Makes the files of each; those of which they could not be made have ended."""
        broken: list[AttemptId] = []
        for attempt in attempts:
            try:
                files_made(attempt, person, self._settings)
            except OSError as error:
                self._tracked.end(attempt, Cause.NOT_STARTED, _no_files(error))
                broken.append(attempt.id)
            except Refused as error:
                self._tracked.end(attempt, Cause.REFUSED, str(error))
                broken.append(attempt.id)
        return broken

    def _submit_elements(self, chunk: Chunk, person: Person, after: int | None) -> int | None:
        """The number of the array; None: it was refused as a whole."""
        try:
            argv, script = array_prepared(chunk, person, self._settings, self._site_for(chunk.first))
            argv += self._reservation(chunk.first) + ([] if after is None else [f"--dependency=afterany:{after}"])
        except (Refused, Unfit) as error:
            self._end_all(chunk.attempts, Cause.REFUSED, str(error))
            return None
        for index, attempt in chunk.elements.items():
            self._tracked.journal.put(attempt.id, JournalEntry(person.uid, element=chunk.element(index)))
        try:
            number = self._client.submit(argv, script)
        except SlurmRefused as error:
            if _DEPENDENCY_PROBLEM in str(error).lower():  # Slurm has forgotten the part before this one
                self._earlier_parts.pop(chunk.first.job.array_id or 0, None)
            self._refused_together(chunk, error)
            return None
        for index, attempt in chunk.elements.items():
            self._tracked.note(new_tracked(self._settings, attempt, person.uid), ElementNumber.of(number, index))
        return number

    def _refused_together(self, chunk: Chunk, error: SlurmRefused) -> None:
        """If there are too many, as many as Slurm takes now. Jobs that only ask for the same are no array to their
        users: Slurm may take some of them."""
        in_halves = len(chunk.elements) > 1 and is_of_count(error)
        if chunk.is_array and not in_halves:
            self._refused(chunk.attempts, error)
            return
        self._tracked.journal.remove(attempt.id for attempt in chunk.attempts)
        for part in chunk.halves() if in_halves else chunk.singles():
            self.submit_chunk(part)

    def _refused(self, attempts: Sequence[Attempt], error: SlurmRefused) -> None:
        """What may pass is tried again without end."""
        words = refusal_in_words(error)
        if may_pass(error):
            self._tracked.journal.remove(attempt.id for attempt in attempts)
            raise NotNow(words) from error
        self._end_all(attempts, Cause.REFUSED, words)

    def _end_all(self, attempts: Sequence[Attempt], cause: Cause, detail: str) -> None:
        for attempt in attempts:
            self._tracked.end(attempt, cause, detail)


def _no_files(error: OSError) -> str:
    """Raises NotNow if that may pass."""
    why = f"its files could not be made: {error.strerror}"
    if error.errno in _PASSING:
        raise NotNow(why) from error
    return why


def _check_partition(attempt: Attempt, limit_seconds: int, site: Site) -> None:
    """Root could raise it further, but not those who share the partition."""
    partition = place_of(attempt.job, attempt.data_class, site.names).partition or ""
    allowed = site.longest_seconds.get(partition)
    if allowed is not None and limit_seconds > allowed:
        raise Conflict(
            f"The partition {partition or 'of this job'} lets jobs run for at most {allowed // 60} minutes.",
            "Ask for less, or an admin.",
        )


def new_tracked(settings: Settings, attempt: Attempt, uid: int) -> TrackedJob:
    return TrackedJob(attempt, receipt_path(settings, attempt), uid)


def receipt_path(settings: Settings, attempt: Attempt) -> str:
    return JobFolder.of(settings.home.jobs, attempt.job.id).log(attempt.job.attempt, "receipt")


def prepared(attempt: Attempt, person: Person, settings: Settings, site: Site) -> tuple[list[str], str]:
    """The words of `sbatch` and its script. May be called again for the same attempt. Raises Refused, and OSError
    when the files cannot be made."""
    paths = files_made(attempt, person, settings)
    around = _around(attempt, settings, site)
    argv = sbatch_argv(attempt, person, paths, site)
    variables = job_environment(attempt, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    brought = Belongings(paths.workdir, around.checkpoints, paths.script, variables)
    inner = contained(attempt, person, brought, settings)
    return argv, batch_script(attempt, person, paths, around, inner)


def array_prepared(chunk: Chunk, person: Person, settings: Settings, site: Site) -> tuple[list[str], str]:
    """The words and the script for all of them. Their files are made by `files_made`. Raises Refused."""
    around = _around(chunk.first, settings, site)
    inner = contained(chunk.first, person, array_belongings(chunk, person, around, site.instance), settings)
    script = array_script(chunk, person, around, ArraySite(str(settings.home.jobs), site.instance, inner))
    return array_argv(chunk, person, site), script


def files_made(attempt: Attempt, person: Person, settings: Settings) -> Paths:
    """May be called again for the same attempt. Raises OSError when they cannot be made."""
    folder = JobFolder.of(settings.home.jobs, attempt.job.id)
    workdir, script = lay_out(attempt, person, folder, settings.home)
    paths = Paths(
        workdir=workdir,
        script=script,
        stdout=folder.log(attempt.job.attempt, "stdout"),
        stderr=folder.log(attempt.job.attempt, "stderr"),
        receipt=receipt_path(settings, attempt),
        tasks=folder.log(attempt.job.attempt, "tasks"),
    )
    _make_files(paths, person)
    return paths


def _around(attempt: Attempt, settings: Settings, site: Site) -> Surroundings:
    checkpoints = JobFolder.of(settings.home.jobs, attempt.job.id).checkpoints
    return Surroundings(str(settings.home.path), f"{site.instance}-{attempt.id}", checkpoints)


def begin_again(settings: Settings, attempt: Attempt, first: int, person: Person, *, runs: bool) -> None:
    """Of a requeued job, which writes where it did as its first attempt: what it wrote so far stays the former
    attempt's, unless it runs again already. Raises OSError."""
    folder, newest = JobFolder.of(settings.home.jobs, attempt.job.id), attempt.job.attempt
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder.log(first, 'tasks')}/first")
    for stream in ("stdout", "stderr", "receipt"):
        path = folder.log(first, stream)
        if not runs:
            kept = former_log(folder, first, stream)
            if newest == first + 1 and not os.path.exists(kept):
                os.rename(path, kept)
            else:
                os.unlink(path)  # it has the former attempt's name too
            with new_log(path, person):
                pass
        with contextlib.suppress(FileExistsError):
            os.link(path, folder.log(newest, stream), follow_symlinks=False)


def former_log(folder: JobFolder, attempt: int, stream: str) -> str:
    """Where the output of an attempt is once Slurm has requeued it under the same number."""
    return folder.log(attempt, f"former.{stream}")


def _make_files(paths: Paths, person: Person) -> None:
    """The folder is the server's, so that nobody can swap its entries: what the job writes to must be there."""
    for path in (paths.stdout, paths.stderr, paths.receipt):
        with contextlib.suppress(FileExistsError), new_log(path, person):
            pass
    make_private(paths.tasks, person)
    os.chmod(paths.tasks, 0o700)
