"""Airflow operator: submits a task as a Heliostat job and waits for it."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from heliostat import Client
from heliostat.client import JobHandle
from heliostat.client.api_types import JobOptions
from heliostat_airflow.hook import HeliostatHook
from heliostat_airflow.trigger import HeliostatTrigger

_SHOWN_CHARACTERS = 100_000  # of the job's output, in the log of the task


class HeliostatOperator(BaseOperator):
    """Runs `command` (a shell line, or a list of arguments) as a job. Other arguments are fields of the job.

    The task fails if the job does not complete."""

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
        job_fields = {name: kwargs.pop(name) for name in list(kwargs) if name in _JOB_FIELDS}
        super().__init__(**kwargs)
        self.command, self.heliostat_conn_id, self.deferrable = command, heliostat_conn_id, deferrable
        self.fields: dict[str, Any] = {**job_fields, **({"env": env} if env else {})}
        self._job: JobHandle | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        client = self._client()
        name = self.fields.get("name", f"{context['ti'].dag_id}.{self.task_id}")
        fields = {**self.fields, "name": name}
        self._job = client.submit(self.command, idempotency_key=key_of(context["ti"]), **fields)
        self.log.info("Submitted as Heliostat job %s", self._job.id)
        if self.deferrable:
            trigger = HeliostatTrigger(self._job.id, self.heliostat_conn_id)
            self.defer(trigger=trigger, method_name="execute_complete")
        return self._finish(self._job.wait())

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        return self._finish(self._client().jobs.get(event["job_id"]))

    def on_kill(self) -> None:
        """Cancels the job when the task is stopped."""
        if self._job is not None:
            self._job.cancel()

    def _finish(self, job: JobHandle) -> dict[str, Any]:
        if output := job.logs():
            self.log.info("Output of the job:\n%s", output[-_SHOWN_CHARACTERS:])
        if not job.ok:
            raise AirflowException(f"Job {job.id} ended as {job.data['state']}: {job.reason or 'unknown reason'}")
        return {"job_id": job.id, "state": job.data["state"], "exit_code": job.exit_code}

    def _client(self) -> Client:
        return HeliostatHook(self.heliostat_conn_id).client()


def key_of(instance: Any) -> str:
    """The idempotency key: the same for the same try of a task, so a restarted worker finds its job again."""
    parts = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index, instance.try_number)
    return "airflow:" + ":".join(map(str, parts))


_JOB_FIELDS = frozenset(JobOptions.__annotations__) - {"env", "held", "record"}
