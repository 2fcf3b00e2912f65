import pytest

from integration.running_server import RunningServer
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def people(server: RunningServer) -> RunningServer:
    for name in ("anna", "berta", "clara"):
        assert server.ask("POST", "/users", {"name": name, "password": PASSWORD}).status == 201
    return server


def test_a_stranger_is_sent_to_the_login_and_back(people: RunningServer) -> None:
    surfer = Surfer(people)
    sent = surfer.get("/jobs?state=running")
    assert (sent.status, sent.location) == (303, "/login?next=/jobs%3Fstate%3Drunning")
    entered = surfer.log_in("anna", PASSWORD, "/jobs?state=running")
    assert (entered.status, entered.location) == (303, "/jobs?state=running")
    assert surfer.get("/jobs").status == 200


@pytest.mark.parametrize(
    "goal", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\nb"]
)
def test_a_login_never_leads_to_another_site(people: RunningServer, goal: str) -> None:
    assert Surfer(people).log_in("anna", PASSWORD, goal).location == "/"


def test_a_wrong_password_is_told_kindly_and_keeps_the_name(people: RunningServer) -> None:
    seen = Surfer(people).log_in("berta", "wrong")
    assert seen.status == 401
    assert "Wrong user name or password." in seen.text
    assert 'value="berta"' in seen.text


def test_guessing_is_slowed_down(people: RunningServer) -> None:
    surfer = Surfer(people)
    answers = [surfer.log_in("clara", "wrong").status for _ in range(7)]
    assert answers[0] == 401
    assert answers[-1] == 429


def test_the_cookie_is_new_after_a_login_and_kept_from_scripts(people: RunningServer) -> None:
    surfer = Surfer(people, {"helio_session": "chosen-by-somebody-else"})
    entered = surfer.log_in("anna", PASSWORD)
    (cookie,) = (cookie for cookie in entered.cookies if cookie.startswith("helio_session="))
    assert surfer.cookies["helio_session"] != "chosen-by-somebody-else"
    assert len(surfer.cookies["helio_session"]) == 43
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_logging_out_ends_the_login_for_good(people: RunningServer) -> None:
    surfer = Surfer(people)
    surfer.log_in("anna", PASSWORD)
    before = dict(surfer.cookies)
    token = surfer.get("/").form_token
    assert surfer.post("/logout", [("csrf", token)]).location == "/login"
    assert Surfer(people, before).get("/").status == 303


def test_a_new_password_ends_the_logins(people: RunningServer) -> None:
    assert people.ask("POST", "/users", {"name": "dora", "password": PASSWORD}).status == 201
    surfer = Surfer(people)
    surfer.log_in("dora", PASSWORD)
    assert surfer.get("/").status == 200
    assert people.ask("PUT", "/users/dora/password", {"password": PASSWORD + "2"}).status == 204
    assert surfer.get("/").status == 303


def test_a_deactivated_account_is_out_at_once(people: RunningServer) -> None:
    assert people.ask("POST", "/users", {"name": "emma", "password": PASSWORD}).status == 201
    surfer = Surfer(people)
    surfer.log_in("emma", PASSWORD)
    assert people.ask("PATCH", "/users/emma", {"active": False}).status == 200
    assert surfer.get("/").status == 303


def test_a_link_opens_the_web_once(people: RunningServer) -> None:
    path = people.ask("POST", "/login/link", {}).json["url"].removeprefix(people.url)
    surfer = Surfer(people)
    assert (surfer.get(path).status, surfer.get("/").status) == (303, 200)
    again = Surfer(people)
    assert again.get(path).status == 401
    assert again.get("/").status == 303


def test_a_link_does_not_work_from_another_site(people: RunningServer) -> None:
    path = people.ask("POST", "/login/link", {}).json["url"].removeprefix(people.url)
    assert Surfer(people).get(path, Sec_Fetch_Site="cross-site").status == 403


def test_the_api_takes_no_cookie(people: RunningServer) -> None:
    surfer = Surfer(people).by_link()
    assert surfer.get("/api/v1/jobs").status == 401


def test_a_link_sent_by_a_form_asks_first_and_names_the_user(server: RunningServer) -> None:
    """Any site can send this form: without the question, it could log a browser in as another user."""
    code = server.ask("POST", "/login/link", {}).json["url"].partition("code=")[2]
    fields = [("code", code), ("next", "/jobs")]
    surfer = Surfer(server)
    asked = surfer.post("/login/link", fields, Origin="null", Sec_Fetch_Site="cross-site")
    assert asked.status == 200
    assert f"Log in as {server.ask('GET', '/whoami').json['user']['name']}?" in asked.text
    assert "helio_session" not in surfer.cookies
    confirmed = [("csrf", asked.form_token), *fields]
    assert surfer.post("/login/link/confirm", confirmed, Origin="https://evil.example").status == 403
    entered = surfer.post("/login/link/confirm", confirmed)
    assert (entered.status, entered.location) == (303, "/jobs")
    assert surfer.get("/jobs").status == 200
    assert Surfer(server).post("/login/link", fields).status == 401
