"""What a submission asks of containers, held against the rules of the admins."""

import pwd
from collections.abc import Mapping, Sequence
from dataclasses import replace

from heliostat.errors import Invalid
from heliostat.models import JobRequest, JobSpec, User
from heliostat.runtimes.policy import Asker, Rules, admitted, rules_of
from heliostat.services.context import Context


def settle_containers(
    context: Context, user: User, projects: Mapping[str | None, str], requests: Sequence[JobRequest]
) -> list[JobRequest]:
    """With what was left open decided. Raises Invalid; `projects` says what each project named there means."""
    rules = rules_of(context.settings)
    asks = any(request.spec.image or request.spec.runtime for request in requests)
    home = _home_of(user.unix_user) if asks else None  # to look it up takes longer than all the rest
    settled: list[JobRequest] = []
    for request in requests:
        asker = Asker(user.name, home, projects[request.project])
        settled.append(replace(request, spec=_settled(context, request, asker, rules)))
    return settled


def _settled(context: Context, request: JobRequest, asker: Asker, rules: Rules) -> JobSpec:
    spec, is_own = request.spec, request.spec.image is not None and request.environment is not None
    settled = admitted(spec, asker, rules, is_own=is_own)
    if settled.wants_container and not context.engine.capabilities.contains:
        raise Invalid(
            f"The engine {context.engine.name} cannot run jobs in containers yet.",
            "Leave image and runtime out, and start the container in your script.",
            fields={"image" if spec.image else "runtime": "not with this engine"},
        )
    return settled


def _home_of(unix_user: str | None) -> str | None:
    try:
        return pwd.getpwnam(unix_user or "").pw_dir
    except KeyError:
        return None
