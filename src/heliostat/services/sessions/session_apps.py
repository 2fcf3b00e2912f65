"""Applications of sessions, and what must be installed for them."""

import shutil
from dataclasses import dataclass

from heliostat.engines.job_variables import DEFAULT_PATH
from heliostat.payloads.session_launcher import RSTUDIO_PROGRAMS, VSCODE_PROGRAMS
from heliostat.services.context import Context


@dataclass(frozen=True, slots=True)
class SessionApp:
    name: str  # one of SESSION_APPS
    title: str
    programs: tuple[str, ...] = ()  # one of them must be on the node; empty: Heliostat brings what is needed
    guide: str = ""  # how to install them


@dataclass(frozen=True, slots=True)
class SessionAppChoice:
    available: tuple[SessionApp, ...]
    missing: tuple[SessionApp, ...]
    is_checked: bool  # False: sessions run on other nodes, so an available one can still be missing there


_APPS = (
    SessionApp("jupyter", "JupyterLab"),
    SessionApp("terminal", "Terminal"),
    SessionApp("vscode", "VS Code", VSCODE_PROGRAMS, "https://coder.com/docs/code-server/install"),
    SessionApp("rstudio", "RStudio", RSTUDIO_PROGRAMS, "https://posit.co/download/rstudio-server"),
    SessionApp("custom", "Custom web server"),
)


def list_session_apps(context: Context, path: str = DEFAULT_PATH) -> SessionAppChoice:
    """`path`: where jobs on this machine find programs."""
    if not context.engine.capabilities.runs_on_server_host:
        return SessionAppChoice(_APPS, (), is_checked=False)
    missing = tuple(app for app in _APPS if app.programs and not _is_installed(app, path))
    return SessionAppChoice(tuple(app for app in _APPS if app not in missing), missing, is_checked=True)


def _is_installed(app: SessionApp, path: str) -> bool:
    return any(shutil.which(program, path=path) for program in app.programs)
