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

import pytest

from heliostat.config import Home, Settings
from heliostat.engines.folders import person_of
from heliostat.engines.local.containers import tool_room
from heliostat.engines.local.image_stores import ImageStore, begin_sweep, end_sweep, store_bytes, sweep_stores
from heliostat.loops.image_stores import ImageStoreKeeper
from heliostat.runtimes.image_stores import in_use
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.images import IMAGE, push, put_image, registry, why_no_podman
from support.waiting import wait_until

pytestmark = [needs_root, pytest.mark.skipif(why_no_podman() is not None, reason=why_no_podman() or "")]
OTHER = "localhost/other:latest"
SMALL = "1M"  # less than one image
BIG = "dd if=/dev/zero of=/big bs=1048576 count=4"
LONG_AGO = time.time() - 100 * 86400


@pytest.fixture(scope="module")
def server(two_people: list[Person]) -> Iterator[RunningServer]:
    server = RunningServer('node_name = "here"\n')
    yield server
    server.remove()


@pytest.fixture
def store(server: RunningServer, ann: Person) -> ImageStore:
    """With two images of hers, nobody else's, whatever became of those before."""
    path = server.home / "images" / ann.name
    shutil.rmtree(path, ignore_errors=True)
    put_image(server.home, ann.name)
    put_image(server.home, ann.name, OTHER, "other")
    return ImageStore(str(path), person_of(ann.name))


def settings(server: RunningServer, **limits: object) -> Settings:
    none = Settings(Home(server.home), images_keep_days=0, images_max_size="0")
    return replace(none, **limits)  # type: ignore[arg-type]


def sweep(store: ImageStore, limits: Settings) -> list[str]:
    """The names of what went."""
    return [line.split()[-1] for line in end_sweep(store, begin_sweep(store, limits))]


def names(store: ImageStore) -> set[str]:
    known = json.loads(Path(store.path, "overlay-images/images.json").read_text())
    return {name for image in known for name in image.get("names") or ()}


def used(store: ImageStore, image: str, at: float) -> Path:
    """As if a container of hers had used it then."""
    file = Path(in_use(store.path, image))
    file.parent.mkdir(exist_ok=True)
    file.touch()
    for path in (file.parent, file):
        os.chown(path, store.owner.uid, store.owner.gid)
    os.utime(file, (at, at))
    return file


def left_of_sweeps(server: RunningServer, store: ImageStore) -> list[str]:
    """Files, and processes that podman needs without root."""
    room = tool_room(settings(server), store.owner)
    found = os.listdir(room)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_one = f"XDG_RUNTIME_DIR={room}\0".encode() in (folder / "environ").read_bytes()
            found += [f"{folder.name} {(folder / 'status').read_text()}"] if is_one else []
        except OSError:
            continue
    return found


def test_what_was_not_used_for_long_goes_and_leaves_nothing(server: RunningServer, store: ImageStore) -> None:
    assert sweep(store, settings(server, images_keep_days=30)) == []  # never seen before counts as used now
    used(store, OTHER, LONG_AGO)
    before = store_bytes(store)
    assert sweep(store, settings(server, images_keep_days=30)) == [OTHER]
    assert names(store) == {IMAGE}
    assert 0 < store_bytes(store) < before
    wait_for(
        lambda: not left_of_sweeps(server, store),
        "what podman left to be gone",
        lambda: str(left_of_sweeps(server, store)),
    )


def test_the_server_removes_what_is_due_of_everybody(server: RunningServer, store: ImageStore) -> None:
    used(store, OTHER, LONG_AGO)
    assert ImageStoreKeeper(partial(sweep_stores, settings(server))).sweep() == 0  # without limits nobody looks
    limited = settings(server, images_keep_days=30)
    assert ImageStoreKeeper(partial(sweep_stores, limited)).sweep() == 1
    assert names(store) == {IMAGE}


def test_while_all_are_too_large_what_was_not_used_longest_goes_first(
    server: RunningServer, store: ImageStore, ann: Person
) -> None:
    used(store, IMAGE, LONG_AGO)
    used(store, OTHER, LONG_AGO + 86400)
    most = f"{store_bytes(store) * 3 // 4 // 2**20}M"
    assert sweep(store, settings(server, images_max_size=most)) == [IMAGE]
    assert server.run(ann.uid, command=["/bin/true"], image=OTHER)["state"] == "completed"


def test_an_image_in_use_stays_until_its_container_has_ended(
    server: RunningServer, store: ImageStore, ann: Person
) -> None:
    line = "echo ready; while [ ! -e go ]; do sleep 0.1; done; ls /etc; id -u"
    job = server.submit(ann.uid, command=["/bin/sh", "-c", line], image=IMAGE)
    wait_for(
        lambda: "ready" in server.output(job, ann.uid), "it to run", lambda: server.output(job, ann.uid, "stderr")
    )
    used(store, IMAGE, LONG_AGO)
    used(store, OTHER, LONG_AGO)
    assert sweep(store, settings(server, images_keep_days=30, images_max_size=SMALL)) == [OTHER]
    assert os.stat(in_use(store.path, IMAGE)).st_mtime > LONG_AGO + 86400  # it is used now
    (server.home / f"jobs/{job}/work/go").touch()
    assert server.finished(job, ann.uid)["state"] == "completed"
    assert "this-is-the-image" in server.output(job, ann.uid)
    used(store, IMAGE, LONG_AGO)
    assert sweep(store, settings(server, images_keep_days=30)) == [IMAGE]


@pytest.mark.parametrize("what", ["lock", "building"])
def test_nothing_goes_while_she_fetches_or_builds(server: RunningServer, store: ImageStore, what: str) -> None:
    with open(Path(store.path, what), "a") as held:
        os.fchown(held.fileno(), store.owner.uid, store.owner.gid)
        fcntl.flock(held, fcntl.LOCK_SH)
        assert sweep(store, settings(server, images_max_size=SMALL)) == []
    assert names(store) == {IMAGE, OTHER}


def test_a_job_whose_image_was_removed_fetches_it_again(
    server: RunningServer, store: ImageStore, ann: Person, tmp_path: Path
) -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("needs docker-registry: scripts/install-test-parts")
    with registry(tmp_path) as address:
        image = f"{address}/lab/busybox:1"
        push(server.home, ann.name, image)
        body = {"command": ["/bin/sh", "-c", "id -u"], "image": image}
        assert server.run(ann.uid, **body)["state"] == "completed"
        sweep(store, settings(server, images_max_size=SMALL))
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
    body = {"name": "own", "containerfile": f"FROM {IMAGE}\nRUN {BIG}; echo {time.time_ns()} > /{number}\n"}
    job = server.finished(server.ask("POST", "/images", body, uid=person.uid).json["build_job"], person.uid)
    assert job["state"] == "completed", server.output(job["id"], person.uid)


def test_layers_that_no_build_has_used_for_long_go_and_leave_nothing(
    server: RunningServer, store: ImageStore, layers: Path
) -> None:
    limits = settings(server, images_keep_days=30)
    assert sweep(store, limits) == []
    os.utime(f"{store.path}/layers.lock", (LONG_AGO, LONG_AGO))
    before = store_bytes(store)
    assert sweep(store, limits) == ["builds"]
    assert not layers.exists()
    assert not Path(f"{layers}.gone").exists()
    assert names(store) == {IMAGE, OTHER}
    assert 0 < store_bytes(store) < before
    wait_for(
        lambda: not left_of_sweeps(server, store),
        "what podman left to be gone",
        lambda: str(left_of_sweeps(server, store)),
    )


def test_layers_go_before_images_and_before_the_image_they_lie_upon(
    server: RunningServer, store: ImageStore, layers: Path, ann: Person
) -> None:
    used(store, IMAGE, LONG_AGO)
    too_little = f"{store_bytes(store) // 2**20 - 2}M"
    assert sweep(store, settings(server, images_max_size=too_little)) == ["builds"]
    build(server, ann, 2)
    used(store, IMAGE, LONG_AGO)
    assert sweep(store, settings(server, images_keep_days=30)) == ["builds", IMAGE]
    put_image(server.home, ann.name)
    build(server, ann, 3)


def test_no_layers_go_while_she_builds_and_half_removed_ones_are_nobodys(
    server: RunningServer, store: ImageStore, layers: Path, ann: Person
) -> None:
    os.utime(f"{store.path}/layers.lock", (LONG_AGO, LONG_AGO))
    limits = settings(server, images_keep_days=30)
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
    used(store, IMAGE, LONG_AGO)
    limits = settings(server, images_keep_days=30)
    room = Path(tool_room(limits, store.owner))
    reached = {
        "it has begun": (room / "list").exists,
        "podman runs": (room / "i").exists,
        "the image is off the list": lambda: IMAGE not in names(store),
    }[moment]
    with begin_sweep(store, limits) as process:
        wait_until(lambda: reached() or process.poll() is not None, f"the moment that {moment}")
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert OTHER in names(store)
    assert server.run(ann.uid, command=["/bin/true"], image=OTHER)["state"] == "completed"
    sweep(store, limits)  # the next one ends what was begun
    assert names(store) == {OTHER}
    put_image(server.home, ann.name)
    job = server.run(ann.uid, command=["/bin/ls", "/etc"], image=IMAGE)
    assert "this-is-the-image" in server.output(job["id"], ann.uid), server.output(job["id"], ann.uid, "stderr")
    wait_for(
        lambda: not left_of_sweeps(server, store),
        "what podman left to be gone",
        lambda: str(left_of_sweeps(server, store)),
    )
