import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from integration.running_server import RunningServer


def test_a_job_appears_runs_and_ends_without_a_reload(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/jobs")
    expect(page.locator("[data-live-state=on]")).to_be_visible()
    page.evaluate("window.sameDocument = true")
    number = server.submit(command=["sleep", "2"], name="watched", gpus=1)
    row = page.locator(f"#job-{number}")
    expect(row).to_contain_text("running")
    server.ask("POST", f"/jobs/{number}/cancel", {})
    expect(row).to_contain_text("cancelled")
    assert page.evaluate("window.sameDocument")


def test_what_is_ticked_and_focused_stays_so_when_the_list_changes(page: Page, server: RunningServer) -> None:
    kept = server.submit(command=["sleep", "600"], name="kept", gpus=1)
    page.goto(server.url + "/jobs")
    expect(page.locator("[data-live-state=on]")).to_be_visible()
    box = page.get_by_label(f"Select job {kept}")
    box.check()
    box.focus()
    newer = server.submit(command=["sleep", "600"], name="newer", gpus=1)
    expect(page.locator(f"#job-{newer}")).to_be_visible()
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    expect(page.get_by_role("button", name="Cancel 1 job")).to_be_visible()


def test_the_reasons_of_waiting_jobs_fit_a_small_window(
    new_page: Callable[..., Page], server: RunningServer
) -> None:
    page = new_page(viewport={"width": 1000, "height": 800})
    for _ in range(5):
        server.submit(
            command=["sleep", "600"], name="densenet3d-ukb-t1-pretrained-lr3e-4", gpus=4, gpu_type="A100"
        )
    page.goto(server.url + "/jobs?q=densenet3d")
    assert page.evaluate("document.querySelector('.table-wrap').scrollWidth") <= page.evaluate(
        "document.querySelector('.table-wrap').clientWidth"
    )


def test_many_jobs_are_cancelled_after_asking_once_more(page: Page, server: RunningServer) -> None:
    numbers = [server.submit(command=["sleep", "600"], name="bulk") for _ in range(3)]
    page.goto(server.url + "/jobs?q=bulk&state=unfinished")
    page.get_by_label("Select all").check()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.get_by_role("heading", name="Cancel 3 jobs?")).to_be_visible()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.get_by_text("3 jobs cancelled.")).to_be_visible()
    assert page.url == server.url + "/jobs?q=bulk&state=unfinished"
    assert all(server.finished(number)["state"] == "cancelled" for number in numbers)


def test_cancelling_works_without_scripts(new_page: Callable[..., Page], server: RunningServer) -> None:
    page = new_page(java_script_enabled=False)
    number = server.submit(command=["sleep", "600"], name="plain")
    page.goto(server.url + "/jobs?q=plain")
    page.get_by_label(f"Select job {number}").check()
    page.get_by_role("button", name="Cancel selected").click()
    page.get_by_role("button", name="Cancel 1 job").click()
    expect(page.get_by_text("1 job cancelled.")).to_be_visible()


def test_five_thousand_jobs_are_filtered_sorted_and_paged(page: Page, server: RunningServer) -> None:
    body = {"command": ["sleep", "600"], "name": "many", "array": "0-4999", "cpus": 1, "gpus": 4}
    assert server.ask("POST", "/jobs", body).status == 201
    page.goto(server.url + "/jobs?q=many&state=pending")
    expect(page.get_by_text(re.compile(r"1–50 of 4,\d\d\d|1–50 of 5,000"))).to_be_visible()  # noqa: RUF001
    page.get_by_role("link", name="Next").click()
    expect(page).to_have_url(re.compile("page=2"))
    page.get_by_role("link", name="GPUs").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("GPUs")
    page.get_by_label("Name or ID").fill("no such job")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No jobs match")).to_be_visible()


def test_a_person_logs_in_and_out(new_page: Callable[..., Page], server: RunningServer) -> None:
    server.ask("POST", "/users", {"name": "nora", "password": "correct horse battery"})
    page = new_page(log_in=False)
    page.goto(server.url + "/jobs")
    page.get_by_label("Name").fill("nora")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(server.url + "/jobs")
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Log out", exact=True).click()
    expect(page.get_by_role("heading", name="Log in to Heliostat")).to_be_visible()
