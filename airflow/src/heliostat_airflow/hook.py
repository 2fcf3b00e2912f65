"""Airflow hook: makes a Heliostat client from an Airflow connection (address and token)."""

from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from heliostat import Client


class HeliostatHook(BaseHook):
    conn_name_attr = "heliostat_conn_id"
    default_conn_name = "heliostat_default"
    conn_type = "heliostat"
    hook_name = "Heliostat"

    def __init__(self, heliostat_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heliostat_conn_id = heliostat_conn_id

    def client(self) -> Client:
        """Without the default connection: uses HELIOSTAT_URL or this machine's socket."""
        try:
            connection = self.get_connection(self.heliostat_conn_id)
        except AirflowNotFoundException:
            if self.heliostat_conn_id != self.default_conn_name:
                raise
            return Client()
        return Client(url_of(connection), connection.password or None)

    def get_conn(self) -> Client:
        return self.client()

    def test_connection(self) -> tuple[bool, str]:
        try:
            status = self.client().status()
        except Exception as error:  # noqa: BLE001 - the form shows any error
            return False, str(error)
        return True, f"Connected to Heliostat {status['version']}"


def url_of(connection: Any) -> str | None:
    """From a host that is a URL, or from host, port and schema. None: the connection has no host."""
    host = connection.host
    if not host or "://" in host:
        return host or None
    port = f":{connection.port}" if connection.port else ""
    return f"{connection.schema or 'https'}://{host}{port}"
