"""Two people who mean each other harm, on one installation: what they share, and what is one's own."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root, people
from support.images import why_no_podman
from support.wheels import Index, package_index

pytestmark = [
    needs_root,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="builds in bubblewrap, which is not installed"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs a Python that every user may run"),
]
needs_podman = pytest.mark.skipif(why_no_podman() is not None, reason=why_no_podman() or "")
SMALL = {"memory": "256M", "cpus": 1}
LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "{name}"
version = "1.0"
source = {{ registry = "{index}" }}
wheels = [{{ url = "{url}"{hashed} }}]

[[package]]
name = "mine"
version = "0"
source = {{ virtual = "." }}
dependencies = [{{ name = "{name}" }}]

[package.metadata]
requires-dist = [{{ name = "{name}" }}]
"""
PROJECT = '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = ["{name}"]\n'


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with package_index(tmp_path_factory.mktemp("index")) as index:
        yield index


@pytest.fixture(scope="module")
def server(index: Index, two_people: list[Person]) -> Iterator[RunningServer]:
    pytest.importorskip("uv", reason="uv builds environments, and is not installed")
    with people(f"ht{os.getpid()}make") as [builder]:
        server = RunningServer(
            f'node_name = "here"\nenvironments_builder = "{builder.name}"\n'
            f'uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}\n',
        )
        yield server
        server.remove()


def built(server: RunningServer, person: Person, **files: str) -> dict[str, Any]:
    answer = server.ask("POST", "/environments", {"environment": files}, uid=person.uid)
    assert answer.status == 201, answer.body
    server.finished(answer.json["build_job"], person.uid)
    found: dict[str, Any] = server.ask("GET", f"/environments/{answer.json['digest']}", uid=person.uid).json
    return found


def value_of(server: RunningServer, person: Person, name: str, digest: str) -> str:
    """What a package holds, as a job of that person sees it."""
    job = server.run(
        person.uid, command=["python", "-c", f"import {name}; print({name}.VALUE)"], environment=digest
    )
    return server.output(job["id"], person.uid).strip()


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_lock_that_lies_about_where_a_package_is_poisons_nobody_else(
    server: RunningServer, index: Index, ann: Person, bob: Person, is_hashed: bool
) -> None:
    """The cache keeps wheels by index, name and version; her lock names the index and leads to a wheel of hers."""
    name = f"prey{int(is_hashed)}"
    index.add_wheel("parasite", "1.0")
    index.add_wheel(name, "1.0", needs=["parasite"], py="VALUE = 'poisoned'\n")
    wheel = index.folder / f"simple/{name}/{name}-1.0-py3-none-any.whl"
    hers = index.folder / "simple/hers" / wheel.name
    hers.parent.mkdir(exist_ok=True)
    wheel.rename(hers)
    index.add_wheel(name, "1.0")
    digest = hashlib.sha256(hers.read_bytes()).hexdigest()
    hashed = f', hash = "sha256:{digest}"' if is_hashed else ""
    lock = LOCK.format(name=name, index=index.url, url=f"{index.url}/hers/{wheel.name}", hashed=hashed)
    poisoned = built(server, ann, pyproject=PROJECT.format(name=name), uv_lock=lock)
    assert value_of(server, ann, name, poisoned["digest"]) == "poisoned", poisoned["reason"]
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for proof in ("", f', hash = "sha256:{right}"'):
        honest = LOCK.format(name=name, index=index.url, url=f"{index.url}/{name}/{wheel.name}", hashed=proof)
        found = built(server, bob, pyproject=PROJECT.format(name=name), uv_lock=honest)
        assert value_of(server, bob, name, found["digest"]) == "1.0", found["reason"]
    found = built(server, bob, requirements=f"{name}==1.0")
    assert found["state"] == "ready", found["reason"]
    assert value_of(server, bob, name, found["digest"]) == "1.0"
    assert "parasite" not in found["lock"]


def test_a_package_of_another_index_is_found_and_is_not_taken_for_that_of_the_usual_one(
    server: RunningServer, index: Index, ann: Person, bob: Person
) -> None:
    index.add_wheel("twin", "1.0", py="VALUE = 'of the other'\n")
    other = index.folder / "simple/other"
    other.mkdir()
    (index.folder / "simple/twin").rename(other / "twin")
    index.add_wheel("twin", "1.0")
    hers = built(server, ann, requirements=f"--extra-index-url {index.url}/other\ntwin")
    his = built(server, bob, requirements="twin")
    assert (hers["state"], his["state"]) == ("ready", "ready"), (hers["reason"], his["reason"])
    assert value_of(server, ann, "twin", hers["digest"]) == "of the other"
    assert value_of(server, bob, "twin", his["digest"]) == "1.0"
