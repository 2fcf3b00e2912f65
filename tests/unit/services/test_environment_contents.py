"""Validation and normal form of environment files."""

import time

import pytest

from heliostat.errors import Invalid
from heliostat.models.environments import EnvironmentSpec, environment_digest
from heliostat.services.environments.spec_validation import validate_environment_spec

INDEX = "http://127.0.0.1:8000/simple"
PROJECT = '[project]\nname = "mine"\nrequires-python = ">=3.11"\ndependencies = ["torch>=2"]\n'
LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "mine"
version = "0.1"
source = { virtual = "." }

[[package]]
name = "tiny"
version = "1.0"
source = { registry = "SOURCE" }
wheels = [{ url = "FILE", hash = "sha256:00", size = 1 }]
"""


def requirements(text: str) -> EnvironmentSpec:
    return EnvironmentSpec("requirements", (("requirements.txt", text),))


def text_of(software: EnvironmentSpec) -> str:
    return software.files[0][1]


def test_comments_blanks_and_line_ends_make_no_difference():
    ours = validate_environment_spec(requirements("# what we need\r\ntorch==2.4.1   # new\r\n\r\nnumpy >= 2\r\n"))
    theirs = validate_environment_spec(requirements("torch==2.4.1\nnumpy >= 2"))
    assert ours == theirs
    assert text_of(ours) == "torch==2.4.1\nnumpy >= 2\n"


def test_the_digest_depends_on_contents_python_platform_and_owner():
    one = validate_environment_spec(requirements("torch"))
    digests = {
        environment_digest(one, "linux-x86_64", None),
        environment_digest(one, "linux-x86_64", "anna"),
        environment_digest(one, "linux-aarch64", None),
        environment_digest(EnvironmentSpec("requirements", one.files, "3.12"), "linux-x86_64", None),
        environment_digest(validate_environment_spec(requirements("torch==1")), "linux-x86_64", None),
    }
    assert len(digests) == 5


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch[extra1,extra2] >=2.1, <3 ; python_version < '3.12'",
        "numpy~=2.0",
        "pkg @ https://example.org/pkg-1.0-py3-none-any.whl",
        "pkg @ git+https://example.org/pkg.git@v1",
        "--index-url https://download.pytorch.org/whl/cu124\ntorch",
        "--extra-index-url=https://example.org/simple\ntorch",
        f"--index-url {INDEX}\ntorch",
        "--pre\ntorch",
        "torch==2.4 \\\n    --hash=sha256:0123abcd \\\n    --hash=sha256:4567",
    ],
)
def test_names_versions_hashes_and_urls_are_accepted(line):
    assert validate_environment_spec(requirements(line), (INDEX,))


@pytest.mark.parametrize(
    "line",
    [
        "--extra-index-url file:///etc/shadow\ntorch",
        "--index-url http://127.0.0.1:8000/other\ntorch",
        f"--index-url {INDEX}/../../x\ntorch",
        "--index-url https://user:secret@example.org/simple\ntorch",
        "--index-url https://\ntorch",
        "--find-links /srv\ntorch",
        "--trusted-host evil\ntorch",
        "-r ../../x",
        "-rx",
        "-c x\ntorch",
        "-e .",
        "--editable=.",
        ".",
        "../pkg",
        "~/pkg",
        "file:///root/pkg",
        "https://example.org/pkg.whl",
        "pkg @ /root/pkg",
        "pkg @ git+ssh://git@example.org/x",
        "pkg @ ssh://example.org/x",
        "pkg @ https://a:b@example.org/x.whl",
        "torch $(id)",
        "torch\x1b[2J",
        "torch --global-option=x",
        "torch==2.4 --config-settings=build=x",
        "torch>=2 --index-url=x",
        "torch==2; python_version>'3' --no-binary=x",
        "torch==${SECRET}",
        "pkg @ https://example.org/x.whl ; python_version>'3' --config-settings=x",
        "pkg @ https://example.org/x.whl\\ \ntorch",
        "--index-url https://example.org/simple\\ \ntorch",
        "pkg @ https://example.org/${HOME}/x.whl",
        "--index-url https://example.org/${UV_DEFAULT_INDEX}\ntorch",
        "--hash=sha256:00",
        "# nothing",
        "",
        "--pre",
    ],
)
def test_local_paths_and_secrets_are_refused_with_a_hint(line):
    with pytest.raises(Invalid) as caught:
        validate_environment_spec(requirements(line), (INDEX,))
    assert caught.value.hint
    assert "environment" in caught.value.fields


def test_a_project_is_its_dependencies():
    found = validate_environment_spec(EnvironmentSpec("pyproject", (("pyproject.toml", PROJECT),)))
    assert found.files == (("requirements.txt", "torch>=2\n"),)
    assert found.python is None


def test_a_project_can_set_its_python_version():
    text = PROJECT.replace(">=3.11", "==3.12.*")
    assert validate_environment_spec(EnvironmentSpec("pyproject", (("pyproject.toml", text),))).python == "3.12"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[project", "cannot be read"),
        ('[tool.x]\na = "b"', "no [project]"),
        ('[project]\nname = "x"\ndependencies = "torch"', "not a list"),
        ('[project]\nname = "x"\ndynamic = ["dependencies"]', "dynamic"),
        (PROJECT + '[tool.uv.sources]\ntorch = { path = "/root" }', "source of packages"),
        (PROJECT + '[[tool.uv.index]]\nurl = "https://x"', "source of packages"),
        (PROJECT.replace("torch>=2", "torch @ file:///root"), "cannot be used"),
    ],
)
def test_a_project_that_needs_more_than_its_dependencies_is_refused(text, word):
    with pytest.raises(Invalid, match=word.replace("[", r"\[")):
        validate_environment_spec(EnvironmentSpec("pyproject", (("pyproject.toml", text),)))


def lock(source: str, file: str) -> EnvironmentSpec:
    text = LOCK.replace("SOURCE", source).replace("FILE", file)
    return EnvironmentSpec("uv", (("pyproject.toml", PROJECT), ("uv.lock", text)))


def test_uv_gets_only_the_name_of_a_locked_project():
    hostile = PROJECT + '[tool.uv]\ncache-dir = "/srv"\n[tool.uv.sources]\ntorch = { path = "/root" }\n'
    asked = lock("https://pypi.org/simple", "https://files.pythonhosted.org/tiny.whl")
    found = validate_environment_spec(EnvironmentSpec("uv", (("pyproject.toml", hostile), asked.files[1])))
    assert (
        found.file_text("pyproject.toml")
        == '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\n'
    )


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("/srv/simple", "https://x.org/a.whl"),
        ("http://x.org/simple", "https://x.org/a.whl"),
        ("https://x.org/simple", "file:///root/a.whl"),
        ("https://x.org/simple", "https://a:b@x.org/a.whl"),
    ],
)
def test_a_lock_with_untrusted_urls_is_refused(source, file):
    with pytest.raises(Invalid):
        validate_environment_spec(lock(source, file))


@pytest.mark.parametrize("source", ['path = "/root/x"', 'directory = "../x"', 'editable = "../x"'])
def test_a_lock_with_local_packages_is_refused(source):
    text = LOCK.replace('registry = "SOURCE"', source).replace("FILE", "https://x.org/a.whl")
    with pytest.raises(Invalid, match="local source"):
        validate_environment_spec(EnvironmentSpec("uv", (("pyproject.toml", PROJECT), ("uv.lock", text))))


def test_a_lock_in_an_older_format_is_refused():
    """uv reads that too, so what stands there would be looked at by nobody."""
    text = LOCK.replace("[[package]]", "[[distribution]]").replace('registry = "SOURCE"', 'path = "/root/x.whl"')
    with pytest.raises(Invalid, match="not supported"):
        validate_environment_spec(EnvironmentSpec("uv", (("pyproject.toml", PROJECT), ("uv.lock", text))))


def test_url_and_path_of_a_file_in_a_lock_are_checked():
    with pytest.raises(Invalid):
        validate_environment_spec(lock("https://x.org/simple", 'https://x.org/a.whl", path = "/root/a.whl'))


def locked(text: str) -> EnvironmentSpec:
    return EnvironmentSpec("uv", (("pyproject.toml", PROJECT), ("uv.lock", text)))


def conda(text: str) -> EnvironmentSpec:
    return EnvironmentSpec("conda", (("environment.yml", text),))


def test_a_conda_file_is_reduced_to_channels_and_packages():
    text = "name: x\nprefix: /root\nchannels: [conda-forge]\ndependencies:\n- python=3.11\n- pip: [einops]\n"
    found = validate_environment_spec(conda(text))
    wanted = "channels:\n- conda-forge\ndependencies:\n- python=3.11\n- pip:\n  - einops\n"
    assert text_of(found) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "dependencies: x",
        "- a",
        "dependencies: [/root/x.tar.bz2]",
        "channels: [file:///root]\ndependencies: [a]",
        "channels: [../x]\ndependencies: [a]",
        "dependencies:\n- pip: ['-r /etc/shadow']",
        "a: &a [x, x]\nb: &b [*a, *a]\ndependencies: [*b]",
        "dependencies: [" + "a," * 40_000 + "a]",
        "!!python/object/apply:os.system ['id']",
        "[" * 5000,
    ],
)
def test_a_hostile_conda_file_is_refused(text):
    with pytest.raises(Invalid):
        validate_environment_spec(conda(text))


@pytest.mark.parametrize(
    "software",
    [
        requirements("a=" + ";" * 200_000 + "@"),
        requirements("a" + " " * 200_000 + "x"),
        requirements("a [" + " " * 200_000 + "x"),
        requirements("a (" + " " * 200_000 + "x"),
        requirements("a" + "a." * 200_000 + "!@"),
        requirements("a @ https://x.org/y" + " ;" * 200_000 + "\\"),
        conda("dependencies: ['a " + "= " * 30_000 + "@']"),
        locked("a." * 100_000 + "a = 1\n"),
        locked("a = { " + '"a" . ' * 100_000 + "a = 1 }\n"),
        locked("a = " + "1" * 100_000 + "\n"),
    ],
    ids="semicolons blanks extras bracket dots address conda keys inline-keys number".split(),
)
def test_a_line_designed_to_be_slow_is_refused_quickly(software):
    """While a pattern is tried, the whole server waits."""
    began = time.process_time()
    with pytest.raises(Invalid):
        validate_environment_spec(software)
    assert time.process_time() - began < 2


def test_large_files_unknown_kinds_and_invalid_versions_are_refused():
    for software in (
        requirements("a\n" * 2**21),
        EnvironmentSpec("wheel", ()),
        EnvironmentSpec("requirements", (("requirements.txt", "torch"),), "3.x"),
        requirements("torch\0"),
    ):
        with pytest.raises(Invalid):
            validate_environment_spec(software)
