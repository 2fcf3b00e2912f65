"""A task that is a job."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from heliostat import Client
from heliostat.client import JobHandle
from heliostat.client.api_types import JobOptions
from heliostat_airflow.hook import HeliostatHook
from heliostat_airflow.trigger import HeliostatTrigger

_SHOWN_CHARACTERS = 100_000  # of what a job has printed, in the log of the task


class HeliostatOperator(BaseOperator):
    """Submits `command` (a shell line, or words) with the fields of a job, and ends as the job does."""

    template_fields: Sequence[str] = ("command", "fields")

    def __init__(
        self,
        *,
        command: str | Sequence[str],
        heliostat_conn_id: str = HeliostatHook.default_conn_name,
        deferrable: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        mine = {name: kwargs.pop(name) for name in list(kwargs) if name in _JOB_FIELDS}
        super().__init__(**kwargs)
        self.command, self.heliostat_conn_id, self.deferrable = command, heliostat_conn_id, deferrable
        self.fields: dict[str, Any] = {**mine, **({"env": env} if env else {})}
        self._job: JobHandle | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        client = self._client()
        name = self.fields.get("name", f"{context['ti'].dag_id}.{self.task_id}")
        fields = {**self.fields, "name": name}
        self._job = client.submit(self.command, idempotency_key=key_of(context["ti"]), **fields)
        self.log.info("Job %s of Heliostat", self._job.id)
        if self.deferrable:
            trigger = HeliostatTrigger(self._job.id, self.heliostat_conn_id)
            self.defer(trigger=trigger, method_name="execute_complete")
        return self._finish(self._job.wait())

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        return self._finish(self._client().jobs.get(event["job_id"]))

    def on_kill(self) -> None:
        """A task that is stopped stops its job."""
        if self._job is not None:
            self._job.cancel()

    def _finish(self, job: JobHandle) -> dict[str, Any]:
        if printed := job.logs():
            self.log.info("It has printed:\n%s", printed[-_SHOWN_CHARACTERS:])
        if not job.ok:
            raise AirflowException(f"Job {job.id} has {job.data['state']}: {job.reason or 'no reason is known'}")
        return {"job_id": job.id, "state": job.data["state"], "exit_code": job.exit_code}

    def _client(self) -> Client:
        return HeliostatHook(self.heliostat_conn_id).client()


def key_of(instance: Any) -> str:
    """The same for the same try of a task: a worker that dies and begins anew finds its job again."""
    parts = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index, instance.try_number)
    return "airflow:" + ":".join(map(str, parts))


_JOB_FIELDS = frozenset(JobOptions.__annotations__) - {"env", "held", "record"}
