"""The page of one job over plain HTTP: rights, escaping, verbs, logs, files."""

import json
import re

import pytest

from integration.running_server import RunningServer, wait_for
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
SMALL = {"cpus": 1, "memory": "256M"}


@pytest.fixture(scope="module")
def surfer(server: RunningServer) -> Surfer:
    return Surfer(server).by_link()


@pytest.fixture(scope="module")
def stranger(server: RunningServer) -> Surfer:
    assert server.ask("POST", "/users", {"name": "stranger", "password": PASSWORD}).status == 201
    surfer = Surfer(server)
    surfer.log_in("stranger", PASSWORD)
    return surfer


def _do(surfer: Surfer, job: int, verb: str, *fields: tuple[str, str]) -> int:
    token = surfer.get("/").form_token
    return surfer.post(f"/jobs/{job}/do/{verb}", [("csrf", token), *fields]).status


def test_a_finished_job_tells_what_it_was_and_printed(server: RunningServer, surfer: Surfer) -> None:
    job = server.run(script="#!/bin/sh\necho to out\necho to err >&2\nexit 3\n", name="oops", **SMALL)
    text = surfer.get(f"/jobs/{job['id']}").text
    assert "<h1>oops</h1>" in text
    assert "Exit code 3." in text
    assert '<div class="ln">to out</div>' in text
    assert '<div class="ln err">to err</div>' in text
    assert "attempt 1 on here" in text
    assert "echo to out" in text  # the script
    assert "Cancel" not in text


def test_a_session_and_its_job_link_to_each_other(server: RunningServer, surfer: Surfer) -> None:
    body = {"app": "custom", "command": ["sleep", "600"], "name": "linked", **SMALL}
    number = server.ask("POST", "/sessions", body).json["id"]
    assert f'href="/sessions/{number}"' in surfer.get(f"/jobs/{number}").text
    assert f'href="/jobs/{number}"' in surfer.get(f"/sessions/{number}").text
    server.ask("POST", f"/jobs/{number}/cancel", {})


def test_nothing_hostile_becomes_markup(server: RunningServer, surfer: Surfer) -> None:
    job = server.run(
        command=["printf", "%s\n", HOSTILE],
        name=HOSTILE[:60],
        env={"X": HOSTILE, "PATH": "/usr/bin:/bin"},
        **SMALL,
    )
    for path in ("", "?find=script", "?find=" + "%3Cscript%3E", "?stream=stdout&at=0"):
        text = surfer.get(f"/jobs/{job['id']}{path}").text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=", text)
    assert "&lt;script&gt;alert(1)" in text
    more = surfer.get(f"/jobs/{job['id']}/log/more?stream=stdout")
    assert more.headers["content-type"] == "application/json"
    assert json.loads(more.text)["lines"] == [{"stream": "stdout", "runs": [["", HOSTILE]]}]


@pytest.mark.parametrize(
    "path", ["", "/log/more", "/log/raw", "/files", "/file?path=a", "?whatif=1", "?find=x", "?attempt=1"]
)
def test_the_jobs_of_others_are_refused_with_a_hint(server: RunningServer, stranger: Surfer, path: str) -> None:
    job = server.submit(command=["sleep", "60"], name="secret-plan", **SMALL)
    seen = stranger.get(f"/jobs/{job}{path}")
    assert seen.status == 403
    assert "belongs to another user" in seen.text
    assert "secret-plan" not in seen.text
    server.ask("POST", f"/jobs/{job}/cancel?force=true", {})


@pytest.mark.parametrize("verb", ["cancel", "kill", "hold", "release", "requeue"])
def test_nobody_acts_on_the_jobs_of_others(server: RunningServer, stranger: Surfer, verb: str) -> None:
    job = server.submit(command=["true"], held=True, **SMALL)
    assert _do(stranger, job, verb) == 403
    assert _do(stranger, job, verb, ("confirmed", "yes")) == 403
    assert server.show(job)["state"] == "held"
    server.ask("POST", f"/jobs/{job}/cancel", {})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/999999999", 404),
        ("/jobs/" + "9" * 30, 404),
        ("/jobs/" + "9" * 5000, 404),
        ("/jobs/0", 404),
        ("/jobs/-1", 404),
        ("/jobs/abc", 404),
        ("/arrays/999999", 404),
        ("/jobs/{job}?attempt=7", 404),
        ("/jobs/{job}?attempt=0", 422),
        ("/jobs/{job}?stream=nonsense", 422),
        ("/jobs/{job}?before=-1", 422),
        ("/jobs/{job}?find=" + "x" * 201, 422),
        ("/jobs/{job}/log/more?stdout=-5", 422),
        ("/jobs/{job}/log/raw?stream=both", 422),
        ("/jobs/{job}/file", 422),
        ("/jobs/{job}/file?path=../1.stdout", 404),
        ("/jobs/{job}/files?path=..", 404),
    ],
)
def test_addresses_that_lead_nowhere_say_so(server: RunningServer, surfer: Surfer, path: str, status: int) -> None:
    job = server.run(command=["true"], **SMALL)["id"]
    seen = surfer.get(path.format(job=job))
    assert seen.status == status
    assert "<h1>" in seen.text


def test_a_job_is_held_released_and_cancelled(server: RunningServer, surfer: Surfer) -> None:
    job = server.submit(command=["true"], held=True, **SMALL)
    assert "Release" in surfer.get(f"/jobs/{job}").text
    assert _do(surfer, job, "cancel") == 200  # asks once more
    assert server.show(job)["state"] == "held"
    assert _do(surfer, job, "release") == 303
    assert server.finished(job)["state"] == "completed"
    assert _do(surfer, job, "hold") == 409
    assert _do(surfer, job, "nonsense") == 404


def test_a_running_job_goes_back_to_the_queue_and_keeps_both_logs(server: RunningServer, surfer: Surfer) -> None:
    job = server.submit(command=["sh", "-c", "echo attempt $HELIOSTAT_ATTEMPT; sleep 600"], **SMALL)
    wait_for(lambda: server.show(job)["state"] == "running", "it to run")
    assert _do(surfer, job, "requeue") == 200  # asks once more
    assert _do(surfer, job, "requeue", ("confirmed", "yes")) == 303
    wait_for(lambda: server.show(job)["attempt"] == 2 and server.show(job)["state"] == "running", "attempt 2")
    text = surfer.get(f"/jobs/{job}?attempt=1").text
    assert "attempt 1 on here" in text
    assert "attempt 2 on here" in text
    assert "requeued by" in text
    assert _do(surfer, job, "cancel", ("confirmed", "yes")) == 303
    assert server.finished(job)["state"] == "cancelled"


def test_a_log_is_downloaded_byte_by_byte(server: RunningServer, surfer: Surfer) -> None:
    job = server.run(command=["seq", "1", "300000"], **SMALL)["id"]
    seen = surfer.get(f"/jobs/{job}/log/raw?stream=stdout")
    assert seen.text == "".join(f"{number}\n" for number in range(1, 300001))
    assert seen.headers["content-disposition"] == f'attachment; filename="job-{job}.1.stdout.log"'
    assert seen.headers["x-content-type-options"] == "nosniff"
    page = surfer.get(f"/jobs/{job}").text
    assert len(page) < 600_000
    assert '<div class="ln">300000</div>' in page
    assert '<div class="ln">1</div>' not in page
    assert "1 line found." in surfer.get(f"/jobs/{job}?find=123456").text


def test_what_a_job_left_is_listed_and_downloaded(server: RunningServer, surfer: Surfer) -> None:
    script = "#!/bin/sh\nmkdir out; echo weights > out/m.pt; ln -s /etc/passwd link; echo x > '<b>.txt'\n"
    job = server.run(script=script, **SMALL)["id"]
    assert f'href="/jobs/{job}/files"' in surfer.get(f"/jobs/{job}").text
    text = surfer.get(f"/jobs/{job}/files").text
    assert "&lt;b&gt;.txt" in text
    assert "not a regular file" in text
    seen = surfer.get(f"/jobs/{job}/file?path=out/m.pt")
    assert seen.text == "weights\n"
    assert seen.headers["content-disposition"].startswith("attachment;")
    assert seen.headers["content-type"] == "application/octet-stream"
    assert surfer.get(f"/jobs/{job}/file?path=link").status == 404


def test_values_of_variables_are_for_their_owner_only(server: RunningServer) -> None:
    assert server.ask("POST", "/users", {"name": "lead", "password": PASSWORD}).status == 201
    job = server.submit(command=["true"], env={"API_TOKEN": "tell-nobody"}, held=True, **SMALL)
    owner = Surfer(server).by_link().get(f"/jobs/{job}").text
    assert "tell-nobody" in owner
    answer = server.ask("PUT", "/projects/default/members/lead", {"role": "manager"})
    assert answer.status in (200, 204), answer.body
    manager = Surfer(server)
    manager.log_in("lead", PASSWORD)
    seen = manager.get(f"/jobs/{job}")
    assert seen.status == 200
    assert "API_TOKEN" in seen.text
    assert "tell-nobody" not in seen.text


def test_an_array_is_shown_and_cancelled_as_one(server: RunningServer, surfer: Surfer, stranger: Surfer) -> None:
    body = {"command": ["sleep", "60"], "name": "sweep", "array": "0-4%1", **SMALL}
    array = server.ask("POST", "/jobs", body).json
    address = f"/arrays/{array['array_id']}"
    text = surfer.get(address).text
    assert "1–5 of 5" in text  # noqa: RUF001
    assert f'href="{address}"' in surfer.get(f"/jobs/{array['job_ids'][0]}").text
    assert stranger.get(address).status == 403
    token = surfer.get("/").form_token
    strangers = stranger.get("/").form_token
    confirmed = [("confirmed", "yes")]
    assert stranger.post(address + "/cancel", [("csrf", strangers), *confirmed]).status == 403
    assert surfer.post(address + "/cancel", [("csrf", token)]).status == 200
    assert surfer.post(address + "/cancel", [("csrf", token), *confirmed]).status == 303
    assert all(server.finished(number)["state"] == "cancelled" for number in array["job_ids"])


def test_parts_that_refresh_read_no_log(server: RunningServer, surfer: Surfer) -> None:
    job = server.run(command=["echo", "hello"], **SMALL)["id"]
    text = surfer.get(f"/jobs/{job}?whatif=1", X_Fragment="head,why,usage,timeline,facts").text
    assert text.count("<template data-part=") == 5
    assert "data-log" not in text
