"""What sessions run: VS Code and RStudio behind a guard, and JupyterLab that is built for those who have none."""

import http.client
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from support.package_index import PackageIndex, running_package_index
from support.proxy_browser import PYTHON, ProxyBrowser

STAND_IN = Path(__file__).parents[2] / "support" / "fake_app_server.py"
PATIENCE_SECONDS = 150.0
LAB = """#!python
import http.server, sys
told = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(told["ServerApp.port"]), bind=told["ServerApp.ip"])
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        place = index.folder / "simple" / "jupyterlab"
        place.mkdir(parents=True)
        info = "jupyterlab-4.4.0.dist-info"
        with zipfile.ZipFile(place / "jupyterlab-4.4.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: jupyterlab\nVersion: 4.4.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("jupyterlab-4.4.0.data/scripts/jupyter-lab", LAB)
            archive.writestr(f"{info}/RECORD", "")
        yield index


@pytest.fixture(scope="module")
def server(index: PackageIndex) -> Iterator[RunningServer]:
    pytest.importorskip("uv", reason="uv builds environments, and is not installed")
    variables = f'environments.uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}'
    server = RunningServer(f'sessions.jupyter_requirements = ["jupyterlab>=4"]\n{variables}\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A folder with a code-server and an rserver that only look like it."""
    folder = Path(f"/tmp/apps-{os.getpid()}")
    folder.mkdir()
    for name in ("code-server", "rserver"):
        (folder / name).write_text(f"#!{PYTHON}\n{STAND_IN.read_text()}")
        (folder / name).chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def look(server: RunningServer, session: int) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("GET", f"/sessions/{session}").json
    return found


def up(server: RunningServer, **body: object) -> dict[str, Any]:
    answer = server.ask("POST", "/sessions", body)
    assert answer.status == 201, answer.body
    number = answer.json["id"]
    ready = lambda: look(server, number)["is_up"] or server.show(number)["ended_at"]  # noqa: E731
    wait_for(ready, "its server is up", lambda: look(server, number), seconds=PATIENCE_SECONDS)
    state = look(server, number)
    assert state["is_up"], (state, server.output(number, stream="stderr"))
    return state


def end(server: RunningServer, session: int) -> None:
    server.ask("POST", f"/jobs/{session}/cancel?force=true")
    server.finished(session)


@pytest.mark.parametrize("app", ["vscode", "rstudio"])
def test_an_app_without_a_lock_is_reached_through_the_proxy_alone(
    server: RunningServer, programs: Path, app: str
) -> None:
    state = up(server, app=app, env={"PATH": f"{programs}:/usr/bin:/bin"})
    number = state["id"]
    _, got = ProxyBrowser(server).log_in().follow_redirects(f"{state['url']}some/path?a=1")
    assert (got.status, got.json["path"]) == (200, "/some/path?a=1")
    words = " ".join(got.json["argv"])
    folder = words.partition("/tmp/session-")[2][:8]
    home = server.home / "jobs" / str(number) / "work"
    assert words.replace(folder, "X") == EXPECTED[app].format(home=home, id=number)
    assert stat.S_IMODE(os.stat(f"/tmp/session-{folder}").st_mode) == 0o700
    port = int((server.home / "jobs" / str(number) / "checkpoints" / ".session-1").read_text())
    for shown in ({}, {"Authorization": "Bearer guessed"}):
        direct = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        direct.request("GET", "/", headers=shown)
        assert direct.getresponse().status == 403
        direct.close()
    end(server, number)


EXPECTED = {
    "vscode": (
        "--socket /tmp/session-X/s --socket-mode 600 --auth none --config /tmp/session-X/code-server.yaml "
        "--disable-telemetry --disable-update-check --ignore-last-opened {home}"
    ),
    "rstudio": (
        "--server-daemonize=0 --server-user=root --server-data-dir=/tmp/session-X "
        "--database-config-file=/tmp/session-X/database.conf --secure-cookie-key-file=/tmp/session-X/cookie-key "
        "--auth-none=1 --www-socket=/tmp/session-X/s --www-root-path=/s/{id}/ --www-frame-origin=same "
        "--www-verify-user-agent=0"
    ),
}


@pytest.mark.parametrize(("app", "word"), [("vscode", "code-server"), ("rstudio", "rserver")])
def test_what_is_not_installed_says_how_to_get_it(server: RunningServer, app: str, word: str) -> None:
    if shutil.which(word, path="/usr/bin:/bin"):
        pytest.skip(f"{word} is installed here")
    number = server.ask("POST", "/sessions", {"app": app, "env": {"PATH": "/usr/bin:/bin"}}).json["id"]
    assert server.finished(number)["exit_code"] == 127
    assert f"{word}" in look(server, number)["log_tail"]
    assert "install" in look(server, number)["log_tail"]


def test_jupyterlab_is_built_once_and_then_used_by_every_session(
    server: RunningServer, index: PackageIndex
) -> None:
    index.hold_files.set()
    first = server.ask("POST", "/sessions", {}).json
    wait_for(index.file_is_waited_for.is_set, "the build fetches", seconds=PATIENCE_SECONDS)
    assert "builds its environment (running" in look(server, first["id"])["step"]
    second = server.ask("POST", "/sessions", {"app": "terminal"}).json
    [made] = server.ask("GET", "/environments").json["items"]
    assert server.ask("DELETE", f"/environments/{made['digest']}").status == 409  # a session needs it
    index.hold_files.clear()
    for number in (first["id"], second["id"]):
        wait_for(lambda n=number: look(server, n)["is_up"], "it is up", seconds=PATIENCE_SECONDS)
        end(server, number)
    third = up(server)
    assert third["environment"] is None  # what it is started with is not what its jobs see
    builds = [job for job in server.ask("GET", "/jobs?limit=100").json["items"] if job["kind"] == "build"]
    assert [job["id"] for job in builds] == [made["build_job"]]
    end(server, third["id"])


def test_the_same_request_again_is_the_same_session_even_if_its_software_was_built_meanwhile(
    server: RunningServer,
) -> None:
    first, second = (
        server.ask("POST", "/sessions", {"held": True}, headers={"Idempotency-Key": "k7"}) for _ in range(2)
    )
    assert first.json["id"] == second.json["id"], json.dumps(second.json)
    server.ask("POST", f"/jobs/{first.json['id']}/cancel")


def test_an_environment_that_names_jupyterlab_needs_no_other(server: RunningServer) -> None:
    body = {"environment": {"requirements": "jupyterlab==4.4.0\n"}, "held": True}
    number = server.ask("POST", "/sessions", body).json["id"]
    assert server.show(number)["parents_left"] == 1
    server.ask("POST", f"/jobs/{number}/cancel")
