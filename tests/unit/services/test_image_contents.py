"""What a Containerfile may begin with, and the one that is written for packages."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.errors import Invalid
from heliostat.models import JobSpec
from heliostat.models.environments import Software
from heliostat.models.images import parse_own_name, push_words, stored_name
from heliostat.runtimes.policy import Asker, Rules, admitted, rules_of
from heliostat.services.environments.image_contents import checked_containerfile, checked_definition, written_for

SETTINGS = Settings(Home(Path("/srv/h")))
OPEN = rules_of(SETTINGS)
STRICT = rules_of(replace(SETTINGS, allowed_registries=("registry.example.org/lab", "localhost")))


def test_images_to_begin_with_are_written_in_full():
    text = "# mine\nFROM python:3.11 AS build\nRUN true\nFROM build\nfrom scratch\nFROM ghcr.io/x/y as z\n"
    begun = checked_containerfile(text, OPEN)
    assert begun.text == (
        "# mine\nFROM docker.io/library/python:3.11 AS build\nRUN true\nFROM build\nfrom scratch\n"
        "FROM ghcr.io/x/y:latest as z\n"
    )
    assert begun.bases == ("docker.io/library/python:3.11", "ghcr.io/x/y:latest")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (checked_containerfile, "FROM localhost/x\nRUN " + "--mount=" * 30_000 + " --from=evil.org/x\n"),
        (checked_containerfile, "FROM" + " " * 100_000 + "localhost/x" + " " * 100_000 + "y z\n"),
        (checked_containerfile, "FROM localhost/x\n" + "\\ " * 100_000 + "x\nFROM evil.org/x\n"),
        (checked_definition, "\n" * 200_000 + "x"),
        (checked_definition, "Bootstrap: docker" + " " * 200_000 + "x\nFrom: localhost/x\n"),
    ],
    ids=["mounts", "from", "backslashes", "lines", "blanks"],
)
def test_a_file_made_to_be_slow_is_refused_at_once(check, text):
    """While a pattern is tried, the whole server waits."""
    began = time.process_time()
    with pytest.raises(Invalid):
        check(text, STRICT)
    assert time.process_time() - began < 2


def test_one_that_is_left_open_is_taken_where_all_are_allowed():
    text = "ARG V=3\nFROM python:$V\n"
    assert checked_containerfile(text, OPEN).text == text


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
        checked_containerfile(text, STRICT)
    assert refused.value.hint


def test_images_of_allowed_registries_and_stages_are_taken():
    text = "FROM registry.example.org/lab/x:1 AS a\nFROM localhost/y:1\nCOPY --from=a /b /c\nCOPY --from=0 /d /e\n"
    assert checked_containerfile(text, STRICT).bases == ("registry.example.org/lab/x:1", "localhost/y:1")


@pytest.mark.parametrize("text", ["", "RUN true\n", "FROM\n", "FROM a b c\n", "FROM ../x\n", "FROM x\0\n"])
def test_what_cannot_be_read_is_refused_with_a_hint(text):
    with pytest.raises(Invalid) as refused:
        checked_containerfile(text, OPEN)
    assert refused.value.hint


def test_a_definition_file_must_begin_with_an_allowed_image():
    good = "Bootstrap: docker\nFrom: registry.example.org/lab/x:1\n%post\n  true\n"
    assert checked_definition(good, STRICT).text == good
    for text in (
        "Bootstrap: docker\nFrom: python:3\n",
        "Bootstrap: library\nFrom: x\n",
        f"{good}Bootstrap: docker\nFrom: x\n",
        "%post\n",
    ):
        with pytest.raises(Invalid):
            checked_definition(text, STRICT)


@pytest.mark.parametrize(
    ("kind", "files", "word"),
    [
        ("requirements", ("requirements.txt",), "--requirement /heliostat/requirements.txt"),
        ("uv", ("pyproject.toml", "uv.lock"), "uv export --quiet --frozen"),
        ("conda", ("environment.yml",), "micromamba install"),
    ],
)
def test_packages_become_a_file_that_installs_them(kind, files, word):
    software = Software(kind, tuple((name, "x") for name in files))
    begun = written_for(software, "python:3.11", OPEN)
    assert begun.text.startswith(f"FROM docker.io/library/python:3.11\nCOPY {' '.join(files)} /heliostat/\nRUN ")
    assert word in begun.text
    with pytest.raises(Invalid):
        written_for(software, "python:3.11", STRICT)


def test_an_own_image_may_be_used_where_digests_are_required_but_not_where_its_registry_is_not_allowed():
    spec = JobSpec(("true",), image=stored_name("x:1", "ab" * 32))
    asker = Asker("ann", "/home/ann", "lab")
    by_digest = rules_of(replace(SETTINGS, images_by_digest=True))
    assert admitted(spec, asker, by_digest, is_own=True).runtime == "podman"
    assert admitted(spec, asker, STRICT, is_own=True).image == spec.image
    for rules, is_own in ((by_digest, False), (_only_elsewhere(), True)):
        with pytest.raises(Invalid):
            admitted(spec, asker, rules, is_own=is_own)
    with pytest.raises(Invalid):
        admitted(replace(spec, runtime="docker"), asker, _with_docker(), is_own=True)


def _only_elsewhere() -> Rules:
    return rules_of(replace(SETTINGS, allowed_registries=("registry.example.org",)))


def _with_docker() -> Rules:
    return rules_of(replace(SETTINGS, runtimes=("podman", "docker")))


def test_names_are_read_strictly():
    assert [parse_own_name(text) for text in ("a", "a:2", "localhost/a-b:2")] == ["a:latest", "a:2", "a-b:2"]
    for text in ("", "A", "a/b", "a:", ":1", "a:1@sha256:0", "-a", "a b", "a\n", "a" * 99, f"a:{'1' * 61}"):
        with pytest.raises(ValueError, match="is not the name"):
            parse_own_name(text)


def test_why_a_push_failed_is_said_in_words():
    assert "does not answer" in push_words("x\nError: dial tcp 127.0.0.1:1: connect: connection refused")
    assert "refuses this login" in push_words("Error: authentication required")
    assert push_words("Error: strange") == "the image cannot be pushed: Error: strange"
    assert push_words("")
