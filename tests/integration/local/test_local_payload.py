"""What a job runs, and what is made of its end."""

import json
import subprocess
import sys

import pytest

from integration.running_server import RunningServer

HOSTILE = [
    "",
    " ",
    "two words",
    "'",
    '"',
    "'\"'\"'",
    "\\",
    "\\\\n",
    "$HOME",
    "$(echo no)",
    "`echo no`",
    "a\nb",
    "\n",
    "a\tb",
    "*",
    "?",
    "~",
    "!x",
    "-n",
    "--",
    "; echo no",
    "& echo no",
    "| cat",
    "> /dev/null",
    "#",
    "{a,b}",
    "\u00e4\u4e2d\U0001f680",
    "\u202e\u200b",
    "\x7f\x01\x1b[31m",
    "%s%n",
]
PRINTS_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"


def run(server: RunningServer, **body: object) -> tuple[dict[str, object], str, str]:
    job = server.run(**body)
    number = int(str(job["id"]))
    return job, server.output(number), server.output(number, stream="stderr")


def test_every_exit_code_comes_back(server: RunningServer) -> None:
    jobs = [{"command": f"exit {code}", "cpus": 1, "memory": 64} for code in range(256)]
    ids = server.ask("POST", "/jobs/bulk", {"jobs": jobs}).json["job_ids"]
    found = server.ask("POST", "/jobs/wait", {"job_ids": ids, "timeout_seconds": 120}).json["finished"]
    assert [job["exit_code"] for job in found] == list(range(256))
    assert [job["state"] for job in found] == ["completed"] + ["failed"] * 255
    assert found[7]["reason"] == "exit code 7"


@pytest.mark.parametrize("number", [1, 2, 3, 9, 10, 13, 14, 15])
def test_a_signal_is_128_and_its_number(server: RunningServer, number: int) -> None:
    job, _, _ = run(server, command=f"ulimit -c 0; kill -{number} $$")
    assert (job["state"], job["exit_code"]) == ("failed", 128 + number)


def test_a_list_of_words_meets_no_shell(server: RunningServer) -> None:
    job, out, _ = run(server, command=["python3", "-c", PRINTS_ARGUMENTS, *HOSTILE])
    assert job["exit_code"] == 0
    assert json.loads(out) == HOSTILE


def test_a_shell_line_is_the_shells(server: RunningServer) -> None:
    _, out, _ = run(server, command="for word in a 'b c'; do echo \"<$word>\"; done | tr a-z A-Z; echo $((6 * 7))")
    assert out == "<A>\n<B C>\n42\n"


def test_the_environment_comes_as_it_was_given(server: RunningServer) -> None:
    env = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    prints = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k[0] == 'V'}))"
    _, out, _ = run(server, command=["python3", "-c", prints], env=env)
    assert json.loads(out) == env


def test_a_name_full_of_shell_is_only_a_name(server: RunningServer) -> None:
    name = "$(touch /tmp/no) `id` ; | & > < ' \" \\ * ~ {a,b} \u4e2d"
    job, out, _ = run(server, command=["printenv", "HELIOSTAT_JOB_NAME"], name=name)
    assert job["name"] == name
    assert out == name + "\n"


def test_a_script_runs_under_its_own_interpreter_with_its_arguments(server: RunningServer) -> None:
    script = "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    _, out, _ = run(server, script=script, command=HOSTILE)
    assert json.loads(out) == HOSTILE


def test_a_script_without_an_interpreter_is_the_shells(server: RunningServer) -> None:
    _, out, _ = run(server, script='echo "$#: $1"; exit 0', command=["a b", "c"])
    assert out == "2: a b\n"


def test_a_script_whose_interpreter_is_missing_does_not_run(server: RunningServer) -> None:
    job, _, err = run(server, script="#!/no/such/interpreter\necho no\n")
    assert job["exit_code"] in (126, 127)
    assert err


def test_a_missing_command_is_127_and_the_reason_names_it(server: RunningServer) -> None:
    job, out, err = run(server, command=["no-such-command", "x"])
    assert (job["state"], job["exit_code"]) == ("failed", 127)
    assert out == ""
    assert "no-such-command" in err
    assert job["reason"].startswith("no-such-command: not found on this node; ")


def test_what_cannot_be_executed_is_126(server: RunningServer) -> None:
    job, _, err = run(server, command=["/etc/passwd"])
    assert job["exit_code"] == 126
    assert "/etc/passwd" in err


@pytest.mark.parametrize("workdir", ["/no/such/folder", "/etc/passwd", "/tmp/$(echo no)\n'x"], ids=ascii)
def test_a_working_directory_that_cannot_be_entered_is_126_and_said_in_stderr(
    server: RunningServer, workdir: str
) -> None:
    job, out, err = run(server, command="echo no", workdir=workdir)
    assert (job["state"], job["exit_code"], out) == ("failed", 126, "")
    assert "the working directory cannot be entered" in err


def test_the_working_directory_is_the_one_asked_for_or_a_fresh_one(server: RunningServer) -> None:
    assert run(server, command="pwd", workdir="/usr/share")[1] == "/usr/share\n"
    job, out, _ = run(server, command="pwd; ls -A; echo data > file")
    assert out == f"{server.home}/jobs/{job['id']}/work\n"


def test_input_is_empty_and_no_descriptor_of_ours_is_open(server: RunningServer) -> None:
    line = "wc -c < /dev/stdin; for f in /proc/self/fd/*; do readlink $f; done"
    job, out, _ = run(server, command=line)
    first, *links = out.splitlines()
    assert first == "0"
    home = str(server.home)
    strangers = [link for link in links if home in link and f"/jobs/{job['id']}/" not in link]
    assert strangers == []
    assert not any("socket:" in link or "heliostat.db" in link or "pidfd" in link for link in links)


def test_both_streams_are_kept_apart_and_can_be_read_from_any_byte(server: RunningServer) -> None:
    job, out, err = run(server, command="printf 0123456789; printf abc >&2")
    assert (out, err) == ("0123456789", "abc")
    path = f"/jobs/{job['id']}/logs"
    for query, expected in (
        ("offset=4", b"456789"),
        ("offset=-3", b"789"),
        ("offset=-99", b"0123456789"),
        ("offset=99", b""),
        ("offset=2&limit=3", b"234"),
        ("limit=0", b""),
        (f"offset={2**53}", b""),
    ):
        assert server.ask("GET", f"{path}?{query}").body == expected
    assert server.ask("GET", f"{path}?attempt=2").status == 404


def test_gpus_are_given_by_uuid(server: RunningServer) -> None:
    job, out, _ = run(server, command="echo $CUDA_VISIBLE_DEVICES/$NVIDIA_VISIBLE_DEVICES", gpus=2)
    assert out == "/".join([",".join(job["devices"])] * 2) + "\n"  # type: ignore[call-overload]
    assert len(set(job["devices"])) == 2  # type: ignore[call-overload]


def test_a_job_without_gpus_sees_none(server: RunningServer) -> None:
    _, out, _ = run(server, command='echo "<${CUDA_VISIBLE_DEVICES-unset}>/$NVIDIA_VISIBLE_DEVICES"')
    assert out == "<>/void\n"


def test_signals_that_the_server_was_started_to_ignore_are_not_ignored_by_jobs() -> None:
    code = (
        "import signal, subprocess; signal.signal(signal.SIGQUIT, signal.SIG_IGN);"
        "from heliostat.server import _reset_ignored_signals; _reset_ignored_signals();"
        "print(subprocess.run(['sh', '-c', 'ulimit -c 0; kill -3 $$']).returncode)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "-3"
