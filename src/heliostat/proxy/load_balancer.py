"""Which replica of a service a request goes to: the one with the fewest open ones, of those that answered last."""

import asyncio
import time

from heliostat.errors import EngineUnavailable, Forbidden
from heliostat.models import JobId
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context
from heliostat.services.proxy_routes import ProxyRoute
from heliostat.services.web_services.routing import ServiceRoutes, find_service_routes, require_separate_origin

_CHOICES_SECONDS = 2.0  # who may use a service is looked up again after this
_SUSPECT_SECONDS = 2.0  # one that did not answer is the last choice for so long
_MOST = 1024
_TRIES = 5


class LoadBalancer:
    """Lives on one event loop; what takes longer is done by threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[ProxyTarget, tuple[float, int, ServiceRoutes]] = {}
        self._suspects: dict[JobId, float] = {}
        self._turn = 0

    async def ordered_routes(self, target: ProxyTarget, user: str, *, is_program: bool) -> tuple[ProxyRoute, ...]:
        """To every replica that takes requests, the best one first. Raises Forbidden or EngineUnavailable."""
        choices = await self.find_candidates(target)
        if user not in choices.allowed_users:
            raise Forbidden("This is somebody else's.", "Ask them to share it with you.")
        if not is_program:
            require_separate_origin(self._context, user, choices.owner)
        if not choices.routes:
            said = f"No replica of service {choices.service} is healthy."
            why = f" The last problem: {choices.problem}." if choices.problem and user == choices.owner else ""
            raise EngineUnavailable(
                said + why, f"See `helio service show {choices.service}`.", code="service_down"
            )
        return self._ordered(choices.routes)

    async def find_candidates(self, target: ProxyTarget) -> ServiceRoutes:
        """As they are now: what was read before services changed is not used. Raises NotFound."""
        traffic = self._context.traffic
        for _ in range(_TRIES):
            known, version = self._known.get(target), traffic.services_version
            if known is not None and known[1] == version and time.monotonic() - known[0] < _CHOICES_SECONDS:
                return known[2]
            began, loop = time.monotonic(), asyncio.get_running_loop()
            choices = await loop.run_in_executor(None, find_service_routes, self._context, target)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[target] = (began, version, choices)
            if traffic.services_version == version:
                break
        return choices

    def mark_suspect(self, way: ProxyRoute) -> None:
        """It has not answered."""
        now = time.monotonic()
        self._suspects = {job_id: until for job_id, until in self._suspects.items() if until > now}
        self._suspects[way.attempt.job.id] = now + _SUSPECT_SECONDS

    def _ordered(self, ways: tuple[ProxyRoute, ...]) -> tuple[ProxyRoute, ...]:
        self._turn += 1
        turned = (*ways[self._turn % len(ways) :], *ways[: self._turn % len(ways)])
        now, traffic = time.monotonic(), self._context.traffic

        def worth(way: ProxyRoute) -> tuple[bool, int]:
            number = way.attempt.job.id
            return self._suspects.get(number, 0.0) > now, traffic.open_requests_of(number)

        return tuple(sorted(turned, key=worth))
