from heliostat.api.job_schemas import JobBody
from heliostat.api.serialization import serialize_job, serialize_node, serialize_request
from heliostat.models import JobSpec, JobState, PlacementRequest, Resources, TaskLayout, TaskPlacement
from unit.scheduling.builders import a_job, a_node


def test_a_request_shown_submits_the_same_again() -> None:
    job = a_job(
        1,
        Resources(2, 100, 0.5, "A100", 40000),
        spec=JobSpec(command=("true",), preempt_signal="USR1"),
        placement=PlacementRequest(3, TaskLayout.SPREAD, True, ("fast", "disk=ssd")),
        priority_class="scavenger",
        preemptible=True,
        overtime=True,
    )
    again = JobBody.model_validate(serialize_request(job)).to_request()
    assert (again.placement, again.spec.preempt_signal) == (job.placement, "USR1")
    assert (again.priority_class, again.preemptible, again.overtime) == ("scavenger", True, True)
    assert (again.gpus, again.gpu_memory_mib) == (0.5, 40000)


def test_a_plain_request_says_nothing_of_what_was_not_asked_for() -> None:
    assert not {"tasks", "labels", "overtime", "priority_class"} & serialize_request(a_job(1)).keys()


def test_a_node_counts_the_tasks_it_runs_of_a_job_on_several() -> None:
    places = (TaskPlacement("a", ("a-0",)), TaskPlacement("a", ("a-1",)), TaskPlacement("b", ("b-0",)))
    gang = a_job(1, Resources(2, 100, 1), state=JobState.RUNNING, node="a", places=places)
    seen = serialize_node(a_node("a", gpus=4), [gang])
    assert (seen["cpus_used"], seen["memory_used_mib"], seen["gpus_used"]) == (4, 200, 2)
    assert [device["job_id"] for device in seen["devices"]] == [1, 1, None, None]
    assert serialize_job(gang, None)["places"][2] == {"node": "b", "devices": ["b-0"]}


def test_a_shared_device_names_all_who_hold_a_part_of_it() -> None:
    sharing = [
        a_job(n, Resources(1, 100, 0.1), state=JobState.RUNNING, node="a", devices=("a-0",)) for n in (1, 2, 3)
    ]
    seen = serialize_node(a_node("a", gpus=1), sharing)
    assert seen["gpus_used"] == 0.3
    assert (seen["devices"][0]["job_id"], seen["devices"][0]["job_ids"]) == (1, [1, 2, 3])
