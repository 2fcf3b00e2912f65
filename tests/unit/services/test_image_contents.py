"""Base images of Containerfiles, and the generated Containerfile for packages."""

import time
from dataclasses import replace
from typing import Any

import pytest

from heliostat.config import ContainerSettings
from heliostat.errors import Invalid
from heliostat.models import JobSpec
from heliostat.models.environments import EnvironmentSpec
from heliostat.models.image_failures import explain_push_failure
from heliostat.models.images import local_image_name, parse_image_name
from heliostat.runtimes.container_policy import ContainerPolicy, JobOwner, resolve_container_request
from heliostat.services.environments.image_definitions import (
    generate_containerfile,
    validate_apptainer_definition,
    validate_containerfile,
)


def rules(**containers: Any) -> ContainerPolicy:
    return ContainerPolicy(ContainerSettings(**containers), "/srv/h")


OPEN = rules()
STRICT = rules(allowed_registries=("registry.example.org/lab", "localhost"))


def test_base_images_get_their_full_names():
    text = "# mine\nFROM python:3.11 AS build\nRUN true\nFROM build\nfrom scratch\nFROM ghcr.io/x/y as z\n"
    begun = validate_containerfile(text, OPEN)
    assert begun.text == (
        "# mine\nFROM docker.io/library/python:3.11 AS build\nRUN true\nFROM build\nfrom scratch\n"
        "FROM ghcr.io/x/y:latest as z\n"
    )
    assert begun.base_images == ("docker.io/library/python:3.11", "ghcr.io/x/y:latest")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (validate_containerfile, "FROM localhost/x\nRUN " + "--mount=" * 30_000 + " --from=evil.org/x\n"),
        (validate_containerfile, "FROM" + " " * 100_000 + "localhost/x" + " " * 100_000 + "y z\n"),
        (validate_containerfile, "FROM localhost/x\n" + "\\ " * 100_000 + "x\nFROM evil.org/x\n"),
        (validate_apptainer_definition, "\n" * 200_000 + "x"),
        (validate_apptainer_definition, "Bootstrap: docker" + " " * 200_000 + "x\nFrom: localhost/x\n"),
    ],
    ids=["mounts", "from", "backslashes", "lines", "blanks"],
)
def test_a_file_designed_to_be_slow_is_refused_quickly(check, text):
    """While a pattern is tried, the whole server waits."""
    began = time.process_time()
    with pytest.raises(Invalid):
        check(text, STRICT)
    assert time.process_time() - began < 2


def test_a_base_image_variable_is_accepted_if_all_registries_are_allowed():
    text = "ARG V=3\nFROM python:$V\n"
    assert validate_containerfile(text, OPEN).text == text


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.11\n",
        "FROM registry.example.org/other/x\n",
        "FROM registry.example.org/labx/x\n",
        "ARG B\nFROM $B\n",
        "ARG B\nFROM registry.example.org/lab/$B\n",
        "FROM registry.example.org/lab/x\nCOPY --from=evil.example.org/y /a /b\n",
        "FROM registry.example.org/lab/x\nRUN --mount=type=bind,from=evil.example.org/y true\n",
        "FROM registry.example.org/lab/x AS a\nFROM evil.example.org/y\n",
        "# escape=`\nFROM registry.example.org/lab/x\n",
        "FROM \\\nevil.example.org/y\n",
        "FROM localhost/x\nFR\\\nOM evil.example.org/y\n",
        "FROM localhost/x\nFR\\\n# a comment\nOM evil.example.org/y\n",
        "FROM localhost/x\nCOPY --fr\\ \nom=evil.example.org/y /a /b\n",
        "FROM localhost/x\nCOPY --from=later.org/x /a /b\nFROM localhost/y AS later.org/x\n",
        "  from --platform=linux/amd64 evil.example.org/y\n",
        "FROM localhost/x\nRUN --mount=type=bind,target=/\x1c,from=evil.example.org/y true\n",
        "FROM localhost/x\nRUN --mount=type=bind,from=localhost/x,from=evil.example.org/y true\n",
        "\ufeffFROM evil.example.org/y\nFROM localhost/x\nCOPY --from=0 /a /b\n",
        "\ufeff# escape=`\nFROM localhost/x\nCOPY --fr`\nom=evil.example.org/y /a /b\n",
    ],
)
def test_an_image_of_another_registry_is_refused(text):
    with pytest.raises(Invalid) as refused:
        validate_containerfile(text, STRICT)
    assert refused.value.hint


def test_images_of_allowed_registries_and_stages_are_accepted():
    text = "FROM registry.example.org/lab/x:1 AS a\nFROM localhost/y:1\nCOPY --from=a /b /c\nCOPY --from=0 /d /e\n"
    assert validate_containerfile(text, STRICT).base_images == ("registry.example.org/lab/x:1", "localhost/y:1")


@pytest.mark.parametrize("text", ["", "RUN true\n", "FROM\n", "FROM a b c\n", "FROM ../x\n", "FROM x\0\n"])
def test_an_invalid_containerfile_is_refused_with_a_hint(text):
    with pytest.raises(Invalid) as refused:
        validate_containerfile(text, OPEN)
    assert refused.value.hint


def test_a_definition_file_must_begin_with_an_allowed_image():
    good = "Bootstrap: docker\nFrom: registry.example.org/lab/x:1\n%post\n  true\n"
    assert validate_apptainer_definition(good, STRICT).text == good
    for text in (
        "Bootstrap: docker\nFrom: python:3\n",
        "Bootstrap: library\nFrom: x\n",
        f"{good}Bootstrap: docker\nFrom: x\n",
        "%post\n",
    ):
        with pytest.raises(Invalid):
            validate_apptainer_definition(text, STRICT)


@pytest.mark.parametrize(
    ("kind", "files", "word"),
    [
        ("requirements", ("requirements.txt",), "--requirement /heliostat/requirements.txt"),
        ("uv", ("pyproject.toml", "uv.lock"), "uv export --quiet --frozen"),
        ("conda", ("environment.yml",), "micromamba install"),
    ],
)
def test_packages_become_a_file_that_installs_them(kind, files, word):
    software = EnvironmentSpec(kind, tuple((name, "x") for name in files))
    begun = generate_containerfile(software, "python:3.11", OPEN)
    assert begun.text.startswith(f"FROM docker.io/library/python:3.11\nCOPY {' '.join(files)} /heliostat/\nRUN ")
    assert word in begun.text
    with pytest.raises(Invalid):
        generate_containerfile(software, "python:3.11", STRICT)


def test_an_own_image_may_be_used_where_digests_are_required_but_not_where_its_registry_is_not_allowed():
    spec = JobSpec(("true",), image=local_image_name("x:1", "ab" * 32))
    asker = JobOwner("ann", "/home/ann", "lab")
    by_digest = rules(require_digest=True)
    assert resolve_container_request(spec, asker, by_digest, is_own=True).runtime == "podman"
    assert resolve_container_request(spec, asker, STRICT, is_own=True).image == spec.image
    elsewhere = rules(allowed_registries=("registry.example.org",))
    for refusing, is_own in ((by_digest, False), (elsewhere, True)):
        with pytest.raises(Invalid):
            resolve_container_request(spec, asker, refusing, is_own=is_own)
    with pytest.raises(Invalid):
        resolve_container_request(
            replace(spec, runtime="docker"), asker, rules(runtimes=("podman", "docker")), is_own=True
        )


def test_invalid_image_names_are_refused():
    assert [parse_image_name(text) for text in ("a", "a:2", "localhost/a-b:2")] == ["a:latest", "a:2", "a-b:2"]
    for text in ("", "A", "a/b", "a:", ":1", "a:1@sha256:0", "-a", "a b", "a\n", "a" * 99, f"a:{'1' * 61}"):
        with pytest.raises(ValueError, match="must be an image name"):
            parse_image_name(text)


def test_a_failed_push_is_explained():
    assert "does not respond" in explain_push_failure(
        "x\nError: dial tcp 127.0.0.1:1: connect: connection refused"
    )
    assert "refused the login" in explain_push_failure("Error: authentication required")
    assert explain_push_failure("Error: strange") == "the image cannot be pushed: Error: strange"
    assert explain_push_failure("")
