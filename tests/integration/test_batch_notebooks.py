"""Notebooks as batch jobs, run by a real papermill: what they keep when they end well, and when they do not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliostat.client import Client
from heliostat.client.jobs import JobHandle
from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.notebooks import JUPYTER_LAB, write_notebook

WAIT_SECONDS = 300.0
MIB = 2**20

pytestmark = [
    pytest.mark.skipif(
        not JUPYTER_LAB.with_name("papermill").exists(),
        reason="papermill is not there: scripts/install --test brings it",
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(
        f'sessions.jupyter_command = "{JUPYTER_LAB}"\n'
        'server.simulate_gpus = "2xA100"\nmonitoring.sample_seconds = 0\n'
    )
    yield server
    server.remove()


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(home=server.home) as client:
        yield client


def ended(job: JobHandle) -> JobHandle:
    return job.wait(WAIT_SECONDS)


def executed(client: Client, job: JobHandle, name: str, folder: Path) -> dict[str, Any]:
    """The notebook that it kept; there must be a page of it too."""
    assert [path.name for path in client.files.save_results(job.id, folder)] == [f"{name}.html", f"{name}.ipynb"]
    assert "</html>" in (folder / f"{name}.html").read_text()
    found: dict[str, Any] = json.loads((folder / f"{name}.ipynb").read_text())
    return found


def test_a_notebook_runs_with_its_parameters_and_keeps_what_it_printed(
    server: RunningServer, client: Client, tmp_path: Path
) -> None:
    path = write_notebook(
        tmp_path / "analysis.ipynb",
        "lr = 1.0\nname = 'none'\nzip = 0",
        "import os\nprint('runs', name, lr * 2, repr(zip), os.getcwd())",
        "6 * 7",
    )
    helio = [sys.executable, "-m", "heliostat.cli.main", "notebook", "run", str(path)]
    typed = ["-p", "lr", "0.25", "-p", "name", "resnet", "-r", "zip", "01234", "--gpus", "1", "--follow"]
    around = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    ran = subprocess.run(
        [*helio, *typed], env=around, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert f"runs resnet 0.5 '01234' {os.path.realpath(tmp_path)}" in ran.stdout
    assert "42" in ran.stdout.splitlines()
    assert "[cell 4 of 4] 6 * 7" in ran.stderr
    job = next(client.jobs.list(name="analysis"))
    assert (job.data["state"], job.data["gpus"]) == ("completed", 1)
    cells = executed(client, job, "analysis", tmp_path / "got")["cells"]
    assert 'name = "resnet"' in "".join(cells[1]["source"])
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, 4]


def test_a_failing_cell_fails_the_job_and_what_was_done_is_kept(client: Client, tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "bad.ipynb", "x = 1", "print('before')", "x / 0", "print('never')")
    job = ended(client.notebooks.run(path))
    assert (job.data["state"], job.exit_code) == ("failed", 1)
    assert job.data["reason"] == "cell 3 failed: ZeroDivisionError: division by zero"
    cells = executed(client, job, "bad", tmp_path / "got")["cells"]
    assert cells[1]["outputs"][0]["text"] == ["before\n"]
    assert cells[2]["outputs"][0]["ename"] == "ZeroDivisionError"
    assert (cells[3]["outputs"], cells[3]["execution_count"]) == ([], None)


def test_a_kernel_that_dies_fails_the_job(client: Client, tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "dead.ipynb", "x = 1", "print('before')", "import os\nos._exit(0)", "x")
    job = ended(client.notebooks.run(path))
    assert job.data["state"] == "failed"
    assert str(job.data["reason"]).startswith("the kernel died in cell 3")
    cells = executed(client, job, "dead", tmp_path / "got")["cells"]
    assert cells[1]["outputs"][0]["text"] == ["before\n"]


STAND_IN = """#!{python}
import json, sys
if "execute" in sys.argv:
    open(json.load(sys.stdin)["output"], "w").write({text!r})
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"cells": [', "the executed notebook is not readable"),
        ('{"cells": [], "metadata": {}}', "it has 0 of 2 cells"),
        ('{"cells": [{}, {}], "metadata": {}}', "the run did not finish"),
    ],
)
def test_what_is_not_whole_fails_the_job(client: Client, tmp_path: Path, text: str, why: str) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("papermill", "python"):
        (tools / name).write_text(STAND_IN.format(python=sys.executable, text=text))
        (tools / name).chmod(0o755)
    path = write_notebook(tmp_path / "cut.ipynb", "1", "2")
    job = ended(client.notebooks.run(path, env={"HELIOSTAT_JUPYTER": f"{tools}/jupyter-lab"}))
    assert job.data["state"] == "failed"
    assert why in str(job.data["reason"])


@needs_root
def test_a_kernel_that_runs_out_of_memory_fails_the_job_with_what_to_do(client: Client, tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "large.ipynb", "print('before')", "x = bytearray(2**31); print('never')")
    job = ended(client.notebooks.run(path, memory="500M"))
    assert job.data["state"] == "failed"
    assert job.data["reason"].startswith("out of memory: ")
    assert job.data["reason"].endswith("request more with --memory")
    cells = executed(client, job, "large", tmp_path / "got")["cells"]
    assert cells[0]["outputs"][0]["text"] == ["before\n"]
    assert "the kernel died in cell 2" in job.logs(stream="stderr")


def test_much_output_is_kept_whole(client: Client, tmp_path: Path) -> None:
    size = 8 * MIB
    path = write_notebook(
        tmp_path / "big.ipynb", f"for _ in range({size // 64}): print('x' * 63)\nprint('the end')"
    )
    job = ended(client.notebooks.run(path, memory="2G"))
    assert job.data["state"] == "completed", job.data["reason"]
    outputs = executed(client, job, "big", tmp_path / "got")["cells"][0]["outputs"]
    assert sum(len("".join(one["text"])) for one in outputs) == size + len("the end\n")
    assert job.logs("stdout").endswith("the end\n")


def test_links_that_a_notebook_leaves_among_its_results_lead_nowhere(client: Client, tmp_path: Path) -> None:
    path = write_notebook(
        tmp_path / "sly.ipynb",
        "import os\nplace = '{HELIOSTAT_HOME}/jobs/{HELIOSTAT_JOB_ID}/work'.format(**os.environ)",
        "os.symlink('/etc/passwd', place + '/results/users')\nos.symlink('/etc', place + '/results/all')\n"
        "os.mkfifo(place + '/results/pipe')",
    )
    job = ended(client.notebooks.run(path))
    assert job.data["state"] == "completed", job.data["reason"]
    kinds = {one["name"]: one["kind"] for one in client.files.list(job.id, "results")}
    assert {kinds[name] for name in ("users", "all", "pipe")} == {"other"}
    for wrong in ("results/users", "results/all/passwd", "results/pipe", "results/../../1.script", "/etc/passwd"):
        with pytest.raises(NotFound):
            list(client.files.read(job.id, wrong))
    executed(client, job, "sly", tmp_path / "got")


def test_a_notebook_outlives_the_server_and_its_reason_is_told_after(
    server: RunningServer, client: Client, tmp_path: Path
) -> None:
    here, go = tmp_path / "here", tmp_path / "go"
    path = write_notebook(
        tmp_path / "long.ipynb",
        "import pathlib, time",
        f"pathlib.Path({str(here)!r}).touch()\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)",
        "raise SystemError('at last')",
    )
    job = client.notebooks.run(path)
    wait_for(here.exists, "the second cell runs", seconds=WAIT_SECONDS)
    os.kill(server.pid, 9)
    server.process.wait(120)
    go.touch()
    server.start()
    after = Client(home=server.home).jobs.get(job.id).wait(WAIT_SECONDS)
    assert (after.data["state"], after.data["reason"]) == ("failed", "cell 3 failed: SystemError: at last")


def test_a_notebook_that_is_cancelled_keeps_the_cells_that_were_done(client: Client, tmp_path: Path) -> None:
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / "project" / "deep" / "helper.py").write_text("WORD = 'uploaded'\n")
    path = write_notebook(
        tmp_path / "project" / "deep" / "slow.ipynb",
        "import helper, time\nprint(helper.WORD)",
        f"open({str(tmp_path / 'here')!r}, 'w').close()\ntime.sleep(3600)",
    )
    job = client.notebooks.run(path, upload=tmp_path / "project")
    wait_for((tmp_path / "here").exists, "the second cell runs", job.logs, seconds=WAIT_SECONDS)
    client.jobs.cancel(job)
    assert ended(job).data["state"] == "cancelled"
    client.files.save_results(job.id, tmp_path / "got")
    cells = json.loads((tmp_path / "got" / "slow.ipynb").read_text())["cells"]
    assert cells[0]["outputs"][0]["text"] == ["uploaded\n"]


def test_a_notebook_that_is_none_is_refused(client: Client, tmp_path: Path) -> None:
    for text in (
        "no json",
        "[]",
        '{"nbformat": 3, "worksheets": []}',
        '{"nbformat": 4, "cells": [1], "metadata": {}}',
    ):
        (tmp_path / "odd.ipynb").write_text(text)
        with pytest.raises(Invalid, match="The file is not a notebook"):
            client.notebooks.run(tmp_path / "odd.ipynb")
    with pytest.raises(Invalid, match="cannot be read"):
        client.notebooks.run(tmp_path / "missing.ipynb")
    with pytest.raises(Invalid, match="variable"):
        client.notebooks.run(write_notebook(tmp_path / "good.ipynb", "1"), {"a b": 1})
    with pytest.raises(Invalid, match="script, upload, array and template are not allowed"):
        client.notebooks.run(write_notebook(tmp_path / "good.ipynb", "1"), script="#!/bin/sh\n")


def test_the_same_key_runs_it_once(client: Client, tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "once.ipynb", "1")
    first, second = (client.notebooks.run(path, idempotency_key="once", held=True) for _ in range(2))
    assert first.id == second.id
    with pytest.raises(Conflict):
        client.notebooks.run(path, {"x": 1}, idempotency_key="once", held=True)


def test_a_notebook_of_a_session_runs_as_it_is_there(client: Client, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write_notebook(tmp_path / "deep" / "of session.ipynb", "x = 1", "import os\nprint('in', os.getcwd(), x)")
    (tmp_path / "out.ipynb").symlink_to(write_notebook(tmp_path.parent / "outside.ipynb", "1"))
    (tmp_path / ".hidden").mkdir()
    write_notebook(tmp_path / ".hidden" / "no.ipynb", "1")
    os.mkfifo(tmp_path / "pipe.ipynb")
    session = client.sessions.start("custom", ["sleep", "600"], workdir=str(tmp_path), memory="1G", cpus=1).id
    wait_for(lambda: client.jobs.get(session).data["state"] == "running", "the session runs")
    assert client.sessions.list_notebooks(session) == ["out.ipynb", "pipe.ipynb", "deep/of session.ipynb"]
    (tmp_path / "large.ipynb").write_bytes(b" " * (32 * MIB + 1))
    with pytest.raises(TooLarge):
        client.notebooks.run("large.ipynb", session=session)
    for wrong in ("out.ipynb", "pipe.ipynb", "../outside.ipynb", "missing.ipynb"):
        with pytest.raises(NotFound):
            client.notebooks.run(wrong, session=session)
    job = ended(client.notebooks.run("deep/of session.ipynb", {"x": 3}, session=session))
    assert job.data["state"] == "completed", job.data["reason"]
    assert f"in {os.path.realpath(tmp_path)}/deep 3" in job.logs("stdout")
    executed(client, job, "of session", tmp_path / "got")
    client.jobs.cancel(session, force=True)
    client.jobs.get(session).wait(60)
    with pytest.raises(Conflict, match="only in a running job"):
        client.sessions.list_notebooks(session)


def test_nobody_else_reaches_results_or_sessions(server: RunningServer, ann: Person, bob: Person) -> None:
    command = "mkdir results && echo secret > results/mine.txt"
    job = server.run(uid=ann.uid, command=command)
    assert job["state"] == "completed", job
    number = job["id"]
    got = server.ask("GET", f"/jobs/{number}/file?path=results/mine.txt", uid=ann.uid)
    assert (got.status, got.body) == (200, b"secret\n")
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["content-security-policy"].startswith("sandbox")
    assert got.headers["x-content-type-options"] == "nosniff"
    session = server.ask("POST", "/sessions", {"app": "custom", "command": ["sleep", "600"]}, uid=ann.uid).json[
        "id"
    ]
    body = {"notebook": {"session": session, "path": "a.ipynb"}}
    for answer in (
        server.ask("GET", f"/jobs/{number}/file?path=results/mine.txt", uid=bob.uid),
        server.ask("GET", f"/jobs/{number}/files?path=results", uid=bob.uid),
        server.ask("GET", f"/sessions/{session}/notebooks", uid=bob.uid),
        server.ask("POST", "/notebooks", body, uid=bob.uid),
        server.ask("POST", "/notebooks", body),  # an admin would act as somebody else
    ):
        assert answer.status == Forbidden.status, answer.body
    server.ask("POST", f"/jobs/{session}/cancel?force=true", uid=ann.uid)
