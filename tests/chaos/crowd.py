"""People at work while the server dies under their hands: they submit, meddle, and try again until answered."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chaos.evidence import Evidence
from heliostat.client import Client
from heliostat.errors import Conflict, ServerUnreachable

T = TypeVar("T")
_EXIT_CODES = (0, 0, 0, 1, 3, 42, 126, 255)


@dataclass
class Promise:
    """A job the server has acknowledged, and what may become of it."""

    job_id: int
    exit_code: int
    key: str
    cancel_asked: bool = False  # sent, whether answered or not
    cancel_answered: bool = False
    over_as: str | None = None  # the terminal state an answer has told


@dataclass
class Request:
    """What was sent under one idempotency key, and the jobs it made."""

    key: str
    jobs: list[dict[str, Any]]
    array: bool
    job_ids: list[int] = field(default_factory=list)


class Crowd:
    """Threads that act at random until told to stop. Everything acknowledged is kept as a promise."""

    def __init__(self, client: Client, evidence: Evidence, seed: int, most_unfinished: int) -> None:
        self._client, self._evidence, self._seed = client, evidence, seed
        self._most = most_unfinished
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.promises: dict[int, Promise] = {}
        self.requests: list[Request] = []
        self.repeated: list[tuple[list[int], list[int]]] = []  # first answer, answer to the same again
        self.broken = 0  # how often a connection broke
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._live, args=(act, random.Random(seed + number)), name=act.__name__)
            for number, act in enumerate((self._submit, self._submit, self._meddle, self._meddle))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when each has got its last answer."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} never got an answer"

    def release_everything(self) -> None:
        for job in self._client.jobs.list(state="held"):
            job.release()

    def _live(self, act: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            while not self._stop.is_set():
                act(chance)
                self._stop.wait(chance.uniform(0, 0.05))
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.failures.append(error)

    def _submit(self, chance: random.Random) -> None:
        if self._unfinished() > self._most:
            return
        request = self._imagine(chance)
        request.job_ids = self._insist(lambda: self._send(request))
        codes = [int(job["command"][2]) for job in request.jobs]
        if request.array:
            codes *= len(request.job_ids)
        with self._lock:
            self.requests.append(request)
            for job_id, code in zip(request.job_ids, codes, strict=True):
                self.promises[job_id] = Promise(job_id, code, request.key)
        if chance.random() < 0.2:
            again = self._insist(lambda: self._send(request))
            self.repeated.append((request.job_ids, again))

    def _imagine(self, chance: random.Random) -> Request:
        key = f"key-{self._seed}-{chance.getrandbits(64):x}"
        array = chance.random() < 0.15
        count = chance.choice((1, 1, 1, 2, 6)) if not array else 1
        jobs = [self._imagine_job(chance, f"{key}-{number}") for number in range(count)]
        if array:
            jobs[0]["array"] = chance.choice(("0-2", "1,5,9%1", "0-4%2"))
        return Request(key, jobs, array)

    def _imagine_job(self, chance: random.Random, name: str) -> dict[str, Any]:
        job = self._evidence.job(round(chance.uniform(0, 0.3), 3), chance.choice(_EXIT_CODES))
        gpus = chance.choice((0, 1, 1, 1, 2, 2, 4))
        held = chance.random() < 0.1
        return {**job, "name": name, "gpus": gpus, "cpus": 1, "memory": 64, "held": held, "grace_seconds": 1.0}

    def _send(self, request: Request) -> list[int]:
        if request.array:
            fields = dict(request.jobs[0])
            return [job.id for job in self._client.submit(**fields, idempotency_key=request.key)]
        if len(request.jobs) == 1:
            return [self._client.submit(**request.jobs[0], idempotency_key=request.key).id]
        return [job.id for job in self._client.submit_many(request.jobs, idempotency_key=request.key)]

    def _meddle(self, chance: random.Random) -> None:
        with self._lock:
            candidates = [promise for promise in self.promises.values() if promise.over_as is None][-30:]
        if not candidates:
            return
        promise = chance.choice(candidates)
        verb = chance.choice(("cancel", "requeue", "hold", "release", "release", "show", "show"))
        if verb == "cancel":
            promise.cancel_asked = True
        try:
            data = self._once(lambda: self._do(verb, promise.job_id))
        except Conflict:
            return
        if data is None:
            return
        if verb == "cancel":
            promise.cancel_answered = True
        if data["ended_at"] is not None:
            assert promise.over_as in (None, data["state"]), f"{promise} became {data['state']}"
            promise.over_as = data["state"]

    def _do(self, verb: str, job_id: int) -> Any:
        return getattr(self._client.jobs, "get" if verb == "show" else verb)(job_id).data

    def _unfinished(self) -> int:
        return self._once(lambda: sum(1 for _ in self._client.jobs.list(unfinished=True))) or 0

    def _once(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ServerUnreachable:
            self.broken += 1
            self._stop.wait(0.05)
            return None

    def _insist(self, ask: Callable[[], T]) -> T:
        """Again and again until answered, as a careful client does."""
        deadline = time.monotonic() + 180
        while True:
            try:
                return ask()
            except ServerUnreachable:
                self.broken += 1
                assert time.monotonic() < deadline, "no answer for a minute"
                time.sleep(0.05)
