"""Whether people bring a JupyterLab of their own."""

import time

import pytest

from heliostat.models.environments import EnvironmentSpec
from heliostat.services.sessions.jupyter_environment import includes_jupyterlab


def requirements(text: str) -> EnvironmentSpec:
    return EnvironmentSpec("requirements", (("requirements.txt", text),))


@pytest.mark.parametrize("text", ["jupyterlab", "torch\n  JupyterLab==4\n", "\n'jupyterlab>=4',"])
def test_it_is_found_wherever_a_line_begins_with_it(text: str) -> None:
    assert includes_jupyterlab(requirements(text))


@pytest.mark.parametrize("text", ["torch", "not-jupyterlab", "jupyterlabs", "torch # jupyterlab"])
def test_what_only_looks_alike_is_none(text: str) -> None:
    assert not includes_jupyterlab(requirements(text))


@pytest.mark.parametrize("sign", ["\n", " ", "\n "])
def test_a_text_made_to_be_slow_is_read_at_once(sign: str) -> None:
    """While a pattern is tried, the whole server waits."""
    began = time.process_time()
    assert not includes_jupyterlab(requirements(sign * 100_000 + "x"))
    assert time.process_time() - began < 2
