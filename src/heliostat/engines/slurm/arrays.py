"""Slurm arrays: groups array elements, and jobs with identical requests, into one submission each. Pure.

In Heliostat each stays a job with its own id, folder and attempt. The shared script selects the job by its Slurm
array index and opens its log files itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from heliostat.engines.containers import ContainerInputs
from heliostat.engines.job_variables import CHECKPOINT_FILE, AttemptContext, RunAsUser, job_variables
from heliostat.engines.slurm.batch_script import (
    ScriptParts,
    SubmissionContext,
    array_comment,
    common_sbatch_options,
    render_script,
)
from heliostat.engines.slurm.command_output import ArrayElementId, SlurmJob
from heliostat.engines.slurm.containers import ContainerScript
from heliostat.engines.slurm.journal import ArrayElement
from heliostat.engines.slurm.tracked_jobs import TrackedJob
from heliostat.models import Attempt, AttemptId
from heliostat.runtimes.shell_lines import placeholder

_ARRAY_NAMES = ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MAX", "TASK_MIN", "TASK_STEP")
_INDEX = 'export HELIOSTAT_ARRAY_INDEX="$3"'
_NO_ARRAY = " ".join(["unset", *(f"SLURM_ARRAY_{name}" for name in _ARRAY_NAMES)])
MAX_ARRAY_SIZE = 1001  # Slurm's default; indexes are below it
_MAX_MISSED_POLLS = 2
_MAX_CHUNK_SIZE = 1000  # the script has a line for each element
_MAX_IDENTICAL_JOBS = 250  # in a chunk that is not an array: its lines contain the commands
_MAX_COMMAND_CHARACTERS = 200_000  # of these commands together


@dataclass(frozen=True, slots=True)
class SubmissionChunk:
    """Attempts that are submitted together. A single attempt is submitted as a normal job."""

    elements: Mapping[int, Attempt]  # by Slurm's array index
    has_more: bool = False  # another chunk of the same array follows

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self.elements.values())

    @property
    def first(self) -> Attempt:
        return self.attempts[0]

    @property
    def is_array(self) -> bool:
        """An array of Heliostat; otherwise single jobs with identical requests."""
        return self.first.job.array_id is not None

    @property
    def max_running(self) -> int | None:
        """How many may run at the same time; None: no limit."""
        return self.first.job.array_limit

    def element_at(self, index: int) -> ArrayElement:
        return ArrayElement(self.first.id, index)

    def without_attempts(self, attempt_ids: Iterable[AttemptId]) -> "SubmissionChunk | None":
        gone = set(attempt_ids)
        left = {index: attempt for index, attempt in self.elements.items() if attempt.id not in gone}
        return SubmissionChunk(left, self.has_more) if left else None

    def split_in_half(self) -> "tuple[SubmissionChunk, SubmissionChunk]":
        items, middle = list(self.elements.items()), len(self.elements) // 2
        return SubmissionChunk(dict(items[:middle]), self.is_array), SubmissionChunk(
            dict(items[middle:]), self.has_more
        )

    def split_into_singles(self) -> "list[SubmissionChunk]":
        return [SubmissionChunk({index: attempt}) for index, attempt in self.elements.items()]


def group_into_chunks(
    attempts: Iterable[Attempt], max_array_size: int = MAX_ARRAY_SIZE
) -> Iterator[SubmissionChunk]:
    """Chunks in the order of submission. All elements of a chunk have the same request. Of a group that is larger
    than Slurm's limit, only the first chunk."""
    groups: dict[object, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        has_own_command = attempt.job.array_id is None or attempt.job.part is not None
        groups[_single_job_key(attempt) if has_own_command else _array_key(attempt)].append(attempt)
    max_size = max(1, min(_MAX_CHUNK_SIZE, max_array_size - 1))
    return (
        _chunk_of_identical(group[: min(max_size, _MAX_IDENTICAL_JOBS)])
        if group[0].job.array_id is None
        else _chunk_of_array(group[:max_size], max_array_size, len(group) > max_size)
        for group in groups.values()
    )


def array_sbatch_argv(chunk: SubmissionChunk, person: RunAsUser, site: SubmissionContext) -> list[str]:
    limit = "" if chunk.max_running is None else f"%{chunk.max_running}"
    own = [
        f"--comment={array_comment(site.instance, chunk.first.id)}",
        "--output=/dev/null",
        "--error=/dev/null",
        f"--array={format_index_ranges(list(chunk.elements))}{limit}",
    ]
    return ["sbatch", "--parsable", *own, *common_sbatch_options(chunk.first, person, site)]


@dataclass(frozen=True, slots=True)
class ArrayScriptContext:
    jobs_folder: str  # the folder with a folder for each job
    instance: str
    container_script: ContainerScript | None = None  # how each runs in a container


def render_array_script(
    chunk: SubmissionChunk, person: RunAsUser, context: AttemptContext, site: ArrayScriptContext
) -> str:
    """Values of `context` that differ between elements are ignored.

    They are positional parameters instead, which a user's variables cannot change: job id, attempt, index, folder.
    """
    spec = chunk.first.job.spec
    parts = ScriptParts(
        setup_lines=tuple(
            _select_element(chunk, site.jobs_folder) if chunk.is_array else _select_job(chunk, site.jobs_folder)
        ),
        slurm_job_id="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID",
        receipt='"$4/$2.receipt"',
        open_log_lines=('exec >>"$4/$2.stdout" 2>>"$4/$2.stderr"',),
        export_lines=(*_own_variables(site.instance), _INDEX if chunk.is_array else _NO_ARRAY),
        workdir='"$4/work"' if spec.workdir is None else quote(spec.workdir),
        script=None if spec.script is None else '"$4/$2.script"',
        tasks_folder='"$4/$2.tasks"',
        container_script=site.container_script,
        command_offset=None if chunk.is_array else 4,
    )
    return render_script(chunk.first, person, context, parts)


def array_container_inputs(
    chunk: SubmissionChunk, person: RunAsUser, context: AttemptContext, instance: str
) -> ContainerInputs:
    """The same for a container, with placeholders for the positional parameters."""
    number, attempt, index, folder = map(placeholder, "1234")
    spec, checkpoints = chunk.first.job.spec, f"{folder}/checkpoints"
    own = {
        "HELIOSTAT_JOB_ID": number,
        "HELIOSTAT_ATTEMPT": attempt,
        "HELIOSTAT_ARRAY_INDEX": index,
        "HELIOSTAT_ATTEMPT_ID": f"{number}.{attempt}",
        "HELIOSTAT_MARK": f"{instance}-{number}.{attempt}",
        "HELIOSTAT_CHECKPOINT_DIR": checkpoints,
        "HELIOSTAT_CHECKPOINT_FILE": f"{checkpoints}/{CHECKPOINT_FILE}",
    }
    return ContainerInputs(
        spec.workdir or f"{folder}/work",
        checkpoints,
        None if spec.script is None else f"{folder}/{attempt}.script",
        job_variables(chunk.first, person, context, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) | own,
    )


def format_index_ranges(indexes: Sequence[int]) -> str:
    """`0-3,7`."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and index == parts[-1][-1] + 1:
            parts[-1][1:] = [index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)


def infer_cancelled_element(
    tracked: TrackedJob, jobs: Mapping[int, SlurmJob], arrays: Mapping[int, SlurmJob]
) -> SlurmJob | None:
    """A CANCELLED record if this element was cancelled while it waited; None: it was not.

    Slurm keeps no record of such an element, only of its array. `arrays` has one job of each array in Slurm. Needs
    two missed polls, because the accounting may lag behind for an element that ran."""
    number = tracked.slurm_job_id
    if not isinstance(number, ArrayElementId) or not tracked.is_waiting or number in jobs:
        return None
    if tracked.stop_cause is None and tracked.missed_polls < _MAX_MISSED_POLLS:
        return None
    array_job = jobs.get(number.array_job_id) or arrays.get(number.array_job_id)
    if array_job is None or array_job.uid != tracked.uid:
        return None
    return SlurmJob(number, "CANCELLED", array_job.uid, 0, 0, None, None, (), "None")


def one_job_per_array(jobs: Mapping[int, SlurmJob]) -> dict[int, SlurmJob]:
    return {number.array_job_id: job for number, job in jobs.items() if isinstance(number, ArrayElementId)}


def _chunk_of_array(attempts: Sequence[Attempt], max_array_size: int, more: bool) -> SubmissionChunk:
    """With Heliostat's indexes if Slurm allows them."""
    own = [attempt.job.array_index or 0 for attempt in attempts]
    fits = len(set(own)) == len(own) and min(own) >= 0 and max(own) < max_array_size
    elements = dict(zip(own if fits else range(len(attempts)), attempts, strict=True))
    return SubmissionChunk(elements, more)


def _chunk_of_identical(attempts: Sequence[Attempt]) -> SubmissionChunk:
    """As many as the limit of characters allows, but at least one."""
    elements: dict[int, Attempt] = {}
    left = _MAX_COMMAND_CHARACTERS
    for index, attempt in enumerate(attempts):
        left -= sum(len(word) + 3 for word in attempt.job.spec.command)
        if elements and left < 0:
            break
        elements[index] = attempt
    return SubmissionChunk(elements)


def _single_job_key(attempt: Attempt) -> object:
    """Equal for single jobs that can share a submission; their commands may differ."""
    job, spec = attempt.job, attempt.job.spec
    if spec.uses_container or spec.template or job.placement.tasks > 1 or job.part is not None:
        return attempt.id
    has_script, own = spec.script is not None, (spec.workdir, spec.grace_seconds, *spec.env.items())
    return (_array_key(attempt), job.kind, job.environment, has_script, own)


def _array_key(attempt: Attempt) -> tuple[object, ...]:
    """Equal for elements of an array that can share a submission; they run the same command."""
    job = attempt.job
    request = (job.resources, job.placement, job.time_limit_seconds, job.overtime, job.priority_class)
    return (job.array_id, job.array_limit, job.unix_user, job.project, job.name, request, attempt.data_class)


def _select_element(chunk: SubmissionChunk, jobs: str) -> Iterator[str]:
    yield 'case "$SLURM_ARRAY_TASK_ID" in'
    for index, attempt in chunk.elements.items():
        yield f"{index}) set -- {attempt.job.id} {attempt.job.attempt} {attempt.job.array_index} ;;"
    yield "*) exit 125 ;;"
    yield "esac"
    yield f'set -- "$@" {quote(jobs)}/"$1"'


def _select_job(chunk: SubmissionChunk, jobs: str) -> Iterator[str]:
    """As `_select_element`, with the command of each job as further positional parameters."""
    yield 'case "$SLURM_ARRAY_TASK_ID" in'
    for index, attempt in chunk.elements.items():
        job, folder = attempt.job, quote(f"{jobs}/{attempt.job.id}")
        script = [] if job.spec.script is None else [f"{folder}/{job.attempt}.script"]
        words = " ".join([*script, *map(quote, job.spec.command)])
        yield f"{index}) set -- {job.id} {job.attempt} '' {folder} {words} ;;"
    yield "*) exit 125 ;;"
    yield "esac"


def _own_variables(instance: str) -> Iterator[str]:
    yield 'export HELIOSTAT_JOB_ID="$1" HELIOSTAT_ATTEMPT="$2"'
    yield f'export HELIOSTAT_ATTEMPT_ID="$1.$2" HELIOSTAT_MARK={quote(instance)}-"$1.$2"'
    yield 'export HELIOSTAT_CHECKPOINT_DIR="$4/checkpoints"'
    yield f'export HELIOSTAT_CHECKPOINT_FILE="$4/checkpoints/{CHECKPOINT_FILE}"'
