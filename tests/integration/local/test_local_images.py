"""Images that people build: by real podman, as themselves, and pushed to a real registry."""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from support.container_images import (
    REGISTRY_PASSWORD,
    TEST_IMAGE,
    import_test_image,
    podman_skip_reason,
    push_image,
    running_registry,
)
from support.waiting import wait_until

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
needs_registry = pytest.mark.skipif(
    shutil.which("docker-registry") is None, reason="needs docker-registry: scripts/install-test-parts"
)
PATIENCE_SECONDS = 150.0
PLAIN = f"FROM {TEST_IMAGE}\nRUN echo made > /made\n"


@pytest.fixture(scope="module")
def dataset() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="helio-data-"))
    folder.chmod(0o755)
    (folder / "VERSION").write_text("7.1\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person], dataset: Path) -> Iterator[RunningServer]:
    server = RunningServer(f'server.node_name = "here"\ncontainers.mount_paths = ["{{home}}", "{dataset}:ro"]\n')
    import_test_image(server.home, two_unix_users[0].name)
    yield server
    server.remove()


def patiently(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives: a build on a busy machine takes its time."""
    return wait_until(condition, what, PATIENCE_SECONDS)


def over(server: RunningServer, job_id: int, uid: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        body = {"job_ids": [job_id], "timeout_seconds": 20}
        if server.ask("POST", "/jobs/wait", body, uid=uid).json["finished"]:
            return server.show(job_id, uid)
    raise AssertionError(f"job {job_id} is not over: {server.show(job_id, uid)}\n{server.log}")


def asked(server: RunningServer, person: Person, name: str, **body: object) -> dict[str, Any]:
    answer = server.ask("POST", "/images", {"name": name, **body}, uid=person.uid)
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.json
    return found


def built(server: RunningServer, person: Person, name: str, **body: object) -> dict[str, Any]:
    made = asked(server, person, name, **(body or {"containerfile": PLAIN}))
    over(server, made["build_job"], person.uid)

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = server.ask("GET", f"/images/{made['digest']}", uid=person.uid).json
        assert found["state"] == "ready", (found, server.output(made["build_job"], person.uid))
        return found

    patiently(lambda: shown()["image_digest"], "what it became is noted, after it is ready")
    return shown()


def lines(server: RunningServer, person: Person, line: str, **body: object) -> list[str]:
    job = over(server, server.submit(person.uid, command=["sh", "-c", line], memory="256M", **body), person.uid)
    assert job["state"] == "completed", (job["reason"], server.output(job["id"], person.uid, "stderr"))
    return server.output(job["id"], person.uid).splitlines()


def test_it_is_built_once_and_jobs_run_in_it_by_its_name(server: RunningServer, ann: Person) -> None:
    made = built(server, ann, "first", containerfile=PLAIN)
    assert made["names"] == ["first:latest"]
    assert made["image_digest"].startswith("sha256:")
    assert lines(server, ann, "cat /made; id -u", image="first") == ["made", str(ann.uid)]
    again = asked(server, ann, "first", containerfile=PLAIN)
    assert (again["state"], again["build_job"]) == ("ready", made["build_job"])


def test_a_job_that_names_it_while_it_is_built_waits_for_it(server: RunningServer, ann: Person) -> None:
    asked(server, ann, "slow", containerfile=f"FROM {TEST_IMAGE}\nRUN sleep 2; echo late > /late\n")
    assert lines(server, ann, "cat /late", image="slow:latest") == ["late"]


def test_a_name_means_what_was_built_last_under_it(server: RunningServer, ann: Person) -> None:
    first = built(server, ann, "moving", containerfile=f"FROM {TEST_IMAGE}\nRUN echo 1 > /v\n")
    built(server, ann, "moving", containerfile=f"FROM {TEST_IMAGE}\nRUN echo 2 > /v\n")
    assert lines(server, ann, "cat /v", image="moving") == ["2"]
    assert lines(server, ann, "cat /v", environment=first["digest"]) == ["1"]
    asked(server, ann, "moving", containerfile=f"FROM {TEST_IMAGE}\nRUN echo 1 > /v\n")
    assert lines(server, ann, "cat /v", image="moving") == ["1"]


def test_a_folder_is_sent_and_copied_from(server: RunningServer, ann: Person, tmp_path: Path) -> None:
    (tmp_path / "room").write_text("of the folder")
    (tmp_path / "Dockerfile").write_text(f"FROM {TEST_IMAGE}\nCOPY room /copied\n")
    upload = _uploaded(server, ann, tmp_path)
    text = (tmp_path / "Dockerfile").read_text()
    built(server, ann, "folder", containerfile=text, upload=upload)
    assert lines(server, ann, "cat /copied", image="folder") == ["of the folder"]


def _uploaded(server: RunningServer, person: Person, folder: Path) -> str:
    files = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    listed = [
        {"path": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in files
    ]
    raw = b"".join(f"{hashlib.sha256(data).hexdigest()} {len(data)}\n".encode() + data for _, data in files)
    server.ask("POST", "/uploads/blobs", raw=raw, uid=person.uid)
    answer = server.ask("POST", "/uploads", {"files": listed}, uid=person.uid).json
    assert answer["missing"] == []
    return str(answer["id"])


def test_packages_are_installed_on_top_of_a_base(server: RunningServer, ann: Person) -> None:
    """With a stand-in for Python, which says what it was asked for."""
    script = "printf '#!/bin/sh\\necho $* > /asked' > /bin/python3; busybox chmod 755 /bin/python3"
    fake = f"FROM {TEST_IMAGE}\nRUN {script}\n"
    built(server, ann, "fake-python", containerfile=fake)
    first = over(server, server.submit(ann.uid, command=["true"], image="fake-python", memory="256M"), ann.uid)
    base = first["spec"]["image"]
    built(server, ann, "packages", environment={"requirements": "torch\n"}, base=base)
    asked_for = "-m pip install --no-cache-dir --requirement /heliostat/requirements.txt"
    assert lines(server, ann, "cat /asked /heliostat/requirements.txt", image="packages") == [asked_for, "torch"]


UNIQUE = f"FROM {TEST_IMAGE}\nRUN cat /proc/sys/kernel/random/uuid > /made\n"  # each time it is really run


def layers_of(server: RunningServer, person: Person) -> Path:
    return server.home / "images" / person.name / "layers"


def test_a_build_uses_the_layers_of_the_same_person_again_and_of_nobody_else(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    import_test_image(server.home, bob.name)
    built(server, ann, "grown", containerfile=UNIQUE)
    first = lines(server, ann, "cat /made", image="grown")
    built(server, ann, "grown", containerfile=f"{UNIQUE}RUN echo more > /more\n")
    assert lines(server, ann, "cat /made /more", image="grown") == [*first, "more"]
    built(server, bob, "grown", containerfile=UNIQUE)
    assert lines(server, bob, "cat /made", image="grown") != first
    assert server.ask("DELETE", "/images/grown", uid=bob.uid).json["gone"] is True
    assert stat.S_IMODE(layers_of(server, ann).stat().st_mode) == 0o700


def test_a_changed_file_is_copied_anew_and_what_stands_before_it_is_not_run_again(
    server: RunningServer, ann: Person, tmp_path: Path
) -> None:
    (tmp_path / "code").write_text("one")
    body = {"containerfile": f"{UNIQUE}COPY code /code\n"}
    built(server, ann, "code", **body, upload=_uploaded(server, ann, tmp_path))
    first = lines(server, ann, "cat /made /code", image="code")
    (tmp_path / "code").write_text("two")
    built(server, ann, "code", **body, upload=_uploaded(server, ann, tmp_path))
    assert lines(server, ann, "cat /made /code", image="code") == [first[0], "two"]


def test_a_killed_build_harms_no_layer_and_leaves_none_of_its_own(server: RunningServer, ann: Person) -> None:
    built(server, ann, "steady", containerfile=UNIQUE)
    made = asked(server, ann, "endless", containerfile=f"{UNIQUE}RUN echo begun; sleep 600\n")
    patiently(lambda: "begun" in server.output(made["build_job"], ann.uid), "the build begins")
    server.ask("POST", f"/jobs/{made['build_job']}/cancel", uid=ann.uid)
    assert over(server, made["build_job"], ann.uid)["state"] == "cancelled"
    containers = layers_of(server, ann) / "overlay-containers/containers.json"
    assert "working-container" in containers.read_text()
    built(server, ann, "after", containerfile=f"{UNIQUE}RUN echo after > /after\n")
    assert lines(server, ann, "cat /made", image="steady") == lines(server, ann, "cat /made", image="after")
    assert "working-container" not in containers.read_text()
    assert str(layers_of(server, ann)) not in Path("/proc/mounts").read_text()


def test_a_build_beside_another_does_without_its_layers_instead_of_waiting(
    server: RunningServer, ann: Person
) -> None:
    begun = UNIQUE.replace("> /made", "> /beside")  # which no job has used: its images are at hand in any case
    built(server, ann, "first-of-two", containerfile=f"{begun}RUN echo 1 > /number\n")
    with open(layers_of(server, ann).with_name("layers.lock"), "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the other has it
        built(server, ann, "second-of-two", containerfile=f"{begun}RUN echo 2 > /number\n")
    first, second = (lines(server, ann, "cat /beside", image=f"{name}-of-two") for name in ("first", "second"))
    assert first != second


def test_a_build_that_fails_says_why_and_leaves_nothing(server: RunningServer, ann: Person) -> None:
    made = asked(server, ann, "broken", containerfile=f"FROM {TEST_IMAGE}\nRUN echo about to; no-such-program\n")
    job = over(server, made["build_job"], ann.uid)
    found = server.ask("GET", "/images/broken", uid=ann.uid).json
    assert (job["state"], found["state"]) == ("failed", "failed")
    assert "no-such-program" in found["reason"]
    assert not (server.home / "environments" / "ready" / made["digest"]).exists()


def test_a_killed_build_leaves_nothing_and_is_built_again(server: RunningServer, ann: Person) -> None:
    text = f"FROM {TEST_IMAGE}\nRUN echo begun; [ -e /never ] || sleep 3\n"
    made = asked(server, ann, "killed", containerfile=text)
    job_id = made["build_job"]
    patiently(lambda: "begun" in server.output(job_id, ann.uid), "the build begins")
    trace = (server.home / "attempts" / f"{job_id}.1.started").read_text().split()
    os.kill(int(trace[0]), signal.SIGKILL)
    job = over(server, job_id, ann.uid)  # tried again, as on a node that died
    assert job["state"] == "completed", (job, server.output(job_id, ann.uid))
    scratch = server.home / "jobs" / str(job_id) / "1.container"
    patiently(lambda: not scratch.exists(), "what it has left is gone")
    assert lines(server, ann, "echo here", image="killed") == ["here"]


def test_a_cancelled_build_leaves_nothing(server: RunningServer, ann: Person) -> None:
    made = asked(server, ann, "cancelled", containerfile=f"FROM {TEST_IMAGE}\nRUN echo begun; sleep 600\n")
    job_id = made["build_job"]
    patiently(lambda: "begun" in server.output(job_id, ann.uid), "the build begins")
    server.ask("POST", f"/jobs/{job_id}/cancel", uid=ann.uid)
    assert over(server, job_id, ann.uid)["state"] == "cancelled"
    folder = server.home / "jobs" / str(job_id)
    patiently(lambda: not (folder / "1.container").exists(), "its store is gone")
    assert not (server.home / "environments" / "ready" / made["digest"]).exists()
    assert str(folder) not in Path("/proc/mounts").read_text()


def test_nobody_sees_uses_or_removes_those_of_others(server: RunningServer, ann: Person, bob: Person) -> None:
    made = built(server, ann, "private")
    for method, path, body in (
        ("GET", f"/images/{made['digest']}", None),
        ("GET", "/images/private", None),
        ("GET", "/images/private/log", None),
        ("DELETE", "/images/private", None),
        ("POST", "/images/private/push", {"target": "127.0.0.1:1/x:1"}),
        ("POST", "/jobs", {"command": ["true"], "environment": made["digest"]}),
    ):
        assert server.ask(method, path, body, uid=bob.uid).status == 404, path
    assert server.ask("GET", "/images", uid=bob.uid).json["items"] == []


def _digest_of(server: RunningServer, person: Person, job_id: int) -> str:
    def recorded() -> str | None:
        machines = server.ask("GET", f"/jobs/{job_id}/record", uid=person.uid).json["machines"]
        return machines[-1]["image_digest"] if machines else None

    return str(patiently(recorded, "what its image is has been noted"))


def test_what_a_job_ran_in_is_noted_and_repeated_by_its_digest(server: RunningServer, ann: Person) -> None:
    body = {"command": ["true"], "image": TEST_IMAGE, "memory": "256M"}
    first, own = server.submit(ann.uid, **body), built(server, ann, "first", containerfile=PLAIN)
    over(server, first, ann.uid)
    digest = _digest_of(server, ann, first)
    again = server.ask("POST", f"/jobs/{first}/rerun", {}, uid=ann.uid).json["job"]["id"]
    job = over(server, again, ann.uid)
    assert job["spec"]["image"] == f"localhost/busybox@{digest}"
    assert (job["state"], _digest_of(server, ann, again)) == ("completed", digest), job["reason"]
    other = server.submit(ann.uid, **{**body, "image": "first"})
    over(server, other, ann.uid)
    assert _digest_of(server, ann, other) == own["image_digest"]
    repeated = server.ask("POST", f"/jobs/{other}/rerun", {}, uid=ann.uid).json["job"]["id"]
    assert over(server, repeated, ann.uid)["state"] == "completed"
    differences = server.ask("GET", f"/jobs/{first}/diff/{other}", uid=ann.uid).json["differences"]
    assert [one["second"] for one in differences if one["field"] == "image_digest"] == [own["image_digest"]]


def test_the_version_of_a_dataset_is_noted_and_compared(server: RunningServer, ann: Person, dataset: Path) -> None:
    body = {"command": ["cat", "/d/VERSION"], "image": TEST_IMAGE, "memory": "256M"}
    with_it = server.submit(ann.uid, **body, mounts=[f"{dataset}:/d:ro"])
    without = server.submit(ann.uid, **{**body, "command": ["true"]})
    for job_id in (with_it, without):
        assert over(server, job_id, ann.uid)["state"] == "completed"
        _digest_of(server, ann, job_id)
    differences = server.ask("GET", f"/jobs/{with_it}/diff/{without}", uid=ann.uid).json["differences"]
    told = [one["first"] for one in differences if one["field"] == "datasets"]
    assert told == [f"{dataset} version 7.1"]


def test_one_that_a_job_needs_stays_until_that_is_over(server: RunningServer, ann: Person) -> None:
    built(server, ann, "needed", containerfile=f"FROM {TEST_IMAGE}\nRUN echo needed > /n\n")
    job_id = server.submit(ann.uid, command=["sleep", "600"], image="needed")
    assert server.ask("DELETE", "/images/needed", uid=ann.uid).status == 409
    server.ask("POST", f"/jobs/{job_id}/cancel", uid=ann.uid)
    over(server, job_id, ann.uid)
    assert server.ask("DELETE", "/images/needed", uid=ann.uid).json["gone"] is True
    assert server.ask("GET", "/images/needed", uid=ann.uid).status == 404


def test_those_nobody_used_go_with_the_environments_but_not_what_a_job_needs(
    server: RunningServer, ann: Person
) -> None:
    unused = built(server, ann, "unused", containerfile=f"FROM {TEST_IMAGE}\nRUN echo unused > /u\n")
    kept = built(server, ann, "kept", containerfile=f"FROM {TEST_IMAGE}\nRUN echo kept > /k\n")
    job_id = server.submit(ann.uid, command=["sleep", "600"], image="kept", held=True)
    assert server.ask("POST", "/environments/prune", {"days": 0}).json["count"] >= 1
    ready = server.home / "environments" / "ready"
    assert not (ready / unused["digest"]).exists()
    assert (ready / kept["digest"] / "image.tar").exists()
    assert server.ask("GET", "/images/unused", uid=ann.uid).status == 404
    assert lines(server, ann, "echo here", image=TEST_IMAGE) == ["here"]  # which is not one that was built
    server.ask("POST", f"/jobs/{job_id}/cancel", uid=ann.uid)


@pytest.mark.parametrize(
    "body",
    [
        {"name": "../x", "containerfile": PLAIN},
        {"name": "a;touch /tmp/x", "containerfile": PLAIN},
        {"name": "UPPER", "containerfile": PLAIN},
        {"name": "lab/x", "containerfile": PLAIN},
        {"name": "x" * 300, "containerfile": PLAIN},
        {"name": "ok", "containerfile": "RUN true\n"},
        {"name": "ok", "containerfile": "FROM $(touch /tmp/x)\n"},
        {"name": "ok", "containerfile": "FROM --evil=1 --more busybox\n"},
        {"name": "ok", "containerfile": PLAIN, "upload": "0" * 64},
        {"name": "ok", "environment": {"requirements": "-e /etc"}, "base": TEST_IMAGE},
        {"name": "ok", "environment": {"requirements": "torch"}, "base": "../../etc"},
        {"name": "ok", "environment": {"requirements": "torch"}},
        {"name": "ok", "containerfile": PLAIN, "definition": "x"},
        {"name": "ok"},
    ],
)
def test_what_is_no_image_is_refused_with_a_hint(
    server: RunningServer, ann: Person, body: dict[str, object]
) -> None:
    answer = server.ask("POST", "/images", body, uid=ann.uid)
    assert answer.status == 422, answer.body
    assert answer.error["message"]


@needs_registry
def test_it_is_pushed_with_a_login_that_is_kept_nowhere(
    server: RunningServer, ann: Person, tmp_path: Path
) -> None:
    built(server, ann, "shared", containerfile=f"FROM {TEST_IMAGE}\nRUN echo shared > /s\n")
    with running_registry(tmp_path, with_login=True) as address:
        body = {"target": f"{address}/lab/shared:1", "username": "ann", "password": REGISTRY_PASSWORD}
        answer = server.ask("POST", "/images/shared/push", body, uid=ann.uid)
        assert answer.status == 201, answer.body
        job = over(server, answer.json["job_id"], ann.uid)
        said = server.output(job["id"], ann.uid)
        assert job["state"] == "completed", (job["reason"], said)
        patiently(lambda: _pushes(server, ann)[0]["pushed_digest"], "its digest is noted")
    assert _pushes(server, ann)[0]["pushed_digest"].startswith("sha256:")
    assert _nowhere(server, REGISTRY_PASSWORD)


@needs_registry
def test_what_was_pushed_can_be_used_by_others(
    server: RunningServer, ann: Person, bob: Person, tmp_path: Path
) -> None:
    built(server, ann, "shared", containerfile=f"FROM {TEST_IMAGE}\nRUN echo shared > /s\n")
    with running_registry(tmp_path) as address:
        body = {"target": f"{address}/lab/shared:1"}
        job_id = server.ask("POST", "/images/shared/push", body, uid=ann.uid).json["job_id"]
        assert over(server, job_id, ann.uid)["state"] == "completed", server.output(job_id, ann.uid)
        assert lines(server, bob, "cat /s", image=f"{address}/lab/shared:1") == ["shared"]
        text = f"FROM {address}/lab/shared:1 AS base\nFROM base\nRUN cat /s > /t\n"
        built(server, bob, "on-top", containerfile=text)
    assert lines(server, bob, "cat /t", image="on-top") == ["shared"]


@needs_registry
def test_the_nodes_rules_on_signatures_hold_for_all_a_build_fetches_and_nobodys_own(
    server: RunningServer, bob: Person, tmp_path: Path
) -> None:
    """Those of the node take what comes; his own nothing from registries, so that it is seen whose are asked."""
    own = bob.home / ".config/containers/policy.json"
    own.parent.mkdir(parents=True)
    of_registries = {"docker": {"": [{"type": "reject"}]}}
    own.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}], "transports": of_registries}))
    for path in (own, own.parent, own.parent.parent):
        shutil.chown(path, bob.name)
    try:
        with running_registry(tmp_path) as address:
            import_test_image(server.home, "root")
            push_image(server.home, "root", f"{address}/lab/base:1")
            text = f"ARG base={address}/lab/base:1\nFROM $base\nRUN echo fetched > /fetched\n"
            built(server, bob, "fetched", containerfile=text)
    finally:
        shutil.rmtree(own.parent)
    assert server.ask("DELETE", "/images/fetched", uid=bob.uid).json["gone"] is True


@needs_registry
def test_a_wrong_login_is_told_and_kept_nowhere(server: RunningServer, ann: Person, tmp_path: Path) -> None:
    built(server, ann, "shared", containerfile=f"FROM {TEST_IMAGE}\nRUN echo shared > /s\n")
    with running_registry(tmp_path, with_login=True) as address:
        body = {"target": f"{address}/lab/shared:1", "username": "ann", "password": "wrong-9281"}
        job_id = server.ask("POST", "/images/shared/push", body, uid=ann.uid).json["job_id"]
        job = over(server, job_id, ann.uid)
    assert job["state"] == "failed"
    assert "refused the login" in job["reason"], job["reason"]
    assert _nowhere(server, "wrong-9281")


def test_a_registry_that_is_down_is_told(server: RunningServer, ann: Person) -> None:
    built(server, ann, "first", containerfile=PLAIN)
    answer = server.ask("POST", "/images/first/push", {"target": "127.0.0.1:1/lab/x:1"}, uid=ann.uid)
    job = over(server, answer.json["job_id"], ann.uid)
    assert job["state"] == "failed"
    assert job["reason"].startswith("the image cannot be pushed: the registry does not respond"), job["reason"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"target": "x:1"}, "registry"),
        ({"target": "127.0.0.1:1/x;touch /tmp/x"}, "not an image name"),
        ({"target": f"127.0.0.1:1/x@sha256:{'0' * 64}"}, "digest"),
        ({"target": "127.0.0.1:1/x:1", "username": "ann"}, "password"),
        ({"target": "127.0.0.1:1/x:1", "username": "a:b", "password": "hunter2-77"}, "username"),
        ({"target": "127.0.0.1:1/x:1", "username": "a", "password": "hunter2-77" * 3000}, "password"),
    ],
)
def test_a_push_that_cannot_be_is_refused(
    server: RunningServer, ann: Person, body: dict[str, str], word: str
) -> None:
    built(server, ann, "first", containerfile=PLAIN)
    answer = server.ask("POST", "/images/first/push", body, uid=ann.uid)
    assert answer.status == 422
    assert word in answer.error["message"]
    assert b"hunter2-77" not in answer.body


def _pushes(server: RunningServer, person: Person) -> list[dict[str, Any]]:
    pushes: list[dict[str, Any]] = server.ask("GET", "/images/shared", uid=person.uid).json["pushes"]
    return pushes


def _nowhere(server: RunningServer, secret: str) -> bool:
    """In no file of the installation, as text or as tools write logins."""
    marks = [secret.encode(), base64.b64encode(f"ann:{secret}".encode())]
    files = (Path(folder, name) for folder, _, names in os.walk(server.home) for name in names)
    for path in (*files, server.folder / "log"):
        with contextlib.suppress(FileNotFoundError):  # what containers leave goes meanwhile
            if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size < 50 * 2**20:
                data = path.read_bytes()
                assert not any(mark in data for mark in marks), path
    return True
