"""The database in which slurmdbd keeps the accounting. The password goes through standard input only."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from heliostat.errors import Conflict
from heliostat.provision.slurm import daemons
from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.configuration import DATABASE_NAME, DATABASE_USER
from heliostat.provision.slurm.paths import SlurmPaths
from heliostat.provision.slurm.setup_host import SetupHost

_COMMENT = "made by heliostat"
_WHOSE = f"select schema_comment from information_schema.schemata where schema_name = '{DATABASE_NAME}';"  # noqa: S608 - a constant
_READY = (
    f"select count(*) from mysql.user where user = '{DATABASE_USER}' and host in ('127.0.0.1', 'localhost')"  # noqa: S608
    " and authentication_string = password('{password}');"
)
_MAKE = f"create database if not exists {DATABASE_NAME} comment '{_COMMENT}';\n" + "".join(
    f"create user if not exists {DATABASE_USER}@'{host}';\n"
    f"alter user {DATABASE_USER}@'{host}' identified by '{{password}}';\n"
    f"grant all on {DATABASE_NAME}.* to {DATABASE_USER}@'{host}';\n"
    for host in ("127.0.0.1", "localhost")
)


def set_up_database(
    machine: SetupHost, described: ClusterSpec, layout: SlurmPaths, password: str
) -> Iterator[str]:
    """With the user that slurmdbd is. May be repeated. Raises Conflict for one that somebody else made."""
    if layout.prefix:
        yield from _begin(machine, layout)
    ping = ["mariadb-admin", *_where(layout), "ping"]
    if machine.try_run(ping) is None:
        yield machine.start_daemon(
            daemons.database_daemon(described, layout), lambda: machine.try_run(ping) is not None
        )
    client = ["mariadb", *_where(layout), "--batch", "--skip-column-names"]
    found = machine.run(client, _WHOSE).splitlines()
    if found and found != [_COMMENT]:
        hint = (
            f"If nobody needs it: mariadb -e 'drop database {DATABASE_NAME}'. Else keep the Slurm it belongs to."
        )
        raise Conflict(f"There is a database {DATABASE_NAME} that Heliostat did not make.", hint)
    if found and machine.run(client, _READY.format(password=password), secret=password).strip() == "2":
        return
    machine.run(client, _MAKE.format(password=password), secret=password)
    yield f"Set up the database {DATABASE_NAME}."


def _where(layout: SlurmPaths) -> list[str]:
    return ["--no-defaults", f"--socket={layout.database_socket}"] if layout.prefix else []


def _begin(machine: SetupHost, layout: SlurmPaths) -> Iterator[str]:
    """Its folder, whole or not at all."""
    folder, draft = Path(layout.database_folder), Path(f"{layout.database_folder}.draft")
    if folder.exists():
        return
    shutil.rmtree(draft, ignore_errors=True)
    words = ["--no-defaults", "--user=mysql", f"--datadir={draft}", "--skip-test-db"]
    machine.run(["mariadb-install-db", *words, "--auth-root-authentication-method=socket"])
    draft.rename(folder)
    yield f"Made a database folder, {folder}."
