"""`helio demo`: a temporary demo cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass


def demo(
    port: Annotated[
        int, typer.Option(help="TCP port of the web interface; 0 for any free port.", min=0, max=65535)
    ] = 0,
    speed: Annotated[float, typer.Option(help="Simulation speed factor.", min=1, max=10000)] = 60.0,
) -> None:
    """Start a temporary demo cluster: 40 simulated nodes, 100 GPUs."""
    from heliostat.demo.server import run_demo

    run_demo(port=port, speed=speed)
