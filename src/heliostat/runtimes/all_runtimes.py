"""Registry of all runtimes, by name."""

from heliostat.runtimes.apptainer import Apptainer
from heliostat.runtimes.bubblewrap import Bubblewrap
from heliostat.runtimes.contract import Runtime
from heliostat.runtimes.docker import Docker
from heliostat.runtimes.podman import Podman
from heliostat.runtimes.process import PlainProcess

RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime for runtime in (PlainProcess(), Bubblewrap(), Podman(), Apptainer(), Docker())
}
