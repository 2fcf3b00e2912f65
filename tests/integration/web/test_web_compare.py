"""How to repeat a job, and what differed between two, over plain HTTP."""

import re

import pytest

from integration.running_server import RunningServer
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
SECRET = "hunter2-71c0"
SMALL = {"cpus": 1, "memory": "256M"}


@pytest.fixture(scope="module")
def surfer(server: RunningServer) -> Surfer:
    return Surfer(server).by_link()


@pytest.fixture(scope="module")
def two_jobs(server: RunningServer) -> tuple[int, int]:
    code = {"commit": "a" * 40, "branch": HOSTILE, "diff": f"+{HOSTILE}\n+more\n", "untracked": [HOSTILE]}
    first = server.submit(command=["true"], env={"TOKEN": SECRET}, record=code, **SMALL)
    body = {"changes": {"env": {"TOKEN": "other"}, "command": ["echo", HOSTILE], "memory": "512M"}}
    second = server.ask("POST", f"/jobs/{first}/rerun", body).json["job"]["id"]
    for job in (first, second):
        server.finished(job)
    return first, second


def test_the_page_of_a_job_says_how_to_repeat_it(surfer: Surfer, two_jobs: tuple[int, int]) -> None:
    first, second = two_jobs
    text = surfer.get(f"/jobs/{first}").text
    assert f"<code>helio rerun {first}</code>" in text
    assert "aaaaaaaaaaaa, with uncommitted changes" in text
    assert f'Run again as <a href="/jobs/{second}">' in text
    assert f'Rerun of <a href="/jobs/{first}">' in surfer.get(f"/jobs/{second}").text


def test_two_jobs_are_compared(surfer: Surfer, two_jobs: tuple[int, int]) -> None:
    first, second = two_jobs
    text = surfer.get(f"/compare?a={first}&b={second}").text
    assert "<h2>Request</h2>" in text
    assert "another value" in text
    assert re.search(r">memory</th>\s*<td>256 MiB</td>\s*<td>512 MiB</td>", text)
    assert "Identical:" in text
    assert SECRET not in text


def test_nothing_hostile_becomes_markup(surfer: Surfer, two_jobs: tuple[int, int]) -> None:
    first, second = two_jobs
    for path in (f"/jobs/{first}", f"/compare?a={first}&b={second}", "/compare?a=%3Cscript%3Ealert&b=1"):
        text = surfer.get(path).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=", text)


@pytest.mark.parametrize("query", ["a=1", "a=x&b=y", "a=999999&b=1", "a=0&b=1", "a=-1&b=²"])
def test_what_cannot_be_compared_is_told_kindly(surfer: Surfer, two_jobs: tuple[int, int], query: str) -> None:
    from urllib.parse import quote

    seen = surfer.get(f"/compare?{quote(query, safe='=&')}")
    assert seen.status == 200
    assert "Compare" in seen.text


def test_a_stranger_compares_nothing(server: RunningServer, two_jobs: tuple[int, int]) -> None:
    assert server.ask("POST", "/users", {"name": "outsider", "password": PASSWORD}).status == 201
    outsider = Surfer(server)
    outsider.log_in("outsider", PASSWORD)
    text = outsider.get(f"/compare?a={two_jobs[0]}&b={two_jobs[1]}").text
    assert "belongs to another user" in text
    assert "another value" not in text
