"""`helio port` and the page of a job's port."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from support.proxy_browser import ProxyBrowser, proxy_url, start_echo_job


@pytest.fixture(scope="module")
def job(server: RunningServer) -> Iterator[tuple[int, int]]:
    job = start_echo_job(server, address="::1:0")
    yield job
    server.ask("POST", f"/jobs/{job[0]}/cancel")


def helio(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_prints_an_address_that_works(server: RunningServer, job: tuple[int, int]) -> None:
    number, port = str(job[0]), str(job[1])
    url = f"{proxy_url(server)}/s/{number}-{port}/"
    ran = helio(server, "port", number, port)
    assert (ran.returncode, ran.stdout) == (0, f"{url}\n")
    assert json.loads(helio(server, "port", "--json", number, port).stdout)["url"] == url
    opened = helio(server, "port", "--open", number, port)
    place, got = ProxyBrowser(server).follow_redirects(opened.stderr.split()[-1])  # not logged in before
    assert (place, got.json["target"]) == (url, "/")


def test_a_port_nobody_listens_on_is_told_kindly(server: RunningServer, job: tuple[int, int]) -> None:
    ran = helio(server, "port", str(job[0]), "1025")
    assert ran.returncode == 6
    assert "no process listens on port 1025" in ran.stderr
    assert "Start a server in the job" in ran.stderr
    assert helio(server, "port", str(job[0]), "80").returncode == 2


def test_the_page_of_a_job_leads_to_its_ports(server: RunningServer, job: tuple[int, int]) -> None:
    visitor, page = ProxyBrowser(server).log_in(), f"{server.url}/jobs/{job[0]}"
    assert f'href="/jobs/{job[0]}/port"' in visitor.get(page).body.decode()
    assert visitor.get(f"{page}/port").status == 200
    shown = visitor.get(f"{page}/port?port={job[1]}")
    assert f'href="{proxy_url(server)}/s/{job[0]}-{job[1]}/"' in shown.body.decode()
    for port, status in (("1025", 409), ("x", 422), ("99999", 422), ("-1", 422)):
        wrong = visitor.get(f"{page}/port?port={port}")
        assert (wrong.status, "flash-bad" in wrong.body.decode()) == (status, True)
