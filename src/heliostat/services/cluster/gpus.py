"""GPUs that failed: their history, their test, and their return to the queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from heliostat.engines.contract import GpuTestStep, WatchesGpus
from heliostat.errors import Conflict, NotFound
from heliostat.models import Caller, Node, User
from heliostat.models.gpu_errors import Blame, describe_error, find_error_kind
from heliostat.models.notifications import Alert
from heliostat.services.cluster.nodes import check_drain_reason, get_node
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store import gpus as stored
from heliostat.store.database import Transaction

_MAX_ERRORS = 50


@dataclass(frozen=True, slots=True)
class GpuHistory:
    record: stored.GpuRecord
    errors: tuple[stored.GpuErrorRecord, ...]  # the newest first


@dataclass(frozen=True, slots=True)
class GpuTest:
    passed: bool  # jobs use the GPU again
    steps: Sequence[GpuTestStep]


def list_gpu_history(context: Context, caller: Caller, name: str) -> list[GpuHistory]:
    """Of the cards of a node. Errors of programs are for admins only."""
    get_node(context, name)
    with context.store.read() as conn:
        records = stored.list_gpus(conn, name)
        errors = {record.uuid: stored.list_gpu_errors(conn, record.uuid, _MAX_ERRORS) for record in records}
    return [
        GpuHistory(record, tuple(each for each in errors[record.uuid] if _may_see(caller.user, each)))
        for record in records
    ]


def run_gpu_test(context: Context, caller: Caller, name: str, number: str) -> GpuTest:
    """Test a GPU that is taken out. If it passes, jobs use it again. Takes up to two minutes."""
    require_admin(caller.user)
    engine = context.engine
    failed = _failed_gpu(context, name, number)
    if not isinstance(engine, WatchesGpus):
        raise Conflict(f"The engine {engine.name} cannot test GPUs.", "Use `helio node resume-gpu`.")
    started_at = context.now()
    steps = engine.test_gpu(failed.uuid)
    passed = all(step.passed is not False for step in steps)

    def change(tx: Transaction, actor: User) -> bool:
        require_admin(actor)
        recent = [each for each in stored.list_gpu_errors(tx.conn, failed.uuid, 1) if each.at >= started_at]
        has_passed = passed and not any(find_error_kind(each.kind).takes_out for each in recent)
        if has_passed:
            stored.return_gpu(tx, failed.uuid, context.now())
        detail = {"uuid": failed.uuid, "passed": has_passed, "error": failed.failed_kind}
        accounts.add_audit_entry(tx, caller, "node.test-gpu", f"GPU {number} of {name}", detail, context.now())
        return has_passed

    return GpuTest(write_as_caller(context, caller, change), steps)


def resume_gpu(context: Context, caller: Caller, name: str, number: str, reason: str) -> Node:
    """Use a GPU again without a test."""
    require_admin(caller.user)
    check_drain_reason(reason)
    failed = _failed_gpu(context, name, number)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        stored.return_gpu(tx, failed.uuid, context.now())
        detail = {"uuid": failed.uuid, "error": failed.failed_kind, "reason": reason}
        accounts.add_audit_entry(tx, caller, "node.resume-gpu", f"GPU {number} of {name}", detail, context.now())

    write_as_caller(context, caller, change)
    return get_node(context, name)


def describe_failure(record: stored.GpuRecord) -> str | None:
    """What is wrong and what to do, for an admin; None: it is in use."""
    if record.failed_kind is None:
        return None
    step = find_error_kind(record.failed_kind).next_step
    return describe_error(record.failed_kind) + (f"; {step}" if step else "")


def gpu_alert(record: stored.GpuRecord, now: datetime) -> Alert:
    """That the card is taken out, or that it no longer is."""
    where = f"GPU {record.number} of node {record.node}"
    return Alert(
        fingerprint=f"gpu-{record.uuid}",
        is_resolved=record.failed_at is None,
        name="GpuFailed",
        severity="critical",
        summary=f"{where} failed: {describe_failure(record)}." if record.failed_at else f"{where} is used again.",
        command=f"helio node test-gpu {record.node} {record.number}",
        started_at=record.failed_at or now,
    )


def _failed_gpu(context: Context, name: str, number: str) -> stored.GpuRecord:
    cards = {device.card for device in get_node(context, name).devices if str(device.index) == number}
    if not cards:
        raise NotFound(f"Node {name} has no GPU {number!a}.", f"`helio node show {name}` lists its GPUs.")
    with context.store.read() as conn:
        failed = stored.list_failed_gpus(conn)
    for card in cards & failed.keys():
        return failed[card]
    raise Conflict(f"GPU {number} of {name} is not taken out.", "Only GPUs that failed are tested and resumed.")


def _may_see(user: User, error: stored.GpuErrorRecord) -> bool:
    return user.is_admin or find_error_kind(error.kind).blame is not Blame.JOB
