"""Every runtime there is."""

from heliostat.runtimes.apptainer import Apptainer
from heliostat.runtimes.bubblewrap import Bubblewrap
from heliostat.runtimes.contract import Runtime
from heliostat.runtimes.docker import Docker
from heliostat.runtimes.podman import Podman
from heliostat.runtimes.process import Process

RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime for runtime in (Process(), Bubblewrap(), Podman(), Apptainer(), Docker())
}
