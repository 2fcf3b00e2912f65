"""JupyterLab for sessions that bring none of their own."""

import re

from heliostat.config import SessionSettings
from heliostat.engines.job_variables import environment_folder
from heliostat.errors import HeliostatError
from heliostat.models import Caller, JobRequest
from heliostat.models.environments import EnvironmentSpec
from heliostat.models.sessions import JUPYTER_APPS
from heliostat.services.context import Context
from heliostat.services.environments.requests import prepare_environment_request

_OF_ITS_OWN = re.compile(r"^[ \t]*[\"']?jupyterlab\b", re.MULTILINE | re.IGNORECASE)


def jupyter_spec_for(context: Context, app: str, request: JobRequest) -> EnvironmentSpec | None:
    """The JupyterLab we bring; None: it has its own, or there is none to bring."""
    sessions = context.settings.sessions
    is_wanted = app in JUPYTER_APPS and sessions.jupyter_command is None and bool(sessions.jupyter_requirements)
    if not is_wanted or not context.engine.capabilities.provides_environments or request.spec.image is not None:
        return None
    asked = request.environment
    if isinstance(asked, EnvironmentSpec) and includes_jupyterlab(asked):
        return None
    return default_jupyter_spec(sessions)


def includes_jupyterlab(software: EnvironmentSpec) -> bool:
    return any(_OF_ITS_OWN.search(text) for _, text in software.files)


def default_jupyter_spec(sessions: SessionSettings) -> EnvironmentSpec:
    return EnvironmentSpec(
        "requirements", (("requirements.txt", "\n".join(sessions.jupyter_requirements) + "\n"),)
    )


def jupyter_environment_digest(
    context: Context, caller: Caller, tools: EnvironmentSpec, person: tuple[str, str]
) -> str | None:
    """Under which it is, or will be, found; None: nothing can be built here, as the session itself will say."""
    try:
        return prepare_environment_request(context, caller, tools, person).environment.digest
    except HeliostatError:
        return None


def jupyter_path(context: Context, digest: str) -> str:
    return f"{environment_folder(str(context.settings.home.path), digest)}/bin/jupyter-lab"
