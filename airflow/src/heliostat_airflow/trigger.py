"""Airflow trigger: waits for the end of a job without occupying a worker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from heliostat_airflow.hook import HeliostatHook

_REQUEST_SECONDS = 25.0  # length of one long-polling request


class HeliostatTrigger(BaseTrigger):
    def __init__(self, job_id: int, heliostat_conn_id: str = HeliostatHook.default_conn_name) -> None:
        super().__init__()
        self.job_id, self.heliostat_conn_id = job_id, heliostat_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"job_id": self.job_id, "heliostat_conn_id": self.heliostat_conn_id}
        return "heliostat_airflow.trigger.HeliostatTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        client = await asyncio.to_thread(HeliostatHook(self.heliostat_conn_id).client)
        while not await asyncio.to_thread(_has_ended, client, self.job_id):
            pass
        yield TriggerEvent({"job_id": self.job_id})


def _has_ended(client: Any, job_id: int) -> bool:
    try:
        client.wait([job_id], timeout=_REQUEST_SECONDS)
    except TimeoutError:
        return False
    return True
