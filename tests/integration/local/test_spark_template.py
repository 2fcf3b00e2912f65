"""A Spark cluster as a gang, with a stand-in for Spark that really meets: who starts, ends, and has the secret."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client import Client, JobHandle
from support.server_process import ServerProcess

WAIT_SECONDS = 120
# As Spark does it: the master listens, workers show it the secret, the driver asks who is there. TERM ends them.
SPARK_CLASS = """#!/usr/bin/python3
import os, socket, sys, time
kind, *words = sys.argv[1:]
options = {words[place][2:]: words[place + 1] for place in range(0, len(words) - 1, 2)}
settings = dict(line.split() for line in open(options["properties-file"]) if line.strip())
secret = settings["spark.authenticate.secret"]
if os.environ.get("BROKEN") in kind.split("."):
    sys.exit("it is broken")
if kind.endswith("Master"):
    workers = []
    server = socket.create_server((options["host"], int(options["port"])))
    while True:
        other = server.accept()[0]
        said = other.makefile().readline().split()
        if said == ["who"]:
            other.sendall(f"{' '.join(sorted(workers))}\\n".encode())
            other.close()
        elif said[0] == secret:
            workers.append(said[1])
else:
    host, port = words[-1].removeprefix("spark://").split(":")
    while True:
        try:
            mine = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    size = f"{options['cores']}:{options['memory']}"
    mine.sendall(f"{secret} {os.environ['HELIOSTAT_TASK_INDEX']}:{size}\\n".encode())
    time.sleep(600)
"""
DRIVER = """
import json, os, socket, sys, time
file = os.environ["SPARK_CONF_DIR"] + "/spark-defaults.conf"
settings = dict(line.split() for line in open(file) if line.strip())
host, port = settings["spark.master"].removeprefix("spark://").split(":")
seen, wanted = "", int(sys.argv[1])
while len(seen.split()) < wanted:
    try:
        with socket.create_connection((host, int(port))) as asked:
            asked.sendall(b"who\\n")
            seen = asked.makefile().readline().strip()
    except ConnectionRefusedError:
        pass
    time.sleep(0.02)
print(json.dumps({"workers": seen.split(), "settings": settings}))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with ServerProcess(tmp_path_factory.mktemp("spark") / "home", cpus=8) as server:
        yield server.client


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "spark" / "bin").mkdir(parents=True)
    (folder / "spark" / "conf").mkdir()
    (folder / "spark" / "bin" / "spark-class").write_text(SPARK_CLASS)
    (folder / "spark" / "bin" / "spark-class").chmod(0o755)
    (folder / "spark" / "conf" / "spark-defaults.conf").write_text(
        "spark.of.the.site yes\nspark.ui.enabled true\n"
    )
    (folder / "driver.py").write_text(DRIVER)
    return folder


def submitted(client: Client, code: Path, *words: str, **more: str) -> JobHandle:
    env = {"SPARK_HOME": "spark", **more}
    job = client.submit(words, upload=code, template="spark", tasks=3, cpus=2, memory="2G", env=env)
    return job.wait(WAIT_SECONDS)


def test_workers_meet_the_master_by_a_secret_and_all_end_with_the_program(client: Client, code: Path) -> None:
    job = submitted(client, code, "/usr/bin/python3", "driver.py", "2", "0")
    assert job.ok, job.logs()
    told = json.loads(job.logs("stdout"))
    settings = told["settings"]
    assert told["workers"] == ["1:2:1075m", "2:2:1075m"]
    assert len(settings["spark.authenticate.secret"]) == 64
    assert settings["spark.of.the.site"] == "yes"
    safe = {"spark.authenticate": "true", "spark.master.rest.enabled": "false", "spark.ui.enabled": "false"}
    assert safe.items() <= settings.items()


def test_what_the_program_exits_with_is_what_the_job_does(client: Client, code: Path) -> None:
    assert submitted(client, code, "/usr/bin/python3", "driver.py", "2", "7").exit_code == 7


@pytest.mark.parametrize("broken", ["Master", "Worker"])
def test_a_cluster_that_breaks_fails_the_job(client: Client, code: Path, broken: str) -> None:
    job = submitted(client, code, "/usr/bin/python3", "driver.py", "2", "0", BROKEN=broken)
    assert job.exit_code == 1
    assert "it is broken" in job.logs("stderr")


def test_where_there_is_no_spark_that_is_said(client: Client) -> None:
    job = client.submit(["true"], template="spark", cpus=1, env={"PATH": "/nowhere"}).wait(WAIT_SECONDS)
    assert job.exit_code == 127
    assert "set SPARK_HOME" in job.logs("stderr")


def test_one_task_is_a_spark_within_it(client: Client, code: Path) -> None:
    line = "cat $SPARK_CONF_DIR/spark-defaults.conf"
    job = client.submit(line, upload=code, template="spark", cpus=2, env={"SPARK_HOME": "spark"}).wait(
        WAIT_SECONDS
    )
    assert "spark.master local[2]" in job.logs("stdout"), job.logs()
