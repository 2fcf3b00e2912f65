"""`helio port`: open a port of a running job in the browser."""

from typing import Annotated

import typer

from heliostat.cli.browser import open_in_browser
from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, print_json


def port(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    number: Annotated[int, typer.Argument(metavar="PORT", min=1024, max=65535)],
    open_it: Annotated[bool, typer.Option("--open", help="Open the address in your browser, logged in.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open a port of a running job in your browser.

    For TensorBoard, a dashboard or any web server: helio port 12 6006. The job must be yours, and one of its
    processes must listen on that port; listening on 127.0.0.1 is enough.
    """
    client = connect()
    port_data = client.jobs.get_port(job, number)
    if as_json:
        print_json(port_data)
    else:
        print(port_data["url"])
    if open_it:
        open_in_browser(client.auth.web_link(f"/open/{job}-{number}")["url"])
