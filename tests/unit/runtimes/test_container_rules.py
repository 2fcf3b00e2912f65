"""What admins allow, and what is refused before it can start."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import ContainerSettings
from heliostat.errors import Invalid
from heliostat.models import JobSpec, Mount
from heliostat.models.jobs import parse_mount
from heliostat.runtimes.container_policy import (
    ContainerPolicy,
    JobOwner,
    resolve_container_request,
    resolve_mounts,
)

DIGEST = f"sha256:{'0a' * 32}"
PLAIN = JobSpec(("true",))
BOXED = JobSpec(("true",), image="python:3.11")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Homes, project folders and data, as a node has them."""
    for folder in (
        "home/ann/code",
        "home/bob",
        "projects/vision",
        "projects/other",
        "data/scans",
        "heliostat/jobs",
    ):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def rules(site: Path, **changes: Any) -> ContainerPolicy:
    paths = ("{home}", f"{site}/projects/{{project}}", f"{site}/data:ro")
    return ContainerPolicy(replace(ContainerSettings(mount_paths=paths), **changes), str(site / "heliostat"))


def ann(site: Path, project: str = "vision") -> JobOwner:
    return JobOwner("ann", str(site / "home/ann"), project)


def mounts(site: Path, *given: str, **changes: Any) -> tuple[Mount, ...]:
    spec = replace(BOXED, mounts=tuple(map(parse_mount, given)))
    return resolve_mounts(
        resolve_container_request(spec, ann(site), rules(site, **changes)), ann(site), rules(site, **changes)
    )


def refusal(site: Path, spec: JobSpec, **changes: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        resolve_container_request(spec, ann(site), rules(site, **changes))
    assert caught.value.hint
    assert caught.value.fields
    return caught.value


def test_what_was_left_open_is_decided(site: Path) -> None:
    settled = resolve_container_request(BOXED, ann(site), rules(site))
    assert (settled.image, settled.runtime, settled.network) == ("docker.io/library/python:3.11", "podman", "host")
    assert resolve_container_request(settled, ann(site), rules(site)) == settled


def test_a_plain_job_stays_as_it_is(site: Path) -> None:
    assert resolve_container_request(PLAIN, ann(site), rules(site)) is PLAIN


def test_containers_can_be_required_of_all_or_of_some(site: Path) -> None:
    assert "--image" in str(refusal(site, PLAIN, required=True).hint)
    assert refusal(site, PLAIN, required_for=("vision",)).fields == {"runtime": "must not be process"}
    assert refusal(site, replace(PLAIN, runtime="process"), required=True)
    assert resolve_container_request(PLAIN, ann(site), rules(site, required_for=("other",))) is PLAIN
    isolated = replace(PLAIN, runtime="bubblewrap")
    assert resolve_container_request(isolated, ann(site), rules(site, required=True)).runtime == "bubblewrap"


def test_only_allowed_runtimes_are_used(site: Path) -> None:
    assert "podman" in str(refusal(site, replace(BOXED, runtime="docker")).hint)
    assert resolve_container_request(
        replace(BOXED, runtime="docker"), ann(site), rules(site, runtimes=("docker",))
    )
    refusal(site, replace(BOXED, runtime="bubblewrap"))
    refusal(site, replace(PLAIN, runtime="podman"))


def test_only_allowed_registries_are_used(site: Path) -> None:
    only = {"allowed_registries": ("registry.example.org/lab", "docker.io/library")}
    assert resolve_container_request(BOXED, ann(site), rules(site, **only))
    assert resolve_container_request(
        replace(BOXED, image="registry.example.org/lab/x"), ann(site), rules(site, **only)
    )
    for image in (
        "registry.example.org/lab2/x",
        "registry.example.org.evil.com/lab/x",
        "pytorch/pytorch",
        "quay.io/x",
    ):
        assert "registry.example.org/lab" in str(refusal(site, replace(BOXED, image=image), **only).hint)


def test_images_may_have_to_be_named_by_digest(site: Path) -> None:
    assert "sha256" in str(refusal(site, BOXED, require_digest=True).hint)
    exact = replace(BOXED, image=f"python@{DIGEST}")
    assert resolve_container_request(exact, ann(site), rules(site, require_digest=True))


def test_only_images_the_admins_know_may_be_all_that_run(site: Path) -> None:
    only = {"allowed_digests": (DIGEST,)}
    exact = replace(BOXED, image=f"python@{DIGEST}")
    assert (
        resolve_container_request(exact, ann(site), rules(site, **only)).image
        == f"docker.io/library/python@{DIGEST}"
    )
    assert "@sha256" in str(refusal(site, BOXED, **only).hint)
    other = replace(BOXED, image=f"python@sha256:{'f' * 64}")
    assert "allowed_digests" in str(refusal(site, other, **only).hint)
    refusal(site, replace(BOXED, image=str(site / "home/ann/torch.sif"), runtime="apptainer"), **only)
    with pytest.raises(Invalid) as own:  # its digest is known once it is built, and pushed
        resolve_container_request(
            replace(BOXED, image="localhost/x:1-ab"), ann(site), rules(site, **only), is_own=True
        )
    assert "allowed_digests" in str(own.value.hint)
    isolated = replace(PLAIN, runtime="bubblewrap")
    assert resolve_container_request(isolated, ann(site), rules(site, **only)).image is None


def test_an_image_in_a_file_is_for_apptainer_and_only_where_one_may_read(site: Path) -> None:
    file = replace(BOXED, image=str(site / "home/ann/torch.sif"))
    refusal(site, file)
    in_apptainer = replace(file, runtime="apptainer")
    assert resolve_container_request(in_apptainer, ann(site), rules(site))
    refusal(site, in_apptainer, require_digest=True)
    refusal(site, replace(in_apptainer, image=str(site / "home/bob/x.sif")))


def test_a_network_must_be_allowed_and_none_always_is(site: Path) -> None:
    only = {"networks": ("private",)}
    assert resolve_container_request(BOXED, ann(site), rules(site, **only)).network == "private"
    assert (
        resolve_container_request(replace(BOXED, network="none"), ann(site), rules(site, **only)).network == "none"
    )
    refusal(site, replace(BOXED, network="host"), **only)


def test_a_plain_job_has_neither_mounts_nor_network(site: Path) -> None:
    assert refusal(site, replace(PLAIN, mounts=(Mount("/a", "/a"),))).fields == {
        "mounts": "needs image or runtime"
    }
    assert refusal(site, replace(PLAIN, network="none"))


def test_own_home_project_and_data_may_be_mounted_data_read_only(site: Path) -> None:
    found = mounts(site, f"{site}/home/ann/code:/code", f"{site}/projects/vision:/p", f"{site}/data/scans:/scans")
    assert found == (
        Mount(f"{site}/home/ann/code", "/code"),
        Mount(f"{site}/projects/vision", "/p"),
        Mount(f"{site}/data/scans", "/scans", read_only=True),
    )


@pytest.mark.parametrize(
    "source",
    [
        "/",
        "/etc/shadow",
        "/etc",
        "/root",
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/proc/1/root",
        "/home",
        "/dev",
        "SITE",
        "SITE/home",
        "SITE/home/bob",
        "SITE/home/ann2",
        "SITE/projects",
        "SITE/projects/other",
        "SITE/heliostat/jobs",
    ],
)
def test_everything_else_is_refused_with_a_hint(site: Path, source: str) -> None:
    mount = Mount(source.replace("SITE", str(site)), "/inside")
    refused = refusal(site, replace(BOXED, mounts=(mount,)))
    assert f"{site}/home/ann" in str(refused.hint)
    assert "mounts" in refused.fields


@pytest.fixture
def links(site: Path) -> Path:
    home = site / "home/ann"
    for name, target in {
        "root": "/",
        "shadow": "/etc/shadow",
        "up": "../bob",
        "jobs": "../../heliostat/jobs",
    }.items():
        (home / name).symlink_to(target)
    (home / "loop").symlink_to("loop")
    return home


@pytest.mark.parametrize("name", ["root", "shadow", "up", "jobs", "root/etc/shadow", "root/run/docker.sock"])
def test_links_are_followed_and_where_they_lead_is_not_told(site: Path, links: Path, name: str) -> None:
    refused = refusal(site, replace(BOXED, mounts=(Mount(f"{links}/{name}", "/inside"),)))
    assert "is a link to a path" in refused.message
    assert "bob" not in f"{refused.message}{refused.hint}"


def test_a_link_that_changes_after_submission_is_found_at_the_start(site: Path) -> None:
    link = site / "home/ann/data"
    link.symlink_to(site / "home/ann/code")
    spec = resolve_container_request(replace(BOXED, mounts=(Mount(str(link), "/data"),)), ann(site), rules(site))
    assert resolve_mounts(spec, ann(site), rules(site))[0].source == str(site / "home/ann/code")
    link.unlink()
    link.symlink_to("/etc")
    with pytest.raises(Invalid, match="is a link to"):
        resolve_mounts(spec, ann(site), rules(site))


def test_a_home_that_is_a_link_itself_is_fine(site: Path) -> None:
    (site / "homes").symlink_to(site / "home")
    asker = JobOwner("ann", f"{site}/homes/ann", "vision")
    spec = replace(BOXED, mounts=(Mount(f"{site}/homes/ann/code", "/code"),))
    assert resolve_mounts(spec, asker, rules(site))[0].source == f"{site}/home/ann/code"


@pytest.fixture
def door(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A socket in one's own home, as of a daemon of one's own."""
    with socket.socket(socket.AF_UNIX) as made:
        monkeypatch.chdir(site / "home/ann")  # names of sockets must be short
        made.bind("daemon.sock")
        yield site / "home/ann/daemon.sock"


def test_sockets_are_never_mounted(site: Path, door: Path) -> None:
    assert "neither a file nor a folder" in refusal(site, replace(BOXED, mounts=(Mount(str(door), "/d"),))).message


def test_even_where_all_may_be_mounted_the_system_and_the_installation_may_not(site: Path) -> None:
    for source in ("/", "/etc", "/etc/shadow", "/proc", "/dev", "/run", str(site / "heliostat/jobs"), str(site)):
        spec = replace(BOXED, mounts=(Mount(source, "/inside"),))
        assert "is never allowed as a mount" in refusal(site, spec, mount_paths=("/",)).message


def test_the_working_directory_is_mounted_like_everything_else(site: Path) -> None:
    at_home = replace(BOXED, workdir=f"{site}/home/ann/code")
    assert resolve_mounts(at_home, ann(site), rules(site)) == (
        Mount(at_home.workdir or "", at_home.workdir or ""),
    )
    assert "--upload" in str(refusal(site, replace(BOXED, workdir="/etc")).hint)
    refusal(site, replace(BOXED, workdir=f"{site}/home/bob"))
    inside = replace(BOXED, workdir="/code/src", mounts=(Mount(f"{site}/home/ann/code", "/code"),))
    assert len(resolve_mounts(inside, ann(site), rules(site))) == 1


def test_two_mounts_at_the_same_place_are_refused(site: Path) -> None:
    same = (Mount(f"{site}/home/ann", "/x"), Mount(f"{site}/data", "/x"))
    refusal(site, replace(BOXED, mounts=same))


@pytest.mark.parametrize("name", ["..", ".", "", "a/../.."])
def test_a_name_that_leads_elsewhere_opens_nothing(site: Path, name: str) -> None:
    assert [root.path for root in rules(site).mount_roots(JobOwner("ann", "/", name))] == [f"{site}/data"]


def test_without_a_home_there_is_no_home_to_mount(site: Path) -> None:
    spec = replace(BOXED, mounts=(Mount(f"{site}/home/ann", "/x"),))
    with pytest.raises(Invalid):
        resolve_container_request(spec, JobOwner("ann", None, "vision"), rules(site))


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/data:/in", Mount("/data", "/in")),
        ("/data:/in:ro", Mount("/data", "/in", read_only=True)),
        ("/data:/in:rw", Mount("/data", "/in")),
        ("/data", Mount("/data", "/data")),
        ("/data:ro", Mount("/data", "/data", read_only=True)),
        ("/data/:/in/", Mount("/data", "/in")),
        ("/with space:/in", Mount("/with space", "/in")),
    ],
)
def test_mounts_are_read_as_people_write_them(text: str, mount: Mount) -> None:
    assert parse_mount(text) == mount
    assert parse_mount(str(mount)) == mount


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "data:/in",
        "/data:in",
        "/data:/",
        "/data:/proc",
        "/data:/sys/fs",
        "/data:/dev",
        "/a/../b:/in",
        "/a/./b:/in",
        "/a:/in/..",
        "/a:/in:rx",
        "/a:/in:ro:ro",
        "/a,b:/in",
        '/a"b:/in',
        "/a\nb:/in",
        "/a:/in,ro=false",
        "//a:/in",
        "/a//b:/c",
        f"/{'a' * 5000}:/in",
        "/a\x00:/in",
        "-v:/in",
        "/a\\b:/in",
        "/a*:/in",
    ],
)
def test_what_is_no_mount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_mount(text)
