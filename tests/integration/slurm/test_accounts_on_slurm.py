"""Slurm's accounts, kept in step with ours, on a real Slurm."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root, people
from integration.web.surfing import Surfer
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    auth = 'auth.default_project = "begin"\nauth.default_department = "start"\n'  # not those of other tests
    server = RunningServer(f'server.engine = "slurm"\n{auth}', {**os.environ, **slurm.env})
    yield server
    server.remove()


@pytest.fixture(scope="module")
def two_unix_users() -> Iterator[list[Person]]:
    """Whom nobody has let into this Slurm before."""
    with people(f"ht{os.getpid()}eva", f"ht{os.getpid()}max") as made:
        yield made


def sacctmgr(slurm: SlurmTestCluster, *words: str) -> list[str]:
    return slurm.run("sacctmgr", "-P", "-n", "show", *words).splitlines()


def associations(slurm: SlurmTestCluster, account: str) -> list[str]:
    wanted = "format=user,parentname,share,grptres,qos"
    return sacctmgr(slurm, "associations", "where", f"account={account}", wanted)


def ask(server: RunningServer, method: str, path: str, body: object = None) -> Any:
    answer = server.ask(method, path, body)
    assert answer.status < 300, answer.body
    return answer.json if answer.body else None


def sentences(plan: Any) -> list[str]:
    return [step["sentence"] for step in plan["steps"]]


def apply(server: RunningServer) -> list[str]:
    """All of it, after which nothing is left to do."""
    done = sentences(ask(server, "POST", "/slurm/apply"))
    assert sentences(ask(server, "GET", "/slurm/plan")) == []
    return done


def test_slurms_accounts_follow_ours_and_nothing_else_is_touched(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    anna, bert = two_unix_users
    slurm.run("sacctmgr", "-i", "add", "account", "byhand", "fairshare=7")
    for uid in (anna.uid, bert.uid):
        server.ask("GET", "/whoami", uid=uid)
    ask(server, "POST", "/departments", {"name": "imaging"})
    ask(server, "POST", "/projects", {"name": "tumours", "department": "imaging"})
    ask(server, "POST", "/projects", {"name": "byhand", "department": "imaging"})
    ask(server, "PUT", f"/projects/tumours/members/{anna.name}", {"role": "member"})
    ask(server, "PATCH", "/projects/tumours", {"share": 3, "quota": {"running_gpus": 2}})

    findings = ask(server, "GET", "/doctor")["findings"]
    assert any("are not in Slurm yet" in one["message"] for one in findings), findings
    refused = server.ask("POST", "/jobs", {"command": ["true"], "priority_class": "urgent"}, uid=anna.uid)
    assert refused.status == 422
    assert "the QOS urgent does not exist" in refused.error["message"]
    assert "helio slurm apply" in refused.error["hint"]

    early = server.submit(command=["true"], uid=bert.uid)
    wait_for(lambda: "no account in Slurm" in (server.show(early)["reason"] or ""), "it waits for its account")

    plan = ask(server, "GET", "/slurm/plan")
    assert f"Add {anna.name} to the account tumours." in sentences(plan)
    assert any("account byhand was not created by this Heliostat" in line for line in plan["unmanaged"])
    assert associations(slurm, "tumours") == []  # a plan changes nothing

    apply(server)
    assert server.finished(early)["state"] == "completed"
    account, member = associations(slurm, "tumours")
    assert account == "|_imaging|3|gres/gpu=2|interactive,normal,scavenger,urgent"
    assert member == f"{anna.name}||1||interactive,normal,scavenger,urgent"
    assert associations(slurm, "byhand") == ["|root|7||normal"]
    assert f"{anna.name}|begin" in sacctmgr(slurm, "user", "format=user,defaultaccount")

    again = ask(server, "POST", "/slurm/apply")
    assert again["steps"] == []
    findings = ask(server, "GET", "/doctor")["findings"]
    assert any("in Slurm, except: The account byhand" in one["message"] for one in findings), findings


def test_a_job_is_counted_in_its_projects_account_with_its_class(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    anna, bert = two_unix_users
    job = server.submit(command=["sleep", "600"], gpus=1, project="tumours", priority_class="urgent", uid=anna.uid)
    wait_for(lambda: server.show(job)["state"] == "running", "it runs", lambda: server.show(job))
    (line,) = slurm.run("squeue", "-h", "-u", anna.name, "-o", "%a|%q|%u").splitlines()
    assert line == f"tumours|urgent|{anna.name}"

    many = server.submit(command=["true"], gpus=2, project="tumours", uid=anna.uid)
    wait_for(
        lambda: "has reached its limit of GPUs" in (server.show(many)["reason"] or ""),
        "the quota holds",
        lambda: server.show(many),
    )

    ask(server, "DELETE", f"/projects/tumours/members/{anna.name}")
    refused = server.ask("POST", "/slurm/apply", {})
    assert refused.status == 409
    assert "Job(s) active" in refused.error["message"]
    assert "repeat" in refused.error["hint"]

    for number in (job, many):
        server.ask("POST", f"/jobs/{number}/cancel")
        server.finished(number)
    wait_for(lambda: not slurm.run("squeue", "-h", "-u", anna.name), "Slurm has let go")
    slurm.run("sacctmgr", "-i", "add", "user", bert.name, "account=tumours")
    assert apply(server) == [f"Remove {anna.name} from the account tumours."]
    assert [line.split("|")[0] for line in associations(slurm, "tumours")] == ["", bert.name]

    audit = ask(server, "GET", "/audit?text=slurm.apply")["items"]
    assert audit[0]["detail"] == {"steps": [f"Remove {anna.name} from the account tumours."]}


def test_the_share_is_slurms_count_with_jobs_of_plain_sbatch(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    _, bert = two_unix_users
    apply(server)
    identity = f"--uid={bert.uid}", f"--gid={bert.gid}", "--chdir=/"
    slurm.submit("sleep 2", *identity, "--account=begin", "--gres=gpu:2", "--wait")

    def begin() -> Any:
        tree = ask(server, "GET", "/share")
        assert tree["usage_source"] == "slurm"
        projects = [project for one in tree["items"] for project in one["children"]]
        return next(project for project in projects if project["name"] == "begin")

    wait_for(lambda: begin()["usage_ratio"] > 0, "Slurm has counted it", lambda: json.dumps(begin()))
    (mine,) = (one for one in begin()["children"] if one["name"] == bert.name)
    assert mine["usage_ratio"] > 0
    assert mine["entitled"] is not None
    page = Surfer(server).by_link().get("/share?people=true").text
    assert "Usage is counted by Slurm" in page
    assert f'p-begin-u-{bert.name}"' in page


def test_only_admins_may_look_or_change(server: RunningServer, two_unix_users: list[Person]) -> None:
    uid = two_unix_users[0].uid
    assert server.ask("GET", "/slurm/plan", uid=uid).status == 403
    assert server.ask("POST", "/slurm/apply", {}, uid=uid).status == 403
