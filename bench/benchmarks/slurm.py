"""Heliostat on Slurm next to plain `sbatch`, on the same cluster in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers import PeerFailed
from bench.peers.heliostat import Heliostat
from bench.peers.slurm import Slurm
from bench.settings import WORK_FOLDER, Settings

BENCHMARK = "slurm"
_SBATCH = "sbatch"
_Form = Callable[[int], float | None]


class HeliostatOnSlurm(Heliostat):
    def __init__(self, slurm: Slurm) -> None:
        super().__init__(WORK_FOLDER / "home-on-slurm")
        self._slurm = slurm
        self.env["SLURM_CONF"] = slurm.cluster.env["SLURM_CONF"]

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "cluster.toml").write_text('server.engine = "slurm"\n')
        super().start()

    def run_array(self, count: int) -> float:
        began = time.perf_counter()
        self.client.submit(["true"], array=f"1-{count}").wait()
        return time.perf_counter() - began

    def submit_seconds(self) -> float:
        began = time.perf_counter()
        job = self.client.submit(["true"])
        answered = time.perf_counter() - began
        job.wait()
        return answered

    def end_detection_seconds(self) -> float:
        """From the end of a job in Slurm, by Slurm's own tools, to our word of it."""
        job = self.client.submit(["sleep", "600"])
        while not (number := self._number_in_slurm(job.id)) or not self._runs(job.id):
            time.sleep(0.02)
        self._slurm.cluster.run("scancel", number)
        began = time.perf_counter()
        job.wait()
        return time.perf_counter() - began

    def _runs(self, job_id: int) -> bool:
        return str(self.client.jobs.get(job_id).data["state"]) == "running"

    def _number_in_slurm(self, job_id: int) -> str:
        trace = self.home / "attempts" / f"{job_id}.1.slurm"
        words = trace.read_text().split() if trace.exists() else []
        return words[words.index("job") + 1] if "job" in words else ""


def measure(settings: Settings) -> Iterator[Measurement]:
    slurm = Slurm()
    if reason := slurm.available():
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "higher", f"no Slurm: {reason}")
        return
    heliostat = HeliostatOnSlurm(slurm)
    try:
        slurm.up()
        heliostat.up()
        yield from list(_figures(slurm, heliostat, settings))
    except PeerFailed as error:
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "higher", str(error))
    finally:
        heliostat.down()
        slurm.down()


def _figures(slurm: Slurm, heliostat: HeliostatOnSlurm, settings: Settings) -> Iterator[Measurement]:
    forms: tuple[tuple[str, _Form, _Form], ...] = (
        ("one by one", slurm.one_by_one, heliostat.one_by_one),
        ("one array", slurm.bulk, heliostat.run_array),
        ("one request", slurm.one_by_one, heliostat.bulk),
    )
    for form, theirs, ours in forms:
        rates: dict[str, list[float]] = {_SBATCH: [], OUR_SYSTEM: []}
        for _ in range(settings.repeat):  # by turns, so that both see the same machine
            for system, run in ((_SBATCH, theirs), (OUR_SYSTEM, ours)):
                rates[system].append(settings.jobs / (run(settings.jobs) or 1.0))
        for system, found in rates.items():
            spread = f"{min(found):.0f} to {max(found):.0f} in {len(found)} runs"
            yield Measurement(BENCHMARK, f"jobs, {form}", system, median(found), "jobs/s", "higher", spread)
    answers = {
        _SBATCH: [slurm.first_line().submit_seconds for _ in range(settings.tries)],
        OUR_SYSTEM: [heliostat.submit_seconds() for _ in range(settings.tries)],
    }
    for system, found in answers.items():
        yield Measurement(BENCHMARK, "a submission is answered", system, 1000 * median(found), "ms", "lower", "")
    seen = [heliostat.end_detection_seconds() for _ in range(settings.tries)]
    yield Measurement(
        BENCHMARK, "an end in Slurm is seen", OUR_SYSTEM, median(seen), "s", "lower", f"at most {max(seen):.1f}"
    )
