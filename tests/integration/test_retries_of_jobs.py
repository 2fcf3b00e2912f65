"""Jobs that are tried again after what they name, whatever dies in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.errors import Invalid
from support.server_process import ServerProcess
from support.waiting import wait_until

FAILS_TWICE = 'echo try >> {file}; test "$(wc -l < {file})" -ge 3 || exit 75'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("retries") / "home", cpus=4) as server:
        yield server


def test_an_exit_code_that_is_named_is_tried_again_until_it_completes(
    server: ServerProcess, tmp_path: Path
) -> None:
    command = FAILS_TWICE.format(file=tmp_path / "tries")
    job = server.client.submit(command, max_retries=5, retry_on="exit:75", cpus=1, memory=64).wait(60)
    assert (job.data["state"], job.data["attempt"], job.data["retries"]) == ("completed", 3, 2)
    attempts = server.client.jobs.get(job.id).data["attempts"]
    assert [(one["state"], one["exit_code"]) for one in attempts] == [
        ("failed", 75),
        ("failed", 75),
        ("completed", 0),
    ]


def test_an_exit_code_that_is_not_named_ends_it(server: ServerProcess) -> None:
    job = server.client.submit("exit 3", max_retries=5, retry_on=["exit:75"], cpus=1, memory=64).wait(60)
    assert (job.data["state"], job.data["attempt"], job.data["retries"]) == ("failed", 1, 0)


def test_one_that_waits_for_its_next_try_says_so_and_is_not_forgotten_by_a_server_that_dies(
    server: ServerProcess, tmp_path: Path
) -> None:
    command = FAILS_TWICE.format(file=tmp_path / "tries")
    job = server.client.submit(command, max_retries=5, retry_on=["exit"], retry_delay="2s", cpus=1, memory=64)
    wait_until(lambda: server.client.jobs.get(job.id).data["retries"] >= 1, "it has failed once", 60)
    server.kill()
    server.start()
    assert job.wait(90).data["state"] == "completed"
    assert len((tmp_path / "tries").read_text().splitlines()) == 3
    assert [one["kind"] for one in server.client.events.list(job.id)].count("failed") == 2


def test_a_delay_is_told_in_words(server: ServerProcess) -> None:
    job = server.client.submit("exit 9", max_retries=2, retry_on="exit", retry_delay="1h", cpus=1, memory=64)
    wait_until(lambda: server.client.jobs.get(job.id).data["retries"] == 1, "it has failed once", 60)
    wait_until(lambda: "is retried at" in server.client.jobs.why(job.id)["sentence"], "it says why it waits", 120)
    assert "after exit code 9 (retry 1 of 2)" in server.client.jobs.why(job.id)["sentence"]
    assert "begin" not in server.client.jobs.get(job.id).data["request"], "asked for by nobody"
    job.cancel()
    assert job.wait(120).data["state"] == "cancelled"


def test_what_is_to_be_retried_without_a_number_of_retries_is_refused(server: ServerProcess) -> None:
    with pytest.raises(Invalid, match="max_retries"):
        server.client.submit("true", retry_on="exit:75")
