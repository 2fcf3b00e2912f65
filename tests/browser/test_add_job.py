import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer, wait_for


@pytest.fixture
def full(server: RunningServer) -> Iterator[None]:
    """A cluster on which one GPU is free."""
    _empty(server)
    for gpus in (4, 3):
        number = server.submit(command=["sleep", "7000"], gpus=gpus, cpus=1, memory="1G", time_limit="2h")
        wait_for(lambda number=number: server.show(number)["state"] == "running", f"job {number} to run")
    yield
    _empty(server)


def _empty(server: RunningServer) -> None:
    items = server.ask("GET", "/jobs?unfinished=true&limit=1000").json["items"]
    ids = [job["id"] for job in items]
    server.ask("POST", "/jobs/cancel", {"job_ids": ids, "force": True})
    assert not server.ask("POST", "/jobs/wait", {"job_ids": ids}).json["unfinished"]


def submitted(page: Page, server: RunningServer) -> dict[str, object]:
    """The job whose page the browser was sent to."""
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))
    return server.show(int(page.url.rpartition("/")[2]))


def test_a_job_is_added_by_the_form(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/jobs")
    page.get_by_role("link", name="Add job").click()
    expect(page.get_by_label("GPUs", exact=True)).to_have_value("1")
    page.get_by_label("Command", exact=True).fill("python train.py")
    page.get_by_label("GPU type").select_option("A100")
    page.get_by_label("Time limit").fill("30m")
    page.get_by_text("More options").click()
    page.get_by_label("Environment variables").fill("A=1\nB=two words")
    page.get_by_label("Hold").check()
    expect(page.get_by_text("It would start now.")).to_be_visible()
    page.get_by_role("button", name="Submit job").click()
    job = submitted(page, server)
    assert (job["state"], job["gpus"], job["gpu_type"], job["time_limit_seconds"]) == ("held", 1, "A100", 1800)
    assert job["spec"]["env"] == {"A": "1", "B": "two words"}  # type: ignore[index]
    expect(page.locator(".flash-good")).to_have_text(f"Job {job['id']} submitted.")


def test_the_preview_follows_what_is_typed_and_offers_what_is_sooner(
    page: Page, server: RunningServer, full: None
) -> None:
    page.goto(server.url + "/jobs/new")
    expect(page.get_by_role("button", name="Preview")).to_be_hidden()
    page.get_by_label("Command", exact=True).fill("python train.py")
    page.get_by_label("GPUs", exact=True).fill("4")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("It would start about")
    page.get_by_role("button", name=re.compile("^1 GPU")).click()
    expect(page.get_by_label("GPUs", exact=True)).to_have_value("1")
    expect(page.get_by_label("Command", exact=True)).to_have_value("python train.py")
    expect(verdict).to_have_text("It would start now.")
    page.get_by_label("GPUs", exact=True).fill("lots")
    expect(verdict).to_have_text("GPUs: must be a number.")


def test_the_same_job_is_shown_for_the_terminal_while_one_types(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/jobs/new?gpus=2")
    page.get_by_text("Export as command, YAML or JSON").click()
    page.get_by_label("Command", exact=True).fill('echo "it\'s" > out')
    expect(page.get_by_label("Command line")).to_have_text(
        "helio run --gpus 2 --project default -- 'echo \"it'\"'\"'s\" > out'"
    )
    with page.expect_download() as download:
        page.get_by_role("button", name="Download YAML").click()
    assert download.value.suggested_filename == "job.yaml"
    assert "gpus: 2" in Path(download.value.path()).read_text()


def test_a_file_fills_in_the_form(page: Page, server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [python, a b.py]\ngpus: 3\nmemory: 8192\nclass: scavenger\n")
    page.goto(server.url + "/jobs/new")
    page.get_by_text("Import a YAML or JSON file").click()
    page.get_by_label("File", exact=True).set_input_files(file)
    expect(page.get_by_text("Filled in from the file.")).to_be_visible()
    expect(page.get_by_label("Command", exact=True)).to_have_value("python 'a b.py'")
    expect(page.get_by_label("Memory", exact=True)).to_have_value("8G")
    expect(page.get_by_label("Class")).to_have_value("scavenger")


def test_two_clicks_make_one_job(page: Page, server: RunningServer) -> None:
    before = server.jobs()
    page.goto(server.url + "/jobs/new")
    page.get_by_label("Command", exact=True).fill("true")
    page.get_by_role("button", name="Submit job").dblclick()
    submitted(page, server)
    assert server.jobs() == before + 1


def test_enter_in_a_field_submits(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/jobs/new?command=true")
    page.get_by_label("Name", exact=True).fill("by enter")
    page.get_by_label("Name", exact=True).press("Enter")
    assert submitted(page, server)["name"] == "by enter"


def test_everything_works_without_scripts(
    new_page: Callable[..., Page], server: RunningServer, full: None
) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(server.url + "/jobs/new")
    page.get_by_label("Command", exact=True).fill("python train.py\n# and more")
    page.get_by_label("GPUs", exact=True).fill("4")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".verdict")).to_contain_text("It would start about")
    page.get_by_role("button", name=re.compile("^1 GPU")).click()
    expect(page.get_by_label("GPUs", exact=True)).to_have_value("1")
    expect(page.locator(".verdict")).to_have_text("It would start now.")
    page.get_by_text("Export as command, YAML or JSON").click()
    expect(page.get_by_label("Command line")).to_contain_text("helio run --gpus 1")
    page.get_by_label("Name", exact=True).fill("plain form")
    page.get_by_role("button", name="Submit job").click()
    job = submitted(page, server)
    assert job["name"] == "plain form"
    assert job["spec"]["command"][2] == "python train.py\n# and more"  # type: ignore[index]


def test_a_file_is_pasted_without_scripts(new_page: Callable[..., Page], server: RunningServer) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(server.url + "/jobs/new")
    page.get_by_text("Import a YAML or JSON file").click()
    expect(page.get_by_label("File", exact=True)).to_be_hidden()
    page.get_by_label("Content of the file").fill('{"command": "true", "gpus": 2}')
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_label("GPUs", exact=True)).to_have_value("2")


def test_a_job_is_submitted_again_with_changes(page: Page, server: RunningServer) -> None:
    number = server.submit(command="echo one", name="first", gpus=1, held=True)
    page.goto(f"{server.url}/jobs/new?from={number}&gpus=2")
    expect(page.get_by_label("Command", exact=True)).to_have_value("echo one")
    page.get_by_label("Name", exact=True).fill("second")
    page.get_by_role("button", name="Submit job").click()
    job = submitted(page, server)
    assert (job["name"], job["gpus"]) == ("second", 2)
