"""Load balancing of services: the responsive replica with the fewest open requests is first."""

import asyncio
import time

from heliostat.errors import EngineUnavailable, Forbidden
from heliostat.models import JobId
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context
from heliostat.services.proxy_routes import ProxyRoute
from heliostat.services.web_services.routing import ServiceRoutes, find_service_routes, require_separate_origin

_CACHE_SECONDS = 2.0  # how long routes and permissions are cached
_SUSPECT_SECONDS = 2.0  # how long an unresponsive replica is tried last
_MAX_CACHED = 1024
_MAX_READS = 5


class LoadBalancer:
    """Used on one event loop; database reads run in threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cache: dict[ProxyTarget, tuple[float, int, ServiceRoutes]] = {}
        self._suspects: dict[JobId, float] = {}
        self._rotation = 0

    async def ordered_routes(self, target: ProxyTarget, user: str, *, is_program: bool) -> tuple[ProxyRoute, ...]:
        """Routes to all replicas that accept requests, best first. Raises Forbidden or EngineUnavailable."""
        candidates = await self.find_candidates(target)
        if user not in candidates.allowed_users:
            raise Forbidden("It belongs to another user.", "Ask the owner to share it with you.")
        if not is_program:
            require_separate_origin(self._context, user, candidates.owner)
        if not candidates.routes:
            message = f"No replica of service {candidates.service} is healthy."
            problem = (
                f" Last problem: {candidates.problem}." if candidates.problem and user == candidates.owner else ""
            )
            raise EngineUnavailable(
                message + problem, f"See `helio service show {candidates.service}`.", code="service_down"
            )
        return self._ordered(candidates.routes)

    async def find_candidates(self, target: ProxyTarget) -> ServiceRoutes:
        """Current routes; the cache is not used after a change of services. Raises NotFound."""
        traffic = self._context.traffic
        for _ in range(_MAX_READS):
            cached, version = self._cache.get(target), traffic.services_version
            if cached is not None and cached[1] == version and time.monotonic() - cached[0] < _CACHE_SECONDS:
                return cached[2]
            read_at, loop = time.monotonic(), asyncio.get_running_loop()
            candidates = await loop.run_in_executor(None, find_service_routes, self._context, target)
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[target] = (read_at, version, candidates)
            if traffic.services_version == version:
                break
        return candidates

    def mark_suspect(self, route: ProxyRoute) -> None:
        """After a request without a response."""
        now = time.monotonic()
        self._suspects = {job_id: until for job_id, until in self._suspects.items() if until > now}
        self._suspects[route.attempt.job.id] = now + _SUSPECT_SECONDS

    def _ordered(self, routes: tuple[ProxyRoute, ...]) -> tuple[ProxyRoute, ...]:
        self._rotation += 1
        rotated = (*routes[self._rotation % len(routes) :], *routes[: self._rotation % len(routes)])
        now, traffic = time.monotonic(), self._context.traffic

        def rank(route: ProxyRoute) -> tuple[bool, int]:
            job_id = route.attempt.job.id
            return self._suspects.get(job_id, 0.0) > now, traffic.open_requests_of(job_id)

        return tuple(sorted(rotated, key=rank))
