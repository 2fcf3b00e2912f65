"""A server of JupyterHub as Heliostat sees it: a job that waits, starts, says its port, and is over."""

import re
from dataclasses import dataclass

from heliostat.client import Client
from heliostat.client.shapes import JobData
from heliostat.errors import Conflict

_OVER = frozenset({"completed", "failed", "cancelled", "timed_out", "lost"})
_PORT = re.compile(rb"^heliostat: port ([0-9]{4,5})$", re.MULTILINE)
_FIRST_BYTES = 64 * 1024  # of the log; what stands before our line comes from the node, not from the server
_LAST_BYTES = 2000
_QUEUED, _STARTING, _RUNNING, _UP = 10, 40, 60, 90


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at its job."""

    words: str  # for its user
    percent: int
    attempt: int = 0
    node: str = ""
    port: int | None = None  # where it is proven to listen
    is_over: bool = False


def is_over(job: JobData) -> bool:
    return job["state"] in _OVER


def look(client: Client, number: int) -> Seen:
    job = client.jobs.get(number).data
    if is_over(job):
        return Seen(_last_words(client, job), _UP, is_over=True)
    if job["state"] == "starting":
        return Seen(f"Job {number} starts on {job['node']}.", _STARTING)
    if job["state"] != "running":
        return Seen(f"Job {number} waits. {client.jobs.why(number)['sentence']}", _QUEUED)
    port = _proven_port(client, number)
    node, attempt = str(job["node"]), int(job["attempt"])
    if port is None:
        return Seen(f"Job {number} runs on {node}; its server starts.", _RUNNING, attempt, node)
    return Seen(f"Job {number} answers on {node}.", _UP, attempt, node, port)


def _proven_port(client: Client, number: int) -> int | None:
    """What the job says counts only when Heliostat sees a process of this very job listen there."""
    said = _PORT.search(client.logs.part(number, "stdout", limit=_FIRST_BYTES).data)
    if said is None:
        return None
    try:
        return client.jobs.port(number, int(said[1]))["port"]
    except Conflict:  # not yet
        return None


def _last_words(client: Client, job: JobData) -> str:
    """What became of it, and the end of its log."""
    why = job.get("reason") or f"exit code {job.get('exit_code')}"
    tail = b"".join(client.logs.read(job["id"], "stderr", offset=-_LAST_BYTES)).decode("utf-8", "replace").strip()
    last = tail.splitlines()[-3:]
    return " ".join([f"Job {job['id']} is over: {job['state']} ({why}).", *last])
