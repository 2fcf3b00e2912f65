"""Policies by name and from files."""

from pathlib import Path

import pytest

from heliostat.errors import Invalid
from heliostat.scheduling.policy import POLICY_PRESETS, QueueOrdering
from heliostat.simulation.policies import read_policies, read_policy


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.toml").write_text(text)
    return str(tmp_path / "mine.toml")


def test_presets_are_known_by_name_and_once() -> None:
    assert [named.name for named in read_policies(["fifo", " easy", "fifo"])] == ["fifo", "easy"]
    assert read_policy("fifo").policy == POLICY_PRESETS["fifo"]


def test_a_file_changes_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    text = """
preset = "easy"
order = "share"
half_life_seconds = 86400
[charges]
gpu = 2
gpus = { A100 = 3 }
[classes.urgent]
rank = 9
[classes.night]
rank = 0
preemptible = true
[projects]
vision = 3
[departments]
radiology = 2
"""
    named = read_policy(written(tmp_path, text))
    policy = named.policy
    assert named.name == "mine"
    assert (policy.order, policy.half_life_seconds, policy.preempts) == (QueueOrdering.FAIR_SHARE, 86400, False)
    assert (policy.charges.gpu, policy.charges.gpus, policy.charges.cpu) == (2, {"a100": 3.0}, 0.02)
    assert (policy.classes["urgent"].rank, policy.classes["urgent"].gpu_hours_per_month) == (9, 100)
    assert policy.classes["night"].preemptible
    assert (named.projects, named.departments) == ({"vision": 3}, {"radiology": 2})


def test_of_a_cluster_toml_the_queue_section_counts_and_shares_may_be_added(tmp_path: Path) -> None:
    text = """
[server]
port = 9000
[queue]
half_life_days = 1
preemption = false
gpu_charges = { A100 = 3 }
[projects]
vision = 3
"""
    named = read_policy(written(tmp_path, text))
    assert (named.policy.half_life_seconds, named.policy.preempts) == (86400, False)
    assert named.policy.charges.gpus == {"a100": 3.0}
    assert named.projects == {"vision": 3}
    assert read_policy(written(tmp_path, "[server]\nport = 1\n")).policy == read_policy("fairshare").policy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[queue]\nhalf_life = 1", "half_life"),
        ("[queue]\nhalf_life_days = 1\n[classes.urgent]\nrank = 9", "unknown setting classes"),
        ("order = ", "is not valid TOML"),
        ('order = "luck"', "order = 'luck'"),
        ("backfil = true", "unknown setting backfil"),
        ("backfill = 1", "backfill = '1'"),
        ("backfill_reservations = true", "backfill_reservations = 'True'"),
        ("backfill_reservations = 1.5", "backfill_reservations = '1.5'"),
        ("half_life_seconds = -1", "half_life_seconds = '-1'"),
        ('preset = "best"', "preset = 'best'"),
        ("projects = 3", "projects = '3'"),
        ("[projects]\na = 0", "projects.a = '0'"),
        ("[classes]\nurgent = 1", "classes = "),
        ("[classes.urgent]\nname = 'x'", "unknown setting classes.urgent.name"),
        ("[charges]\ngpus = { A100 = 'much' }", "charges.gpus = "),
        ("charges = 1", "charges = '1'"),
    ],
)
def test_an_invalid_policy_file_is_refused_with_a_hint(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_policy(written(tmp_path, text))
    assert says in caught.value.message
    assert caught.value.hint


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Invalid) as caught:
        read_policy("best")
    assert "fairshare" in (caught.value.hint or "")
