"""Metrics: counters and histograms that parts of the server keep, and the text format of Prometheus."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FAST_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)  # seconds of computing, of a commit, of a request
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All series of one name."""

    name: str
    type: str  # counter, gauge, histogram
    help: str
    labels: tuple[str, ...] = ()


Samples = Iterable[tuple[str, float]]
"""Series of a family and their values: the suffix of the name with the labels in braces, and a number."""


class CountByLabels:
    """A counter with a value for each combination of labels. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str) -> None:
        with self._lock:
            self._counts[labels] += 1

    def counts(self) -> dict[tuple[str, ...], int]:
        with self._lock:
            return dict(self._counts)


class Histogram:
    """Observed durations, counted in buckets for each combination of labels. Thread-safe."""

    def __init__(self, buckets: Sequence[float]) -> None:
        """`buckets`: upper limits in seconds, without infinity."""
        self._lock = threading.Lock()
        self._limits = tuple(map(float, buckets))
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(self._limits) + 1))
            counts[bisect_left(self._limits, seconds)] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + seconds

    def samples(self, names: Sequence[str] = ()) -> Iterator[tuple[str, float]]:
        """`names` of the labels. Counts of buckets include all smaller ones."""
        with self._lock:
            series = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in series:
            known = dict(zip(names, labels, strict=True))
            for limit, count in zip((*self._limits, "+Inf"), accumulate(counts), strict=True):
                yield "_bucket" + format_labels({**known, "le": str(limit)}), count
            yield "_sum" + format_labels(known), total
            yield "_count" + format_labels(known), sum(counts)


def format_labels(labels: Mapping[str, str]) -> str:
    """`{node="gpu1",uuid="GPU-1"}`; empty without labels."""
    pairs = [f'{name}="{escape_label(value)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def escape_label(value: str) -> str:
    """Most values contain nothing to escape, and three searches are faster than a translation."""
    return value.translate(_ESCAPES) if '"' in value or "\\" in value or "\n" in value else value


def render_families(families: Iterable[tuple[MetricFamily, Samples]]) -> bytes:
    """In the text format. A family without samples has only its description."""
    lines: list[str] = []
    for family, samples in families:
        name = family.name
        lines.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n")
        lines += [f"{name}{series} {value}\n" for series, value in samples]
    return "".join(lines).encode()
