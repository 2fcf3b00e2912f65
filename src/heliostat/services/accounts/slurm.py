"""Keeping Slurm's accounts in step with departments, projects and people: for admins.

Loaded only where it is needed: it brings all of the engine with it, and most servers have another.
"""

import pwd
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from heliostat.doctor import Finding
from heliostat.engines.slurm.accounts.plan import (
    Conduct,
    Ours,
    Plan,
    Wanted,
    plan_accounts,
    project_account,
    wanted_accounts,
)
from heliostat.engines.slurm.accounts.sacctmgr import carry_out, first_line
from heliostat.engines.slurm.accounts.steps import AddUser, Found, RemoveUser, Step
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.engine import SlurmEngine
from heliostat.engines.slurm.probe import probe
from heliostat.errors import Conflict, EngineUnavailable, HeliostatError
from heliostat.models import Caller
from heliostat.scheduling.standing import Account
from heliostat.services.accounts.slurm_shares import slurm_standing
from heliostat.services.context import Context
from heliostat.services.rights import require_admin
from heliostat.store import people, slurm_made
from heliostat.store.accounts import list_departments

__all__ = [
    "Applied",
    "Plan",
    "apply_accounts",
    "examine_accounts",
    "plan_slurm_accounts",
    "probe_nodes",
    "tree_by_slurm",
]


@dataclass(frozen=True, slots=True)
class Applied:
    plan: Plan
    done: tuple[Step, ...]


def plan_slurm_accounts(context: Context, caller: Caller) -> Plan:
    """What would be changed in Slurm; changes nothing."""
    require_admin(caller.user)
    return _plan(context, _engine(context))


def apply_accounts(context: Context, caller: Caller) -> Applied:
    """Carry the plan out, step by step. What is done stays done if Slurm refuses one; it can be repeated."""
    require_admin(caller.user)
    engine = _engine(context)
    with engine.accounts.changing:
        plan = _plan(context, engine)
        done: list[Step] = []
        try:
            for step in plan.steps:
                _carry_out(context, engine, step, plan)
                done.append(step)
        except SlurmRefused as error:
            raise _refused(plan, done, first_line(error)) from error
        except EngineUnavailable as error:
            raise _refused(plan, done, error.message.rstrip(".")) from error
        finally:
            _note(context, caller, plan, done)
            engine.accounts.look_again()
    return Applied(plan, tuple(done))


def examine_accounts(context: Context) -> list[Finding]:
    """Who is not in Slurm yet."""
    if not isinstance(context.engine, SlurmEngine):
        return []
    try:
        access = context.engine.accounts.look()
    except (HeliostatError, SlurmRefused):
        return []  # said already: the accounting does not answer
    users, projects = _missing(_wanted(context, context.engine, access.conduct), access.found)
    if not users and not projects:
        return [Finding("slurm", "ok", "All users and projects are in Slurm.")]
    message = f"{_count(users, 'user')} and {_count(projects, 'project')} are not in Slurm yet."
    return [Finding("slurm", "warning", message, "See what is missing: helio slurm plan. Then: helio slurm apply")]


def probe_nodes(context: Context) -> None:
    """Look from Slurm's nodes, with the Unix users we have; the doctor then tells what was found."""
    with context.store.read() as conn:
        names = sorted({user.unix_user for user in people.list_users(conn) if user.unix_user and user.active})
    with suppress(EngineUnavailable, SlurmRefused):  # the doctor says so anyway
        probe(context.settings, dict(_known_here(names)))


def tree_by_slurm(context: Context) -> tuple[Account, ...]:
    """Departments with their shares and what they used, by Slurm's own count."""
    with context.store.read() as conn:
        names = {user.unix_user: user.name for user in people.list_users(conn) if user.unix_user}
    return slurm_standing(_engine(context).accounts.used(), context.rules.accounts(), names)


def _known_here(names: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for name in names:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            yield entry.pw_name, (entry.pw_uid, entry.pw_gid)


def _engine(context: Context) -> SlurmEngine:
    if isinstance(context.engine, SlurmEngine):
        return context.engine
    raise Conflict(
        f"Jobs run on the engine {context.engine.name}, not on Slurm.",
        "Shares and quotas count here by themselves: there is nothing to keep in step.",
    )


def _plan(context: Context, engine: SlurmEngine) -> Plan:
    access = engine.accounts.look()
    with context.store.read() as conn:
        made = slurm_made.list_made(conn)
    return plan_accounts(_wanted(context, engine, access.conduct), access.found, made)


def _wanted(context: Context, engine: SlurmEngine, conduct: Conduct) -> Wanted:
    with context.store.read() as conn:
        ours = Ours(
            list_departments(conn),
            people.list_projects(conn),
            people.list_users(conn),
            context.settings.default_project,
            context.settings.urgent_gpu_hours_per_month,
        )
    return wanted_accounts(ours, conduct, engine.instance)


def _carry_out(context: Context, engine: SlurmEngine, step: Step, plan: Plan) -> None:
    """That we put somebody somewhere is noted before we do: when the answer is lost it is still known."""
    if isinstance(step, AddUser):
        context.store.write(lambda tx: slurm_made.note_made(tx, step.account, step.user))
    try:
        was_us = carry_out(engine.accounts.slurm, step, plan.cluster)
    except SlurmRefused:
        if isinstance(step, AddUser):
            _forget(context, step)
        raise
    if isinstance(step, RemoveUser) or (isinstance(step, AddUser) and not was_us):
        _forget(context, step)


def _forget(context: Context, step: AddUser | RemoveUser) -> None:
    context.store.write(lambda tx: slurm_made.forget_made(tx, step.account, step.user))


def _refused(plan: Plan, done: Sequence[Step], said: str) -> Conflict:
    step = plan.steps[len(done)]
    hint = "It has running or waiting jobs there: once they are over, " if "active" in said else "Then "
    return Conflict(
        f"Slurm refuses step {len(done) + 1} of {len(plan.steps)} ({step.sentence.rstrip('.')}): {said}.",
        f"The steps before are done. {hint}repeat: helio slurm apply.",
        code="slurm_refused",
    )


def _note(context: Context, caller: Caller, plan: Plan, done: Sequence[Step]) -> None:
    if not done:
        return
    detail = {"steps": [step.sentence for step in done]}
    target = f"cluster {plan.cluster}"
    context.store.write(lambda tx: people.add_audit(tx, caller, "slurm.apply", target, detail, context.now()))


def _missing(wanted: Wanted, found: Found) -> tuple[int, int]:
    """Users in at least one project's account that they are not in, and projects without an account."""
    there = found.associations
    users = sum(any((one, person.user) not in there for one in person.accounts) for person in wanted.people)
    accounts = (project_account(group.name) for group in wanted.groups if group.kind == "project")
    return users, sum((account, "") not in there for account in accounts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
