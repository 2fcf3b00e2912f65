"""Detection of JupyterLab in the environment of a session."""

import time

import pytest

from heliostat.models.environments import EnvironmentSpec
from heliostat.services.sessions.jupyter_environment import includes_jupyterlab


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
