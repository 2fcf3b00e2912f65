"""Jobs as objects: what `submit` hands back."""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from heliostat.client.shapes import Forecast, JobData, LogChunk, Why

if TYPE_CHECKING:
    from heliostat.client.client import Client
    from heliostat.models import JobState

OVER = frozenset({"completed", "failed", "cancelled", "timed_out", "lost"})
"""States that never change again; as words, because importing the models costs a command its speed."""


class JobHandle:
    """A job of the server. Its properties are what was last heard of it; `refresh()` asks again."""

    __slots__ = ("_client", "_data", "id")

    def __init__(self, client: "Client", job_id: int, data: JobData | None = None) -> None:
        self._client = client
        self._data = data
        self.id = job_id

    def __repr__(self) -> str:
        return f"<Job {self.id} {self._data['state'] if self._data else '(not asked yet)'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def data(self) -> JobData:
        """All fields, as the API gives them."""
        if self._data is None:
            self.refresh()
        assert self._data is not None  # noqa: S101 - refresh has set it
        return self._data

    @property
    def state(self) -> "JobState":
        from heliostat.models import JobState

        return JobState(self.data["state"])

    @property
    def is_over(self) -> bool:
        return self.data["state"] in OVER

    @property
    def ok(self) -> bool:
        """It has completed: exit code 0."""
        return self.data["state"] == "completed"

    @property
    def exit_code(self) -> int | None:
        return self.data["exit_code"]

    @property
    def reason(self) -> str | None:
        """Why it waits, or why it ended as it did."""
        return self.data["reason"]

    @property
    def forecast(self) -> Forecast | None:
        """When it will start, if it waits and that is known."""
        return self.data.get("forecast")

    @property
    def name(self) -> str | None:
        """None when it is another's job that you may not look into."""
        return self.data["name"]

    @property
    def user(self) -> str:
        return self.data["user"]

    @property
    def project(self) -> str:
        return self.data["project"]

    @property
    def gpus(self) -> float:
        """Of one task: a whole number, or a part of one GPU."""
        return self.data["gpus"]

    @property
    def gpu_type(self) -> str | None:
        return self.data["gpu_type"]

    @property
    def cpus(self) -> int:
        return self.data["cpus"]

    @property
    def memory_mib(self) -> int:
        return self.data["memory_mib"]

    @property
    def time_limit_seconds(self) -> int | None:
        return self.data["time_limit_seconds"]

    @property
    def tasks(self) -> int:
        return self.data["tasks"]

    @property
    def priority(self) -> int:
        return self.data["priority"]

    @property
    def priority_class(self) -> str:
        return self.data["priority_class"]

    @property
    def preemptions(self) -> int:
        """How often it was sent back to the queue for others."""
        return self.data["preemptions"]

    @property
    def array_id(self) -> int | None:
        return self.data["array_id"]

    @property
    def array_index(self) -> int | None:
        return self.data["array_index"]

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0: none yet."""
        return self.data["attempt"]

    @property
    def node(self) -> str | None:
        return self.data["node"]

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.data["devices"])

    @property
    def submitted_at(self) -> datetime:
        return datetime.fromisoformat(self.data["submitted_at"])

    @property
    def started_at(self) -> datetime | None:
        return _when(self.data["started_at"])

    @property
    def checkpointed_at(self) -> datetime | None:
        """When it last said that it has saved its work."""
        return _when(self.data["checkpointed_at"])

    @property
    def ended_at(self) -> datetime | None:
        return _when(self.data["ended_at"])

    def refresh(self) -> "JobHandle":
        """Asks the server again."""
        self._data = self._client.job_data(self.id)
        return self

    def wait(self, timeout: float | None = None) -> "JobHandle":
        """Until the job is over. Raises TimeoutError when it is not after `timeout` seconds."""
        self._client.wait([self], timeout)
        return self

    def logs(self, stream: str = "both", *, attempt: int | None = None) -> str:
        """What it has printed so far; with "both", as it was written."""
        return self._client.logs(self.id, stream, attempt=attempt)

    def follow(self, stream: str = "both") -> Iterator[LogChunk]:
        """What it prints, from the start and as it comes, until it is over."""
        yield from self._client.follow(self.id, stream)
        self.refresh()

    def cancel(self, *, force: bool = False) -> "JobHandle":
        return self._take(self._client.cancel(self.id, force=force))

    def hold(self) -> "JobHandle":
        return self._take(self._client.hold(self.id))

    def release(self) -> "JobHandle":
        return self._take(self._client.release(self.id))

    def requeue(self) -> "JobHandle":
        return self._take(self._client.requeue(self.id))

    def checkpointed(self) -> "JobHandle":
        return self._take(self._client.checkpointed(self.id))

    def why(self, *, what_if: bool = False) -> Why:
        """Why it waits and when it will start."""
        return self._client.why(self.id, what_if=what_if)

    def learn(self, data: JobData) -> None:
        """Takes over what the server has said elsewhere."""
        self._data = data

    def _take(self, told: "JobHandle") -> "JobHandle":
        self._data = told.data
        return self


class JobArray(Sequence[JobHandle]):
    """The jobs of one array, in the order of their indexes."""

    def __init__(self, client: "Client", array_id: int, job_ids: Iterable[int]) -> None:
        self._client = client
        self.id = array_id
        self._jobs = [JobHandle(client, job_id) for job_id in job_ids]

    def __repr__(self) -> str:
        return f"<JobArray {self.id} of {len(self)} jobs>"

    @overload
    def __getitem__(self, index: int) -> JobHandle: ...
    @overload
    def __getitem__(self, index: slice) -> list[JobHandle]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._jobs[index]

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def ok(self) -> bool:
        return all(job.ok for job in self)

    def wait(self, timeout: float | None = None) -> "JobArray":
        """Until all are over. Raises TimeoutError when they are not after `timeout` seconds."""
        self._client.wait(self, timeout)
        return self

    def cancel(self, *, force: bool = False) -> int:
        """How many of them this stops."""
        return self._client.cancel_array(self.id, force=force)


class Deadline:
    """A point in time from now; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def left(self, at_most: float) -> float:
        return at_most if self._at is None else max(0.0, min(at_most, self._at - time.monotonic()))

    @property
    def is_past(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at


def _when(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
