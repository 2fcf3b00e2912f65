import pytest

from heliostat.runtimes.image_names import parse_image

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.11", "docker.io/library/python:3.11"),
        ("pytorch/pytorch", "docker.io/pytorch/pytorch:latest"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("localhost/mine", "localhost/mine:latest"),
        ("localhost:5000/mine:1", "localhost:5000/mine:1"),
        ("registry.example.org:5000/a/b/c:v1.2-x_y", "registry.example.org:5000/a/b/c:v1.2-x_y"),
        (f"python@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        (f"python:3.11@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
    ],
)
def test_names_are_written_in_full(text: str, full: str) -> None:
    assert str(parse_image(text)) == full
    assert str(parse_image(full)) == full


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "--privileged",
        "-v",
        "Python",
        "a b",
        "a;b",
        "a$(b)",
        "../etc",
        "a/../b",
        "/etc/passwd",
        "a:",
        "a:b:c",
        "a@sha256:1",
        "docker-archive:/x",
        "docker://python",
        "dir:/etc",
        "a\nb",
        "a\x00",
        "ä",
        "a" * 501,
        "http://x/y",
        "a:/b",
        "@",
        "registry.example.org/",
        "x.y:99999999/a",
        f"python@{DIGEST}x",
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an image name"):
        parse_image(text)
