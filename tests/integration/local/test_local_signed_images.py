"""Signed images: real keys, a real registry, and a node whose rules demand signatures."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from support.container_images import podman_skip_reason, running_registry
from support.signed_images import TRUSTED_KEY, UNTRUSTED_KEY, SigningNode, signatures_skip_reason

_MISSING = podman_skip_reason() or signatures_skip_reason()
pytestmark = [needs_root, pytest.mark.skipif(_MISSING is not None, reason=_MISSING or "")]
SMALL = {"memory": "256M", "cpus": 1}


@pytest.fixture(scope="module")
def node() -> Iterator[SigningNode]:
    folder = Path(tempfile.mkdtemp(prefix="helio-signed-"))
    folder.chmod(0o755)
    with running_registry(folder) as address:
        node = SigningNode(folder, address)
        yield node
        node.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(node: SigningNode) -> Iterator[RunningServer]:
    server = RunningServer('server.node_name = "here"\n', python=node.python)
    yield server
    server.remove()


def run(server: RunningServer, person: Person, image: str) -> dict[str, Any]:
    return server.run(person.uid, command=["/bin/cat", "/etc/this-is-the-image"], image=image, **SMALL)


def refused(server: RunningServer, person: Person, image: str) -> str:
    """The reason it was not run for."""
    job = run(server, person, image)
    assert job["state"] == "failed", job
    assert job["exit_code"] == 125
    reason: str = job["reason"]
    assert image in reason
    assert "gpgme" not in reason, reason
    return reason


def test_a_signed_image_runs(server: RunningServer, node: SigningNode, ann: Person) -> None:
    job = run(server, ann, node.push("lab/signed:1", TRUSTED_KEY))
    assert job["state"] == "completed", (job["reason"], server.output(job["id"], ann.uid, "stderr"))


def test_an_unsigned_one_is_refused_with_what_to_do(server: RunningServer, node: SigningNode, ann: Person) -> None:
    reason = refused(server, ann, node.push("lab/plain:1", None))
    assert "is not signed" in reason
    assert "podman push --sign-by" in reason


def test_one_signed_by_somebody_else_is_refused(server: RunningServer, node: SigningNode, ann: Person) -> None:
    reason = refused(server, ann, node.push("lab/strange:1", UNTRUSTED_KEY))
    assert "not signed with a key that this node trusts" in reason


def test_a_signature_moved_to_another_image_is_worth_nothing(
    server: RunningServer, node: SigningNode, ann: Person
) -> None:
    """The tag leads to other contents now, and the signature of the former ones was laid beside them."""
    image = node.push("lab/swapped:1", TRUSTED_KEY)
    signed = node.signature_path("lab/swapped").rename(node.folder / "kept")
    node.push("lab/swapped:1", UNTRUSTED_KEY, what="something-else")
    shutil.copy(signed / "signature-1", node.signature_path("lab/swapped") / "signature-1")
    assert "is for another image" in refused(server, ann, image)


def test_nor_is_it_under_another_name(server: RunningServer, node: SigningNode, ann: Person) -> None:
    node.push("lab/old:1", TRUSTED_KEY)
    image = node.push("lab/new:1", UNTRUSTED_KEY)
    shutil.copy(node.signature_path("lab/old") / "signature-1", node.signature_path("lab/new") / "signature-1")
    assert "is for another image" in refused(server, ann, image)


def test_a_signed_image_whose_contents_were_changed_is_refused(
    server: RunningServer, node: SigningNode, ann: Person
) -> None:
    image = node.push("lab/changed:1", TRUSTED_KEY, what="changed-later")
    blobs = node.folder / "registry/docker/registry/v2/blobs"
    layer = max(blobs.rglob("data"), key=lambda blob: (blob.stat().st_size, blob.stat().st_mtime))
    content = layer.read_bytes()
    layer.write_bytes(content[:-64] + bytes(64))
    try:
        assert "downloaded data is corrupt" in refused(server, ann, image)
    finally:
        layer.write_bytes(content)


def test_rules_that_cannot_be_read_let_nothing_through(
    server: RunningServer, node: SigningNode, ann: Person
) -> None:
    image = node.push("lab/locked:1", TRUSTED_KEY)
    kept = node.key.rename(node.folder / "kept.gpg")
    try:
        reason = refused(server, ann, image)
    finally:
        kept.rename(node.key)
    assert "contact an admin" in reason
    assert "/etc/containers/policy.json" in reason


def test_builds_begin_with_signed_images_only(server: RunningServer, node: SigningNode, ann: Person) -> None:
    signed, plain = node.push("lab/base:1", TRUSTED_KEY), node.push("lab/plain:1", None)
    job = _built(server, ann, f"FROM {signed}\nRUN echo made > /made\n")
    assert job["state"] == "completed", (job["reason"], server.output(job["id"], ann.uid))
    for text in (f"FROM {plain}\nRUN true\n", f"ARG base={plain}\nFROM $base\nRUN true\n"):
        job = _built(server, ann, text)
        assert job["state"] == "failed"
        assert "is not signed" in job["reason"], job["reason"]


def test_own_images_are_built_run_and_pushed_where_all_else_is_refused(
    server: RunningServer, node: SigningNode, ann: Person
) -> None:
    job = _built(server, ann, f"FROM {node.push('lab/base:1', TRUSTED_KEY)}\nRUN echo own > /own\n")
    assert job["state"] == "completed", (job["reason"], server.output(job["id"], ann.uid))
    job = server.run(ann.uid, command=["/bin/cat", "/own"], image="based", **SMALL)
    assert job["state"] == "completed", (job["reason"], server.output(job["id"], ann.uid, "stderr"))
    answer = server.ask("POST", "/images/based/push", {"target": f"{node.registry}/lab/own:1"}, uid=ann.uid)
    job = server.finished(answer.json["job_id"], ann.uid)
    assert job["state"] == "completed", (job["reason"], server.output(job["id"], ann.uid))


def test_nobodys_own_rules_count(server: RunningServer, node: SigningNode, bob: Person) -> None:
    own = bob.home / ".config/containers"
    own.mkdir(parents=True)
    (own / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    for path in (own.parent, own, own / "policy.json"):
        shutil.chown(path, bob.name)
    try:
        assert "is not signed" in refused(server, bob, node.push("lab/plain:1", None))
    finally:
        shutil.rmtree(own)


def _built(server: RunningServer, person: Person, text: str) -> dict[str, Any]:
    answer = server.ask("POST", "/images", {"name": "based", "containerfile": text}, uid=person.uid)
    assert answer.status == 201, answer.body
    return server.finished(answer.json["build_job"], person.uid)
