from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from heliostat.engines.contract import GpuErrorCallback, GpuTestStep
from heliostat.errors import Conflict, Forbidden, Invalid, NotFound
from heliostat.models.gpu_errors import GpuError
from heliostat.services.cluster.gpus import list_gpu_history, resume_gpu, run_gpu_test
from heliostat.services.cluster.nodes import get_node
from heliostat.store.gpus import add_gpu_error
from unit.services.site import Machines, Site

PASSED = [GpuTestStep("the driver reports no error", True, "")]


@dataclass
class TestedMachines(Machines):
    """Its GPUs pass a test unless `during_test` says otherwise."""

    __test__ = False
    name = "local"
    during_test: Callable[[], list[GpuTestStep]] = lambda: PASSED
    tested: list[str] = field(default_factory=list)

    def set_gpu_error_callback(self, report: GpuErrorCallback) -> None: ...

    def test_gpu(self, card: str) -> list[GpuTestStep]:
        self.tested.append(card)
        return self.during_test()


@pytest.fixture
def machines(site: Site) -> TestedMachines:
    machines = TestedMachines(site.machines.found)
    site.context.engine = machines  # type: ignore[misc]
    return machines


def card_of(site: Site) -> str:
    return get_node(site.context, "n1").devices[0].uuid


def break_gpu(site: Site, kind: str = "xid_79", message: str = "boot:1", job_id: int | None = None) -> None:
    error = GpuError(card_of(site), "0", kind, site.clock.at, message, job_id)
    site.context.store.write(lambda tx: add_gpu_error(tx, "n1", error))
    site.clock.at += timedelta(minutes=1)


def problem(site: Site) -> str | None:
    assert get_node(site.context, "n1") in site.context.node_inventory.nodes()  # the scheduler sees the same
    return get_node(site.context, "n1").devices[0].problem


def test_a_gpu_that_failed_is_not_used_until_it_passes_a_test(site: Site, machines: TestedMachines) -> None:
    assert problem(site) is None
    break_gpu(site)
    assert "failed: it has fallen off the bus (XID 79)" in str(problem(site))
    machines.during_test = lambda: [*PASSED, GpuTestStep("memory", False, "wrong")]
    assert not run_gpu_test(site.context, site.root, "n1", "0").passed
    assert problem(site) is not None
    machines.during_test = lambda: [*PASSED, GpuTestStep("memory", None, "no libcuda")]
    assert run_gpu_test(site.context, site.root, "n1", "0").passed
    assert problem(site) is None
    assert machines.tested == [card_of(site)] * 2
    assert [entry.detail["passed"] for entry in site.audit()[:2]] == [True, False]


def test_an_error_during_the_test_fails_it(site: Site, machines: TestedMachines) -> None:
    break_gpu(site)

    def break_again() -> list[GpuTestStep]:
        break_gpu(site, "xid_48", "boot:2")
        return PASSED

    machines.during_test = break_again
    assert not run_gpu_test(site.context, site.root, "n1", "0").passed
    assert problem(site) is not None


def test_an_admin_can_resume_it_without_a_test_and_says_why(site: Site, machines: TestedMachines) -> None:
    break_gpu(site)
    with pytest.raises(Invalid, match="reason"):
        resume_gpu(site.context, site.root, "n1", "0", " ")
    resume_gpu(site.context, site.root, "n1", "0", "new card")
    assert problem(site) is None
    entry = site.audit()[0]
    assert (entry.action, entry.detail["reason"], entry.detail["error"]) == (
        "node.resume-gpu",
        "new card",
        "xid_79",
    )


def test_only_admins_test_and_resume_and_only_gpus_that_failed(site: Site, machines: TestedMachines) -> None:
    bob = site.person("bob")
    with pytest.raises(Conflict, match="is not taken out"):
        run_gpu_test(site.context, site.root, "n1", "0")
    with pytest.raises(NotFound, match="has no GPU '9'"):
        run_gpu_test(site.context, site.root, "n1", "9")
    break_gpu(site)
    for refused in (
        lambda: run_gpu_test(site.context, bob, "n1", "0"),
        lambda: resume_gpu(site.context, bob, "n1", "0", "please"),
    ):
        with pytest.raises(Forbidden):
            refused()
    assert machines.tested == []


def test_an_engine_that_cannot_test_says_what_to_do(site: Site) -> None:
    break_gpu(site)
    site.context.engine.name = "other"
    with pytest.raises(Conflict) as refused:
        run_gpu_test(site.context, site.root, "n1", "0")
    assert "resume-gpu" in str(refused.value.hint)


def test_errors_of_programs_are_shown_to_admins_only(site: Site) -> None:
    break_gpu(site, "xid_31", "boot:3", job_id=12)
    break_gpu(site)
    (seen,) = list_gpu_history(site.context, site.root, "n1")
    assert {(error.kind, error.job_id) for error in seen.errors} == {("xid_31", 12), ("xid_79", None)}
    (seen,) = list_gpu_history(site.context, site.person("bob"), "n1")
    assert [error.kind for error in seen.errors] == ["xid_79"]
