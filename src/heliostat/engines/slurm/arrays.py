"""Elements of an array go to Slurm together, as one array of Slurm's, and so do jobs that ask for the same. Pure.

Each stays a job of its own here, with its number, folder and attempt: the one script they share looks up by the
number Slurm gives each which of them it is, and opens its files itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from heliostat.engines.containers import ContainerInputs
from heliostat.engines.job_variables import CHECKPOINT_FILE, AttemptContext, RunAsUser, job_variables
from heliostat.engines.slurm.command_output import ArrayElementId, SlurmJob
from heliostat.engines.slurm.containers import ContainerScript
from heliostat.engines.slurm.journal import ArrayElement
from heliostat.engines.slurm.script import (
    ScriptParts,
    SubmissionContext,
    array_comment,
    common_sbatch_options,
    render_script,
)
from heliostat.engines.slurm.tracked_job import TrackedJob
from heliostat.models import Attempt, AttemptId
from heliostat.runtimes.shell_lines import placeholder

_ARRAY_NAMES = ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MAX", "TASK_MIN", "TASK_STEP")
_INDEX = 'export HELIOSTAT_ARRAY_INDEX="$3"'
_NO_ARRAY = " ".join(["unset", *(f"SLURM_ARRAY_{name}" for name in _ARRAY_NAMES)])
MAX_ARRAY_SIZE = 1001  # Slurm's own default: indexes below it
_MOST_MISSED_LOOKS = 2
_MOST_AT_ONCE = 1000  # in one submission: its script has a line for each
_MOST_LIKE = 250  # of those that are no array, whose lines hold what each runs
_MOST_CHARACTERS = 200_000  # of these lines


@dataclass(frozen=True, slots=True)
class SubmissionChunk:
    """Attempts that are submitted together; one alone is submitted as it is."""

    elements: Mapping[int, Attempt]  # by the index Slurm has for each
    has_more: bool = False  # another chunk of the same array follows

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self.elements.values())

    @property
    def first(self) -> Attempt:
        return self.attempts[0]

    @property
    def is_array(self) -> bool:
        """Of ours; else they are jobs that only ask for the same."""
        return self.first.job.array_id is not None

    @property
    def max_running(self) -> int | None:
        """How many may run at once."""
        return self.first.job.array_limit

    def element_at(self, index: int) -> ArrayElement:
        return ArrayElement(self.first.id, index)

    def without_attempts(self, attempt_ids: Iterable[AttemptId]) -> "SubmissionChunk | None":
        gone = set(attempt_ids)
        left = {index: attempt for index, attempt in self.elements.items() if attempt.id not in gone}
        return SubmissionChunk(left, self.has_more) if left else None

    def split_in_half(self) -> "tuple[SubmissionChunk, SubmissionChunk]":
        known, middle = list(self.elements.items()), len(self.elements) // 2
        return SubmissionChunk(dict(known[:middle]), self.is_array), SubmissionChunk(
            dict(known[middle:]), self.has_more
        )

    def split_into_singles(self) -> "list[SubmissionChunk]":
        return [SubmissionChunk({index: attempt}) for index, attempt in self.elements.items()]


def group_into_chunks(
    attempts: Iterable[Attempt], max_array_size: int = MAX_ARRAY_SIZE
) -> Iterator[SubmissionChunk]:
    """What can be submitted together, in the order of submission. All elements of a chunk ask for the same; of
    more than Slurm takes at once, the first chunk."""
    groups: dict[object, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        is_alone = attempt.job.array_id is None or attempt.job.part is not None  # runs something of its own
        groups[_asked_alone(attempt) if is_alone else _asked(attempt)].append(attempt)
    most = max(1, min(_MOST_AT_ONCE, max_array_size - 1))
    return (
        _like(group[: min(most, _MOST_LIKE)])
        if group[0].job.array_id is None
        else _chunk(group[:most], max_array_size, len(group) > most)
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
    chunk: SubmissionChunk, person: RunAsUser, around: AttemptContext, site: ArrayScriptContext
) -> str:
    """Of `around`, what is an element's own does not count.

    All that differs is in positional parameters, which no variable of the user's can change: number of the job,
    attempt, index, folder.
    """
    spec = chunk.first.job.spec
    payload = ScriptParts(
        setup_lines=tuple(
            _which(chunk, site.jobs_folder) if chunk.is_array else _which_and_what(chunk, site.jobs_folder)
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
    return render_script(chunk.first, person, around, payload)


def array_container_inputs(
    chunk: SubmissionChunk, person: RunAsUser, around: AttemptContext, instance: str
) -> ContainerInputs:
    """The same in a container: what is in the positional parameters is left blank."""
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
        job_variables(chunk.first, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) | own,
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
    """An element that is cancelled while it waits leaves nothing in Slurm but its array: a record for it, if that
    is what has become of this one. `arrays` is one job of each array Slurm has in mind.

    Twice looked for in vain: the accounting may be a moment behind with one that ran."""
    number = tracked.slurm_job_id
    if not isinstance(number, ArrayElementId) or not tracked.is_waiting or number in jobs:
        return None
    if tracked.stop_cause is None and tracked.missed_polls < _MOST_MISSED_LOOKS:
        return None
    left = jobs.get(number.array_job_id) or arrays.get(number.array_job_id)
    if left is None or left.uid != tracked.uid:
        return None
    return SlurmJob(number, "CANCELLED", left.uid, 0, 0, None, None, (), "None")


def one_job_per_array(jobs: Mapping[int, SlurmJob]) -> dict[int, SlurmJob]:
    return {number.array_job_id: job for number, job in jobs.items() if isinstance(number, ArrayElementId)}


def _chunk(attempts: Sequence[Attempt], max_array_size: int, more: bool) -> SubmissionChunk:
    """With the indexes people know them by, where Slurm takes these."""
    own = [attempt.job.array_index or 0 for attempt in attempts]
    fits = len(set(own)) == len(own) and min(own) >= 0 and max(own) < max_array_size
    elements = dict(zip(own if fits else range(len(attempts)), attempts, strict=True))
    return SubmissionChunk(elements, more)


def _like(attempts: Sequence[Attempt]) -> SubmissionChunk:
    """As many of them as their lines may take, but at least one."""
    elements: dict[int, Attempt] = {}
    left = _MOST_CHARACTERS
    for index, attempt in enumerate(attempts):
        left -= sum(len(word) + 3 for word in attempt.job.spec.command)
        if elements and left < 0:
            break
        elements[index] = attempt
    return SubmissionChunk(elements)


def _asked_alone(attempt: Attempt) -> object:
    """The same for jobs that are no array: what they run may differ."""
    job, spec = attempt.job, attempt.job.spec
    if spec.uses_container or spec.template or job.placement.tasks > 1 or job.part is not None:
        return attempt.id
    has_script, own = spec.script is not None, (spec.workdir, spec.grace_seconds, *spec.env.items())
    return (_asked(attempt), job.kind, job.environment, has_script, own)


def _asked(attempt: Attempt) -> tuple[object, ...]:
    """What must be the same for two to share a submission; what they run is, in one array."""
    job = attempt.job
    asked = (job.resources, job.placement, job.time_limit_seconds, job.overtime, job.priority_class)
    return (job.array_id, job.array_limit, job.unix_user, job.project, job.name, asked, attempt.data_class)


def _which(chunk: SubmissionChunk, jobs: str) -> Iterator[str]:
    yield 'case "$SLURM_ARRAY_TASK_ID" in'
    for index, attempt in chunk.elements.items():
        yield f"{index}) set -- {attempt.job.id} {attempt.job.attempt} {attempt.job.array_index} ;;"
    yield "*) exit 125 ;;"
    yield "esac"
    yield f'set -- "$@" {quote(jobs)}/"$1"'


def _which_and_what(chunk: SubmissionChunk, jobs: str) -> Iterator[str]:
    """With the words each runs after what is its own."""
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
