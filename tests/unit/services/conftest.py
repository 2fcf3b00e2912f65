from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.services.site import Site, new_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as made:
        yield made
