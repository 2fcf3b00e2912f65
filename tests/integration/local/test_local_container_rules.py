"""What containers see, fetch and are refused: mounts, images, GPUs, gangs, rules of the admins, for real."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.nvml.build import FakeNvml, gpu, mig_slice, split_gpu
from fakes.nvml.build import why_not as why_no_nvml
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.container_images import (
    TEST_IMAGE,
    import_test_image,
    podman_skip_reason,
    push_image,
    running_registry,
)

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
SMALL = {"memory": "256M", "cpus": 1}


@pytest.fixture(scope="module")
def data(two_unix_users: list[Person], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data everybody may read and write, as far as its mode goes."""
    folder = Path(f"/srv/heliostat-test-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "scan").write_text("scanned\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person], data: Path) -> Iterator[RunningServer]:
    server = RunningServer(
        f'server.node_name = "here"\nqueue.pids_limit = 200\ncontainers.mount_paths = ["{{home}}", "{data}:ro"]\n'
    )
    import_test_image(server.home, two_unix_users[0].name)
    yield server
    server.remove()


def lines(server: RunningServer, person: Person, line: str, **body: object) -> list[str]:
    job = server.run(person.uid, command=["/bin/sh", "-c", line], **{**SMALL, **body})
    assert job["state"] == "completed", f"{job['reason']}: {server.output(job['id'], person.uid, 'stderr')}"
    return server.output(job["id"], person.uid).splitlines()


def refused(server: RunningServer, person: Person, **body: object) -> dict[str, Any]:
    before = server.jobs()
    answer = server.ask("POST", "/jobs", {"command": ["true"], **body}, uid=person.uid)
    assert (answer.status, server.jobs()) == (422, before), answer.body
    assert answer.error["hint"]
    return answer.error


@pytest.mark.parametrize("how", [{"image": TEST_IMAGE}, {"runtime": "bubblewrap"}], ids=["podman", "bubblewrap"])
def test_it_sees_what_is_mounted_and_nothing_else(
    server: RunningServer, ann: Person, bob: Person, data: Path, how: dict[str, str]
) -> None:
    (ann.home / "mine").write_text("hers\n")
    line = (
        f"cat {ann.home}/mine /scans/scan; echo new >{ann.home}/made; echo $HOME; "
        "(echo x >/scans/new) 2>/dev/null || echo read-only; "
        f"ls -d {bob.home} {server.home}/heliostat.db 2>/dev/null; true"
    )
    found = lines(server, ann, line, mounts=[str(ann.home), f"{data}:/scans"], **how)
    assert found == ["hers", "scanned", str(ann.home), "read-only"]
    made = ann.home / "made"
    assert (made.read_text(), made.stat().st_uid) == ("new\n", ann.uid)


@pytest.mark.parametrize("how", [{"image": TEST_IMAGE}, {"runtime": "bubblewrap"}], ids=["podman", "bubblewrap"])
def test_without_network_there_is_only_itself(server: RunningServer, ann: Person, how: dict[str, str]) -> None:
    assert lines(server, ann, "grep -c : /proc/net/dev", network="none", **how) == ["1"]
    assert int(lines(server, ann, "grep -c : /proc/net/dev", network="host", **how)[0]) > 1


def test_a_private_network_has_an_address_of_its_own(server: RunningServer, ann: Person) -> None:
    tun = Path("/dev/net/tun")
    if not tun.exists() or tun.stat().st_mode & 0o6 != 0o6 or shutil.which("slirp4netns") is None:
        pytest.skip("needs slirp4netns, and a /dev/net/tun that everybody may use")
    found = lines(server, ann, "cat /proc/net/dev", network="private", image=TEST_IMAGE)
    assert [line.split(":")[0].strip() for line in found if ":" in line] == ["lo", "tap0"]


@pytest.mark.parametrize("how", [{"image": TEST_IMAGE}, {"runtime": "bubblewrap"}], ids=["podman", "bubblewrap"])
def test_its_limit_of_processes_holds(server: RunningServer, ann: Person, how: dict[str, str]) -> None:
    line = "i=0; while [ $i -lt 300 ]; do sleep 5 & i=$((i+1)); done; echo all"
    job = server.run(ann.uid, command=["/bin/sh", "-c", line], **SMALL, **how)
    assert "all" not in server.output(job["id"], ann.uid)


@pytest.mark.parametrize(
    "mount",
    [
        "/:/host",
        "/etc/shadow:/x",
        "/etc:/x",
        "/var/run/docker.sock:/x",
        "/root:/x",
        "/home:/x",
        "HOME/../BOB:/x",
        "BOB:/x",
        "/proc:/x",
        "SERVER:/x",
        "SERVER/jobs:/x",
        "HOME:/",
        "HOME:/proc",
        "HOME/a,src=/etc:/x",
        "HOME:/x,ro=false",
        "x:/x",
    ],
)
def test_hostile_mounts_are_refused_before_they_are_queued(
    server: RunningServer, ann: Person, bob: Person, mount: str
) -> None:
    for name, path in (("HOME", ann.home), ("BOB", bob.home), ("SERVER", server.home)):
        mount = mount.replace(name, str(path))
    refused(server, ann, image=TEST_IMAGE, mounts=[mount])


@pytest.mark.parametrize("target", ["/", "/etc", "/etc/shadow", "BOB", "/run"])
def test_links_out_of_her_home_are_refused(server: RunningServer, ann: Person, bob: Person, target: str) -> None:
    link = ann.home / "link"
    link.symlink_to(target.replace("BOB", str(bob.home)))
    try:
        assert "is a link to" in refused(server, ann, image=TEST_IMAGE, mounts=[f"{link}:/x"])["message"]
    finally:
        link.unlink()


def test_a_link_that_changes_in_the_queue_is_refused_at_the_start(server: RunningServer, ann: Person) -> None:
    link, harmless = ann.home / "link", ann.home / "harmless"
    harmless.mkdir()
    link.symlink_to(harmless)
    job_id = server.submit(ann.uid, command=["true"], image=TEST_IMAGE, mounts=[f"{link}:/x"], held=True)
    link.unlink()
    link.symlink_to("/etc")
    server.ask("POST", f"/jobs/{job_id}/release", uid=ann.uid)
    job = server.finished(job_id, ann.uid)
    link.unlink()
    assert job["state"] == "failed"
    assert "is a link to a path that is not allowed as a mount" in job["reason"]


@pytest.mark.parametrize(
    "image", ["--privileged", "-v", "a b", "a;b", "$(id)", "../x", "docker-archive:/etc/passwd", "A", ""]
)
def test_hostile_images_are_refused_before_they_are_queued(server: RunningServer, ann: Person, image: str) -> None:
    assert "image" in str(refused(server, ann, image=image)["fields"])


def test_a_user_without_a_range_of_numbers_is_told_so(server: RunningServer) -> None:
    """Somebody whose account an older tool has made."""
    from integration.unix_users import people

    with people(f"ht{os.getpid()}eve") as [eve]:
        for file in (Path("/etc/subuid"), Path("/etc/subgid")):
            kept = [line for line in file.read_text().splitlines() if not line.startswith(f"{eve.name}:")]
            file.write_text("".join(f"{line}\n" for line in kept))
        job = server.run(eve.uid, command=["true"], image=TEST_IMAGE, **SMALL)
    assert job["state"] == "failed"
    assert "/etc/subuid" in job["reason"]


def test_an_image_is_fetched_once_and_a_missing_one_says_so(
    server: RunningServer, ann: Person, tmp_path: Path
) -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("needs docker-registry: scripts/install-test-parts")
    with running_registry(tmp_path) as address:
        push_image(server.home, ann.name, f"{address}/lab/busybox:1")
        for _ in range(2):
            ids = [
                server.submit(ann.uid, command=["/bin/true"], image=f"{address}/lab/busybox:1", **SMALL)
                for _ in range(2)
            ]
            for job_id in ids:
                assert server.finished(job_id, ann.uid)["state"] == "completed", server.output(
                    job_id, ann.uid, "stderr"
                )
        told = [server.output(number, ann.uid, "stderr") for number in range(1, server.jobs() + 1)]
        assert sum(f"fetching {address}/lab/busybox:1" in text for text in told) == 1
        missing = server.run(ann.uid, command=["/bin/true"], image=f"{address}/lab/nothing:1", **SMALL)
        assert missing["exit_code"] == 125
        assert "nothing" in server.output(missing["id"], ann.uid, "stderr")


def test_the_tasks_of_a_gang_have_a_container_each(server: RunningServer, ann: Person) -> None:
    for how in ({"image": TEST_IMAGE}, {"runtime": "bubblewrap"}):
        found = lines(server, ann, "echo $RANK of $WORLD_SIZE", tasks=2, **how)
        assert sorted(found) == ["0 of 2", "1 of 2"]


def test_a_script_runs_inside_with_its_words(server: RunningServer, ann: Person) -> None:
    script = '#!/bin/sh\nls /etc/this-is-the-image; echo "$@"\n'
    job = server.run(ann.uid, script=script, command=["a b", "$(c)"], image=TEST_IMAGE, **SMALL)
    assert server.output(job["id"], ann.uid) == "/etc/this-is-the-image\na b $(c)\n"


@pytest.fixture
def strict(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    server = RunningServer(
        'server.node_name = "here"\ncontainers.required = true\ncontainers.allowed_registries = ["localhost"]\n'
        'containers.read_only_root = true\ncontainers.networks = ["none"]\ncontainers.runtimes = ["podman"]\n'
    )
    import_test_image(server.home, two_unix_users[0].name)
    yield server
    server.remove()


def test_the_rules_of_the_admins_hold(strict: RunningServer, ann: Person) -> None:
    assert "--image" in refused(strict, ann)["hint"]
    assert "localhost" in refused(strict, ann, image="python:3.11")["hint"]
    assert "podman" in refused(strict, ann, runtime="bubblewrap")["hint"]
    assert "none" in refused(strict, ann, image=TEST_IMAGE, network="host")["hint"]
    line = "(echo x >/etc/new) 2>/dev/null || echo read-only; echo x >/tmp/new && grep -c : /proc/net/dev"
    assert lines(strict, ann, line, image=TEST_IMAGE) == ["read-only", "1"]


@pytest.fixture
def kata() -> Iterator[Path]:
    """Stands in for a runtime that makes virtual machines: it notes that it was called, and is runc then."""
    folder = Path(tempfile.mkdtemp(prefix="helio-kata-"))
    folder.chmod(0o755)
    program, used = folder / "kata", folder / "used"
    program.write_text(f'#!/bin/sh\necho "$@" >>{used}\nexec runc "$@"\n')
    program.chmod(0o755)
    used.touch()
    used.chmod(0o666)
    yield program
    shutil.rmtree(folder)


@pytest.fixture
def vault(two_unix_users: list[Person], kata: Path) -> Iterator[RunningServer]:
    server = RunningServer(
        f'server.node_name = "here"\ncontainers.oci_runtimes = {{ vault = "{kata}" }}\n'
        'containers.required_for = ["vault"]\n'
    )
    import_test_image(server.home, two_unix_users[0].name)
    server.ask("POST", "/projects", {"name": "vault", "department": "default"})
    server.ask("GET", "/whoami", uid=two_unix_users[0].uid)  # who is seen gets an account
    server.ask("PUT", f"/projects/vault/members/{two_unix_users[0].name}", {})
    yield server
    server.remove()


def test_a_project_has_virtual_machines_where_the_admins_want_it(
    vault: RunningServer, ann: Person, kata: Path
) -> None:
    used = kata.with_name("used")
    assert lines(vault, ann, "echo plain", image=TEST_IMAGE) == ["plain"]
    assert used.read_text() == ""
    assert lines(vault, ann, "echo apart", image=TEST_IMAGE, project="vault") == ["apart"]
    assert "create --bundle" in used.read_text()
    assert "--image" in refused(vault, ann, project="vault")["hint"]


@pytest.fixture
def on_gpus(two_unix_users: list[Person], tmp_path: Path) -> Iterator[RunningServer]:
    """Two GPUs and a MIG slice of a made-up driver, and device files that stand in for them."""
    if why_no_nvml() is not None:
        pytest.skip(why_no_nvml() or "")
    fake = FakeNvml.build(tmp_path)
    fake.show(gpu("GPU-1111"), gpu("GPU-2222"), split_gpu("GPU-3333", {5: mig_slice("MIG-4444")}))
    names = {"GPU-1111": "one", "GPU-2222": "two", "MIG-4444": "slice"}
    devices = [{"name": uuid, "containerEdits": {"env": [f"GIVEN_{name}=yes"]}} for uuid, name in names.items()]
    spec = Path("/etc/cdi") / f"heliostat-test-{os.getpid()}.json"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}))
    server = RunningServer('server.node_name = "here"\n', fake.environment())
    import_test_image(server.home, two_unix_users[0].name)
    yield server
    server.remove()
    spec.unlink()


def test_a_container_is_given_its_gpus_and_no_others(on_gpus: RunningServer, ann: Person) -> None:
    given = lines(on_gpus, ann, "env | grep ^GIVEN; echo $CUDA_VISIBLE_DEVICES", image=TEST_IMAGE, gpus=1)
    assert given in (["GIVEN_one=yes", "GPU-1111"], ["GIVEN_two=yes", "GPU-2222"])
    both = lines(on_gpus, ann, "env | grep -c ^GIVEN", image=TEST_IMAGE, gpus=2)
    assert both == ["2"]
    script = "env | grep ^GIVEN; echo $CUDA_VISIBLE_DEVICES"
    slice_given = lines(on_gpus, ann, script, image=TEST_IMAGE, gpus=1, gpu_type="A100-1g.10gb")
    assert slice_given == ["GIVEN_slice=yes", "MIG-4444"]


@contextlib.contextmanager
def stand_in(name: str) -> Iterator[None]:
    """A program in place of a real one, which tells what it was called with."""
    program = Path("/usr/local/sbin") / name  # first on the path of tools
    if program.exists():
        pytest.skip(f"there is a real {name} here")
    told = 'printf "%s\\n" "$@"; cat <&7; echo "$APPTAINERENV_KEY|$KEY|$LD_PRELOAD"; exit 4'
    program.write_text(f"#!/bin/sh\n{told}\n")
    program.chmod(0o755)
    try:
        yield
    finally:
        program.unlink()


def test_apptainer_is_called_as_it_should_be(server: RunningServer, ann: Person) -> None:
    body = {"command": ["python", "a b"], "image": "python:3.11", "runtime": "apptainer"}
    with stand_in("apptainer"):
        job = server.run(ann.uid, env={"KEY": "hunter2", "LD_PRELOAD": "evil.so"}, **body, **SMALL)
    told = server.output(job["id"], ann.uid).splitlines()
    assert job["exit_code"] == 4
    assert told[-5:] == ["--", "docker://docker.io/library/python:3.11", "python", "a b", "hunter2||"]
    assert {"exec", "--containall", "--cleanenv", "--no-privs"} <= set(told)


def test_docker_is_called_as_it_should_be_where_it_is_allowed(ann: Person) -> None:
    server = RunningServer(
        'server.node_name = "here"\ncontainers.runtimes = ["docker"]\ncontainers.default_runtime = "docker"\n'
    )
    body = {"command": ["python", "a b"], "image": "python:3.11"}
    try:
        with stand_in("docker"):
            job = server.run(ann.uid, env={"KEY": "hunter2", "LD_PRELOAD": "evil.so"}, **body, **SMALL)
        told = server.output(job["id"], ann.uid).splitlines()
    finally:
        server.remove()
    assert job["exit_code"] == 4
    assert {"--memory=256m", f"--user={ann.uid}:{ann.gid}", "--cap-drop=all", "--env=KEY"} <= set(told)
    assert "LD_PRELOAD=evil.so" in told
    assert told[-1] == "|hunter2|"


def test_a_tool_that_is_not_there_is_named(server: RunningServer, ann: Person) -> None:
    if shutil.which("apptainer"):
        pytest.skip("it is there")
    job = server.run(ann.uid, command=["true"], image="python:3.11", runtime="apptainer", **SMALL)
    assert "apptainer is not installed" in job["reason"]


def test_what_was_asked_for_is_shown_and_can_be_asked_for_again(server: RunningServer, ann: Person) -> None:
    body = {
        "command": ["/bin/true"],
        "image": TEST_IMAGE,
        "mounts": [f"{ann.home}:/home:ro"],
        "network": "none",
        **SMALL,
    }
    shown = server.run(ann.uid, **body)
    assert {**shown["request"]}.items() >= {
        "image": TEST_IMAGE,
        "runtime": "podman",
        "network": "none",
        "mounts": [f"{ann.home}:/home:ro"],
    }.items()
    assert server.run(ann.uid, **shown["request"])["state"] == "completed"
    wait_for(lambda: not (server.home / f"jobs/{shown['id']}/1.container").exists(), "its leftovers to go")
