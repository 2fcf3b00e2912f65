"""`helio metrics`: the metrics of the server."""

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, print_json


def metrics(as_json: JsonFlag = False) -> None:
    """Print the metrics that Prometheus collects."""
    series = connect().monitoring.metrics()
    if as_json:
        print_json(series)
        return
    for name, value in series.items():
        print(f"{name} {value:.15g}")
