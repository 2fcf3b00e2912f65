"""Applications of sessions, and JupyterLab in the environment of a session."""

import time
from pathlib import Path

import pytest

from heliostat.engines.contract import Capabilities
from heliostat.models.environments import EnvironmentSpec
from heliostat.services.sessions.default_jupyter_environment import includes_jupyterlab
from heliostat.services.sessions.session_apps import list_session_apps
from unit.services.site import Site


def requirements(text: str) -> EnvironmentSpec:
    return EnvironmentSpec("requirements", (("requirements.txt", text),))


@pytest.mark.parametrize("text", ["jupyterlab", "torch\n  JupyterLab==4\n", "\n'jupyterlab>=4',"])
def test_jupyterlab_is_found_at_the_start_of_any_line(text: str) -> None:
    assert includes_jupyterlab(requirements(text))


@pytest.mark.parametrize("text", ["torch", "not-jupyterlab", "jupyterlabs", "torch # jupyterlab"])
def test_similar_package_names_are_not_jupyterlab(text: str) -> None:
    assert not includes_jupyterlab(requirements(text))


@pytest.mark.parametrize("sign", ["\n", " ", "\n "])
def test_a_text_designed_to_be_slow_is_read_quickly(sign: str) -> None:
    """While a pattern is tried, the whole server waits."""
    began = time.process_time()
    assert not includes_jupyterlab(requirements(sign * 100_000 + "x"))
    assert time.process_time() - began < 2


def test_only_installed_applications_are_offered_and_the_others_are_named(site: Site, tmp_path: Path) -> None:
    choice = list_session_apps(site.context, str(tmp_path))
    assert [app.name for app in choice.available] == ["jupyter", "terminal", "custom"]
    assert [app.title for app in choice.missing] == ["VS Code", "RStudio"]
    (tmp_path / "code-server").touch(mode=0o755)
    assert "vscode" in [app.name for app in list_session_apps(site.context, str(tmp_path)).available]


def test_applications_of_other_nodes_are_offered_unchecked(site: Site, tmp_path: Path) -> None:
    site.machines.capabilities = Capabilities()
    choice = list_session_apps(site.context, str(tmp_path))
    assert (len(choice.available), choice.missing, choice.is_checked) == (5, (), False)
