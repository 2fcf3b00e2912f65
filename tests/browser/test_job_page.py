"""The page of a job, with jobs that truly run and print."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.test_accessibility import ask_ourselves
from integration.running_server import RunningServer, wait_for

SMALL = {"cpus": 1, "memory": "256M"}
HOSTILE = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"


@pytest.fixture(autouse=True)
def _room(server: RunningServer) -> Iterator[None]:
    """Whatever a test left behind makes room for the next."""
    yield
    unfinished = server.ask("GET", "/jobs?unfinished=true&limit=1000").json["items"]
    ids = [job["id"] for job in unfinished]
    server.ask("POST", "/jobs/cancel", {"job_ids": ids, "force": True})
    if ids:
        server.ask("POST", "/jobs/wait", {"job_ids": ids, "timeout_seconds": 90})


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """This machine, with four made-up GPUs."""
    server = RunningServer(
        'server.simulate_gpus = "4xA100"\nserver.node_name = "here"\nmonitoring.sample_seconds = 1\n'
    )
    yield server
    server.remove()


def _gated(tmp_path: Path, first: str, then: str) -> tuple[list[str], Path]:
    """Prints something, waits for a file to be there, and prints something else."""
    gate = tmp_path / "gate"
    script = f"{first}; while ! [ -e {gate} ]; do sleep 0.1; done; {then}"
    return ["sh", "-c", script], gate


def test_a_job_is_watched_from_its_submission_to_its_end(
    page: Page, server: RunningServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    command, gate = _gated(tmp_path, "echo first words", "echo last words >&2; exit 3")
    number = server.submit(command=command, name="watched", held=True, **SMALL)
    page.goto(f"{server.url}/jobs/{number}")
    expect(page.locator("[data-live-state=on]")).to_be_visible()
    page.evaluate("window.sameDocument = true")
    server.ask("POST", f"/jobs/{number}/release", {})
    head = page.locator(".job-head")
    expect(head).to_contain_text("running")
    expect(page.locator(".ln")).to_have_text(["first words"])
    gate.touch()
    expect(page.get_by_role("log")).to_contain_text("last words")
    expect(page.locator(".ln.err")).to_have_text("last words")
    expect(head).to_contain_text("failed")
    expect(head).to_contain_text("Exit code 3.")
    expect(head.get_by_role("button")).to_have_count(0)
    assert page.evaluate("window.sameDocument")


def test_a_bar_is_shown_as_it_is_now_and_colours_as_colours(
    page: Page, server: RunningServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    command, gate = _gated(tmp_path, r"printf '\033[31mred\033[0m\n\r10%%\r20%%'", r"printf '\r100%%\ndone\n'")
    number = server.submit(command=command, **SMALL)
    page.goto(f"{server.url}/jobs/{number}")
    lines = page.locator(".ln")
    expect(lines).to_have_text(["red", "20%"])
    expect(page.locator(".ln .a1")).to_have_text("red")
    gate.touch()
    expect(lines).to_have_text(["red", "100%", "done"])


def test_the_log_goes_on_with_the_next_attempt(page: Page, server: RunningServer) -> None:
    number = server.submit(command=["sh", "-c", "echo attempt $HELIOSTAT_ATTEMPT; sleep 600"], **SMALL)
    page.goto(f"{server.url}/jobs/{number}")
    log = page.get_by_role("log")
    expect(log).to_contain_text("attempt 1")
    page.get_by_role("button", name="Requeue").click()
    page.get_by_role("button", name="Requeue job").click()
    expect(page.get_by_text("being stopped and requeued.")).to_be_visible()
    expect(page.locator(".ln", has_text=re.compile("^attempt 2$")).last).to_be_visible()
    expect(page.locator("#attempt-1")).to_contain_text("requeued by")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel job").click()
    expect(page.locator(".job-head")).to_contain_text("cancelled")


def test_lines_are_filtered_while_typing_and_found_in_all_of_it(page: Page, server: RunningServer) -> None:
    number = server.run(command=["seq", "1", "200000"], **SMALL)["id"]
    page.goto(f"{server.url}/jobs/{number}")
    assert page.locator(".ln").count() < 20_000
    find = page.get_by_label("Search the log")
    find.fill("199999")
    expect(page.locator(".ln:visible")).to_have_text(["199999"])
    find.fill("7777")
    find.press("Enter")
    expect(page.get_by_text("lines found.")).to_be_visible()
    page.get_by_role("link", name="177770", exact=True).click()
    expect(page.locator(".ln").first).to_have_text("177770")
    page.get_by_role("link", name="To the end").click()
    expect(page.locator(".ln").last).to_have_text("200000")


def test_a_log_is_downloaded(page: Page, server: RunningServer) -> None:
    number = server.run(command=["echo", "hello"], **SMALL)["id"]
    page.goto(f"{server.url}/jobs/{number}")
    with page.expect_download() as told:
        page.locator(".log-file").first.click()
    assert told.value.suggested_filename == f"job-{number}.1.stdout.log"
    assert Path(told.value.path()).read_bytes() == b"hello\n"


def test_nothing_hostile_runs(page: Page, server: RunningServer) -> None:
    job = server.submit(
        command=["sh", "-c", 'while :; do echo "$X"; echo "$X" > "a<b>.txt"; sleep 1; done'],
        name=HOSTILE[:60],
        env={"X": HOSTILE},
        **SMALL,
    )
    page.goto(f"{server.url}/jobs/{job}?find=script")
    expect(page.locator(".ln").first).to_have_text(HOSTILE)
    expect(page.locator(".ln").nth(2)).to_have_text(HOSTILE)  # came while we looked
    assert page.title().startswith(f"Job {job}")
    assert page.locator("main img, main script").count() == 0
    page.goto(f"{server.url}/jobs/{job}/files")
    expect(page.get_by_text("a<b>.txt")).to_be_visible()
    server.ask("POST", f"/jobs/{job}/cancel?force=true", {})


def test_a_waiting_job_says_why_and_what_would_start_earlier(page: Page, server: RunningServer) -> None:
    hog = server.submit(command=["sleep", "600"], gpus=3, time_limit="2h", **SMALL)
    wait_for(lambda: server.show(hog)["state"] == "running", "it to run")
    waits = server.submit(command=["sleep", "600"], gpus=4, time_limit="2h", **SMALL)
    page.goto(f"{server.url}/jobs/{waits}")
    expect(page.locator(".why-sentence")).to_contain_text("4 GPUs")
    expect(page.get_by_text("of 1 pending job")).to_be_visible()
    page.get_by_role("link", name="What would start earlier?").click()
    expect(page.locator(".suggestions li").first).to_contain_text("immediately")
    server.ask("POST", "/jobs/cancel", {"job_ids": [hog, waits], "force": True})
    expect(page.locator(".why-sentence")).to_have_count(0)


def test_what_it_uses_is_drawn_while_it_runs(page: Page, server: RunningServer) -> None:
    number = server.submit(command=["sh", "-c", "while :; do :; done"], gpus=1, **SMALL)
    wait_for(lambda: len(server.ask("GET", f"/jobs/{number}/stats").json["series"]) > 0, "samples")
    page.goto(f"{server.url}/jobs/{number}")
    expect(page.locator(".plot-card", has_text="CPUs").locator("svg.plot")).to_be_visible()
    expect(page.get_by_text("requested: 256 MiB")).to_be_visible()
    server.ask("POST", f"/jobs/{number}/cancel?force=true", {})


def test_all_of_it_works_without_scripts(new_page: Callable[..., Page], server: RunningServer) -> None:
    page = new_page(java_script_enabled=False)
    number = server.submit(command=["sh", "-c", "echo hello; sleep 60"], name="plain", held=True, **SMALL)
    page.goto(f"{server.url}/jobs/{number}")
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_text("Released.")).to_be_visible()
    wait_for(lambda: "hello" in server.output(number), "it to print")
    page.goto(f"{server.url}/jobs/{number}")
    expect(page.get_by_role("log")).to_contain_text("hello")
    page.get_by_role("link", name="stderr", exact=True).first.click()
    expect(page.get_by_text("No output yet.")).to_be_visible()
    page.get_by_label("Search the log").fill("hel")
    page.get_by_role("button", name="Search all").click()
    expect(page.get_by_text("No lines found.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel job").click()
    expect(page.get_by_text("Job cancelled.")).to_be_visible()


LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 700}},
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_of_a_busy_job_fits_and_can_be_read(
    new_page: Callable[..., Page], server: RunningServer, look: str
) -> None:
    colours = "".join(rf"\033[{code}mcolour {code}\033[0m\n" for code in (*range(30, 38), 1))
    script = f"printf '{colours}'; printf 'x%.0s' $(seq 2000); echo; echo oh >&2"
    number = server.run(command=["sh", "-c", script], name="n" * 120, env={"LONG": "y" * 500}, **SMALL)["id"]
    page = new_page(**LOOKS[look])
    for path in (f"/jobs/{number}", f"/jobs/{number}?find=colour", f"/jobs/{number}/files"):
        page.goto(server.url + path)
        for details in page.locator("details.more summary").all():
            details.click()
        assert ask_ourselves(page) == []
