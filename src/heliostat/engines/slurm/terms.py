"""Which words of Slurm stand for ours: partitions, features, QOS, types of GPUs. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from heliostat.config import SlurmSettings
from heliostat.models import Job

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Unfit(Exception):
    """Slurm cannot do what the job asks for; says what."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in Slurm a job goes."""

    partition: str | None = None  # or several, separated by commas; None: Slurm's default
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """What an admin has set; what is not named stands for itself."""

    partition: str | None = None
    data_classes: Mapping[int, Place] = field(default_factory=dict)
    labels: Mapping[str, Place] = field(default_factory=dict)
    qos: Mapping[str, str] = field(default_factory=dict)
    our_gpu_types: Mapping[str, str] = field(default_factory=dict)  # Slurm's word for ours
    seen_gpu_types: Mapping[str, str] = field(default_factory=dict)  # as Slurm writes them, by small letters

    def seeing(self, gpu_types: Iterable[str]) -> "Terms":
        """With the types of GPUs as Slurm writes them."""
        return replace(self, seen_gpu_types={kind.lower(): kind for kind in gpu_types})

    def gpu_type(self, ours: str) -> str:
        """Slurm's word, which must be right to the letter."""
        named = {name.lower(): theirs for name, theirs in self.our_gpu_types.items()}
        return named.get(ours.lower()) or self.seen_gpu_types.get(ours.lower(), ours)

    def qos_of(self, priority_class: str) -> str | None:
        """None: whatever Slurm gives to those who name none."""
        return self.qos.get(priority_class, None if priority_class == "normal" else priority_class)


def terms_of(slurm: SlurmSettings) -> Terms:
    return Terms(
        partition=slurm.partition,
        data_classes={int(number): _read(text) for number, text in slurm.data_classes.items()},
        labels={label: _read(text) for label, text in slurm.labels.items()},
        qos=slurm.qos,
        our_gpu_types=slurm.gpu_types,
    )


def place_of(job: Job, data_class: int, terms: Terms) -> Place:
    """Raises Unfit where the data, or two labels, are at odds."""
    if data_class and data_class not in terms.data_classes:
        raise Unfit(
            f"nothing says where in Slurm data of class {data_class} may be; an admin can set [slurm] data_classes"
        )
    wishes = {f"data of class {data_class}": terms.data_classes.get(data_class, Place())}
    wishes |= {f"label {label}": _place_of_label(label, terms) for label in job.placement.labels}
    chosen = {said: place.partition for said, place in wishes.items() if place.partition}
    if len(set(chosen.values())) > 1:
        raise Unfit("in Slurm " + " and ".join(f"{said} is in partition {name}" for said, name in chosen.items()))
    features = dict.fromkeys(name for place in wishes.values() for name in place.features)
    return Place(next(iter(chosen.values()), terms.partition), tuple(features))


def word(text: str, what: str) -> str:
    """Slurm gives a meaning to what stands between words: `a100:4`, `fast|slow`."""
    if not text or UNSAFE.search(text) or text.startswith("-"):
        raise Unfit(f"Slurm knows no {what} {text!r}; it may hold letters, digits, dots and dashes")
    return text


def _place_of_label(label: str, terms: Terms) -> Place:
    return terms.labels[label] if label in terms.labels else Place(features=(word(label, "label"),))


def _read(text: str) -> Place:
    """`partition=secure feature=vault`: checked when the settings are read."""
    parts = list(_parts(text))
    partition = next((value for name, value in parts if name == "partition"), None)
    return Place(partition, tuple(value for name, value in parts if name == "feature"))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for one in text.split():
        name, _, value = one.partition("=")
        yield name, value
