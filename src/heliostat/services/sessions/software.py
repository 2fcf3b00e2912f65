"""JupyterLab for sessions that bring none of their own."""

import re

from heliostat.config import Settings
from heliostat.engines.environment import environment_folder
from heliostat.errors import HeliostatError
from heliostat.models import Caller, JobRequest
from heliostat.models.environments import Software
from heliostat.models.sessions import JUPYTER_APPS
from heliostat.services.context import Context
from heliostat.services.environments.orders import take_order

_OF_ITS_OWN = re.compile(r"^[ \t]*[\"']?jupyterlab\b", re.MULTILINE | re.IGNORECASE)


def tools_for(context: Context, app: str, request: JobRequest) -> Software | None:
    """The JupyterLab we bring; None: it has its own, or there is none to bring."""
    settings = context.settings
    is_wanted = app in JUPYTER_APPS and settings.jupyter_command is None and bool(settings.jupyter_requirements)
    if not is_wanted or not context.engine.capabilities.equips or request.spec.image is not None:
        return None
    asked = request.environment
    if isinstance(asked, Software) and names_jupyterlab(asked):
        return None
    return jupyter_software(settings)


def names_jupyterlab(software: Software) -> bool:
    return any(_OF_ITS_OWN.search(text) for _, text in software.files)


def jupyter_software(settings: Settings) -> Software:
    return Software("requirements", (("requirements.txt", "\n".join(settings.jupyter_requirements) + "\n"),))


def digest_of_tools(context: Context, caller: Caller, tools: Software, person: tuple[str, str]) -> str | None:
    """Under which it is, or will be, found; None: nothing can be built here, as the session itself will say."""
    try:
        return take_order(context, caller, tools, person).environment.digest
    except HeliostatError:
        return None


def jupyter_in(context: Context, digest: str) -> str:
    return f"{environment_folder(str(context.settings.home.path), digest)}/bin/jupyter-lab"
