"""Workflows whose jobs run in real containers: what they hand on comes out of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from integration.workflow_diamond import assert_it_went_as_it_should, diamond, finished, submit
from support.container_images import TEST_IMAGE, import_test_image, podman_skip_reason

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
SMALL = {"memory": "256M", "cpus": 1}
WAYS: dict[str, dict[str, Any]] = {"bubblewrap": {"runtime": "bubblewrap"}, "podman": {"image": TEST_IMAGE}}


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    server = RunningServer('server.node_name = "here"\n')
    import_test_image(server.home, two_unix_users[0].name)
    yield server
    server.remove()


@pytest.mark.parametrize("fields", WAYS.values(), ids=WAYS.keys())
@pytest.mark.timeout(300)
def test_values_and_files_come_out_of_containers_and_go_into_the_next(
    server: RunningServer, ann: Person, fields: dict[str, Any]
) -> None:
    tries = ann.home / f"tries-{len(list(ann.home.iterdir()))}"
    document = diamond({**SMALL, **fields, "mounts": [f"{ann.home}:{ann.home}"]}, str(tries))
    number = submit(server, document, ann.uid)
    assert_it_went_as_it_should(server, finished(server, number, ann.uid), ann.uid)


@pytest.mark.parametrize("fields", WAYS.values(), ids=WAYS.keys())
@pytest.mark.timeout(300)
def test_a_job_in_a_container_can_read_what_others_hand_on_and_write_only_its_own(
    server: RunningServer, ann: Person, fields: dict[str, Any]
) -> None:
    change = (
        'echo worse > "$HELIOSTAT_WORKFLOW_DIR/a/file" && echo changed; '
        'touch "$HELIOSTAT_WORKFLOW_DIR/x" && echo made; '
        'cat "$HELIOSTAT_WORKFLOW_DIR/a/file"'
    )
    jobs = {
        "a": {"command": 'echo mine > "$HELIOSTAT_OUTPUT_DIR/file"', **SMALL, **fields},
        "b": {"command": change, "needs": "a", **SMALL, **fields},
    }
    found = finished(server, submit(server, {"name": "two", "jobs": jobs}, ann.uid), ann.uid)
    assert server.output(found["jobs"][1]["job_id"], ann.uid).split() == ["mine"], found
    folder = Path(server.home, "workflows", str(found["id"]))
    assert sorted(one.name for one in folder.iterdir()) == ["a", "b"]
