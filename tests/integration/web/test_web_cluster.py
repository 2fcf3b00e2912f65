"""The pages of the cluster and of a node: what they show to whom, and who may change a node there."""

from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer, wait_for
from integration.web.surfing import Seen, Surfer

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script>'
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(
        'server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\n'
        'monitoring.grafana_url = "https://grafana.example.org"\n'
    )
    server.ask("POST", "/users", {"name": "nora", "password": PASSWORD})
    yield server
    server.remove()


@pytest.fixture
def admin(server: RunningServer) -> Surfer:
    return Surfer(server).by_link()


@pytest.fixture
def nora(server: RunningServer) -> Surfer:
    surfer = Surfer(server)
    assert surfer.log_in("nora", PASSWORD).status == 303
    return surfer


def start(server: RunningServer, **body: object) -> int:
    number = server.submit(command=["sleep", "600"], gpus=1, **body)
    wait_for(lambda: server.show(number)["state"] == "running", f"job {number} to run")
    return number


def send(surfer: Surfer, path: str, **fields: str) -> Seen:
    token = surfer.get("/cluster/a100-01").form_token
    return surfer.post(path, [("csrf", token), *fields.items()])


def test_the_map_says_who_is_where_and_hides_names_from_others(
    server: RunningServer, admin: Surfer, nora: Surfer
) -> None:
    number = start(server, name="secret-plan")
    for path in ("/cluster", f"/cluster/{server.show(number)['node']}"):
        assert "secret-plan" in admin.get(path).text
        others = nora.get(path).text
        assert "secret-plan" not in others
        assert f"job {number}" in others
    server.ask("POST", f"/jobs/{number}/cancel", {})


def test_hostile_names_reasons_and_news_are_only_text(server: RunningServer, admin: Surfer) -> None:
    number = start(server, name=HOSTILE)
    server.ask("POST", "/nodes/a100-02/drain", {"reason": HOSTILE})
    server.ask("POST", "/announcements", {"text": HOSTILE})
    server.ask("PATCH", "/nodes/a100-02", {"labels": {"rack": "b7"}})
    for path in ("/", "/cluster", "/cluster/a100-01", "/cluster/a100-02", "/cluster?label=%22%3E%3Cscript%3E"):
        text = admin.get(path).text
        assert "<img src=x" not in text
        assert "<script>" not in text
    assert "&lt;script&gt;" in admin.get("/").text
    server.ask("POST", "/nodes/a100-02/resume")
    server.ask("POST", f"/jobs/{number}/cancel", {})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/cluster?state=nonsense", 422),
        ("/cluster?span=year", 422),
        ("/cluster?span=%00", 422),
        ("/cluster?page=0", 422),
        ("/cluster?page=999", 200),
        ("/cluster?type=" + "x" * 129, 422),
        ("/cluster?type=H9000", 200),
        ("/cluster/nothing", 404),
        ("/cluster/%3Cscript%3E", 404),
        ("/cluster/" + "x" * 200, 422),
        ("/cluster/a100-01?span=x", 422),
    ],
)
def test_what_cannot_be_is_a_page_that_says_so(admin: Surfer, path: str, status: int) -> None:
    seen = admin.get(path)
    assert seen.status == status
    assert seen.headers["content-type"].startswith("text/html")
    assert "<script>" not in seen.text


def test_filters_leave_what_fits(server: RunningServer, admin: Surfer) -> None:
    server.ask("PATCH", "/nodes/a100-01", {"labels": {"rack": "a1"}})
    seen = admin.get("/cluster?label=rack%3Da1&state=free").text
    assert 'id="node-a100-01"' in seen
    assert 'id="node-a100-02"' not in seen
    assert "No matching GPUs" in admin.get("/cluster?type=H9000").text


def test_guests_are_sent_to_the_login(server: RunningServer) -> None:
    for path in ("/", "/cluster", "/cluster/a100-01"):
        assert Surfer(server).get(path).location.startswith("/login")


def test_an_admin_drains_a_node_after_confirming_and_resumes_it(server: RunningServer, admin: Surfer) -> None:
    asked = send(admin, "/cluster/a100-01/drain", reason="new <fan>")
    assert asked.status == 200
    assert "Drain a100-01?" in asked.text
    assert server.ask("GET", "/nodes/a100-01").json["state"] == "up"
    done = send(admin, "/cluster/a100-01/drain", reason="new <fan>", confirmed="yes")
    assert (done.status, done.location) == (303, "/cluster/a100-01")
    assert "new &lt;fan&gt;" in admin.get("/cluster").text
    assert "Resume a100-01?" in send(admin, "/cluster/a100-01/resume").text
    assert send(admin, "/cluster/a100-01/resume", confirmed="yes").status == 303
    assert server.ask("GET", "/nodes/a100-01").json["state"] == "up"


@pytest.mark.parametrize("reason", ["", "  ", "x" * 129, "two\nlines", "red \x1b[31m"])
def test_a_reason_nobody_can_read_is_refused_beside_its_field(
    server: RunningServer, admin: Surfer, reason: str
) -> None:
    seen = send(admin, "/cluster/a100-01/drain", reason=reason, confirmed="yes")
    assert seen.status == 422
    assert 'id="error-reason"' in seen.text
    assert server.ask("GET", "/nodes/a100-01").json["state"] == "up"


@pytest.mark.parametrize("verb", ["drain", "resume"])
def test_nobody_else_changes_a_node(server: RunningServer, nora: Surfer, verb: str) -> None:
    page = nora.get("/cluster/a100-01")
    assert "/cluster/a100-01/drain" not in page.text
    seen = nora.post(
        f"/cluster/a100-01/{verb}", [("csrf", page.form_token), ("reason", "mine"), ("confirmed", "yes")]
    )
    assert seen.status == 403
    assert "Only an admin" in seen.text
    assert server.ask("GET", "/nodes/a100-01").json["state"] == "up"


def test_an_unknown_node_cannot_be_drained(admin: Surfer) -> None:
    assert send(admin, "/cluster/nothing/drain", reason="x", confirmed="yes").status == 404


def test_without_the_token_of_a_form_nothing_is_drained(server: RunningServer, admin: Surfer) -> None:
    assert admin.post("/cluster/a100-01/drain", [("reason", "x"), ("confirmed", "yes")]).status == 403
    assert server.ask("GET", "/nodes/a100-01").json["state"] == "up"


def test_parts_of_the_page_come_alone(admin: Surfer) -> None:
    seen = admin.get("/cluster", X_Fragment="map,queue,nodes,figures")
    assert seen.text.count("<template data-part=") == 4
    assert "<html" not in seen.text


def test_home_tells_those_who_cannot_run_jobs_and_shows_jobs_to_those_who_have_some(
    server: RunningServer, admin: Surfer, nora: Surfer
) -> None:
    assert "You cannot run jobs yet" in nora.get("/").text
    assert "Your first job in three steps" not in nora.get("/").text
    number = start(server, name="mine")
    blocked = server.submit(command=["sleep", "600"], gpus=4, name="waits", exclusive=True, tasks=2)
    text = admin.get("/").text
    assert "Your first job in three steps" not in text
    assert f'id="job-{number}"' in text
    assert "waits" in text
    assert 'id="job-' not in nora.get("/").text, "these are somebody else's"
    for job in (number, blocked):
        server.ask("POST", f"/jobs/{job}/cancel", {})


def test_home_says_quotas_in_words(server: RunningServer, admin: Surfer) -> None:
    assert "No quota applies to you" in admin.get("/").text
    me = server.ask("GET", "/status").json["user"]
    limits = {"running_gpus": 4, "queued_gpus": 8, "gpu_hours_per_month": 100}
    server.ask("PATCH", f"/users/{me}", {"quota": limits})
    text = admin.get("/").text
    assert "0 of 4 Running GPUs" in text
    assert "0 of 8 Queued GPUs" in text
    assert " of 100 GPU-hours this month" in text
    server.ask("PATCH", f"/users/{me}", {"quota": dict.fromkeys(limits)})


def test_pages_of_nodes_and_jobs_link_to_their_dashboards(server: RunningServer, admin: Surfer) -> None:
    number = start(server)
    base = 'href="https://grafana.example.org/d/heliostat-'
    assert f"{base}job/job?var-job={number}&amp;from=" in admin.get(f"/jobs/{number}").text
    week = admin.get("/cluster/a100-01?span=week").text
    assert f'{base}node/node?var-node=a100-01&amp;from=now-7d&amp;to=now"' in week
