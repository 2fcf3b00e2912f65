"""What fetched images take, read out of folders whose owners may put anything there."""

import getpass
import os
from pathlib import Path

import pytest

from heliostat.config import ContainerSettings
from heliostat.engines.local.image_stores import (
    describe_image_stores,
    image_store_bytes,
    list_image_stores,
    max_store_bytes,
)

GIB = 2**30


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """With one store, of who runs this: two layers of a GiB."""
    layers = tmp_path / "images" / getpass.getuser() / "overlay-layers"
    layers.mkdir(parents=True)
    (layers / "layers.json").write_text(f'[{{"id":"a","diff-size":{GIB}}},{{"id":"b","diff-size":{GIB},"x":1}}]')
    return tmp_path / "images"


def test_the_layers_of_a_store_add_up(images: Path) -> None:
    assert [image_store_bytes(store) for store in list_image_stores(images)] == [2 * GIB]


def test_no_link_in_a_store_is_followed(images: Path) -> None:
    (store,) = list_image_stores(images)
    layers = Path(store.path, "overlay-layers")
    layers.rename(images.parent / "elsewhere")
    layers.symlink_to(images.parent / "elsewhere")
    assert image_store_bytes(store) == 0
    layers.unlink()
    layers.mkdir()
    os.mkfifo(layers / "layers.json")  # which would block
    assert image_store_bytes(store) == 0


def test_what_is_not_the_store_of_a_user_is_left_alone(images: Path) -> None:
    (images / "no-such-user-here").mkdir()
    (images / "a file").touch()
    (images / "daemon").symlink_to(images / getpass.getuser())
    assert [store.owner.name for store in list_image_stores(images)] == [getpass.getuser()]
    assert list(list_image_stores(images / "nowhere")) == []


def test_the_doctor_tells_what_they_take_and_when_they_go(images: Path) -> None:
    assert describe_image_stores(images, ContainerSettings()) == (
        f"Images of jobs and builds use 2.0 GiB ({getpass.getuser()} 2.0 GiB); they are removed 30 days after "
        "their last use and above 200G per user."
    )
    for_ever = ContainerSettings(keep_days=0, max_size="0")
    assert max_store_bytes(for_ever) is None
    assert (describe_image_stores(images, for_ever) or "").endswith("they are never removed.")
    assert describe_image_stores(images / "nowhere", ContainerSettings()) is None
