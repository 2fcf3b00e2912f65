"""Jobs, workflows, sweeps and sessions as objects."""

import pytest

from heliostat.client import Client
from heliostat.errors import JobFailed
from unit.client.stand_in_server import answer

JOB = {"id": 7, "name": "<train>", "state": "running", "reason": None}
RUN = {"job_id": 7, "state": "failed", "values": {"lr": 0.1}, "metrics": {"acc": {"value": 0.25}}}
SWEEP = {"id": 3, "name": "lr", "count": 1, "array_id": 5, "parameters": ["lr"], "metrics": ["acc"], "runs": [RUN]}
ROW = {"key": "prep", "job_id": 7, "state": "completed", "reason": None, "outputs": {"n": "3"}}
WORKFLOW = {"id": 2, "name": "train", "state": "failed"}
SESSION = JOB | {"is_up": False, "url": "http://gpu1:8471/j/7/", "app": "jupyter"}


def test_a_job_that_must_complete_and_does_not_is_an_error(serve, tmp_path):
    ended = JOB | {"state": "failed", "reason": "exit code 1"}
    serve(answer({"finished": [ended, {"id": 8, "state": "completed"}], "unfinished": []}))
    with pytest.raises(
        JobFailed, match=r"1 of 2 jobs did not complete. The first: Job 7 failed: exit code 1\."
    ) as e:
        Client(home=tmp_path).wait([7, 8], check=True)
    assert e.value.hint == "Its output: helio logs 7."


def test_a_job_is_run_again_and_its_results_are_saved(serve, tmp_path):
    serve(
        answer(JOB),
        answer({"job": JOB | {"id": 9}, "notes": []}, 201),
        answer({"items": []}),
        answer({"summary": 1}),
    )
    job = Client(home=tmp_path).jobs.get(7).rerun(gpus=2, upload="0" * 64)
    assert (job.id, job.results(tmp_path / "out"), job.stats()) == (9, [], {"summary": 1})


def test_a_sweep_has_runs_and_jobs_and_is_waited_for(serve, tmp_path):
    done = answer({"finished": [JOB | {"state": "failed"}], "unfinished": []})
    serve(answer({"items": [SWEEP | {"runs": None, "metrics": None}]}), answer(SWEEP), done, answer(SWEEP))
    sweep = Client(home=tmp_path).sweeps.list()[0].refresh()
    assert repr(sweep) == "<Sweep 3 lr: 1 run>"
    assert ([job.id for job in sweep.jobs], sweep.wait().ok, sweep.is_terminal) == ([7], False, True)
    assert "<td>0.1</td><td>0.25</td>" in sweep._repr_html_()


def test_a_workflow_has_jobs_by_key_and_outputs(serve, tmp_path):
    serve(answer({"items": [WORKFLOW]}), answer(WORKFLOW | {"jobs": [ROW]}), answer(WORKFLOW | {"jobs": [ROW]}))
    (workflow,) = Client(home=tmp_path).workflows.list()
    assert (workflow.jobs["prep"].id, workflow.outputs) == (7, {"prep": {"n": "3"}})
    assert "<td>prep</td>" in workflow._repr_html_()
    with pytest.raises(JobFailed, match="Workflow 2 failed"):
        workflow.wait(check=True)


def test_a_session_is_a_job_with_an_address(serve, tmp_path):
    up, ended = SESSION | {"is_up": True}, JOB | {"state": "cancelled"}
    serve(answer(SESSION, 201), answer(up), answer(ended))
    session = Client(home=tmp_path).sessions.start().wait_until_up(60)
    assert (session.is_up, session.name, repr(session)) == (True, "<train>", "<Session 7 running>")
    assert '<a href="http://gpu1:8471/j/7/"' in session._repr_html_()
    assert (session.cancel().is_up, session.url) == (False, SESSION["url"])


def test_notebooks_show_a_job_as_a_table_without_its_markup(serve, tmp_path):
    serve(answer(JOB))
    html = Client(home=tmp_path).jobs.get(7)._repr_html_()
    assert "<caption>Job 7</caption>" in html
    assert "<td>&lt;train&gt;</td>" in html
    assert "exit code" not in html
