"""What tests of the database share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.store.database import Store
from support.new_database import create_database
from unit.store.made_up import add_people


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """With somebody in it, and no jobs but those the tests of one file add."""
    path: Path = tmp_path_factory.mktemp("store") / "heliostat.db"
    create_database(path)
    store = Store(path)
    store.write(add_people)
    yield store
    store.close()
