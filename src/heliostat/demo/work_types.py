"""Kinds of work that the synthetic users submit: names, commands, sizes and durations."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from heliostat.demo.accounts import DemoProject
from heliostat.models import Resources

MakeNameAndCommand = Callable[[Random, DemoProject], tuple[str, tuple[str, ...]]]

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class WorkType:
    """Durations are log-normal: most are short, a few are very long."""

    make_name_and_command: MakeNameAndCommand
    day_weight: float  # relative frequency during the day
    overnight_weight: float  # in the evening and at weekends
    gpu_count_weights: dict[int, float]  # relative frequency of each number of GPUs
    median_seconds: float
    duration_sigma: float
    failure_rate: float = 0.07
    array_size_range: tuple[int, int] | None = None  # smallest and largest; None: single jobs

    def choose_resources(self, rng: Random) -> Resources:
        (gpus,) = rng.choices(list(self.gpu_count_weights), list(self.gpu_count_weights.values()))
        if gpus == 0:
            cpus = rng.choice((1, 2, 4)) if self.array_size_range else rng.choice((2, 4, 8, 12))
            return Resources(cpus=cpus, memory_mib=cpus * rng.choice((2, 4)) * 1024)
        cpus, gib = rng.choice((2, 3, 4)), rng.choice((16, 24, 32, 48))
        return Resources(
            gpus * cpus, gpus * gib * 1024, gpus, None if self.array_size_range else _gpu_type(rng, gpus)
        )


def _gpu_type(rng: Random, gpus: int) -> str | None:
    """Most users accept any type; some need a certain one."""
    if gpus == 8:
        return "A100"  # no other node has eight
    weights = {None: 84, "A100": 4, "RTX-3090": 7, "V100": 4} | ({"T4": 3} if gpus <= 2 else {})
    return rng.choices(list(weights), list(weights.values()))[0]


def _train(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    model, data = rng.choice(project.models), rng.choice(project.datasets)
    rate, epochs = rng.choice(("1e-3", "3e-4", "1e-4", "5e-5")), rng.choice((50, 100, 200, 300))
    arguments = ("--data", f"/datasets/{data}", "--lr", rate, "--epochs", str(epochs))
    return f"{model}-{data}-lr{rate}", ("python", f"train_{model}.py", *arguments)


def _pretrain(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    model, data = rng.choice(project.models), rng.choice(project.datasets)
    script = ("torchrun", "--standalone", "--nproc-per-node", "gpu", f"train_{model}.py")
    return f"{model}-{data}-full", (*script, "--data", f"/datasets/{data}", "--amp", "--resume", "auto")


def _sweep(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    model = rng.choice(project.models)
    return f"sweep-{model}", ("python", f"sweep_{model}.py", "--space", f"configs/{model}_sweep.yaml")


def _evaluate(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    model, data, fold = rng.choice(project.models), rng.choice(project.datasets), rng.randrange(5)
    checkpoint = f"runs/{model}_fold{fold}/best.pt"
    return f"eval-{model}-fold{fold}", ("python", "evaluate.py", "--ckpt", checkpoint, "--data", data)


def _debug(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    model = rng.choice(project.models)
    return f"debug-{model}", ("python", f"train_{model}.py", "--fast-dev-run", "--num-workers", "0")


def _preprocess(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    data = rng.choice(project.datasets)
    step = rng.choice(("resample", "dicom_to_nifti", "make_tiles", "normalise", "extract_features"))
    return f"{step}-{data}", ("python", f"{step}.py", f"/datasets/{data}", "--out", f"/scratch/{data}")


def _per_subject(rng: Random, project: DemoProject) -> tuple[str, tuple[str, ...]]:
    data = rng.choice(project.datasets)
    step = rng.choice(("register", "bias_correct", "segment_organs"))
    return f"{step}-{data}", ("bash", f"{step}.sh", f"/datasets/{data}")


SINGLE_WORK_TYPES = (
    WorkType(_train, 34, 40, {1: 62, 2: 20, 4: 18}, 3.6 * HOUR_SECONDS, 1.2),
    WorkType(_pretrain, 3, 24, {1: 20, 2: 28, 4: 42, 8: 10}, 18 * HOUR_SECONDS, 0.6, failure_rate=0.09),
    WorkType(_evaluate, 22, 10, {1: 94, 2: 6}, 0.3 * HOUR_SECONDS, 0.9, failure_rate=0.06),
    WorkType(_debug, 24, 6, {1: 92, 2: 8}, 0.06 * HOUR_SECONDS, 0.9, failure_rate=0.34),
    WorkType(_preprocess, 17, 14, {0: 1}, 0.6 * HOUR_SECONDS, 1.1, failure_rate=0.1),
)
ARRAY_WORK_TYPES = (
    WorkType(_sweep, 3, 4, {1: 1}, 1.8 * HOUR_SECONDS, 0.7, array_size_range=(6, 32)),
    WorkType(_per_subject, 1, 1, {0: 1}, 0.4 * HOUR_SECONDS, 0.7, failure_rate=0.05, array_size_range=(12, 48)),
)
