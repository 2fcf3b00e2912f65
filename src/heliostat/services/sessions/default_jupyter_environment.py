"""The default JupyterLab environment, for sessions without JupyterLab in their own environment."""

import re

from heliostat.config import SessionSettings
from heliostat.engines.job_variables import environment_folder
from heliostat.errors import HeliostatError
from heliostat.models import Caller, JobRequest
from heliostat.models.environments import EnvironmentSpec
from heliostat.models.sessions import JUPYTER_APPS
from heliostat.services.context import Context
from heliostat.services.environments.requests import prepare_environment_request

_JUPYTERLAB_LINE = re.compile(r"^[ \t]*[\"']?jupyterlab\b", re.MULTILINE | re.IGNORECASE)


def jupyter_spec_for(context: Context, app: str, request: JobRequest) -> EnvironmentSpec | None:
    """The default environment; None: the session has its own JupyterLab, or no default is available."""
    sessions = context.settings.sessions
    is_configured = (
        app in JUPYTER_APPS and sessions.jupyter_command is None and bool(sessions.jupyter_requirements)
    )
    if (
        not is_configured
        or not context.engine.capabilities.provides_environments
        or request.spec.image is not None
    ):
        return None
    requested = request.environment
    if isinstance(requested, EnvironmentSpec) and includes_jupyterlab(requested):
        return None
    return default_jupyter_spec(sessions)


def includes_jupyterlab(environment: EnvironmentSpec) -> bool:
    return any(_JUPYTERLAB_LINE.search(text) for _, text in environment.files)


def default_jupyter_spec(sessions: SessionSettings) -> EnvironmentSpec:
    return EnvironmentSpec(
        "requirements", (("requirements.txt", "\n".join(sessions.jupyter_requirements) + "\n"),)
    )


def jupyter_environment_digest(
    context: Context, caller: Caller, spec: EnvironmentSpec, unix_user_and_project: tuple[str, str]
) -> str | None:
    """The digest of the environment; None: it cannot be built here. The session itself reports the error."""
    try:
        return prepare_environment_request(context, caller, spec, unix_user_and_project).environment.digest
    except HeliostatError:
        return None


def jupyter_path(context: Context, digest: str) -> str:
    return f"{environment_folder(str(context.settings.home.path), digest)}/bin/jupyter-lab"
