"""Two people who do not trust each other on one machine, with a server that runs as root."""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer, acting_as, wait_for
from integration.unix_users import Person, needs_root

pytestmark = needs_root
SECRET = "hunter2-a8f31"
OF_THE_SERVER = "SECRET_OF_THE_SERVER"
TELLS = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void tell(void) {
    FILE *file = fopen("TALES", "a");
    if (file) { fprintf(file, "%d\\n", (int)geteuid()); fclose(file); }
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    environment = {**os.environ, OF_THE_SERVER: SECRET, "PYTHONDONTWRITEBYTECODE": "1"}
    server = RunningServer('server.simulate_gpus = "2xA100"\nserver.node_name = "here"\n', environment)
    yield server
    server.remove()


def lines_of(server: RunningServer, person: Person, **body: object) -> list[str]:
    job = server.run(person.uid, **body)
    assert job["state"] == "completed", server.output(job["id"], person.uid, "stderr")
    return server.output(job["id"], person.uid).splitlines()


@pytest.fixture
def her_running_job(server: RunningServer, ann: Person) -> Iterator[int]:
    """With secrets in its environment and its script, and everything it may have on disk."""
    script = f"#!/bin/sh\n# {SECRET}\necho ready {SECRET}; echo {SECRET} > mine; sleep 1000\n"
    job_id = server.submit(ann.uid, script=script, command=["word"], env={"KEY": SECRET})
    wait_for(lambda: "ready" in server.output(job_id, ann.uid), "her job to run")
    wait_for(lambda: server.show(job_id, ann.uid)["state"] == "running", "that to be known")
    yield job_id
    server.ask("POST", f"/jobs/{job_id}/cancel", uid=ann.uid)
    server.finished(job_id, ann.uid)


def test_a_job_runs_as_the_one_who_submitted_it_with_their_groups_and_no_privilege(
    server: RunningServer, ann: Person
) -> None:
    line = "id -ru; id -u; id -rg; id -G; grep -h ^Cap /proc/self/status; umask"
    real, effective, group, groups, *rest = lines_of(server, ann, command=line)
    assert int(real) == int(effective) == ann.uid
    assert int(group) == ann.gid
    assert sorted(map(int, groups.split())) == sorted(os.getgrouplist(ann.name, ann.gid))
    assert len(groups.split()) == 2
    assert rest.pop() == "0022"
    held = {name: int(value, 16) for name, value in (line.split() for line in rest)}
    assert held["CapPrm:"] == held["CapEff:"] == held["CapInh:"] == held["CapAmb:"] == 0


def test_its_environment_is_that_of_a_login_and_has_nothing_of_the_servers(
    server: RunningServer, ann: Person
) -> None:
    found = dict(line.split("=", 1) for line in lines_of(server, ann, command=["env"], env={"MINE": "1"}))
    assert OF_THE_SERVER not in found
    assert (found["HOME"], found["USER"], found["LOGNAME"], found["SHELL"]) == (
        str(ann.home),
        ann.name,
        ann.name,
        "/bin/sh",
    )
    ours = {name for name in found if name.startswith("HELIOSTAT_")}
    usual = {
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "PATH",
        "PYTHONPATH",
        "LANG",
        "PWD",
        "OLDPWD",
        "MINE",
        "OMP_NUM_THREADS",
    }
    gpus = {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
    assert found.keys() - ours <= usual | gpus
    assert SECRET not in str(found)


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


def test_no_command_line_on_the_machine_shows_a_secret_of_its_environment_or_script(
    server: RunningServer, her_running_job: int
) -> None:
    wait_for(lambda: any(b"sleep\x001000" in text for text in command_lines()), "it to sleep")
    assert not [text for text in command_lines() if SECRET.encode() in text]


def test_its_files_are_its_users_and_nobody_elses(
    server: RunningServer, ann: Person, her_running_job: int
) -> None:
    folder = server.home / "jobs" / str(her_running_job)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o710  # and an ACL for her
    assert folder.stat().st_uid == folder.stat().st_gid == 0
    entries = list(folder.iterdir())
    assert {entry.name for entry in entries} >= {"1.stdout", "1.stderr", "1.script", "work"}
    for entry in entries:
        found = entry.lstat()
        of_the_server = entry.suffix == ".order"
        assert (found.st_uid, found.st_gid) == ((0, 0) if of_the_server else (ann.uid, ann.gid)), entry
        assert stat.S_IMODE(found.st_mode) & 0o077 == 0, entry
    assert stat.S_IMODE((folder / "work").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "1.stdout").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "1.script").stat().st_mode) == 0o700


def test_the_other_user_can_read_and_list_none_of_it(
    server: RunningServer, ann: Person, bob: Person, her_running_job: int
) -> None:
    folder = server.home / "jobs" / str(her_running_job)
    entries = list(folder.iterdir())
    with acting_as(bob.uid):
        for place in (server.home, server.home / "jobs", folder, folder / "work", server.home / "attempts"):
            with pytest.raises(PermissionError):
                os.listdir(place)
        for entry in entries:
            for flags in (os.O_RDONLY, os.O_WRONLY):
                with pytest.raises(PermissionError):
                    os.open(entry, flags)
            with pytest.raises(PermissionError):  # not even its size and time
                entry.lstat()
        with pytest.raises(PermissionError):
            (folder / "work" / "mine").read_text()
        for change in (folder / "x", server.home / "x", server.home / "jobs" / "x"):
            with pytest.raises(PermissionError):
                change.mkdir()
    with acting_as(ann.uid):
        assert SECRET in (folder / "1.stdout").read_text()


def test_nobody_but_the_server_reads_the_database_or_the_traces(
    server: RunningServer, ann: Person, bob: Person, her_running_job: int
) -> None:
    private = [path for path in server.home.iterdir() if path.name.startswith(("heliostat.db", "server.lock"))]
    private += list((server.home / "attempts").iterdir())
    assert len(private) >= 3
    for person in (ann, bob):
        with acting_as(person.uid):
            for path in private:
                for flags in (os.O_RDONLY, os.O_RDWR):
                    with pytest.raises(PermissionError):
                        os.open(path, flags)


def test_the_other_users_job_sees_neither_its_environment_nor_its_open_files(
    server: RunningServer, bob: Person, her_running_job: int
) -> None:
    line = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; ls -l /proc/[0-9]*/fd 2>/dev/null; true"
    printed = "\n".join(lines_of(server, bob, command=line))
    assert SECRET not in printed
    assert f"/jobs/{her_running_job}/" not in printed


def test_a_job_cannot_swap_its_files_for_others(server: RunningServer, ann: Person) -> None:
    line = (
        "cd ..; rm -f 1.stdout; mv 1.stdout x; ln -sf /etc/shadow 1.stdout; ln -sf /etc/shadow 2.stdout;"
        "mv work w; rmdir work; ln -s /etc work; touch 2.stdout 2.script; chmod 777 .;"
        "ls; echo kept; [ $HELIOSTAT_ATTEMPT = 2 ] || sleep 1000"
    )
    job_id = server.submit(ann.uid, script=f"#!/bin/sh\n{line}\n")
    wait_for(lambda: "kept" in server.output(job_id, ann.uid), "her job to try")
    server.ask("POST", f"/jobs/{job_id}/requeue", uid=ann.uid)
    assert server.finished(job_id, ann.uid)["attempt"] == 2
    assert server.output(job_id, ann.uid).endswith("kept\n")
    assert "root:" not in server.output(job_id, ann.uid)
    assert Path("/etc/shadow").stat().st_uid == Path("/etc").stat().st_uid == 0
    folder = server.home / "jobs" / str(job_id)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o710
    assert not any(entry.is_symlink() for entry in folder.iterdir())


def test_a_folder_that_a_crash_left_half_made_becomes_its_users(server: RunningServer, ann: Person) -> None:
    job_id = server.submit(ann.uid, command="echo data > file; cat file", held=True)
    (server.home / "jobs" / str(job_id)).mkdir(mode=0o700)
    (server.home / "jobs" / str(job_id) / "work").mkdir(mode=0o700)
    server.ask("POST", f"/jobs/{job_id}/release", uid=ann.uid)
    assert server.finished(job_id, ann.uid)["state"] == "completed"
    assert server.output(job_id, ann.uid) == "data\n"


def test_links_in_what_a_job_owns_lead_the_server_nowhere(server: RunningServer, ann: Person) -> None:
    target = server.folder / "of-root"
    target.write_text("secret of root")
    target.chmod(0o600)
    line = (
        f"ln -s {target} link; ln {target} hard 2>/dev/null; ln ../1.stdout same; mkfifo pipe; ln -s / root;"
        "[ $HELIOSTAT_ATTEMPT = 2 ] || { echo ready; sleep 1000; }"
    )
    job_id = server.submit(ann.uid, command=line)
    wait_for(lambda: server.output(job_id, ann.uid) == "ready\n", "her job to make its links")
    server.ask("POST", f"/jobs/{job_id}/requeue", uid=ann.uid)
    server.finished(job_id, ann.uid)
    found = target.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode), target.read_text()) == (0, 0o600, "secret of root")


def test_a_working_directory_of_hers_may_be_a_link_and_stays_as_it_is(server: RunningServer, ann: Person) -> None:
    with acting_as(ann.uid):
        (ann.home / "etc").unlink(missing_ok=True)
        (ann.home / "etc").symlink_to("/etc")
    lines_of(server, ann, command=["pwd"], workdir=str(ann.home / "etc"))
    assert Path("/etc").stat().st_uid == 0


def test_the_home_of_another_cannot_be_a_working_directory(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    job = server.run(ann.uid, command="ls", workdir=str(bob.home))
    assert (job["state"], job["exit_code"]) == ("failed", 126)
    assert "the working directory cannot be entered" in server.output(job["id"], ann.uid, "stderr")


def test_nothing_in_a_jobs_environment_reaches_the_wrapper_that_runs_as_root(
    server: RunningServer, ann: Person, tmp_path: Path
) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to build a library that tells who loads it")
    tales = server.folder / "tales"
    tales.touch()
    tales.chmod(0o666)
    tell = f"#!/bin/sh\nid -u >> {tales}\n"
    bin_ = server.folder / "bin"
    bin_.mkdir()
    for name in ("sleep", "kill", "setpriv", "printf", "cat", "rc"):
        (bin_ / name).write_text(tell)
        (bin_ / name).chmod(0o755)
    library = _library_that_tells(server.folder, tales)
    env = {
        "LD_PRELOAD": str(library),
        "LD_LIBRARY_PATH": str(bin_),
        "PATH": f"{bin_}:/usr/bin:/bin",
        "ENV": str(bin_ / "rc"),
        "BASH_ENV": str(bin_ / "rc"),
        "SHELL": str(bin_ / "rc"),
        "trace": "/etc/shadow",
        "groups": "/etc/shadow",
        "limit": "0",
    }
    job = server.run(ann.uid, command="/bin/sleep 600; sleep 1", time_limit=1, grace_seconds=0.2, env=env)
    assert job["state"] == "timed_out"
    assert set(tales.read_text().split()) == {str(ann.uid)}


def test_a_job_cannot_kill_the_wrapper_that_watches_it(server: RunningServer, ann: Person) -> None:
    line = "kill -9 $PPID; kill -STOP $PPID; kill -9 -1; kill -TERM 0; trap '' TERM; exit 5"
    job = server.run(ann.uid, command=f"trap '' TERM; {line}")
    assert (job["state"], job["exit_code"], job["reason"]) == ("failed", 5, "exit code 5")


def test_a_job_cannot_signal_or_trace_the_server_or_leave_its_cgroup(server: RunningServer, ann: Person) -> None:
    line = (
        f"kill -9 {server.pid} 2>/dev/null && echo killed; cat /proc/{server.pid}/environ 2>/dev/null;"
        "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do"
        "  { echo $$ > $f; } 2>/dev/null && echo left $f; done; echo end"
    )
    assert lines_of(server, ann, command=line) == ["end"]
    assert server.process.poll() is None


def test_a_job_submits_jobs_only_as_its_own_user(server: RunningServer, ann: Person) -> None:
    ask = (
        "import http.client, os, socket, json\n"
        "c = http.client.HTTPConnection('localhost')\n"
        "c.sock = socket.socket(socket.AF_UNIX)\n"
        "c.sock.connect(os.environ['HELIOSTAT_HOME'] + '/heliostat.sock')\n"
        "c.request('GET', '/api/v1/whoami', headers={'X-Remote-User': 'root'})\n"
        "print(json.load(c.getresponse())['user']['name'])\n"
    )
    assert lines_of(server, ann, command=["/usr/bin/python3", "-c", ask]) == [ann.name]


def test_many_jobs_of_both_run_at_once_and_each_as_its_own(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    ids = {
        person: server.ask(
            "POST", "/jobs", {"command": "id -u", "array": "0-19", "cpus": 1, "memory": 64}, uid=person.uid
        ).json["job_ids"]
        for person in (ann, bob)
    }
    for person, job_ids in ids.items():
        body = {"job_ids": job_ids, "timeout_seconds": 90}
        assert server.ask("POST", "/jobs/wait", body, uid=person.uid).json["unfinished"] == []
        assert {server.output(job_id, person.uid) for job_id in job_ids} == {f"{person.uid}\n"}


def _library_that_tells(folder: Path, tales: Path) -> Path:
    source, library = folder / "tell.c", folder / "tell.so"
    source.write_text(TELLS.replace("TALES", str(tales)))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    library.chmod(0o755)
    return library


def test_only_she_and_an_admin_can_say_that_her_job_has_saved_its_work(
    server: RunningServer, her_running_job: int, ann: Person, bob: Person
) -> None:
    path = f"/jobs/{her_running_job}/checkpoint"
    assert server.ask("POST", path, uid=bob.uid).status == 403
    assert server.show(her_running_job, ann.uid)["checkpointed_at"] is None
    told = server.ask("POST", path, uid=ann.uid).json["checkpointed_at"]
    assert told == server.show(her_running_job, ann.uid)["checkpointed_at"]
    assert server.ask("POST", path).json["checkpointed_at"] > told
    events = server.ask("GET", f"/events?job_id={her_running_job}", uid=ann.uid).json["items"]
    assert [event["kind"] for event in events if event["state"] == "running"] == ["running", *["checkpointed"] * 2]


def test_what_is_over_has_no_work_left_to_save(server: RunningServer, ann: Person) -> None:
    job = server.run(ann.uid, command="true")
    answer = server.ask("POST", f"/jobs/{job['id']}/checkpoint", uid=ann.uid)
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert answer.error["hint"]
    assert server.ask("POST", "/jobs/999999/checkpoint", uid=ann.uid).status == 404


def test_nobody_else_can_look_into_her_checkpoints(server: RunningServer, ann: Person, bob: Person) -> None:
    (folder,) = lines_of(
        server, ann, command="echo $HELIOSTAT_CHECKPOINT_DIR; : > $HELIOSTAT_CHECKPOINT_DIR/model"
    )
    facts = Path(folder).stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (ann.uid, 0o700)
    with acting_as(bob.uid), pytest.raises(PermissionError):
        os.listdir(folder)


def test_her_jobs_list_the_folder_of_their_workflow_and_nobody_else_does(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    list_all = 'cd "$HELIOSTAT_WORKFLOW_DIR"; python3 -c "import glob; print(sorted(glob.glob(\'*/*.txt\')))"'
    jobs = {
        "first": {"command": 'echo data > "$HELIOSTAT_OUTPUT_DIR/data.txt"'},
        "second": {"command": list_all, "needs": ["first"]},
    }
    document = {"name": "passing", "jobs": jobs}
    made = server.ask("POST", "/workflows", {"workflow": document}, uid=ann.uid).json
    second = max(job["job_id"] for job in server.ask("GET", f"/workflows/{made['id']}", uid=ann.uid).json["jobs"])
    server.finished(second, ann.uid)
    assert server.output(second, ann.uid) == "['first/data.txt']\n"
    with acting_as(bob.uid), pytest.raises(PermissionError):
        os.listdir(server.home / "workflows" / str(made["id"]))
