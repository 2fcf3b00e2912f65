"""What protects the web: tokens of forms, headers, rights, escaping."""

import re

import pytest

from heliostat.web.routes import route_paths
from integration.running_server import RunningServer
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def _routes(method: str) -> list[str]:
    return [re.sub(r"\{[^}]+\}", "1", path) for path in route_paths(method)]


def test_there_are_routes_to_walk() -> None:
    assert "/jobs/cancel" in _routes("POST")
    assert not [path for method in ("PUT", "PATCH", "DELETE") for path in _routes(method)]


@pytest.mark.parametrize("path", _routes("POST"))
def test_no_route_changes_anything_without_the_token_of_a_form(server: RunningServer, path: str) -> None:
    surfer = Surfer(server).by_link()
    token = surfer.get("/").form_token
    strangers = Surfer(server).get("/login").form_token
    for fields in ([], [("csrf", "")], [("csrf", token[:-4])], [("csrf", strangers)]):
        assert surfer.post(path, fields).status == 403, fields
    assert surfer.post(path, [("csrf", token)], Origin="https://evil.example").status == 403
    assert surfer.post(path, [("csrf", token)], Sec_Fetch_Site="cross-site").status == 403


@pytest.mark.parametrize("path", ["/", "/jobs", "/login", "/nothing"])
def test_every_page_carries_the_headers_that_protect_it(server: RunningServer, path: str) -> None:
    seen = Surfer(server).by_link().get(path)
    policy = seen.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert seen.headers["x-content-type-options"] == "nosniff"
    assert seen.headers["cross-origin-opener-policy"] == "same-origin"
    assert seen.headers["cache-control"] == "no-store"


def test_no_page_holds_inline_script_or_style(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    for path in ("/", "/jobs", "/nothing"):
        text = surfer.get(path).text
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", text), path


def test_a_hostile_name_stays_text(server: RunningServer) -> None:
    server.submit(command=["true"], name=HOSTILE[:60])
    text = Surfer(server).by_link().get("/jobs?q=" + "%3Cscript%3E").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_faults_are_pages_for_people_and_json_for_programs(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    assert "<h1>Not found</h1>" in surfer.get("/nothing").text
    assert surfer.get("/jobs?state=nonsense").status == 422
    assert surfer.get("/jobs?page=0").status == 422
    assert server.ask("GET", "/nothing").error["code"] == "not_found"


def test_other_peoples_names_are_neither_shown_nor_found(server: RunningServer) -> None:
    server.submit(command=["true"], name="secret-plan")
    assert server.ask("POST", "/users", {"name": "mallory", "password": PASSWORD}).status == 201
    surfer = Surfer(server)
    surfer.log_in("mallory", PASSWORD)
    assert "secret-plan" not in surfer.get("/jobs?whose=all").text
    assert "No jobs match" in surfer.get("/jobs?whose=all&q=secret-plan").text


def test_nobody_cancels_the_jobs_of_others(server: RunningServer) -> None:
    job = server.submit(command=["sleep", "60"])
    assert server.ask("POST", "/users", {"name": "mallet", "password": PASSWORD}).status == 201
    surfer = Surfer(server)
    surfer.log_in("mallet", PASSWORD)
    fields = [("csrf", surfer.get("/jobs").form_token), ("job", str(job)), ("confirmed", "yes")]
    assert surfer.post("/jobs/cancel", fields).status == 403
    assert server.show(job)["state"] != "cancelled"


def test_parts_of_a_page_are_served_alone(server: RunningServer) -> None:
    text = Surfer(server).by_link().get("/jobs", X_Fragment="counts,nothing").text
    assert text.startswith('<template data-part="counts">')
    assert "<html" not in text
    assert "nothing" not in text


def test_a_live_page_needs_a_login_and_the_right_to_see(server: RunningServer) -> None:
    job = server.submit(command=["true"])
    assert Surfer(server).get("/live?topic=jobs").status == 401
    assert server.ask("POST", "/users", {"name": "nosy", "password": PASSWORD}).status == 201
    surfer = Surfer(server)
    surfer.log_in("nosy", PASSWORD)
    assert surfer.get(f"/live?topic=job:{job}").status == 403
    assert surfer.get("/live?topic=everything").status == 422


def test_static_files_are_kept_for_ever_under_their_digest(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    text = surfer.get("/").text
    found = re.search(r"/static/[0-9a-f]{12}/design_tokens\.css", text)
    assert found
    assert "immutable" in surfer.get(found[0]).headers["cache-control"]
    assert surfer.get("/static/000000000000/design_tokens.css").headers["cache-control"] == "no-cache"
    assert surfer.get(found[0].replace("design_tokens.css", "../rendering.py")).status == 404
