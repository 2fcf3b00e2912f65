"""What admins change in the web: errors beside the field, asking once more, and an entry in the audit log."""

import html
import re
from collections.abc import Iterator

import pytest

from heliostat.web.routes import route_paths
from integration.running_server import RunningServer
from integration.web.surfing import Seen, Surfer

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
ZONE = "Europe/Berlin"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    settings = f'server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\nserver.time_zone = "{ZONE}"\n'
    server = RunningServer(settings)
    for name in ("plain", "boss", "newcomer"):
        assert server.ask("POST", "/users", {"name": name, "password": PASSWORD}).status == 201
    assert server.ask("POST", "/projects", {"name": "vision", "department": "default"}).status == 201
    assert server.ask("PUT", "/projects/vision/members/boss", {"role": "manager"}).status == 200
    assert server.ask("POST", "/projects", {"name": "other", "department": "default"}).status == 201
    yield server
    server.remove()


@pytest.fixture
def admin(server: RunningServer) -> Surfer:
    return Surfer(server).by_link()


def logged_in(server: RunningServer, name: str) -> Surfer:
    surfer = Surfer(server)
    assert surfer.log_in(name, PASSWORD).status == 303
    return surfer


def send(surfer: Surfer, path: str, *fields: tuple[str, str], form: str = "/") -> Seen:
    return surfer.post(path, [("csrf", surfer.get(form).form_token), *fields])


def error_at(seen: Seen, field: str) -> str:
    found = re.search(rf'id="error-{field}">.*?</svg>(.*?)</p>', seen.text, re.DOTALL)
    assert found, seen.text
    return html.unescape(found[1])


def last_audit(server: RunningServer) -> dict[str, object]:
    entry: dict[str, object] = server.ask("GET", "/audit?limit=1").json["items"][0]
    return entry


def _admin_paths(method: str) -> list[str]:
    return [re.sub(r"\{[^}]+\}", "vision", path) for path in route_paths(method) if path.startswith("/admin")]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_plain_user_is_refused_kindly_everywhere(server: RunningServer, method: str) -> None:
    surfer = logged_in(server, "plain")
    assert 'href="/admin"' not in surfer.get("/").text
    before = server.ask("GET", "/audit?limit=1").json["items"]
    for path in _admin_paths(method):
        seen = surfer.get(path) if method == "GET" else send(surfer, path, ("confirmed", "yes"))
        assert seen.status in (403, 404), path
        assert "Ask an admin" in seen.text or "There is no project" in seen.text, path
        assert "<form" not in seen.text.split('id="main"')[1]
    assert server.ask("GET", "/audit?limit=1").json["items"] == before


def test_there_are_pages_to_refuse() -> None:
    assert len(_admin_paths("GET")) > 12
    assert len(_admin_paths("POST")) > 12


def test_a_manager_looks_after_the_members_of_their_project_and_no_more(server: RunningServer) -> None:
    surfer = logged_in(server, "boss")
    listed = surfer.get("/admin/projects").text
    assert "vision" in listed
    assert "other" not in listed.split("<main")[1]
    assert 'name="share"' not in surfer.get("/admin/projects/vision").text
    assert surfer.get("/admin/projects/other").status == 404
    assert send(surfer, "/admin/projects/vision/members", ("user", "plain")).status == 303
    assert last_audit(server)["action"] == "project.add_member"
    asked = send(surfer, "/admin/projects/vision/remove", ("user", "plain"))
    assert "Remove plain from vision?" in asked.text
    assert send(surfer, "/admin/projects/vision/remove", ("user", "plain"), ("confirmed", "yes")).status == 303
    made = send(surfer, "/admin/projects/vision/members", ("user", "plain"), ("member_role", "manager"))
    assert made.status == 403
    assert send(surfer, "/admin/projects/vision/set", ("share", "9")).status == 403
    assert send(surfer, "/admin/projects/vision/remove", ("user", "boss"), ("confirmed", "yes")).status == 403


def test_a_member_who_does_not_manage_is_refused(server: RunningServer) -> None:
    surfer = logged_in(server, "newcomer")
    assert surfer.get("/admin/projects/default").status == 403
    assert send(surfer, "/admin/projects/default/members", ("user", "plain")).status == 403


def test_a_new_account_gets_a_password_that_is_shown_once(server: RunningServer, admin: Surfer) -> None:
    fields = (("name", "fresh"), ("role", "user"), ("project", "vision"), ("makes_password", "yes"))
    seen = send(admin, "/admin/new-user", *fields)
    found = re.search(r"<code>([a-z2-9]{4}(?:-[a-z2-9]{4}){3})</code>", seen.text)
    assert found
    assert seen.headers["cache-control"] == "no-store"
    assert Surfer(server).log_in("fresh", found[1]).status == 303
    assert found[1] not in admin.get("/admin/users/fresh").text
    assert found[1] not in server.ask("GET", "/audit").body.decode()
    assert server.ask("GET", "/users/fresh").json["memberships"] == [{"project": "vision", "role": "member"}]


@pytest.mark.parametrize("name", [HOSTILE, "Ümläut", "", "x" * 5000, "root"])
def test_an_account_of_a_bad_name_is_refused_beside_the_field(admin: Surfer, name: str) -> None:
    seen = send(admin, "/admin/new-user", ("name", name), ("role", "user"), ("unix_user", "kept-typed"))
    assert seen.status == 422
    assert error_at(seen, "name")
    assert 'value="kept-typed"' in seen.text
    assert "<script>alert" not in seen.text
    assert "<img" not in seen.text.split("<main")[1]


def test_the_name_of_somebody_who_is_there_is_refused_above_the_form(admin: Surfer) -> None:
    seen = send(admin, "/admin/new-user", ("name", "plain"), ("role", "user"))
    assert seen.status == 409
    assert "There is already an account plain." in seen.text
    assert 'value="plain"' in seen.text


def test_a_project_is_moved_and_closed_at_a_local_time(server: RunningServer, admin: Surfer) -> None:
    server.ask("POST", "/departments", {"name": "surgery"})
    kept = (("share", "1"), ("data_class", "0"))
    fields = (("department", "surgery"), ("closes_at", "2020-12-31T18:30"))
    assert send(admin, "/admin/projects/other/set", *kept, *fields).status == 303
    project = server.ask("GET", "/projects/other").json
    assert (project["department"], project["closes_at"]) == ("surgery", "2020-12-31T17:30:00Z")
    assert 'value="2020-12-31T18:30"' in admin.get("/admin/projects/other").text
    refused = server.ask("POST", "/jobs", {"command": "true", "project": "other"})
    assert (refused.status, "is closed since" in refused.error["message"]) == (422, True)
    assert send(admin, "/admin/projects/other/set", *kept, ("closes_at", "31 December")).status == 422
    assert send(admin, "/admin/projects/other/set", *kept, ("closes_at", "")).status == 303
    assert server.ask("GET", "/projects/other").json["closes_at"] is None


def test_unknown_roles_and_projects_are_refused(admin: Surfer) -> None:
    assert send(admin, "/admin/new-user", ("name", "zed"), ("role", "emperor")).status == 400
    seen = send(admin, "/admin/new-user", ("name", "zed"), ("role", "user"), ("project", HOSTILE))
    assert seen.status == 422
    assert "there is no project" in html.unescape(seen.text)
    assert "<script>alert" not in seen.text


def test_deactivating_asks_once_more_and_ends_every_way_in(server: RunningServer, admin: Surfer) -> None:
    server.ask("POST", "/users", {"name": "leaver", "password": PASSWORD})
    gone = logged_in(server, "leaver")
    asked = send(admin, "/admin/users/leaver/active", ("active", "no"))
    assert "Deactivate leaver?" in asked.text
    assert server.ask("GET", "/users/leaver").json["active"] is True
    assert send(admin, "/admin/users/leaver/active", ("active", "no"), ("confirmed", "yes")).status == 303
    assert last_audit(server)["action"] == "user.deactivate"
    assert gone.get("/").status == 303
    assert send(admin, "/admin/users/leaver/active", ("active", "yes")).status == 303
    assert server.ask("GET", "/users/leaver").json["active"] is True


def test_the_last_admin_stays_one(server: RunningServer, admin: Surfer) -> None:
    me = server.ask("GET", "/whoami").json["user"]["name"]
    fields = (("role", "user"), ("unix_user", me), ("confirmed", "yes"))
    seen = send(admin, f"/admin/users/{me}/account", *fields)
    assert seen.status == 409
    assert 'role="alert"' in seen.text
    assert send(admin, f"/admin/users/{me}/active", ("active", "no"), ("confirmed", "yes")).status == 409


def test_a_role_is_changed_after_asking_once_more(server: RunningServer, admin: Surfer) -> None:
    server.ask("POST", "/users", {"name": "climber", "password": PASSWORD})
    asked = send(admin, "/admin/users/climber/account", ("role", "admin"), ("unix_user", ""))
    assert "Make climber an admin?" in asked.text
    assert server.ask("GET", "/users/climber").json["role"] == "user"
    fields = (("role", "admin"), ("unix_user", ""), ("confirmed", "yes"))
    assert send(admin, "/admin/users/climber/account", *fields).status == 303
    assert server.ask("GET", "/users/climber").json["role"] == "admin"


def test_a_new_password_asks_once_more_and_ends_the_old_one(server: RunningServer, admin: Surfer) -> None:
    server.ask("POST", "/users", {"name": "forgetful", "password": PASSWORD})
    old = logged_in(server, "forgetful")
    assert "Generate a new password for forgetful?" in send(admin, "/admin/users/forgetful/password").text
    assert old.get("/").status == 200
    seen = send(admin, "/admin/users/forgetful/password", ("confirmed", "yes"))
    found = re.search(r"<code>([a-z2-9-]{19})</code>", seen.text)
    assert found
    assert old.get("/").status == 303
    assert Surfer(server).log_in("forgetful", PASSWORD).status == 401
    assert Surfer(server).log_in("forgetful", found[1]).status == 303


def test_ones_own_password_needs_the_present_one(server: RunningServer) -> None:
    server.ask("POST", "/users", {"name": "selfish", "password": PASSWORD, "role": "admin"})
    surfer = logged_in(server, "selfish")
    seen = send(surfer, "/admin/users/selfish/password", ("current", "wrong"), ("password", PASSWORD + "2"))
    assert seen.status == 422
    assert error_at(seen, "current") == "is not the current password"
    assert PASSWORD + "2" not in seen.text
    seen = send(surfer, "/admin/users/selfish/password", ("current", PASSWORD), ("password", "short"))
    assert "at least 10" in error_at(seen, "password")
    fields = (("current", PASSWORD), ("password", PASSWORD + "2"))
    assert send(surfer, "/admin/users/selfish/password", *fields).location == "/login"


def test_a_token_is_revoked_after_asking_once_more(server: RunningServer, admin: Surfer) -> None:
    me = server.ask("GET", "/whoami").json["user"]["name"]
    made = server.ask("POST", "/tokens", {"name": "<b>laptop</b>"}).json
    page = admin.get(f"/admin/users/{me}").text
    assert "&lt;b&gt;laptop" in page
    assert made["token"] not in page
    token = ("token", str(made["id"]))
    assert "Revoke token" in send(admin, f"/admin/users/{me}/revoke", token).text
    assert send(admin, f"/admin/users/{me}/revoke", token, ("confirmed", "yes")).status == 303
    assert last_audit(server)["action"] == "token.revoke"
    assert send(admin, "/admin/users/plain/revoke", token, ("confirmed", "yes")).status == 404
    assert send(admin, f"/admin/users/{me}/revoke", ("token", HOSTILE)).status == 404


def test_shares_quotas_and_data_classes_are_set_and_wrong_ones_refused(
    server: RunningServer, admin: Surfer
) -> None:
    bad = send(admin, "/admin/projects/vision/set", ("share", "-1"), ("data_class", "7"), ("running_gpus", "many"))
    assert bad.status == 422
    assert "from 1 to" in error_at(bad, "share")
    assert "from 0 to 3" in error_at(bad, "data_class")
    assert error_at(bad, "running_gpus")
    assert 'value="many"' in bad.text
    fields = (("share", "5"), ("data_class", "0"), ("running_gpus", "4"), ("gpu_hours_per_month", "100"))
    assert send(admin, "/admin/projects/vision/set", *fields).status == 303
    project = server.ask("GET", "/projects/vision").json
    assert project["share"] == 5
    assert project["quota"] == {"running_gpus": 4, "queued_gpus": None, "gpu_hours_per_month": 100}
    assert last_audit(server)["action"] == "project.set"
    assert "vision" in admin.get("/admin/quotas").text
    assert send(admin, "/admin/users/plain/quota", ("queued_gpus", "2")).status == 303
    assert server.ask("GET", "/users/plain").json["quota"]["queued_gpus"] == 2
    assert send(admin, "/admin/users/plain/quota", ("queued_gpus", "")).status == 303
    assert server.ask("GET", "/users/plain").json["quota"]["queued_gpus"] is None


def test_a_data_class_no_node_takes_is_told_at_once(server: RunningServer, admin: Surfer) -> None:
    assert send(admin, "/admin/projects/other/set", ("share", "1"), ("data_class", "3")).status == 303
    assert "No node accepts data of class 3" in html.unescape(admin.get("/admin/projects/other").text)


def test_departments_and_projects_are_made(server: RunningServer, admin: Surfer) -> None:
    assert send(admin, "/admin/new-department", ("name", HOSTILE)).status == 422
    made = send(admin, "/admin/new-department", ("name", "physics"))
    assert made.location == "/admin/departments/physics"
    assert send(admin, "/admin/new-department", ("name", "physics")).status == 409
    assert send(admin, "/admin/departments/physics/set", ("share", "3")).status == 303
    assert send(admin, "/admin/departments/physics/set", ("share", "0")).status == 422
    assert admin.get("/admin/departments/nothing").status == 404
    wrong = send(admin, "/admin/new-project", ("name", "lhc"), ("department", "nothing"))
    assert "there is no department" in error_at(wrong, "department")
    assert send(admin, "/admin/new-project", ("name", "lhc"), ("department", "physics")).status == 303
    unknown = send(admin, "/admin/projects/lhc/members", ("user", HOSTILE))
    assert unknown.status == 404
    assert "There is no user" in error_at(unknown, "user")
    assert "<script>alert" not in unknown.text


def test_times_of_a_reservation_are_those_of_the_clusters_zone(server: RunningServer, admin: Surfer) -> None:
    node = server.ask("GET", "/nodes").json["items"][0]["name"]
    assert ZONE in admin.get("/admin/new-reservation").text
    times = (("starts_at", "2027-07-01T09:00"), ("ends_at", "2027-07-01T12:00"))
    fields = (("name", "course"), ("project", "vision"), ("node", node), *times, ("reason", HOSTILE))
    assert send(admin, "/admin/new-reservation", *fields).status == 303
    (made,) = server.ask("GET", "/reservations").json["items"]
    assert made["starts_at"] == "2027-07-01T07:00:00Z"
    text = admin.get("/admin/reservations").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    asked = send(admin, "/admin/reservations/course/end")
    assert "End reservation course?" in asked.text
    assert send(admin, "/admin/reservations/course/end", ("confirmed", "yes")).status == 303
    assert server.ask("GET", "/reservations").json["items"] == []
    assert send(admin, "/admin/reservations/course/end", ("confirmed", "yes")).status == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("starts_at", "tomorrow"),
        ("starts_at", ""),
        ("ends_at", "2027-06-30T09:00"),
        ("starts_at", "2027-03-28T02:30"),
        ("ends_at", "9999-12-31T23:59"),
        ("weeks", "61"),
        ("gpus_per_node", "0"),
        ("reason", "a\tb"),
        ("reason", "x" * 500),
        ("project", "nothing"),
        ("name", ""),
    ],
)
def test_a_wrong_reservation_is_refused_beside_its_field(
    server: RunningServer, admin: Surfer, field: str, value: str
) -> None:
    node = server.ask("GET", "/nodes").json["items"][0]["name"]
    good = {
        "name": "try",
        "project": "",
        "starts_at": "2027-07-01T09:00",
        "ends_at": "2027-07-01T12:00",
        "weeks": "1",
    }
    fields = {**good, "node": node, field: value}
    seen = send(admin, "/admin/new-reservation", *fields.items())
    assert seen.status == 422
    assert error_at(seen, field)
    assert server.ask("GET", "/reservations").json["items"] == []


def test_a_reservation_needs_nodes_that_are_there(admin: Surfer) -> None:
    fields = (("name", "try"), ("starts_at", "2027-07-01T09:00"), ("ends_at", "2027-07-01T12:00"))
    assert "name at least one" in send(admin, "/admin/new-reservation", *fields).text
    assert "there is no node" in send(admin, "/admin/new-reservation", *fields, ("node", HOSTILE)).text


def test_a_node_is_drained_with_a_reason_and_resumed(server: RunningServer, admin: Surfer) -> None:
    name = server.ask("GET", "/nodes").json["items"][0]["name"]
    assert error_at(send(admin, f"/admin/nodes/{name}/drain", ("reason", " ")), "reason") == "must not be empty"
    assert send(admin, f"/admin/nodes/{name}/drain", ("reason", HOSTILE)).status == 303
    entry = last_audit(server)
    assert (entry["action"], entry["detail"]) == ("node.drain", {"reason": HOSTILE})
    assert server.ask("GET", f"/nodes/{name}").json["state"] == "drained"
    for path in ("/admin/nodes", f"/admin/nodes/{name}", "/admin/audit", "/admin/doctor"):
        assert "<script>alert" not in admin.get(path).text
    assert send(admin, f"/admin/nodes/{name}/resume").status == 303
    assert server.ask("GET", f"/nodes/{name}").json["state"] == "up"
    assert send(admin, "/admin/nodes/nowhere/resume").status == 404


def test_labels_classes_and_splitting_of_a_node_are_set(server: RunningServer, admin: Surfer) -> None:
    name = server.ask("GET", "/nodes").json["items"][1]["name"]
    own = "\n".join(f"{key}={value}" for key, value in server.ask("GET", f"/nodes/{name}").json["labels"].items())
    base = (("data_class", "2"), ("min_data_class", "1"), ("splits_devices", "yes"))
    assert send(admin, f"/admin/nodes/{name}/set", *base, ("labels", f"{own}\nrack=b2\r\nfast")).status == 303
    node = server.ask("GET", f"/nodes/{name}").json
    assert (node["labels"]["rack"], node["labels"]["fast"]) == ("b2", "")
    assert (node["data_class"], node["min_data_class"], node["splits_devices"]) == (2, 1, True)
    assert send(admin, f"/admin/nodes/{name}/set", *base, ("labels", own)).status == 303
    assert "rack" not in server.ask("GET", f"/nodes/{name}").json["labels"]
    for wrong in ("a b=c", HOSTILE, "x=1\nx=2", "y" * 20_000):
        seen = send(admin, f"/admin/nodes/{name}/set", *base, ("labels", wrong))
        assert seen.status == 422
        assert error_at(seen, "labels")
    clash = send(admin, f"/admin/nodes/{name}/set", ("data_class", "0"), ("min_data_class", "3"), ("labels", own))
    assert "no job could run" in error_at(clash, "min_data_class")
    fields = (("data_class", "0"), ("min_data_class", "0"), ("splits_devices", "no"), ("labels", own))
    assert send(admin, f"/admin/nodes/{name}/set", *fields).status == 303


def test_the_audit_log_is_filtered_and_paged(server: RunningServer, admin: Surfer) -> None:
    for number in range(55):
        server.ask("POST", "/departments", {"name": f"dep-{number}"})
    seen = admin.get("/admin/audit?what=dep-")
    assert seen.text.count('id="entry-') == 50
    older = re.search(r'rel="next" href="([^"]+)"', seen.text)
    assert older
    assert "dep-0<" in admin.get(html.unescape(older[1])).text
    assert 'id="entry-' not in admin.get("/admin/audit?who=nobody").text
    assert 'id="entry-' not in admin.get("/admin/audit?what=%25").text
    assert "<script>alert" not in admin.get("/admin/audit?who=%3Cscript%3Ealert(1)").text
    assert admin.get("/admin/audit?before=x").status == 422
    assert server.ask("GET", "/audit?user=nobody").json["items"] == []
    assert server.ask("GET", "/audit?text=dep-54").json["items"][0]["target"] == "dep-54"


def test_settings_say_where_they_come_from(admin: Surfer) -> None:
    text = admin.get("/admin/settings").text
    rows = dict(re.findall(r'<tr id="setting-([a-z_.]+)">(.*?)</tr>', text, re.DOTALL))
    assert ZONE in rows["server.time_zone"]
    assert "cluster.toml" in rows["server.time_zone"]
    assert "command line" in rows["server.port"]
    assert "default" in rows["queue.share_weight"]
    assert "sources" not in rows


def test_the_doctors_findings_are_shown(admin: Surfer) -> None:
    assert "database" in admin.get("/admin/doctor").text


def test_news_are_told_and_removed(server: RunningServer, admin: Surfer) -> None:
    assert error_at(send(admin, "/admin/announcements", ("text", " ")), "text") == "must not be empty"
    late = send(admin, "/admin/announcements", ("text", "kept"), ("ends_at", "2020-01-01T00:00"))
    assert error_at(late, "ends_at") == "is in the past"
    assert ">\nkept</textarea>" in late.text
    assert send(admin, "/admin/announcements", ("text", HOSTILE), ("ends_at", "2027-07-01T09:00")).status == 303
    assert last_audit(server)["action"] == "announcement.add"
    text = admin.get("/admin/announcements").text
    assert "<script>alert" not in text
    found = re.search(r'id="announcements-(\d+)"', text)
    assert found
    assert (
        "Remove this announcement?" in send(admin, "/admin/announcements/remove", ("announcements", found[1])).text
    )
    assert (
        send(admin, "/admin/announcements/remove", ("announcements", found[1]), ("confirmed", "yes")).status == 303
    )
    assert (
        send(admin, "/admin/announcements/remove", ("announcements", found[1]), ("confirmed", "yes")).status == 404
    )


def test_what_is_not_there_is_told_with_a_hint(admin: Surfer) -> None:
    for path in ("/admin/users/%3Cscript%3E", "/admin/projects/nothing", "/admin/nodes/nowhere"):
        seen = admin.get(path)
        assert seen.status == 404
        assert '<p class="soft">' in seen.text
        assert "<script>" not in seen.text
    assert admin.get("/admin/users/" + "x" * 500).status == 422
    assert admin.get("/admin/users?page=0").status == 422
    assert "No matching users" in admin.get("/admin/users?q=%3Cscript%3E").text
    assert "No matching nodes" in admin.get("/admin/nodes?q=nothing-like-it").text
    assert admin.get("/admin/users?page=99").status == 200
