"""Environments on this machine: built once, by a Unix user of their own, for people who trust nobody."""

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliostat.client import Client, LogWait
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root, people
from support.package_index import PackageIndex, running_package_index

pytestmark = [
    needs_root,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="builds in bubblewrap, which is not installed"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs a Python that every user may run"),
]
PATIENCE_SECONDS = 150.0
USE = ["python", "-c", "import tiny, sys; print(tiny.VALUE, sys.prefix)"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        index.add_wheel("tiny", "1.0")
        index.add_wheel("needy", "2.0", needs=["tiny>=1"])
        yield index


@pytest.fixture(scope="module")
def builder() -> Iterator[str]:
    with people(f"ht{os.getpid()}build") as made:
        yield made[0].name


@pytest.fixture(scope="module")
def server(index: PackageIndex, builder: str) -> Iterator[RunningServer]:
    pytest.importorskip("uv", reason="uv builds environments, and is not installed")
    settings = (
        f'environments.builder = "{builder}"\nenvironments.uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}\n'
    )
    server = RunningServer(settings, {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    yield server
    server.remove()


def over(server: RunningServer, job_id: int, uid: int | None = None) -> dict[str, Any]:
    """The job once it is over: a build on a busy machine takes its time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        body = {"job_ids": [job_id], "timeout_seconds": 20}
        if server.ask("POST", "/jobs/wait", body, uid=uid).json["finished"]:
            return server.show(job_id, uid)
    raise AssertionError(f"job {job_id} is not over: {server.show(job_id, uid)}\n{server.log}")


def environment(server: RunningServer, digest: str, uid: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("GET", f"/environments/{digest}", uid=uid).json
    return found


def built(server: RunningServer, uid: int | None, **files: str) -> dict[str, Any]:
    answer = server.ask("POST", "/environments", {"environment": files}, uid=uid)
    assert answer.status == 201, answer.body
    over(server, answer.json["build_job"])
    return environment(server, answer.json["digest"], uid)


def test_a_job_runs_with_what_its_requirements_name(server: RunningServer, ann: Person) -> None:
    job_id = server.submit(ann.uid, command=USE, environment={"requirements": "needy  # wants tiny\n"})
    job = over(server, job_id, ann.uid)
    assert job["state"] == "completed", (job, server.output(job_id, ann.uid, "stderr"))
    value, prefix = server.output(job_id, ann.uid).split()
    found = environment(server, job["environment"], ann.uid)
    assert (value, prefix) == ("1.0", found["folder"])
    assert (found["state"], found["shared"], found["kind"]) == ("ready", True, "requirements")
    measured = wait_for(lambda: environment(server, job["environment"], ann.uid)["lock"], "its lock is recorded")
    assert "tiny==1.0" in measured
    assert "--hash=sha256:" in measured


def test_programs_of_the_environment_come_first(server: RunningServer, ann: Person) -> None:
    job_id = server.submit(
        ann.uid,
        command="needy; command -v python; echo $VIRTUAL_ENV",
        environment={"requirements": "needy"},
    )
    job = over(server, job_id, ann.uid)
    folder = environment(server, job["environment"], ann.uid)["folder"]
    assert server.output(job_id, ann.uid).splitlines() == ["needy 2.0", f"{folder}/bin/python", folder]


def test_it_is_there_in_bubblewrap_too_and_cannot_be_written(server: RunningServer, ann: Person) -> None:
    job_id = server.submit(
        ann.uid,
        command='needy && touch "$VIRTUAL_ENV/x"',
        runtime="bubblewrap",
        environment={"requirements": "needy"},
    )
    job = over(server, job_id, ann.uid)
    assert server.output(job_id, ann.uid) == "needy 2.0\n", server.output(job_id, ann.uid, "stderr")
    assert job["state"] == "failed"


def test_two_people_who_ask_for_the_same_at_once_have_it_built_once(
    server: RunningServer, ann: Person, bob: Person, index: PackageIndex
) -> None:
    index.add_wheel("both", "1.0")
    index.hold_files.set()
    first = server.submit(ann.uid, command=["both"], environment={"requirements": "both==1.0"})
    second = server.submit(bob.uid, command=["both"], environment={"requirements": "# mine\nboth==1.0"})
    waits: list[LogWait] = []

    def release(wait: LogWait) -> None:
        waits.append(wait)
        if "which builds its environment (running)" in (wait.reason or ""):
            index.hold_files.clear()

    output = "".join(chunk.text for chunk in Client(home=server.home).logs.follow(first, on_wait=release))
    assert output == "both 1.0\n"
    assert waits[-1].reason is None, "it does not wait any more"
    jobs = [over(server, first, ann.uid), over(server, second, bob.uid)]
    assert [job["state"] for job in jobs] == ["completed", "completed"], (jobs, server.log)
    assert jobs[0]["environment"] == jobs[1]["environment"]
    found = [environment(server, jobs[0]["environment"], person.uid) for person in (ann, bob)]
    assert found[0]["build_job"] == found[1]["build_job"]
    assert len([path for path in index.requested_paths if path.endswith("both-1.0-py3-none-any.whl")]) <= 2


def test_the_second_use_waits_for_no_build(server: RunningServer, ann: Person, bob: Person) -> None:
    built(server, ann.uid, requirements="tiny==1.0")
    before = server.jobs()
    job_id = server.submit(bob.uid, command=USE, environment={"requirements": "tiny==1.0"})
    job = over(server, job_id, bob.uid)
    assert (job["state"], job["parent_count"], job_id) == ("completed", 0, before + 1)


def test_nobody_can_change_what_everybody_shares(server: RunningServer, ann: Person, builder: str) -> None:
    folder = Path(built(server, ann.uid, requirements="needy")["folder"])
    for path in (folder, *folder.rglob("*")):
        found = path.lstat()
        assert found.st_uid == 0, path
        assert stat.S_ISLNK(found.st_mode) or not found.st_mode & 0o022, path
    for name in (ann.name, builder):
        words = ["runuser", "-u", name, "--", "sh", "-c", f"echo x >> {folder}/lib/python3*/site-packages/tiny.py"]
        assert subprocess.run(words, capture_output=True, check=False).returncode != 0


def test_a_broken_requirement_ends_the_job_with_the_resolvers_words(server: RunningServer, ann: Person) -> None:
    job_id = server.submit(ann.uid, command=USE, environment={"requirements": "tiny>=7"})
    job = over(server, job_id, ann.uid)
    assert job["state"] == "failed"
    assert job["reason"].startswith("its environment cannot be built: ")
    assert "tiny<=1.0" in job["reason"] or "tiny>=7" in job["reason"]
    assert "Traceback" not in job["reason"]
    assert environment(server, job["environment"], ann.uid)["state"] == "failed"


def test_who_asks_again_for_what_failed_has_it_built_again(
    server: RunningServer, ann: Person, index: PackageIndex
) -> None:
    failed = built(server, ann.uid, requirements="later")
    assert failed["state"] == "failed"
    index.add_wheel("later", "1.0")
    again = built(server, ann.uid, requirements="later")
    assert (again["digest"], again["state"]) == (failed["digest"], "ready")
    assert again["build_job"] > failed["build_job"]


def test_a_source_distribution_is_built_where_it_can_harm_nothing(
    server: RunningServer, ann: Person, index: PackageIndex, builder: str
) -> None:
    cache = server.home / "environments" / "cache"
    targets = [str(cache / "evil"), str(server.home / "evil"), "/tmp/heliostat-evil", "/usr/evil", "/etc/evil"]
    mischief = f"""
    import os, signal
    print("uid", os.getuid())
    for path in {targets!r}:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write("x")
        except OSError:
            pass
    for name in ("said", "why", "code"):
        for place in ("..", os.environ["HOME"] + "/.."):
            try:
                os.symlink("{cache}/evil", place + "/" + name)
            except OSError:
                pass
    for pid in os.listdir("/proc"):
        if pid.isdecimal() and int(pid) not in (1, os.getpid(), os.getppid()):
            comm = open(f"/proc/{{pid}}/comm").read()
            assert "sh" != comm.strip(), "sees the script outside"
    """
    index.add_source_distribution("rough", "1.0", mischief)
    index.add_wheel("victim", "1.0")
    found = built(server, ann.uid, requirements="rough\nvictim")
    assert found["state"] == "ready", found["reason"]
    assert not any(os.path.exists(path) for path in targets)
    job = over(
        server,
        server.submit(
            ann.uid, command=["python", "-c", "import rough; print(rough.VALUE)"], environment=found["digest"]
        ),
        ann.uid,
    )
    assert server.output(job["id"], ann.uid) == "from source\n"


def test_what_a_package_runs_when_python_starts_cannot_reach_its_neighbours_in_the_cache(
    server: RunningServer, ann: Person, bob: Person, index: PackageIndex
) -> None:
    prey = "glob.glob('**/prey.py', recursive=True)"
    reach = f"import glob; [open(file, 'a').write('VALUE = 666\\n') for file in {prey}]"
    index.add_wheel("prey", "1.0")
    index.add_wheel("hunter", "1.0", pth=reach + "\n")
    assert built(server, ann.uid, requirements="hunter\nprey")["state"] == "ready"
    found = built(server, bob.uid, requirements="prey")
    line = ["python", "-c", "import prey; print(prey.VALUE)"]
    job_id = server.submit(bob.uid, command=line, environment=found["digest"])
    over(server, job_id, bob.uid)
    assert server.output(job_id, bob.uid) == "1.0\n"


def test_a_locked_project_is_installed_as_its_lock_says(
    server: RunningServer, ann: Person, index: PackageIndex
) -> None:
    """Newer versions may have come since."""
    project = '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["aging"]\n'
    index.add_wheel("aging", "1.0")
    lock = _locked(project, index)
    index.add_wheel("aging", "2.0")
    found = built(server, ann.uid, pyproject=project, uv_lock=lock)
    assert (found["state"], found["kind"]) == ("ready", "uv"), found["reason"]
    job_id = server.submit(ann.uid, command=["aging"], environment=found["digest"])
    over(server, job_id, ann.uid)
    assert server.output(job_id, ann.uid) == "aging 1.0\n"
    newest = built(server, ann.uid, pyproject=project)
    assert newest["kind"] == "pyproject"
    assert newest["digest"] != found["digest"]


def _locked(project: str, index: PackageIndex) -> str:
    from uv import find_uv_bin

    folder = index.folder / "locked"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(project)
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "UV_DEFAULT_INDEX": index.url, "UV_NO_CACHE": "1"}
    words = [find_uv_bin(), "lock", "--python", "/usr/bin/python3"]
    subprocess.run(words, cwd=folder, env=variables, check=True, capture_output=True)
    return (folder / "uv.lock").read_text()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("--extra-index-url file:///etc/shadow\ntiny", "cannot be used"),
        ("--index-url http://evil.example/simple\ntiny", "cannot be used"),
        ("--index-url https://me:secret@example.org/simple\ntiny", "password"),
        ("-r ../../etc/passwd", "not allowed"),
        ("-c /etc/shadow\ntiny", "not allowed"),
        ("-e .", "not allowed"),
        ("--find-links /etc\ntiny", "not allowed"),
        ("./tiny", "not the name"),
        ("/root/tiny-1.0.whl", "not the name"),
        ("tiny @ file:///root/tiny-1.0.whl", "cannot be used"),
        ("tiny @ git+ssh://git@example.org/x", "cannot be used"),
        ("tiny @ git+file:///root/x", "cannot be used"),
        ("tiny; import_os\n$(touch /tmp/x)", "variable"),
        ("tiny \\\n -r x", "not the name"),
    ],
)
def test_contents_that_reach_for_this_machine_are_refused(
    server: RunningServer, ann: Person, text: str, word: str
) -> None:
    answer = server.ask("POST", "/jobs", {"command": ["true"], "environment": {"requirements": text}}, uid=ann.uid)
    assert answer.status == 422, answer.body
    assert word in answer.error["message"], answer.error
    assert answer.error["hint"]


def test_a_killed_build_leaves_no_half_environment_and_the_next_asker_builds_it(
    server: RunningServer, ann: Person, index: PackageIndex
) -> None:
    index.add_wheel("heavy", "1.0")
    index.hold_files.set()
    index.file_is_waited_for.clear()
    try:
        answer = server.ask("POST", "/environments", {"environment": {"requirements": "heavy"}}, uid=ann.uid).json
        assert index.file_is_waited_for.wait(PATIENCE_SECONDS)
        server.ask("POST", f"/jobs/{answer['build_job']}/cancel?force=true", uid=ann.uid)
        over(server, answer["build_job"])
    finally:
        index.hold_files.clear()
    assert environment(server, answer["digest"], ann.uid)["state"] == "failed"
    assert not (server.home / "environments" / "ready" / answer["digest"]).exists()
    assert built(server, ann.uid, requirements="heavy")["state"] == "ready"


def test_a_build_goes_on_when_the_server_is_killed(
    server: RunningServer, ann: Person, index: PackageIndex
) -> None:
    index.add_wheel("lasting", "1.0")
    index.hold_files.set()
    index.file_is_waited_for.clear()
    try:
        job_id = server.submit(ann.uid, command=["lasting"], environment={"requirements": "lasting"})
        assert index.file_is_waited_for.wait(PATIENCE_SECONDS)
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait()
    finally:
        index.hold_files.clear()
    server.start()
    job = over(server, job_id, ann.uid)
    assert job["state"] == "completed", (job, server.log)
    assert server.output(job_id, ann.uid) == "lasting 1.0\n"


def test_who_asked_first_may_not_stop_a_build_that_others_wait_for(
    server: RunningServer, ann: Person, bob: Person, index: PackageIndex
) -> None:
    index.add_wheel("wanted", "1.0")
    index.hold_files.set()
    try:
        build = server.ask("POST", "/environments", {"environment": {"requirements": "wanted"}}, uid=ann.uid).json[
            "build_job"
        ]
        waits = server.submit(bob.uid, command=["wanted"], environment={"requirements": "wanted"})
        for verb in ("cancel", "hold", "requeue"):
            assert server.ask("POST", f"/jobs/{build}/{verb}", uid=ann.uid).status == 403
        assert server.ask("POST", "/jobs/cancel", {"job_ids": [build]}, uid=ann.uid).status == 403
    finally:
        index.hold_files.clear()
    assert over(server, waits, bob.uid)["state"] == "completed"


def test_environments_of_others_are_not_told_of(server: RunningServer, ann: Person, bob: Person) -> None:
    digest = built(server, ann.uid, requirements="tiny<9")["digest"]
    assert server.ask("GET", f"/environments/{digest}", uid=bob.uid).status == 404
    assert server.ask("GET", f"/environments/{digest}/log", uid=bob.uid).status == 404
    assert server.ask("DELETE", f"/environments/{digest}", uid=bob.uid).status == 404
    assert server.ask("POST", "/environments/prune", {"days": 0}, uid=bob.uid).status == 403
    assert digest not in str(server.ask("GET", "/environments", uid=bob.uid).json)
    assert server.ask("GET", "/environments?all=true", uid=bob.uid).status == 403


def test_what_is_removed_by_the_last_who_asked_is_gone(server: RunningServer, ann: Person, bob: Person) -> None:
    found = built(server, ann.uid, requirements="tiny!=8")
    built(server, bob.uid, requirements="tiny!=8")
    assert server.ask("DELETE", f"/environments/{found['digest']}", uid=ann.uid).json["gone"] is False
    assert Path(found["folder"]).is_dir()
    assert server.ask("DELETE", f"/environments/{found['digest']}", uid=bob.uid).json["gone"] is True
    assert not Path(found["folder"]).exists()


def test_pruning_spares_what_a_waiting_job_needs(server: RunningServer, ann: Person) -> None:
    spare = built(server, ann.uid, requirements="tiny!=6")
    needed = built(server, ann.uid, requirements="tiny!=7")
    held = server.submit(ann.uid, command=USE, held=True, environment=needed["digest"])
    assert server.ask("POST", "/environments/prune", {"days": 0}).json["count"] >= 1
    assert not Path(spare["folder"]).exists()
    assert Path(needed["folder"]).is_dir()
    assert server.ask("DELETE", f"/environments/{needed['digest']}", uid=ann.uid).status == 409
    server.ask("POST", f"/jobs/{held}/release", uid=ann.uid)
    assert over(server, held, ann.uid)["state"] == "completed"


def test_nobody_enters_a_build(server: RunningServer, ann: Person, index: PackageIndex) -> None:
    index.add_wheel("closed", "1.0")
    index.hold_files.set()
    index.file_is_waited_for.clear()
    try:
        body = {"environment": {"requirements": "closed"}}
        build = server.ask("POST", "/environments", body, uid=ann.uid).json["build_job"]
        assert index.file_is_waited_for.wait(PATIENCE_SECONDS)
        answer = server.ask("POST", f"/jobs/{build}/exec", {"command": ["id"]}, uid=ann.uid)
        assert answer.status == 403, answer.body
    finally:
        index.hold_files.clear()
    over(server, build, ann.uid)
