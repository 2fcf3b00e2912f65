"""What of ours becomes what of Slurm's, and what is refused before it gets there."""

import itertools
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.config import Home, SlurmSettings, load_settings
from heliostat.engines.slurm.batch_script import SubmissionContext, sbatch_argv
from heliostat.engines.slurm.cluster_state import ClusterSnapshot, apply_name_mapping, check_request
from heliostat.engines.slurm.command_output import (
    SlurmNode,
    parse_partitions,
    parse_reservations,
    parse_slurm_config,
)
from heliostat.engines.slurm.mapping import (
    NameMapping,
    UnsupportedRequest,
    choose_partition,
    make_name_mapping,
    make_node,
)
from heliostat.engines.slurm.reservations import (
    from_slurm_reservation,
    reservation_arguments,
    reservation_option,
    slurm_reservation_names,
)
from heliostat.errors import Invalid
from heliostat.models import Reservation
from unit.engines.slurm.test_slurm_script import ANN, attempt_of, paths_in

PARTITIONS = """\
PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=n[1-3] State=UP
PartitionName=short Default=NO MaxNodes=1 MaxTime=1-01:30:00 Nodes=n1 State=UP
PartitionName=secure Default=NO MaxNodes=4 MaxTime=UNLIMITED Nodes=n4 State=UP
PartitionName=closed Default=NO MaxNodes=4 MaxTime=UNLIMITED Nodes=n4 State=INACTIVE
PartitionName=empty Nodes=(null)
nonsense
"""
NODES = (
    SlurmNode("n1", "idle", 16, 16000, (("a100", 4),), ("fast", "ssd"), None),
    SlurmNode("n2", "idle", 16, 16000, (("A100", 4),), (), None),
    SlurmNode("n4", "idle", 64, 64000, (("t4", 2),), (), None),
)
PICTURE = ClusterSnapshot(parse_partitions(PARTITIONS), NODES)
SETTINGS = SlurmSettings(
    data_classes={"2": "partition=secure"},
    labels={
        "disk=ssd": "feature=ssd",
        "quick": "partition=short",
        "far": "partition=gone",
        "off": "partition=closed",
    },
    qos={"urgent": "high", "normal": "standard"},
    gpu_types={"Tesla": "t4"},
)
TERMS = replace(make_name_mapping(SETTINGS), observed_gpu_types={"a100": "a100", "t4": "t4"})


def words(data_class: int = 0, **case: Any) -> list[str]:
    attempt = replace(attempt_of({"command": ["true"], **case}), data_class=data_class)
    site = SubmissionContext("ab12", True, TERMS, PICTURE.max_run_seconds)
    return sbatch_argv(attempt, ANN, paths_in("/j"), site)


def refusal(data_class: int = 0, **case: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        check_request(attempt_of({"command": ["true"], **case}).job, data_class, PICTURE, TERMS)
    assert caught.value.hint
    return caught.value


def test_partitions_are_read_and_nonsense_is_none() -> None:
    assert list(PICTURE.partitions) == ["main", "short", "secure", "closed", "empty"]
    short = PICTURE.partitions["short"]
    assert (short.max_run_seconds, short.max_nodes, short.nodes) == (91800, 1, frozenset({"n1"}))
    assert (PICTURE.default_partition, PICTURE.max_run_seconds) == ("main", {"short": 91800})
    assert parse_slurm_config("MaxArraySize            = 1001\nMaxDBDMsgs = 1\n")["MaxArraySize"] == "1001"
    assert "MaxArraySize" not in parse_slurm_config("Comment = MaxArraySize = 5\n")


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading_of_partitions_and_reservations(text: str) -> None:
    parse_partitions(text)
    list(parse_reservations(text))


def test_labels_data_and_classes_become_partition_feature_and_qos() -> None:
    assert {"--constraint=ssd&fast", "--qos=standard"} <= set(words(placement={"labels": ["disk=ssd", "fast"]}))
    assert "--partition=short" in words(placement={"labels": ["quick"]})
    assert {"--partition=secure", "--qos=high"} <= set(words(2, priority_class="urgent"))
    assert "--qos=scavenger" in words(priority_class="scavenger")
    assert "--gres=gpu:t4:1" in words(gpus=1, gpu_type="TESLA")
    assert "--gres=gpu:a100:1" in words(gpus=1, gpu_type="A100")


def test_the_time_given_to_slurm_is_no_more_than_its_partition_allows() -> None:
    assert "--time=1530" in words(placement={"labels": ["quick"]}, time_limit_seconds=91800)
    assert "--time=3" in words(placement={"labels": ["quick"]}, time_limit_seconds=100)


@pytest.mark.parametrize(("data_class", "labels"), [(1, []), (2, ["quick"])])
def test_data_that_has_no_place_or_two_is_not_handed_over(data_class: int, labels: list[str]) -> None:
    job = attempt_of({"command": ["true"], "placement": {"labels": labels}}).job
    with pytest.raises(UnsupportedRequest):
        choose_partition(job, data_class, TERMS)
    assert "Slurm cannot run this" in refusal(data_class, placement={"labels": labels}).message


HOSTILE = [
    "a\nb",
    "$(id)",
    "`id`",
    "a;b",
    "a'b",
    'a"b',
    "a%b",
    "é",
    "-x",
    "--uid=0",
    "a b",
    "a,b",
    "a&b",
    "a|b",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_labels_and_types_are_refused_both_early_and_late(text: str) -> None:
    for case in ({"placement": {"labels": [text]}}, {"gpus": 1, "gpu_type": text or " "}):
        with pytest.raises(UnsupportedRequest):
            words(**case)
        refusal(**case)


@pytest.mark.parametrize("text", [text for text in HOSTILE if text])
def test_a_hostile_name_reaches_a_real_shell_as_one_harmless_word(text: str) -> None:
    (name,) = [word for word in words(name=text) if word.startswith("--job-name=")]
    done = subprocess.run(["sh", "-c", f"printf %s {name}"], capture_output=True, check=True)
    assert done.stdout.decode() == name
    assert set(name.partition("=")[2]) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"gpus": 0.5}, "whole GPUs"),
        ({"gpus": 1, "gpu_type": "h100"}, "GPUs: 4 A100 per node, 4 a100 per node"),
        ({"gpus": 5}, "GPUs: 4"),
        ({"placement": {"labels": ["blue"]}}, "features blue"),
        ({"placement": {"labels": ["far"]}}, "no partition gone"),
        ({"placement": {"labels": ["off"]}}, "accepts no new jobs"),
        ({"placement": {"labels": ["quick"]}, "time_limit_seconds": 91801}, "time limit of 1530m"),
        (
            {"placement": {"labels": ["quick"], "tasks": 2, "layout": "spread"}},
            "1 tasks of this size (at most 1 nodes per job)",
        ),
        ({"placement": {"tasks": 15}}, "can run 6 tasks"),
        ({"gpus": 1, "gpu_type": "tesla"}, "partition main is large enough"),
    ],
)
def test_what_could_never_run_is_refused_with_cause_and_hint(case: dict[str, Any], said: str) -> None:
    error = refusal(**case)
    assert said in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"gpus": 4},
        {"placement": {"labels": ["quick"]}, "time_limit_seconds": 91800},
        {"placement": {"tasks": 4}},
    ],
)
def test_what_could_run_is_let_pass(case: dict[str, Any]) -> None:
    check_request(attempt_of({"command": ["true"], **case}).job, 0, PICTURE, TERMS)


def test_while_nothing_is_known_of_slurm_everything_but_the_impossible_passes() -> None:
    check_request(attempt_of({"command": ["true"], "gpus": 500}).job, 0, ClusterSnapshot(), TERMS)
    check_request(
        attempt_of({"command": ["true"], "placement": {"labels": ["far"]}}).job, 0, ClusterSnapshot(), TERMS
    )


def test_of_several_partitions_one_that_takes_it_is_enough() -> None:
    names = replace(TERMS, partition="short,secure")
    check_request(attempt_of({"command": ["true"], "gpus": 1, "gpu_type": "tesla"}).job, 0, PICTURE, names)


def test_nodes_carry_our_words_for_what_slurm_has_there() -> None:
    n1, n2, n4 = apply_name_mapping([make_node(node) for node in NODES], PICTURE, TERMS)
    assert (n1.labels["disk"], "quick" in n1.labels, "quick" in n2.labels) == ("ssd", True, False)
    assert {device.type for device in n4.devices} == {"Tesla"}
    assert [(node.min_data_class, node.data_class) for node in (n1, n4)] == [(0, 0), (2, 2)]
    plain = [make_node(node) for node in NODES]
    assert apply_name_mapping(plain, PICTURE, NameMapping()) == plain


NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)


def wish(**fields: Any) -> Reservation:
    made = Reservation("course", ("n1", "n2"), NOW + timedelta(hours=1), NOW + timedelta(hours=3), "vision")
    return replace(made, **fields)


def test_a_weekly_reservation_becomes_one_for_each_week_at_the_same_time_of_day() -> None:
    weekly = wish(weeks=3, time_zone="Europe/Berlin")  # clocks change on 29 March
    made = list(reservation_arguments(weekly, ["bob", "ann", "x,y", "$(id)"], NOW))
    assert (
        [name for name, _ in made]
        == list(slurm_reservation_names(weekly))
        == ["course-W1", "course-W2", "course-W3"]
    )
    begins = [int(said[2].removeprefix("StartTime=uts")) for _, said in made]
    assert [later - earlier for earlier, later in itertools.pairwise(begins)] == [604800, 601200]
    assert made[0][1][1] == "Nodes=n1,n2"
    assert made[0][1][4:] == ["Users=ann,bob", "Flags=MAGNETIC,IGNORE_JOBS"]


def test_maintenance_is_for_nobody_and_what_has_begun_begins_now() -> None:
    ((_, said),) = reservation_arguments(wish(project=None, starts_at=NOW - timedelta(hours=1)), [], NOW)
    assert said[2] == "StartTime=now"
    assert said[4:] == ["Users=root", "Flags=MAINT,IGNORE_JOBS"]


def test_reservations_of_slurm_are_told_with_whom_they_are_for() -> None:
    text = (
        "ReservationName=x StartTime=1794891918 EndTime=1794895518 Duration=01:00:00 Nodes=n[3-4] Flags=MAINT "
        "Users=root,ann Accounts=(null)\nNo reservations in the system\n"
    )
    (found,) = parse_reservations(text)
    assert (from_slurm_reservation(found).nodes, from_slurm_reservation(found).reason) == (
        ("n3", "n4"),
        "in Slurm, for users root, ann",
    )


@pytest.mark.parametrize(
    "line",
    [
        'slurm.partition = "a b"',
        'slurm.partition = "-x"',
        'slurm.data_classes = { x = "partition=a" }',
        'slurm.data_classes = { 2 = "" }',
        'slurm.data_classes = { 2 = "secure" }',
        'slurm.labels = { a = "feature=$(id)" }',
        "slurm.labels = { a = 3 }",
        'slurm.qos = { fast = "high" }',
        'slurm.qos = { urgent = "a,b" }',
        'slurm.gpu_types = { A100 = "a:4" }',
    ],
)
def test_settings_that_mean_nothing_to_slurm_are_refused_with_an_example(line: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(line)
    with pytest.raises(Invalid) as caught:
        load_settings(Home(tmp_path))
    assert line.partition(" ")[0].removeprefix("slurm.") in str(caught.value.hint)


def test_settings_for_slurm_are_read(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(
        'slurm.partition = "gpu,old"\nslurm.data_classes = { 3 = "partition=secure feature=vault feature=cold" }\n'
        'slurm.labels = { "disk=ssd" = "feature=ssd" }\n'
    )
    names = make_name_mapping(load_settings(Home(tmp_path)).slurm)
    assert names.partition == "gpu,old"
    assert (names.data_classes[3].partition, names.data_classes[3].features) == ("secure", ("vault", "cold"))


def test_a_reservation_is_named_by_those_of_its_weeks_that_slurm_still_has() -> None:
    known = ["course-W3", "course-W4", "course-WX", "course2", "other"]
    assert reservation_option("course", known) == "--reservation=course-W3,course-W4"
    assert reservation_option("other", known) == "--reservation=other"
    for name in ("gone", "a,b", "course.W3"):
        with pytest.raises(UnsupportedRequest):
            reservation_option(name, known)
