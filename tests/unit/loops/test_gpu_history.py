from heliostat.loops.gpu_history import list_gpu_use
from heliostat.models import Device, JobState, Node
from heliostat.store.gpus import GpuUse
from unit.scheduling.builders import a_job


def test_a_card_is_used_while_a_job_holds_it_or_one_of_its_slices() -> None:
    devices = (
        Device("GPU-a", 0, "A100", "A100", 80000, temperature=61),
        Device("GPU-b", 1, "A100", "A100", 80000),
        Device("MIG-1", 2, "A100-1g.10gb", "slice", 9000, temperature=50, slice_index=0, card_uuid="GPU-c"),
        Device("MIG-2", 2, "A100-1g.10gb", "slice", 9000, temperature=50, slice_index=1, card_uuid="GPU-c"),
        Device("unreadable-3", 3, "unknown", "unknown GPU", 0),
    )
    jobs = [
        a_job(1, state=JobState.RUNNING, attempt=1, node="n", devices=("GPU-a",)),
        a_job(2, state=JobState.RUNNING, attempt=1, node="n", devices=("MIG-2",)),
    ]
    assert list(list_gpu_use([Node("n", 8, 8192, devices)], jobs, 60.0)) == [
        GpuUse("GPU-a", "n", "0", 60.0, 61),
        GpuUse("GPU-b", "n", "1", 0.0, None),
        GpuUse("GPU-c", "n", "2", 60.0, 50),
    ]
