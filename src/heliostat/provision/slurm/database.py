"""Setup of slurmdbd's accounting database in MariaDB. The password is passed only on standard input."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from heliostat.errors import Conflict
from heliostat.provision.setup_host import SetupHost
from heliostat.provision.slurm import daemons
from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.configuration import DATABASE_NAME, DATABASE_USER
from heliostat.provision.slurm.paths import SlurmPaths

_COMMENT = "made by heliostat"
_OWNER_QUERY = f"select schema_comment from information_schema.schemata where schema_name = '{DATABASE_NAME}';"  # noqa: S608 - a constant
_USER_QUERY = (
    f"select count(*) from mysql.user where user = '{DATABASE_USER}' and host in ('127.0.0.1', 'localhost')"  # noqa: S608
    " and authentication_string = password('{password}');"
)
_CREATE = f"create database if not exists {DATABASE_NAME} comment '{_COMMENT}';\n" + "".join(
    f"create user if not exists {DATABASE_USER}@'{host}';\n"
    f"alter user {DATABASE_USER}@'{host}' identified by '{{password}}';\n"
    f"grant all on {DATABASE_NAME}.* to {DATABASE_USER}@'{host}';\n"
    for host in ("127.0.0.1", "localhost")
)


def set_up_database(host: SetupHost, spec: ClusterSpec, paths: SlurmPaths, password: str) -> Iterator[str]:
    """Creates the database and slurmdbd's user. Repeatable. Raises Conflict if another program created it."""
    if paths.prefix:
        yield from _make_database_folder(host, paths)
    ping = ["mariadb-admin", *_connection(paths), "ping"]
    if host.try_run(ping) is None:
        yield host.start_daemon(daemons.database_daemon(spec, paths), lambda: host.try_run(ping) is not None)
    client = ["mariadb", *_connection(paths), "--batch", "--skip-column-names"]
    comments = host.run(client, _OWNER_QUERY).splitlines()
    if comments and comments != [_COMMENT]:
        hint = (
            f"If it is not needed: mariadb -e 'drop database {DATABASE_NAME}'."
            " Otherwise keep using the Slurm cluster it belongs to."
        )
        raise Conflict(f"The database {DATABASE_NAME} exists, and Heliostat did not create it.", hint)
    if comments and host.run(client, _USER_QUERY.format(password=password), secret=password).strip() == "2":
        return
    host.run(client, _CREATE.format(password=password), secret=password)
    yield f"Set up the database {DATABASE_NAME}."


def _connection(paths: SlurmPaths) -> list[str]:
    return ["--no-defaults", f"--socket={paths.database_socket}"] if paths.prefix else []


def _make_database_folder(host: SetupHost, paths: SlurmPaths) -> Iterator[str]:
    """Created under another name first, so that it is complete or absent."""
    folder, draft = Path(paths.database_folder), Path(f"{paths.database_folder}.draft")
    if folder.exists():
        return
    shutil.rmtree(draft, ignore_errors=True)
    options = ["--no-defaults", "--user=mysql", f"--datadir={draft}", "--skip-test-db"]
    host.run(["mariadb-install-db", *options, "--auth-root-authentication-method=socket"])
    draft.rename(folder)
    yield f"Created the database folder {folder}."
