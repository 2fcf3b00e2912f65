"""`helio history export`, as it is typed."""

import json

import pytest

from heliostat.cli import history
from unit.client.stand_in_server import answer, stream


def test_history_is_printed_line_by_line(helio, serve):
    server = serve(stream('{"id": 1, "user": "ann"}\n{"id": 2, "user": "ann"}\n{"jobs": 2}\n'))
    ran = helio("history", "export", "--from", "2026-10-01", "--to", "2026-11-01T00:00+01:00", "--anonymous")
    assert ran.code == 0, ran.err
    assert [json.loads(line)["id"] for line in ran.out.splitlines()] == [1, 2]
    assert b"from=2026-10-01T00%3A00%3A00%2B00%3A00&to=2026-11-01T00%3A00%3A00%2B01%3A00" in server.requests[0]


def test_history_as_json_is_one_list(helio, serve):
    serve(stream('{"id": 1}\n{"jobs": 1}\n'))
    assert json.loads(helio("history", "export", "--json").out) == [{"id": 1}]


def test_a_history_that_was_cut_short_is_not_a_success(helio, serve):
    serve(stream('{"id": 1}\n'))
    ran = helio("history", "export")
    assert ran.code == 3
    assert "cut short" in ran.err


def test_a_time_that_is_none_is_refused(helio):
    ran = helio("history", "export", "--from", "last month")
    assert ran.code == 2
    assert "not a time" in ran.err


SACCT = "JobID|User|Account|State|Submit|Start|End|JobName\n1|ann|lab|COMPLETED|1|2|3|x\n"
DONE = {"jobs": 1, "known": 2, "skipped": {"not over": 1}, "accounts": ["ann"]}


def test_a_file_of_sacct_is_sent_and_what_became_of_it_told(helio, serve, tmp_path):
    server = serve(answer(DONE))
    (tmp_path / "sacct.txt").write_bytes(SACCT.encode() + b"2|b\xffb|lab\n")
    words = ("--file", str(tmp_path / "sacct.txt"), "--project", "lab=imaging", "--project", "*=default")
    ran = helio("history", "import", "slurm", *words)
    assert (ran.code, ran.out) == (
        0,
        "1 job imported, 2 were imported before.\nskipped: 1 (not over)\nnew accounts: ann\n",
    )
    assert b'"projects":{"lab":"imaging","*":"default"}' in server.requests[0]
    assert b"POST /api/v1/history/slurm" in server.requests[0]


@pytest.fixture
def sacct(tmp_path, monkeypatch):
    """A made-up sacct that prints these lines with the wanted delimiter."""

    def write(lines: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (tmp_path / "lines").write_text(lines)
        (folder / "sacct").write_text(
            f"#!/bin/sh\n[ $1 != --helpformat ] || {{ echo JobID SubmitLine; exit; }}\n"
            f'echo "$@" >>{tmp_path}/asked\nsed "s/|/${{3#--delimiter=}}/g" {tmp_path}/lines\n'
        )
        (folder / "sacct").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    return write


def test_sacct_is_run_month_by_month_and_its_pieces_are_added_up(helio, serve, tmp_path, sacct):
    sacct(SACCT)
    serve(answer(DONE), answer(DONE), answer(DONE))
    ran = helio("history", "import", "slurm", "--since", "2026-01-20", "--until", "2026-03-02", "--json")
    assert (ran.code, json.loads(ran.out)["jobs"]) == (0, 3)
    asked = (tmp_path / "asked").read_text()
    assert asked.count("--allusers") == 3
    assert "--starttime=2026-02-01" in asked


def test_commands_of_jobs_that_were_submitted_elsewhere_are_not_sent(helio, serve, sacct):
    start = "1" + "|" * (len(history.SACCT_FIELDS) - 1)
    sacct(
        "|".join(history.SACCT_FIELDS)
        + f"\n{start}sbatch --export=KEY=secret --wrap\nsecond line of the secret\n"
        + f"{start}sbatch --comment=heliostat:abc:1.1\n"
    )
    server = serve(answer(DONE))
    words = ("--since", "2026-01-20", "--until", "2026-01-21")
    assert helio("history", "import", "slurm", *words).code == 0
    assert b"heliostat:abc:1.1" in server.requests[0]
    assert b"secret" not in server.requests[0]
    assert b"SubmitLine" in server.requests[0]


def test_what_cannot_be_read_or_run_is_said(helio, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = helio("history", "import", "slurm")
    assert (ran.code, "Cannot run sacct" in ran.err) == (1, True)
    assert "no file" in helio("history", "import", "slurm", "--file", str(tmp_path / "none")).err
    assert "is not a pair" in helio("history", "import", "slurm", "--project", "lab").err
    assert helio("history", "import", "slurm", "--since", "2026-02-01", "--until", "2026-01-01").code == 2


def test_chunks_are_split_only_at_the_first_line_of_a_job():
    lines = ["JobID|x\n", "1|a\n", "1.batch|\n", "1.0|\n", "2_[3-4]|b\n", "3|c\n", "3.batch|\n"]
    chunks = [chunk.text.splitlines()[1:] for chunk in history.split_into_chunks("t", lines, "|", max_lines=2)]
    assert chunks == [["1|a", "1.batch|", "1.0|"], ["2_[3-4]|b", "3|c", "3.batch|"]]
