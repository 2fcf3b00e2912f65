"""`helio simulate`, as it is typed."""

import json
from pathlib import Path

import pytest

from unit.client.stand_in_server import answer

CASES = Path(__file__).parents[2] / "cases" / "traces"
MAP = "submitted_at=stamp,run_seconds=seconds,gpus=num_gpus,project=cluster"


def test_made_up_jobs_are_compared_side_by_side(helio):
    ran = helio("simulate", "--generate", "60", "--seed", "7", "--nodes", "2x8", "--compare", "fifo,easy")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "trace synthetic, seed 7, jobs 60, nodes 2x8, offered load 0.90"
    assert lines[2].split() == ["METRIC", "fifo", "easy"]
    assert any(line.startswith("wait, p99") for line in lines)


def test_json_has_the_trace_the_cluster_and_every_policy(helio):
    words = ["--map", MAP, "--where", "cluster=blue", "--nodes", "1x8", "--limit-factor", "2", "--json"]
    ran = helio("simulate", str(CASES / "table.csv"), *words, "--compare", "fifo,easy", "--parallel", "1")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert said["trace"]["jobs"] == 2
    assert said["trace"]["skipped"] == {"not selected": 2}
    (cluster,) = said["clusters"]
    assert cluster["gpus"] == 8
    assert list(cluster["policies"]) == ["fifo", "easy"]
    fifo = cluster["policies"]["fifo"]
    assert fifo["wait"]["mean"] == pytest.approx((2951.5 - 251) / 2)
    assert fifo["jobs"] == 2


def test_two_clusters_are_compared_side_by_side_with_the_same_jobs(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus\n0,10,1\n1,10,8\n2,10,16\n")
    page = tmp_path / "out.html"
    words = ("simulate", str(tmp_path / "t.csv"), "--nodes", "1x8", "--nodes", "2x8", "--policy", "fifo")
    ran = helio(*words, "--report", str(page))
    assert ran.out.splitlines()[0].startswith("trace t.csv, jobs 2 of 3, nodes 1x8 and 2x8, ")
    assert ran.out.splitlines()[2].split() == ["METRIC", "1x8", "2x8"]
    assert "1 job cannot run on these nodes: larger than the cluster." in ran.err
    assert page.read_text().count("<svg") == 4
    both = helio(*words[:-2], "--compare", "fifo,easy").out
    assert "fifo on 1x8" in both
    assert "easy on 2x8" in both
    said = json.loads(helio(*words, "--json").out)
    assert [(one["nodes"], one["gpus"], list(one["policies"])) for one in said["clusters"]] == [
        ("1x8", 8, ["fifo"]),
        ("2x8", 16, ["fifo"]),
    ]


def test_the_nodes_of_the_running_cluster_are_used_as_they_are(helio, serve, tmp_path):
    device = {"uuid": "g0", "index": 0, "type": "A100", "name": "NVIDIA A100", "memory_mib": 81920}
    node = {"name": "n1", "cpus": 2, "memory_mib": 1024, "devices": [device], "splits_devices": False}
    serve(answer({"items": [node]}), answer({"items": []}))
    (tmp_path / "t.csv").write_text(
        "submitted_at,run_seconds,gpus,gpu_type,cpus\n0,10,1,A100,2\n1,10,1,A100,3\n2,10,1,T4,1\n"
    )
    ran = helio("simulate", str(tmp_path / "t.csv"), "--nodes", "current")
    assert ran.out.splitlines()[0].startswith("trace t.csv, jobs 1 of 3, nodes current, ")
    assert "has no nodes" in helio("simulate", str(tmp_path / "t.csv"), "--nodes", "current").err


def test_processes_give_what_one_process_gives(helio):
    words = ["--generate", "80", "--nodes", "1x8", "--compare", "fifo,easy", "--json", "--parallel"]
    alone, together = (json.loads(helio("simulate", *words, count).out) for count in ("1", "2"))
    for said in (alone, together):
        for figures in said["clusters"][0]["policies"].values():
            del figures["replay_seconds"]
    assert alone == together


def test_our_own_history_and_swf_are_known_by_their_names(helio):
    ran = helio("simulate", str(CASES / "history.jsonl"), "--nodes", "1x8xA100", "--policy", "fifo", "--json")
    assert json.loads(ran.out)["clusters"][0]["policies"]["fifo"]["jobs"] == 1
    ran = helio(
        "simulate", str(CASES / "small.swf"), "--nodes", "4xcpu", "--cpus", "4", "--policy", "fifo", "--json"
    )
    assert json.loads(ran.out)["clusters"][0]["policies"]["fifo"]["jobs"] == 3


def test_processors_of_swf_jobs_can_be_gpus(helio):
    words = ("simulate", str(CASES / "small.swf"), "--nodes", "1x8", "--gpus-from", "procs")
    ran = helio(*words)
    assert "trace small.swf, jobs 3, nodes 1x8, offered load 2.95" in ran.out
    assert "'cores' is not one of procs" in helio(*words[:-1], "cores").err


def test_a_part_of_a_trace_is_replayed_at_another_load(helio, tmp_path):
    (tmp_path / "t.csv").write_text(
        "submitted_at,run_seconds,gpus\n" + "".join(f"{n}00,50,8\n" for n in range(10))
    )
    words = ("simulate", str(tmp_path / "t.csv"), "--nodes", "1x8", "--from", "200s", "--to", "700")
    assert helio(*words).out.splitlines()[0] == "trace t.csv, jobs 5, nodes 1x8, offered load 0.62"
    scaled = helio(*words, "--scale-load", "1.25")
    facts = "trace t.csv, jobs 5, nodes 1x8, offered load 1.25 (times between submissions x 0.5)"
    assert scaled.out.splitlines()[0] == facts
    said = json.loads(helio(*words, "--scale-load", "1.25", "--json").out)
    assert (said["trace"]["gap_factor"], said["trace"]["skipped"]) == (0.5, {"not selected": 5})


def test_impossible_jobs_are_told(helio):
    ran = helio("simulate", str(CASES / "table.csv"), "--map", MAP, "--nodes", "1x4", "--policy", "fifo")
    assert ran.code == 0
    assert "1 job cannot run on these nodes: larger than the cluster." in ran.err
    assert "jobs 3 of 4" in ran.out.splitlines()[0]
    assert "--nodes" not in ran.err


def test_own_jobs_that_the_default_nodes_cannot_run_are_told_with_a_hint(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,gpu_type\n0,10,1,\n1,10,1,V100\n")
    ran = helio("simulate", str(tmp_path / "t.csv"))
    assert "1 job cannot run on these nodes: no node has a GPU of type V100." in ran.err
    assert "hint: These are the default nodes, 8x8. Describe your own: --nodes" in ran.err
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,gpu_type\n1,10,1,V100\n")
    assert "hint: These are the default nodes" in helio("simulate", str(tmp_path / "t.csv")).err


def test_accounts_of_a_policy_without_jobs_are_told(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,project\n0,10,1,vision\n")
    (tmp_path / "mine.toml").write_text("[projects]\nvision = 2\nvisoin = 3\n[users.ann.quota]\nrunning_gpus = 1")
    ran = helio("simulate", str(tmp_path / "t.csv"), "--policy", str(tmp_path / "mine.toml"))
    assert "No job is replayed of project visoin, user ann, which policy mine names." in ran.err


def test_jobs_that_a_quota_never_allows_are_told(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,project\n0,10,1,vision\n0,10,2,vision\n")
    (tmp_path / "mine.toml").write_text("[projects.vision]\nquota = { running_gpus = 1 }")
    ran = helio("simulate", str(tmp_path / "t.csv"), "--compare", f"easy,{tmp_path / 'mine.toml'}")
    assert "1 job never started under mine." in ran.err


def test_a_class_that_no_policy_knows_is_refused_with_its_line(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,priority_class\n0,10,1,normal\n1,10,1,gold\n")
    ran = helio("simulate", str(tmp_path / "t.csv"))
    assert ran.code == 2
    assert "t.csv, line 3, priority_class: 'gold' is not one of scavenger, normal, interactive, urgent." in ran.err
    assert "1 line skipped" in helio("simulate", str(tmp_path / "t.csv"), "--skip-bad").err
    (tmp_path / "mine.toml").write_text("[classes.gold]\nrank = 2\n")
    assert helio("simulate", str(tmp_path / "t.csv"), "--policy", str(tmp_path / "mine.toml")).code == 0


def test_the_report_is_one_page_that_needs_nothing_else(helio, tmp_path):
    page = tmp_path / "out.html"
    ran = helio("simulate", "--generate", "60", "--nodes", "1x8", "--policy", "fifo", "--report", str(page))
    assert ran.code == 0, ran.err
    html = page.read_text()
    assert html.count("<svg") == 4
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in html


def test_the_jobs_of_a_replay_are_written_to_a_file_that_a_replay_can_read(helio, tmp_path):
    table = tmp_path / "jobs.csv"
    words = ("simulate", "--generate", "60", "--nodes", "1x8", "--compare", "fifo,easy")
    ran = helio(*words, "--jobs-csv", str(table))
    assert f"Wrote {table}." in ran.err
    assert len(table.read_text().splitlines()) == 1 + 2 * 60
    assert helio("simulate", str(table), "--where", "policy=fifo", "--nodes", "1x8").code == 0


def test_a_file_that_exists_is_overwritten_only_with_force(helio, tmp_path):
    for option in ("--report", "--jobs-csv"):
        (tmp_path / "mine").write_text("precious")
        words = ("simulate", "--generate", "5", "--nodes", "1x8", option, str(tmp_path / "mine"))
        ran = helio(*words)
        assert ran.code != 0
        assert f"{option}: {tmp_path / 'mine'} exists already." in ran.err
        assert "--force" in ran.err
        assert (tmp_path / "mine").read_text() == "precious"
        assert helio(*words, "--force").code == 0
        assert (tmp_path / "mine").read_text() != "precious"


def test_a_file_is_neither_the_trace_nor_written_twice(helio, tmp_path):
    trace, out = tmp_path / "t.csv", tmp_path / "out"
    trace.write_text("submitted_at,run_seconds,gpus\n0,10,1\n")
    for words in (["--jobs-csv", str(trace)], ["--report", str(out), "--jobs-csv", str(out)]):
        ran = helio("simulate", str(trace), *words, "--force")
        assert ran.code == 2
        assert f"--jobs-csv: {words[-1]} is another file of this command." in ran.err
    assert trace.read_text().startswith("submitted_at")


def test_the_comparison_is_printed_even_if_a_file_cannot_be_written(helio):
    ran = helio("simulate", "--generate", "5", "--nodes", "1x8", "--jobs-csv", "/proc/none")
    assert ran.code != 0
    assert "METRIC" in ran.out
    assert "/proc/none cannot be written" in ran.err


def test_fields_of_a_trace_keep_their_names(helio, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"submitted_at": 0, "run_seconds": 1, "memory_mib": -1}\n')
    assert "line 1, memory_mib: -1 is not an amount" in helio("simulate", str(tmp_path / "t.jsonl")).err
    assert "cpus, memory_mib, gpu_type" in helio("simulate", "t.csv", "--map", "foo=bar").err


def test_names_from_a_trace_cannot_become_markup(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,project\n0,10,1,<script>x\n1,10,1,<b>\n")
    page = tmp_path / "out.html"
    helio("simulate", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo", "--report", str(page))
    assert "<script" not in page.read_text()
    assert "&lt;script&gt;x" in page.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Name a trace file"),
        (["t.csv", "--generate", "5"], "either a trace file or --generate"),
        (["none.csv"], "File none.csv does not exist"),
        (["--generate", "5", "--nodes", "many"], "'many' does not describe nodes"),
        (["--generate", "5", "--policy", "best"], "Policy 'best' does not exist"),
        (["--generate", "5", "--policy", "fifo", "--compare", "easy"], "--compare fifo,easy"),
        (["--generate", "5", "--report", "/no/such/place.html"], "mkdir -p /no/such"),
        (["--generate", "5", "--report", "/"], "is a folder"),
        (["t.csv", "--map", "gpus=milli/0"], "'milli/0': 0 is not a valid divisor"),
        (["--generate", "5", "--limit-factor", "0"], "--limit-factor must be above 0"),
        (["--generate", "5", "--load", "nan"], "--load must be above 0"),
        (["--generate", "5", "--scale-load", "0"], "--scale-load must be above 0"),
        (["--generate", "5", "--from", "soon"], "--from: 'soon' is not a time"),
        (["--generate", "5", "--checkpoint", "often"], "not a duration"),
        (["--generate", "5", "--nodes", "2xcpu", "--cpus", "4"], "Synthetic jobs request GPUs"),
    ],
)
def test_mistakes_are_told_in_one_line(helio, words, says):
    ran = helio("simulate", *words)
    assert ran.code in (2, 4)
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_a_cluster_that_can_run_nothing_is_told_why(helio):
    ran = helio("simulate", str(CASES / "history.jsonl"), "--nodes", "1x8xT4")
    assert ran.code == 2
    assert "no node has a GPU of type A100" in ran.err


def test_names_from_a_trace_cannot_steer_the_terminal(helio, tmp_path):
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds,gpus,gpu_type\n0,10,1,\x1b[2J\n")
    ran = helio("simulate", str(tmp_path / "t.csv"), "--nodes", "1x8")
    assert ran.code == 2
    assert "\x1b" not in ran.err
