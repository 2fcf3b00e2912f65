"""Builds the fake NVIDIA driver libraries (NVML and CUDA) and steers them.

The dynamic linker reads LD_LIBRARY_PATH when a process starts, so the process that should see the fake GPUs,
be it a small reader or the whole server, is a child started with `FakeNvml.environment()`:

    fake = FakeNvml.build(tmp_path)
    fake.show(gpu("GPU-0"), gpu("GPU-1", processes="123:500"))
    subprocess.Popen([...], env=fake.environment())
    fake.show(gpu("GPU-0", error=GPU_IS_LOST), gpu("GPU-1"))  # seen by the running child at its next call

The keys are listed at the top of fake_nvml.c.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")

DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999

Facts = Mapping[str, str | int]


@dataclass(frozen=True)
class FakeNvml:
    directory: Path

    @classmethod
    def build(cls, directory: Path) -> "FakeNvml":
        """Compile the libraries into the directory. Raises if there is no compiler: see `why_not`."""
        for name, source in (("libnvidia-ml.so.1", SOURCE), ("libcuda.so.1", SOURCE.with_name("fake_cuda.c"))):
            flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
            subprocess.run(["gcc", *flags, "-o", directory / name, source], check=True)
        return cls(directory)

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def show(self, *gpus: Facts, **driver: str | int) -> None:
        """What the driver says from now on: these GPUs in this order, and facts about itself."""
        facts: dict[str, str | int] = {"count": len(gpus), **driver}
        for index, gpu_facts in enumerate(gpus):
            facts |= {f"{index}{key if key[0] == ':' else f'.{key}'}": value for key, value in gpu_facts.items()}
        fresh = self.state.with_suffix(".new")
        fresh.write_text("".join(f"{key}={value}\n" for key, value in facts.items()))
        fresh.replace(self.state)  # at once: the library may be reading

    def environment(self) -> dict[str, str]:
        """For a child process that shall see the fake GPUs."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.directory), "FAKE_NVML_STATE": str(self.state)}


def gpu(uuid: str, name: str = "NVIDIA A100-SXM4-80GB", **facts: str | int) -> Facts:
    """A healthy idle GPU, but for the facts given."""
    healthy: Facts = {
        "memory_mib": 81920,
        "memory_used_mib": 4,
        "utilisation": 0,
        "temperature": 31,
        "ecc": 0,
        "remap_failed": 0,
        "mig": 0,
    }
    return {"uuid": uuid, "name": name, **healthy, **facts}


def split_gpu(
    uuid: str, slices: Mapping[int, Facts], name: str = "NVIDIA A100-SXM4-80GB", **facts: str | int
) -> Facts:
    """A GPU in MIG mode with these slices by index."""
    of_slices = {f":{index}.{key}": value for index, one in slices.items() for key, value in one.items()}
    return {**gpu(uuid, name, **facts), "mig": 1, **of_slices}


def mig_slice(uuid: str, profile: str = "1g.10gb", **facts: str | int) -> Facts:
    """An idle slice of an A100. The driver reports no utilisation and no temperature of slices."""
    name = f"NVIDIA A100-SXM4-80GB MIG {profile}"
    memory: Facts = {"memory_mib": 9728, "memory_used_mib": 12}
    return {"uuid": uuid, "name": name, "gpu_instance": 7, "compute_instance": 0, **memory, **facts}


def why_not() -> str | None:
    """Why the fake cannot be built here; None if it can."""
    return None if shutil.which("gcc") else "no gcc to build the fake NVIDIA driver library"
