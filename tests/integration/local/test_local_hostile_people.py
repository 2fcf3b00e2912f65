"""Two people who mean each other harm, on one installation: what they share, and what is one's own."""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliostat.models.images import format_registry_login
from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root, people
from support.container_images import (
    REGISTRY_PASSWORD,
    TEST_IMAGE,
    import_test_image,
    podman_skip_reason,
    push_image,
    running_registry,
)
from support.package_index import PackageIndex, running_package_index

pytestmark = [
    needs_root,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="builds in bubblewrap, which is not installed"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs a Python that every user may run"),
]
needs_podman = pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")
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
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        yield index


@pytest.fixture(scope="module")
def server(index: PackageIndex, two_unix_users: list[Person]) -> Iterator[RunningServer]:
    pytest.importorskip("uv", reason="uv builds environments, and is not installed")
    with people(f"ht{os.getpid()}make") as [builder]:
        server = RunningServer(
            f'server.node_name = "here"\nenvironments.builder = "{builder.name}"\n'
            f'environments.uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}\n',
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
    server: RunningServer, index: PackageIndex, ann: Person, bob: Person, is_hashed: bool
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
    assert value_of(server, bob, "parasite", found["digest"]) == "", "what the wrong wheel needs came along"


def test_a_package_of_another_index_is_found_and_is_not_taken_for_that_of_the_usual_one(
    server: RunningServer, index: PackageIndex, ann: Person, bob: Person
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


def tries(person: Person, *words: str) -> "subprocess.CompletedProcess[str]":
    """As that Unix user, at the machine itself."""
    command = ["/usr/sbin/runuser", "-u", person.name, "--", *words]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


@needs_podman
def test_an_image_of_ones_own_is_read_by_nobody_else_who_knows_its_name(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    import_test_image(server.home, ann.name)
    body = {"name": "secret", "containerfile": f"FROM {TEST_IMAGE}\nRUN echo hunter2 > /secret\n"}
    made = server.ask("POST", "/images", body, uid=ann.uid).json
    job = server.finished(made["build_job"], ann.uid)
    assert job["state"] == "completed", job["reason"]
    folder = server.home / "environments/ready" / made["digest"]
    assert tries(ann, "test", "-r", f"{folder}/image.tar").returncode == 0
    assert tries(bob, "test", "-r", f"{folder}/image.tar").returncode != 0
    job = server.run(ann.uid, command=["/bin/cat", "/secret"], image="secret", **SMALL)
    assert server.output(job["id"], ann.uid) == "hunter2\n", job["reason"]


def test_builds_of_others_are_neither_read_nor_repeated_nor_touched(
    server: RunningServer, index: PackageIndex, ann: Person, bob: Person
) -> None:
    index.add_wheel("hers", "1.0")
    found = built(server, ann, requirements="hers")
    job, digest = found["build_job"], found["digest"]
    mine = server.run(bob.uid, command=["true"])["id"]
    for method, path in (
        ("GET", f"/jobs/{job}/logs"),
        ("GET", f"/jobs/{job}/files"),
        ("GET", f"/jobs/{job}/file?path=why"),
        ("GET", f"/jobs/{job}/record"),
        ("GET", f"/jobs/{job}/diff/{mine}"),
        ("GET", f"/jobs/{mine}/diff/{job}"),
        ("POST", f"/jobs/{job}/rerun"),
        ("POST", f"/jobs/{job}/cancel"),
        ("POST", f"/jobs/{job}/requeue"),
        ("POST", f"/jobs/{job}/exec"),
        ("GET", f"/environments/{digest}"),
        ("GET", f"/environments/{digest}/log"),
        ("DELETE", f"/environments/{digest}"),
    ):
        answer = server.ask(method, path, {"command": ["id"]} if method == "POST" else None, uid=bob.uid)
        assert answer.status in (403, 404, 422), (method, path, answer.status, answer.body)
        assert b"hers" not in answer.body
    answer = server.ask("POST", "/jobs", {"command": ["true"], "environment": digest}, uid=bob.uid)
    assert answer.status == 404, answer.body


def test_nobody_becomes_the_builder_by_repeating_a_build_of_theirs(
    server: RunningServer, index: PackageIndex, ann: Person
) -> None:
    index.add_wheel("again", "1.0")
    job = built(server, ann, requirements="again")["build_job"]
    for changes in ({}, {"script": "#!/bin/sh\nid -u\n"}, {"command": ["id", "-u"], "script": None}):
        answer = server.ask("POST", f"/jobs/{job}/rerun", {"changes": changes}, uid=ann.uid)
        assert answer.status == 201, answer.body
        repeated = server.finished(answer.json["job"]["id"], ann.uid)
        assert (server.home / f"jobs/{repeated['id']}/work").stat().st_uid == ann.uid
    assert server.output(repeated["id"], ann.uid) == f"{ann.uid}\n"


@pytest.mark.parametrize(
    "path",
    ["\ud800", "a\ud800b/c", "/etc/passwd", "../x", "a/../b", "", ".", "a//b", "x" * 300, "a\0b", "d/" * 80],
)
def test_absurd_names_in_uploads_are_refused_in_words(server: RunningServer, ann: Person, path: str) -> None:
    for body in (
        {"files": [{"path": path, "sha256": "0" * 64, "size": 0}]},
        {"links": [{"path": path, "target": "x"}]},
        {"links": [{"path": "fine", "target": "../x"}]},
    ):
        answer = server.ask("POST", "/uploads", body, uid=ann.uid)
        assert answer.status == 422, (answer.status, answer.body)
        assert answer.error["hint"]


def test_newlines_and_steering_signs_in_uploaded_names_steer_nothing(server: RunningServer, ann: Person) -> None:
    empty = hashlib.sha256(b"").hexdigest()
    names = ["-rf", "a\nb", "$(id)", "\x1b[2J", "--help", "x;y", "*"]
    server.ask("POST", "/uploads/blobs", raw=f"{empty} 0\n".encode(), uid=ann.uid)
    files = [{"path": name, "sha256": empty, "size": 0} for name in names]
    answer = server.ask("POST", "/uploads", {"files": files}, uid=ann.uid)
    assert answer.status == 200, answer.body
    line = ["python3", "-c", "import os; print(sorted(os.listdir('.')))"]
    job = server.run(ann.uid, command=line, upload=answer.json["id"], **SMALL)
    assert server.output(job["id"], ann.uid).strip() == str(sorted(names)), job["reason"]


@needs_podman
@pytest.mark.skipif(
    shutil.which("docker-registry") is None, reason="needs docker-registry: scripts/install-test-parts"
)
def test_settings_of_ones_own_lead_no_name_of_an_allowed_registry_elsewhere(
    bob: Person, two_unix_users: list[Person], tmp_path: Path
) -> None:
    with running_registry(tmp_path) as address, aside(bob) as own:
        text = f'[[registry]]\nprefix = "{address}/lab"\nlocation = "{address}/evil"\ninsecure = true\n'
        (own / "registries.conf.d").mkdir()
        (own / "registries.conf.d/mine.conf").write_text(text)
        server = RunningServer(
            f'server.node_name = "here"\ncontainers.allowed_registries = ["{address}/lab", "localhost"]\n'
        )
        try:
            for name, what in (("evil", "evil"), ("lab", "the-image")):
                import_test_image(server.home, "root", what=what)
                push_image(server.home, "root", f"{address}/{name}/busybox:1")
            line = ["/bin/ls", "/etc"]
            job = server.run(bob.uid, command=line, image=f"{address}/lab/busybox:1", **SMALL)
            assert "this-is-the-image" in server.output(job["id"], bob.uid), job["reason"]
            shutil.rmtree(server.home / "images" / bob.name)
            push_image(server.home, "root", f"{address}/lab/busybox:2")
            copy = f"FROM {address}/lab/busybox:1\nCOPY --from={address}/lab/busybox:2 /etc /copied\n"
            body = {"name": "mine", "containerfile": copy}
            made = server.ask("POST", "/images", body, uid=bob.uid).json
            assert server.finished(made["build_job"], bob.uid)["state"] == "completed"
            job = server.run(bob.uid, command=["/bin/ls", "/copied"], image="mine", **SMALL)
            assert "this-is-the-image" in server.output(job["id"], bob.uid), job["reason"]
        finally:
            server.remove()


@needs_podman
@pytest.mark.skipif(
    shutil.which("docker-registry") is None, reason="needs docker-registry: scripts/install-test-parts"
)
def test_logins_count_beside_settings_of_ones_own_and_are_nobody_elses(
    server: RunningServer, ann: Person, bob: Person, tmp_path: Path
) -> None:
    import_test_image(server.home, bob.name)
    made = server.ask(
        "POST", "/images", {"name": "own", "containerfile": f"FROM {TEST_IMAGE}\n"}, uid=bob.uid
    ).json
    server.finished(made["build_job"], bob.uid)
    with running_registry(tmp_path, with_login=True) as address, aside(bob) as own, aside(ann):
        login = {"target": f"{address}/lab/own:1", "username": "ann", "password": REGISTRY_PASSWORD}
        push_job = server.ask("POST", "/images/own/push", login, uid=bob.uid).json["job_id"]
        assert server.finished(push_job, bob.uid)["state"] == "completed"
        (own / "registries.conf.d").mkdir()
        (own / "auth.json").write_text(format_registry_login(address, "ann", REGISTRY_PASSWORD))
        (own / "auth.json").chmod(0o600)
        shutil.chown(own / "auth.json", bob.name)
        ends = [
            server.run(person.uid, command=["/bin/true"], image=f"{address}/lab/own:1", **SMALL)
            for person in (bob, ann)
        ]
    assert ends[0]["state"] == "completed", (ends[0]["reason"], server.output(ends[0]["id"], bob.uid, "stderr"))
    assert "the registry requires a login" in ends[1]["reason"]
    assert REGISTRY_PASSWORD not in server.output(ends[0]["id"], bob.uid, "stderr")


@contextlib.contextmanager
def aside(person: Person) -> Iterator[Path]:
    """A folder for what a person sets for containers, which goes afterwards."""
    own = person.home / ".config/containers"
    own.mkdir(parents=True)
    try:
        yield own
    finally:
        shutil.rmtree(own)
