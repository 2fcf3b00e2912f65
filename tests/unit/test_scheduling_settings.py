from heliostat.config import QueueSettings
from heliostat.models import Resources
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling_settings import policy_from_settings


def test_the_defaults_of_the_settings_are_those_of_the_policy() -> None:
    assert policy_from_settings(QueueSettings()) == SchedulingPolicy()


def test_every_setting_reaches_the_policy() -> None:
    queue = QueueSettings(
        half_life_days=1,
        share_weight=2,
        size_weight=3,
        assumed_limit_hours=4,
        backfill_reservations=5,
        preemption=False,
        preemption_protection_seconds=9,
        gpu_charges={"A100": 2},
        cpu_charge=0,
        memory_gib_charge=6,
        urgent_gpu_hours_per_month=7,
        interactive_points=8,
    )
    policy = policy_from_settings(queue)
    assert (policy.half_life_seconds, policy.assumed_limit_seconds) == (86400, 4 * 3600)
    assert (policy.share_weight, policy.size_weight) == (2, 3)
    assert (policy.backfill_reservations, policy.preempts, policy.protection_seconds) == (5, False, 9)
    assert policy.find_priority_class("urgent").gpu_hours_per_month == 7
    assert policy.find_priority_class("interactive").points == 8
    wanted = Resources(cpus=100, memory_mib=1024, gpus=1, gpu_type="A100")
    assert policy.charges.charge_per_second(wanted) * 3600 == 2 + 6
