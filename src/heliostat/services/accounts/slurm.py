"""Keeping Slurm's accounts in step with departments, projects and people: for admins."""

import pwd
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from heliostat.engines.accounts import AccountPlan, AccountStep, AccountSync, Membership, OurAccounts
from heliostat.engines.contract import Finding, ProbesNodes, SyncsAccounts
from heliostat.errors import Conflict, EngineUnavailable, HeliostatError
from heliostat.models import Caller
from heliostat.services.context import Context
from heliostat.services.rights import require_admin
from heliostat.store import accounts, people
from heliostat.store.accounts import list_departments

__all__ = ["AccountPlan", "Applied", "apply_accounts", "examine_accounts", "plan_slurm_accounts", "probe_nodes"]


@dataclass(frozen=True, slots=True)
class Applied:
    plan: AccountPlan
    done: tuple[AccountStep, ...]


def plan_slurm_accounts(context: Context, caller: Caller) -> AccountPlan:
    """What would be changed in Slurm; changes nothing."""
    require_admin(caller.user)
    return _plan(context, _sync(context))


def apply_accounts(context: Context, caller: Caller) -> Applied:
    """Carry the plan out, step by step. What is done stays done if Slurm refuses one; it can be repeated."""
    require_admin(caller.user)
    sync = _sync(context)
    with sync.changing():
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
    return Applied(plan, tuple(done))


def examine_accounts(context: Context) -> list[Finding]:
    """Who is not in Slurm yet."""
    if not isinstance(context.engine, SyncsAccounts):
        return []
    try:
        users, projects = context.engine.account_sync.missing(_ours(context))
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
        names = sorted({user.unix_user for user in people.list_users(conn) if user.unix_user and user.active})
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
        made = accounts.list_made(conn)
    return sync.plan(_ours(context), made)


def _ours(context: Context) -> OurAccounts:
    with context.store.read() as conn:
        return OurAccounts(
            list_departments(conn),
            people.list_projects(conn),
            people.list_users(conn),
            context.settings.default_project,
            context.settings.urgent_gpu_hours_per_month,
        )


def _carry_out(context: Context, sync: AccountSync, step: AccountStep) -> None:
    """That we put somebody somewhere is noted before we do: when the answer is lost it is still known."""
    if (added := step.adds) is not None:
        context.store.write(lambda tx: accounts.note_made(tx, *added))
    try:
        was_us = sync.carry_out(step)
    except Conflict:
        _forget(context, step.adds)
        raise
    _forget(context, step.removes if was_us else step.removes or step.adds)


def _forget(context: Context, made: Membership | None) -> None:
    if made is not None:
        context.store.write(lambda tx: accounts.forget_made(tx, *made))


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
    context.store.write(lambda tx: people.add_audit(tx, caller, "slurm.apply", target, detail, context.now()))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
