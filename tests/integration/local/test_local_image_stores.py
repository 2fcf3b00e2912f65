"""Images that containers have fetched go when nobody uses them any more, and never one that is in use."""

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import ContainerSettings, Home
from heliostat.engines.job_folders import require_run_as_user
from heliostat.engines.local.containers import make_tool_folder
from heliostat.engines.local.image_stores import (
    ImageStore,
    image_store_bytes,
    start_store_cleanup,
    start_store_cleanups,
    wait_for_store_cleanup,
)
from heliostat.loops.image_cleanup import ImageCleaner
from heliostat.runtimes.image_stores import image_lock_path
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.container_images import (
    TEST_IMAGE,
    import_test_image,
    podman_skip_reason,
    push_image,
    running_registry,
)
from support.waiting import wait_until

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
OTHER = "localhost/other:latest"
SMALL = "1M"  # less than one image
BIG = "dd if=/dev/zero of=/big bs=1048576 count=4"
LONG_AGO = time.time() - 100 * 86400


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    server = RunningServer('server.node_name = "here"\n')
    yield server
    server.remove()


@pytest.fixture
def store(server: RunningServer, ann: Person) -> ImageStore:
    """With two images of hers, nobody else's, whatever became of those before."""
    path = server.home / "images" / ann.name
    shutil.rmtree(path, ignore_errors=True)
    import_test_image(server.home, ann.name)
    import_test_image(server.home, ann.name, OTHER, "other")
    return ImageStore(str(path), require_run_as_user(ann.name))


def limited(**limits: Any) -> ContainerSettings:
    return replace(ContainerSettings(keep_days=0, max_size="0"), **limits)


def sweep(store: ImageStore, limits: ContainerSettings) -> list[str]:
    """The names of what went."""
    return [
        line.split()[-1]
        for line in wait_for_store_cleanup(store, start_store_cleanup(store, home_of(store), limits))
    ]


def home_of(store: ImageStore) -> Home:
    return Home(Path(store.path).parents[1])


def names(store: ImageStore) -> set[str]:
    known = json.loads(Path(store.path, "overlay-images/images.json").read_text())
    return {name for image in known for name in image.get("names") or ()}


def used(store: ImageStore, image: str, at: float) -> Path:
    """As if a container of hers had used it then."""
    file = Path(image_lock_path(store.path, image))
    file.parent.mkdir(exist_ok=True)
    file.touch()
    for path in (file.parent, file):
        os.chown(path, store.owner.uid, store.owner.gid)
    os.utime(file, (at, at))
    return file


def left_of_sweeps(server: RunningServer, store: ImageStore) -> list[str]:
    """Files, and processes that podman needs without root."""
    room = make_tool_folder(home_of(store), store.owner)
    found = os.listdir(room)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_one = f"XDG_RUNTIME_DIR={room}\0".encode() in (folder / "environ").read_bytes()
            found += [f"{folder.name} {(folder / 'status').read_text()}"] if is_one else []
        except OSError:
            continue
    return found


def test_what_was_not_used_for_long_goes_and_leaves_nothing(server: RunningServer, store: ImageStore) -> None:
    assert sweep(store, limited(keep_days=30)) == []  # never seen before counts as used now
    used(store, OTHER, LONG_AGO)
    before = image_store_bytes(store)
    assert sweep(store, limited(keep_days=30)) == [OTHER]
    assert names(store) == {TEST_IMAGE}
    assert 0 < image_store_bytes(store) < before
    wait_for(
        lambda: not left_of_sweeps(server, store),
        "what podman left to be gone",
        lambda: str(left_of_sweeps(server, store)),
    )


def test_the_server_removes_what_is_due_of_everybody(server: RunningServer, store: ImageStore) -> None:
    used(store, OTHER, LONG_AGO)

    def keeper(**limits: Any) -> ImageCleaner:
        return ImageCleaner(partial(start_store_cleanups, home_of(store), limited(**limits)))

    assert keeper().clean_up() == 0  # without limits nobody looks
    assert keeper(keep_days=30).clean_up() == 1
    assert names(store) == {TEST_IMAGE}


def test_while_all_are_too_large_what_was_not_used_longest_goes_first(
    server: RunningServer, store: ImageStore, ann: Person
) -> None:
    used(store, TEST_IMAGE, LONG_AGO)
    used(store, OTHER, LONG_AGO + 86400)
    most = f"{image_store_bytes(store) * 3 // 4 // 2**20}M"
    assert sweep(store, limited(max_size=most)) == [TEST_IMAGE]
    assert server.run(ann.uid, command=["/bin/true"], image=OTHER)["state"] == "completed"


def test_an_image_in_use_stays_until_its_container_has_ended(
    server: RunningServer, store: ImageStore, ann: Person
) -> None:
    line = "echo ready; while [ ! -e go ]; do sleep 0.1; done; ls /etc; id -u"
    job = server.submit(ann.uid, command=["/bin/sh", "-c", line], image=TEST_IMAGE)
    wait_for(
        lambda: "ready" in server.output(job, ann.uid), "it to run", lambda: server.output(job, ann.uid, "stderr")
    )
    used(store, TEST_IMAGE, LONG_AGO)
    used(store, OTHER, LONG_AGO)
    assert sweep(store, limited(keep_days=30, max_size=SMALL)) == [OTHER]
    assert os.stat(image_lock_path(store.path, TEST_IMAGE)).st_mtime > LONG_AGO + 86400  # it is used now
    (server.home / f"jobs/{job}/work/go").touch()
    assert server.finished(job, ann.uid)["state"] == "completed"
    assert "this-is-the-image" in server.output(job, ann.uid)
    used(store, TEST_IMAGE, LONG_AGO)
    assert sweep(store, limited(keep_days=30)) == [TEST_IMAGE]


@pytest.mark.parametrize("what", ["lock", "building"])
def test_nothing_goes_while_she_fetches_or_builds(server: RunningServer, store: ImageStore, what: str) -> None:
    with open(Path(store.path, what), "a") as held:
        os.fchown(held.fileno(), store.owner.uid, store.owner.gid)
        fcntl.flock(held, fcntl.LOCK_SH)
        assert sweep(store, limited(max_size=SMALL)) == []
    assert names(store) == {TEST_IMAGE, OTHER}


def test_a_job_whose_image_was_removed_fetches_it_again(
    server: RunningServer, store: ImageStore, ann: Person, tmp_path: Path
) -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("needs docker-registry: scripts/install-test-parts")
    with running_registry(tmp_path) as address:
        image = f"{address}/lab/busybox:1"
        push_image(server.home, ann.name, image)
        body = {"command": ["/bin/sh", "-c", "id -u"], "image": image}
        assert server.run(ann.uid, **body)["state"] == "completed"
        sweep(store, limited(max_size=SMALL))
        assert image not in names(store)
        again = server.run(ann.uid, **body)
        assert again["state"] == "completed", server.output(again["id"], ann.uid, "stderr")
        assert "fetching" in server.output(again["id"], ann.uid, "stderr")
        assert server.output(again["id"], ann.uid) == f"{ann.uid}\n"
    gone = server.run(ann.uid, **body)  # still there: no registry is needed
    assert gone["state"] == "completed"


@pytest.fixture
def layers(server: RunningServer, store: ImageStore, ann: Person) -> Path:
    """What a build of hers has left for the next."""
    build(server, ann, 1)
    found = Path(store.path, "layers")
    assert (found / "overlay-layers/layers.json").exists()
    return found


def build(server: RunningServer, person: Person, number: int) -> None:
    body = {"name": "own", "containerfile": f"FROM {TEST_IMAGE}\nRUN {BIG}; echo {time.time_ns()} > /{number}\n"}
    job = server.finished(server.ask("POST", "/images", body, uid=person.uid).json["build_job"], person.uid)
    assert job["state"] == "completed", server.output(job["id"], person.uid)


def test_layers_that_no_build_has_used_for_long_go_and_leave_nothing(
    server: RunningServer, store: ImageStore, layers: Path
) -> None:
    limits = limited(keep_days=30)
    assert sweep(store, limits) == []
    os.utime(f"{store.path}/layers.lock", (LONG_AGO, LONG_AGO))
    before = image_store_bytes(store)
    assert sweep(store, limits) == ["builds"]
    assert not layers.exists()
    assert not Path(f"{layers}.gone").exists()
    assert names(store) == {TEST_IMAGE, OTHER}
    assert 0 < image_store_bytes(store) < before
    wait_for(
        lambda: not left_of_sweeps(server, store),
        "what podman left to be gone",
        lambda: str(left_of_sweeps(server, store)),
    )


def test_layers_go_before_images_and_before_the_image_they_lie_upon(
    server: RunningServer, store: ImageStore, layers: Path, ann: Person
) -> None:
    used(store, TEST_IMAGE, LONG_AGO)
    too_little = f"{image_store_bytes(store) // 2**20 - 2}M"
    assert sweep(store, limited(max_size=too_little)) == ["builds"]
    build(server, ann, 2)
    used(store, TEST_IMAGE, LONG_AGO)
    assert sweep(store, limited(keep_days=30)) == ["builds", TEST_IMAGE]
    import_test_image(server.home, ann.name)
    build(server, ann, 3)


def test_no_layers_go_while_she_builds_and_half_removed_ones_are_nobodys(
    server: RunningServer, store: ImageStore, layers: Path, ann: Person
) -> None:
    os.utime(f"{store.path}/layers.lock", (LONG_AGO, LONG_AGO))
    limits = limited(keep_days=30)
    with open(Path(store.path, "building"), "a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert sweep(store, limits) == []
    assert layers.exists()
    Path(f"{layers}.gone").mkdir()  # as a sweep that was killed leaves them
    shutil.chown(f"{layers}.gone", ann.name)
    shutil.move(layers, f"{layers}.gone/1")
    build(server, ann, 4)
    sweep(store, limits)
    assert not Path(f"{layers}.gone").exists()


@pytest.mark.parametrize("moment", ["it has begun", "podman runs", "the image is off the list"])
def test_a_sweep_that_is_killed_leaves_no_half_image(
    server: RunningServer, store: ImageStore, ann: Person, moment: str
) -> None:
    used(store, TEST_IMAGE, LONG_AGO)
    limits = limited(keep_days=30)
    room = Path(make_tool_folder(home_of(store), store.owner))
    reached = {
        "it has begun": (room / "list").exists,
        "podman runs": (room / "i").exists,
        "the image is off the list": lambda: TEST_IMAGE not in names(store),
    }[moment]
    with start_store_cleanup(store, home_of(store), limits) as process:
        wait_until(lambda: reached() or process.poll() is not None, f"the moment that {moment}")
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert OTHER in names(store)
    assert server.run(ann.uid, command=["/bin/true"], image=OTHER)["state"] == "completed"
    sweep(store, limits)  # the next one ends what was begun
    assert names(store) == {OTHER}
    import_test_image(server.home, ann.name)
    job = server.run(ann.uid, command=["/bin/ls", "/etc"], image=TEST_IMAGE)
    assert "this-is-the-image" in server.output(job["id"], ann.uid), server.output(job["id"], ann.uid, "stderr")
    wait_for(
        lambda: not left_of_sweeps(server, store),
        "what podman left to be gone",
        lambda: str(left_of_sweeps(server, store)),
    )
