"""What `helio slurm` sends and prints."""

import json

from unit.client.stand_in_server import answer

PLAN = {
    "cluster": "lab",
    "steps": [{"sentence": "Add ann to the account vision.", "argv": ["sacctmgr", "add"]}],
    "unmanaged": ["The account old was not made by this Heliostat."],
    "unsupported": ["Limit of 9 queued GPUs for user ann: Slurm has no such limit."],
}
NOTHING = {"cluster": "lab", "steps": [], "unmanaged": [], "unsupported": []}


def test_a_plan_shows_steps_then_what_is_not_ours_and_what_slurm_cannot(helio, serve):
    server = serve(answer(PLAN))
    ran = helio("slurm", "plan")
    assert ran.out.splitlines() == [
        "Add ann to the account vision.",
        "",
        "Not managed by Heliostat:",
        "  The account old was not made by this Heliostat.",
        "",
        "Not supported by Slurm:",
        "  Limit of 9 queued GPUs for user ann: Slurm has no such limit.",
        "",
    ]
    assert "1 step. Apply them: helio slurm apply" in ran.err
    assert server.requests[0].startswith(b"GET /api/v1/slurm/plan ")


def test_a_plan_without_steps_says_so(helio, serve):
    serve(answer(NOTHING), answer(NOTHING), answer({**PLAN, "steps": []}))
    assert helio("slurm", "plan").out == "Slurm's accounts on lab are up to date.\n"
    assert helio("slurm", "apply").out == "Slurm's accounts on lab were up to date already.\n"
    assert helio("slurm", "plan").out.endswith("up to date, except for what is listed above.\n")


def test_apply_says_what_was_done(helio, serve):
    server = serve(answer(PLAN), answer(PLAN))
    assert helio("slurm", "apply").out.endswith("\nDone: 1 step, except for what is listed above.\n")
    assert server.requests[0].startswith(b"POST /api/v1/slurm/apply ")
    assert json.loads(helio("slurm", "apply", "--json").out) == PLAN


def test_a_refusal_is_one_line_and_a_hint(helio, serve):
    error = {"code": "slurm_refused", "message": "Slurm refuses step 2 of 3.", "hint": "Repeat.", "fields": {}}
    serve(answer({"error": error}, status=409))
    ran = helio("slurm", "apply")
    assert ran.code != 0
    assert "Slurm refuses step 2 of 3." in ran.err
    assert "Repeat." in ran.err
