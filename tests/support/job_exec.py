"""Commands inside running jobs, in plain HTTP."""

import base64
import json
from dataclasses import dataclass

from integration.running_server import RunningServer, wait_for


@dataclass(frozen=True)
class ExecResult:
    exit_code: int
    stdout: str
    stderr: str


def exec_in_job(
    server: RunningServer, job: int, *command: str, uid: int | None = None, stdin: bytes = b""
) -> ExecResult:
    body = json.dumps({"command": command}).encode() + b"\n" + stdin
    answer = server.ask("POST", f"/jobs/{job}/exec", raw=body, uid=uid)
    assert answer.status == 200, answer.body
    said = [json.loads(line) for line in answer.body.splitlines()]
    out, err = (
        b"".join(base64.b64decode(one[name]) for one in said if name in one).decode()
        for name in ("stdout", "stderr")
    )
    return ExecResult(said[-1]["exit_code"], out, err)


def start_sleeping_job(server: RunningServer, uid: int | None = None, **fields: object) -> int:
    """One that sleeps, and whose first process is there."""
    job = server.submit(uid, command=["sh", "-c", "echo begun; exec sleep 600"], **fields)
    wait_for(lambda: server.output(job, uid) == "begun\n", "it runs", lambda: server.show(job, uid))
    wait_for(lambda: server.show(job, uid)["state"] == "running", "it is known to run")
    return job
