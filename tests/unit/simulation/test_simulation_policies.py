"""Policies by name and from files."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heliostat.errors import Invalid
from heliostat.models import Quota, Reservation
from heliostat.scheduling.policy import POLICY_PRESETS, QueueOrdering
from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.policies import read_policies, read_policy
from heliostat.simulation.policy_rules import check_reservations


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


RULES = """
[projects]
speech = 2
[projects.vision]
share = 3
quota = { running_gpus = 8, gpu_hours_per_month = 100 }
[departments.radiology]
quota = { running_gpus = 16 }
[users.ann]
quota = { running_gpus = 4 }
[[reservations]]
name = "course"
nodes = ["gpu-01", "gpu-02"]
starts_at = 2026-10-05T09:00:00
ends_at = 2026-10-05T14:00:00+02:00
project = "teaching"
gpus_per_node = 4
weeks = 10
[[reservations]]
name = "repair"
nodes = ["gpu-03"]
starts_at = 2026-10-05T09:00:00Z
ends_at = 2026-10-06T09:00:00Z
reason = "new fans"
"""


@pytest.mark.parametrize("start", ['preset = "easy"\n', "[queue]\nhalf_life_days = 1\n"])
def test_shares_quotas_and_reservations_are_read_in_both_kinds_of_file(tmp_path: Path, start: str) -> None:
    named = read_policy(written(tmp_path, start + RULES))
    assert (named.projects, named.departments) == ({"speech": 2, "vision": 3}, {})
    assert named.quotas == {
        ("project", "vision"): Quota(running_gpus=8, gpu_hours_per_month=100),
        ("department", "radiology"): Quota(running_gpus=16),
        ("user", "ann"): Quota(running_gpus=4),
    }
    starts_at = datetime(2026, 10, 5, 9, tzinfo=UTC)
    assert named.reservations == (
        Reservation(
            "course",
            ("gpu-01", "gpu-02"),
            starts_at,
            starts_at + timedelta(hours=3),
            project="teaching",
            gpus_per_node=4,
            weeks=10,
        ),
        Reservation("repair", ("gpu-03",), starts_at, starts_at + timedelta(days=1), reason="new fans"),
    )


def test_the_example_in_the_documentation_is_a_policy_for_the_nodes_that_it_names(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "simulation.md"
    example = page.read_text().partition("```toml\n")[2].partition("```")[0]
    named = read_policy(written(tmp_path, example))
    check_reservations(named.name, named.reservations, parse_cluster("4x8xA100"))
    assert named.quotas[("user", "ann")] == Quota(running_gpus=4)


WHEN = "starts_at = 2026-10-05T09:00:00\nends_at = 2026-10-06T09:00:00\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[project]\nvision = 3", "unknown setting project. Did you mean projects?"),
        (
            "[projects.vision]\nshares = 3",
            "unknown setting projects.vision.shares. Did you mean projects.vision.share?",
        ),
        ("[users.ann]\nshare = 3", "unknown setting users.ann.share. Known settings: quota."),
        ("[users]\nann = 3", "users.ann = '3' is not valid. Write a quota"),
        ("[users.ann.quota]\nrunning_gpu = 3", "Did you mean users.ann.quota.running_gpus?"),
        ("[users.ann.quota]\nrunning_gpus = -1", "users.ann.quota.running_gpus = '-1' is not valid"),
        ("[users.ann.quota]\nrunning_gpus = true", "users.ann.quota.running_gpus = 'True' is not valid"),
        ("[users.ann]\nquota = 3", "users.ann.quota = '3' is not valid"),
        ("[users.ann.quota]\nqueued_gpus = 8", "queued_gpus has no effect in a replay"),
        ("reservations = 1", "reservations = '1' is not valid. Write [[reservations]]"),
        ("[[reservations]]\nname = 'a'\nnodes = ['x']\n", "reservations[1].starts_at is missing"),
        ("[[reservations]]\nnode = ['x']\n" + WHEN, "Did you mean reservations[1].nodes?"),
        ("[[reservations]]\nname = 'a'\nnodes = 'x'\n" + WHEN, "reservations[1].nodes = 'x' is not valid"),
        ("[[reservations]]\nname = 'a'\nnodes = ['x']\nweeks = 'all'\n" + WHEN, "reservations[1].weeks = 'all'"),
        ("[[reservations]]\nname = 'a'\nnodes = ['x']\nstarts_at = '9:00'\nends_at = '10:00'", "not quoted"),
        (2 * ("[[reservations]]\nname = 'a'\nnodes = ['x']\n" + WHEN), "two reservations are named a"),
    ],
)
def test_a_rule_with_a_mistake_is_refused_with_the_nearest_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_policy(written(tmp_path, text))
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": ("gpu-03",)}, "nodes: there is no node 'gpu-03'. The nodes of 2x4: gpu-01, gpu-02."),
        ({"gpus_per_node": 8}, "gpus_per_node: node gpu-01 has only 4 GPUs"),
        ({"ends_at": datetime(2026, 10, 5, tzinfo=UTC)}, "ends_at: must be after starts_at. Change this"),
        ({"weeks": 61}, "weeks: must be between 1 and 60"),
        ({"name": "again"}, "reservation again: node gpu-01 is reserved at that time by course"),
    ],
)
def test_a_reservation_that_the_cluster_cannot_have_is_refused(changes: dict[str, Any], says: str) -> None:
    starts_at = datetime(2026, 10, 5, tzinfo=UTC)
    course = Reservation("course", ("gpu-01",), starts_at, starts_at + timedelta(hours=5), "teaching")
    changed = replace(course, **changes)
    reservations = (course, changed) if "name" in changes else (changed,)
    with pytest.raises(Invalid) as caught:
        check_reservations("mine", reservations, parse_cluster("2x4"))
    assert says in str(caught.value)


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
        ("half_life_seconds = 0", "half_life_seconds = '0' is not valid"),
        ("size_weight = 1e308", "size_weight = '1e+308'"),
        ("[classes.mine]\nrank = 99999999999999999999", "classes.mine.rank = '99999999999999999999'"),
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
