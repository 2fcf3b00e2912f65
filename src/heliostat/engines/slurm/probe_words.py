"""What a probe asks of a node, and what its answer means: pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Found = tuple[str, str, str, str | None]  # check, level, message, hint
_IMMEDIATE_SECONDS = 10  # that the probe waits for room on a node
_MOST_NAMED = 5
_SKEW_SECONDS = 5.0

TRAY = "tray"  # the folder in which everybody may write
_SCRIPT = """\
PATH=/usr/local/bin:/usr/bin:/bin
echo "node $SLURMD_NODENAME"
echo "clock $(date +%s.%N)"
[ -r "$1/word" ] && read -r word <"$1/word" && echo "word $word"
[ -w "$1/tray" ] && echo "writable yes"
shift
for name do echo "user $name $(id -u "$name" 2>/dev/null) $(id -g "$name" 2>/dev/null)"; done
"""
_USER = re.compile(r"user (\S+)(?: (\d+) (\d+))?\s*")


@dataclass(frozen=True, slots=True)
class Question:
    """What a node is to see as we see it."""

    folder: str  # holds a file `word`, and a folder `tray` that everybody may write to
    word: str
    users: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # uid and gid of each


@dataclass(frozen=True, slots=True)
class Answer:
    node: str
    clock: float | None
    word: str | None  # None: it does not see the file
    can_write: bool
    users: Mapping[str, tuple[int, int] | None]  # None: not known there


def srun_argv(partition: str, question: Question) -> list[str]:
    """A tiny job on any node of the partition, or none at all if that has no room within some seconds."""
    return [
        "srun",
        f"--partition={partition}",
        "--job-name=heliostat-doctor",
        f"--immediate={_IMMEDIATE_SECONDS}",
        "--nodes=1",
        "--ntasks=1",
        "--mem=1M",
        "--time=1",
        "--input=none",
        "--chdir=/",
        "--export=NONE",
        "/bin/sh",
        "-c",
        _SCRIPT,
        "probe",
        question.folder,
        *question.users,
    ]


def answer_of(said: str) -> Answer:
    """Nothing but our own script has written it, so each line is once there or not at all."""
    lines = said.splitlines()
    facts = dict(line.partition(" ")[::2] for line in lines if not line.startswith("user "))
    users = {found[1]: found for line in lines if (found := _USER.fullmatch(line))}
    return Answer(
        facts.get("node") or "a node",
        float(facts["clock"]) if re.fullmatch(r"\d+\.\d+", facts.get("clock", "")) else None,
        facts.get("word"),
        "writable" in facts,
        {name: (int(found[2]), int(found[3])) if found[2] else None for name, found in users.items()},
    )


def judged(
    partition: str, home: str, question: Question, answer: Answer, asked: tuple[float, float]
) -> list[Found]:
    """All findings about one node. `asked`: our clock before the question and after the answer."""
    found = [*_path(answer, home, question), *_users(answer, question), *_clock(answer, asked)]
    if found:
        return found
    people = f", knows {len(question.users)} users as we do" if question.users else ""
    message = f"{answer.node} of partition {partition} sees {home}{people}, and its clock is right."
    return [("slurm", "ok", message, None)]


def _path(answer: Answer, home: str, question: Question) -> Iterator[Found]:
    if answer.word != question.word:
        hint = (
            f"Put the data directory on a file system that all nodes mount at {home}; or HELIOSTAT_HOME elsewhere."
        )
        yield (
            "slurm",
            "problem",
            f"{answer.node} does not see {home}: jobs there have no folder and no output.",
            hint,
        )
    elif not answer.can_write:
        hint = f"Mount it writable there: `findmnt -T {home}` on the node says how it is now."
        yield "slurm", "problem", f"{answer.node} sees {home}, but cannot write there.", hint


def _users(answer: Answer, question: Question) -> Iterator[Found]:
    unknown = [name for name in question.users if answer.users.get(name) is None]
    if unknown:
        hint = "Let the node have the same users as this machine: LDAP, sssd, or a copy of passwd and group."
        yield (
            "slurm",
            "problem",
            f"{answer.node} does not know {_some(unknown)}: their jobs cannot run there.",
            hint,
        )
    for name, ours in question.users.items():
        theirs = answer.users.get(name)
        if theirs is not None and theirs != ours:
            message = f"{name} is {ours[0]}:{ours[1]} here, but {theirs[0]}:{theirs[1]} on {answer.node}."
            hint = (
                "uid and gid must be the same on all nodes, or people get at each other's files: mend it at once."
            )
            yield "slurm", "problem", message, hint
            return


def _clock(answer: Answer, asked: tuple[float, float]) -> Iterator[Found]:
    if answer.clock is None:
        return
    before, after = asked
    off = max(before - answer.clock, answer.clock - after, 0.0)
    if off > _SKEW_SECONDS:
        hint = "Let NTP (chrony) set it: times of jobs go wrong, and munge refuses what is minutes away."
        yield "slurm", "warning", f"The clock of {answer.node} is {off:.0f} s off.", hint


def not_tried(partition: str, why: str) -> Found:
    """Of a partition from which no answer came."""
    busy = any(words in why.lower() for words in ("busy", "immediate", "not available", "allocate resources"))
    if busy:
        hint = "Try again when there is room: helio doctor --probe"
        return "slurm", "warning", f"No node of partition {partition} had room for a probe.", hint
    hint = (
        f"Try by hand: srun --partition={partition} hostname. Nodes must reach this machine's ports "
        "(SrunPortRange), and root must be allowed to run jobs (DisableRootJobs=NO)."
    )
    return "slurm", "warning", f"Partition {partition} could not be probed: {why}", hint


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
