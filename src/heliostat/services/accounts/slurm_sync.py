"""Keeping Slurm's accounts in step with departments, projects and people: for admins."""

import pwd
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from heliostat.engines.account_sync import (
    AccountPlan,
    AccountStep,
    AccountSync,
    EngineMembership,
    HeliostatAccounts,
)
from heliostat.engines.contract import Finding, ProbesNodes, SyncsAccounts
from heliostat.errors import Conflict, EngineUnavailable, HeliostatError
from heliostat.models import Caller
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.store import accounts, shares_and_quotas
from heliostat.store.shares_and_quotas import list_departments

__all__ = [
    "AccountPlan",
    "AppliedAccountPlan",
    "apply_slurm_accounts",
    "check_slurm_accounts",
    "plan_slurm_accounts",
    "probe_nodes",
]


@dataclass(frozen=True, slots=True)
class AppliedAccountPlan:
    plan: AccountPlan
    applied_steps: tuple[AccountStep, ...]


def plan_slurm_accounts(context: Context, caller: Caller) -> AccountPlan:
    """What would be changed in Slurm; changes nothing."""
    require_admin(caller.user)
    return _plan(context, _sync(context))


def apply_slurm_accounts(context: Context, caller: Caller) -> AppliedAccountPlan:
    """Carry the plan out, step by step. What is done stays done if Slurm refuses one; it can be repeated."""
    require_admin(caller.user)
    sync = _sync(context)
    with sync.lock_changes():
        plan = _plan(context, sync)
        done: list[AccountStep] = []
        try:
            for step in plan.steps:
                _carry_out(context, sync, step)
                done.append(step)
        except (Conflict, EngineUnavailable) as error:
            raise _refused(plan, done, error.message.rstrip(".")) from error
        finally:
            _note(context, caller, plan, done)
    return AppliedAccountPlan(plan, tuple(done))


def check_slurm_accounts(context: Context) -> list[Finding]:
    """Who is not in Slurm yet."""
    if not isinstance(context.engine, SyncsAccounts):
        return []
    try:
        users, projects = context.engine.account_sync.count_missing(_ours(context))
    except HeliostatError:
        return []  # said already: the accounting does not answer
    if not users and not projects:
        return [Finding("slurm", "ok", "All users and projects are in Slurm.")]
    message = f"{_count(users, 'user')} and {_count(projects, 'project')} are not in Slurm yet."
    return [Finding("slurm", "warning", message, "See what is missing: helio slurm plan. Then: helio slurm apply")]


def probe_nodes(context: Context) -> None:
    """Look from the engine's nodes, with the Unix users we have; the doctor then tells what was found."""
    if not isinstance(context.engine, ProbesNodes):
        return
    with context.store.read() as conn:
        names = sorted({user.unix_user for user in accounts.list_users(conn) if user.unix_user and user.active})
    with suppress(EngineUnavailable):  # the doctor says so anyway
        context.engine.probe_nodes(dict(_known_here(names)))


def _known_here(names: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for name in names:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            yield entry.pw_name, (entry.pw_uid, entry.pw_gid)


def _sync(context: Context) -> AccountSync:
    if isinstance(context.engine, SyncsAccounts):
        return context.engine.account_sync
    raise Conflict(
        f"Jobs run on the engine {context.engine.name}, not on Slurm.",
        "Shares and quotas count here by themselves: there is nothing to keep in step.",
    )


def _plan(context: Context, sync: AccountSync) -> AccountPlan:
    with context.store.read() as conn:
        made = shares_and_quotas.list_slurm_associations(conn)
    return sync.plan(_ours(context), made)


def _ours(context: Context) -> HeliostatAccounts:
    with context.store.read() as conn:
        return HeliostatAccounts(
            list_departments(conn),
            accounts.list_projects(conn),
            accounts.list_users(conn),
            context.settings.auth.default_project,
            context.settings.queue.urgent_gpu_hours_per_month,
        )


def _carry_out(context: Context, sync: AccountSync, step: AccountStep) -> None:
    """That we put somebody somewhere is noted before we do: when the answer is lost it is still known."""
    if (added := step.added_membership) is not None:
        context.store.write(lambda tx: shares_and_quotas.add_slurm_association(tx, *added))
    try:
        was_us = sync.apply_step(step)
    except Conflict:
        _forget(context, step.added_membership)
        raise
    _forget(context, step.removed_membership if was_us else step.removed_membership or step.added_membership)


def _forget(context: Context, made: EngineMembership | None) -> None:
    if made is not None:
        context.store.write(lambda tx: shares_and_quotas.remove_slurm_association(tx, *made))


def _refused(plan: AccountPlan, done: Sequence[AccountStep], said: str) -> Conflict:
    step = plan.steps[len(done)]
    hint = "It has running or waiting jobs there: once they are over, " if "active" in said else "Then "
    return Conflict(
        f"Slurm refuses step {len(done) + 1} of {len(plan.steps)} ({step.sentence.rstrip('.')}): {said}.",
        f"The steps before are done. {hint}repeat: helio slurm apply.",
        code="slurm_refused",
    )


def _note(context: Context, caller: Caller, plan: AccountPlan, done: Sequence[AccountStep]) -> None:
    if not done:
        return
    detail = {"steps": [step.sentence for step in done]}
    target = f"cluster {plan.cluster}"
    context.store.write(
        lambda tx: accounts.add_audit_entry(tx, caller, "slurm.apply", target, detail, context.now())
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
