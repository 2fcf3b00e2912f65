"""What runs batch notebooks where nobody has installed it: built once, and kept while somebody needs it."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client import Client
from heliostat.errors import Conflict
from integration.running_server import RunningServer
from support.notebooks import write_notebook
from support.package_index import PackageIndex, running_package_index

PATIENCE_SECONDS = 300.0
STAND_IN = "raise OSError(f'this is no papermill: {__file__}')\n"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        place = index.folder / "simple" / "papermill"
        place.mkdir(parents=True)
        info = "papermill-2.6.0.dist-info"
        with zipfile.ZipFile(place / "papermill-2.6.0-py3-none-any.whl", "w") as archive:
            archive.writestr("papermill/__init__.py", STAND_IN)
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: papermill\nVersion: 2.6.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("papermill-2.6.0.data/scripts/papermill", "#!python\n")
            archive.writestr(f"{info}/RECORD", "")
        yield index


@pytest.fixture(scope="module")
def server(index: PackageIndex) -> Iterator[RunningServer]:
    pytest.importorskip("uv", reason="uv builds environments, and is not installed")
    variables = f'environments.uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}'
    server = RunningServer(f'sessions.jupyter_requirements = ["papermill>=2.6"]\n{variables}\n')
    yield server
    server.remove()


def test_papermill_is_built_once_and_stays_while_a_notebook_needs_it(
    server: RunningServer, tmp_path: Path
) -> None:
    path = write_notebook(tmp_path / "analysis.ipynb", "1")
    with Client(home=server.home) as client:
        first = client.notebooks.run(path)
        assert len(client.environments.list()) == 1
        digest = client.environments.list()[0]["digest"]
        place = server.home / "environments" / "ready" / digest
        first.wait(PATIENCE_SECONDS)
        assert str(first.data["reason"]).startswith(f"the run was aborted: this is no papermill: {place}/lib")
        waiting = client.notebooks.run(path, held=True)
        with pytest.raises(Conflict):
            client.environments.remove(digest)
        client.jobs.cancel(waiting)
        second = client.notebooks.run(path).wait(PATIENCE_SECONDS)
        assert second.data["reason"] == first.data["reason"]
        builds = [job for job in client.jobs.list() if job.data["kind"] == "build"]
        assert len(builds) == 1
        client.environments.remove(digest)
