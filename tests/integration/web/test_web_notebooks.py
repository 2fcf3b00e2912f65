"""A notebook of a session as a job, and what jobs leave, in the web: over plain HTTP, with a papermill that only
pretends."""

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person
from integration.web.surfing import Surfer
from support.notebooks import write_notebook

HOSTILE = "<img src=x onerror=alert(1)>.ipynb"
STAND_IN = """#!{python}
import json, os, sys
if "execute" in sys.argv:
    plan = json.load(sys.stdin)
    whole = {{"cells": [{{}}, {{}}], "metadata": {{"papermill": {{"end_time": "now"}}}}}}
    open(plan["output"], "w").write(json.dumps(whole))
    print("parameters", json.dumps(plan["parameters"]), "in", plan["workdir"])
else:
    open(sys.argv[-1], "w").write("<script>alert(document.cookie)</script>")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    tools = tmp_path_factory.mktemp("pretended")
    for name in ("papermill", "python"):
        (tools / name).write_text(STAND_IN.format(python=sys.executable))
        (tools / name).chmod(0o755)
    server = RunningServer(f'sessions.jupyter_command = "{tools}/jupyter-lab"\nserver.simulate_gpus = "2xA100"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def surfer(server: RunningServer) -> Surfer:
    return Surfer(server).by_link()


@pytest.fixture(scope="module")
def folder(server: RunningServer) -> Path:
    """What the session works in."""
    folder = server.folder / "project"
    folder.mkdir()
    for name in ("analysis.ipynb", HOSTILE):
        write_notebook(folder / name, "1", "2")
    return folder


@pytest.fixture(scope="module")
def session(server: RunningServer, folder: Path) -> int:
    return started(server, str(folder))


def started(server: RunningServer, workdir: str | None, uid: int | None = None) -> int:
    body = {"app": "custom", "command": ["sleep", "3600"], "workdir": workdir, "cpus": 1, "memory": "256M"}
    number: int = server.ask("POST", "/sessions", body, uid=uid).json["id"]
    wait_for(lambda: server.show(number, uid)["state"] == "running", "the session runs")
    return number


def form(surfer: Surfer, session: int, **fields: str) -> list[tuple[str, str]]:
    token = surfer.get(f"/sessions/{session}/notebooks").form_token
    return [("csrf", token), ("cpus", "1"), ("memory", "256M"), *fields.items()]


def test_a_notebook_of_a_session_is_run_from_its_page(
    server: RunningServer, surfer: Surfer, session: int, folder: Path
) -> None:
    assert f'href="/sessions/{session}/notebooks"' in surfer.get(f"/sessions/{session}").text
    shown = surfer.get(f"/sessions/{session}/notebooks").text
    assert '<option value="analysis.ipynb"' in shown
    assert HOSTILE not in shown
    assert html.escape(HOSTILE) in shown
    fields = form(surfer, session, notebook="analysis.ipynb", parameters="lr = 0.1\n\nname=a = b\n", gpus="1")
    answer = surfer.post(f"/sessions/{session}/notebooks", fields)
    assert (answer.status, bool(re.fullmatch(r"/jobs/\d+", answer.location))) == (303, True)
    number = int(answer.location.rpartition("/")[2])
    assert server.finished(number)["state"] == "completed"
    log = server.ask("GET", f"/jobs/{number}/logs?stream=stdout").body.decode()
    assert log == f'parameters {{"lr": 0.1, "name": "a = b"}} in {folder}\n'
    page = surfer.get(f"/jobs/{number}").text
    links = re.findall(rf'href="(/jobs/{number}/file\?path=results[^"]+)" download', page)
    assert len(links) == 2
    got = surfer.get(html.unescape(links[0]))
    assert got.text == "<script>alert(document.cookie)</script>"
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["content-security-policy"].startswith("sandbox")
    assert (got.headers["x-content-type-options"], got.headers["content-type"]) == (
        "nosniff",
        "application/octet-stream",
    )


def test_a_name_with_a_trap_in_it_is_only_a_name(server: RunningServer, surfer: Surfer, session: int) -> None:
    answer = surfer.post(f"/sessions/{session}/notebooks", form(surfer, session, notebook=HOSTILE))
    number = int(answer.location.rpartition("/")[2])
    assert server.finished(number)["state"] == "completed"
    page = surfer.get(f"/jobs/{number}").text
    assert "<img src=x" not in page
    assert page.count("/file?path=results") == 2


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"notebook": "analysis.ipynb", "parameters": "no value"}, 422),
        ({"notebook": "analysis.ipynb", "parameters": "a b = 1"}, 422),
        ({"notebook": "analysis.ipynb", "gpus": "many"}, 422),
        ({"notebook": "analysis.txt"}, 422),
        ({"notebook": "../../etc/passwd.ipynb"}, 404),
        ({"notebook": "/etc/passwd.ipynb"}, 404),
        ({"notebook": "missing.ipynb"}, 404),
    ],
)
def test_what_is_wrong_is_said_and_nothing_runs(
    server: RunningServer, surfer: Surfer, session: int, fields: dict[str, str], status: int
) -> None:
    before = server.ask("GET", "/jobs?limit=1").json["items"][0]["id"]
    answer = surfer.post(f"/sessions/{session}/notebooks", form(surfer, session, **fields))
    assert answer.status == status, answer.text
    assert server.ask("GET", "/jobs?limit=1").json["items"][0]["id"] == before


def test_a_form_that_is_not_ours_runs_nothing(surfer: Surfer, session: int) -> None:
    answer = surfer.post(f"/sessions/{session}/notebooks", [("csrf", "x"), ("notebook", "analysis.ipynb")])
    assert answer.status == 403


def test_nobody_runs_notebooks_of_somebody_elses_session(
    server: RunningServer, surfer: Surfer, ann: Person
) -> None:
    hers = started(server, None, uid=ann.uid)
    assert surfer.get(f"/sessions/{hers}/notebooks").status == 403  # not even an admin: it would act as her
    server.ask("POST", f"/jobs/{hers}/cancel?force=true", uid=ann.uid)
