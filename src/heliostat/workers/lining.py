"""The lanes of short jobs, kept in step with what the engine tells and is told."""

import time
from collections.abc import Callable, Iterable, Sequence

from heliostat.engines.contract import Engine, LinesUp, does
from heliostat.models import AttemptId, Ended, Job, Observation, Started, attempt_id
from heliostat.scheduling.lanes import Lanes
from heliostat.scheduling.relay import Relay
from heliostat.workers.recording import Round

Newest = Callable[[Started | Ended], Job | None]
"""The job an observation is of, unless it is a late word."""


class Lining:
    """Used by one thread."""

    def __init__(self, engine: Engine, newest: Newest) -> None:
        self._engine, self._newest = engine, newest
        self._lanes = Lanes()

    @property
    def others_stand_ready(self) -> bool:
        return self._lanes.waiting > 0

    def forget(self) -> None:
        """Nobody stands in a line any more, as after a restart."""
        self._lanes = Lanes()

    def leave(self, attempt_ids: Iterable[AttemptId]) -> None:
        """They were cancelled or held while they stood ready."""
        self._lanes.end(attempt_ids, time.monotonic())

    def close_behind(self, attempt_id: AttemptId) -> None:
        """It is being stopped: the engine gives back those who stand behind it."""
        self._lanes.close_behind(attempt_id)

    def has_begun_unknown(self, observations: Sequence[Observation]) -> bool:
        """Whether somebody started in a line of which we know no more."""
        if not self._engine.capabilities.lines_up:
            return False
        begun = [seen for seen in observations if isinstance(seen, Started) and seen.attempt_id not in self._lanes]
        return any((job := self._newest(seen)) and job.handed_over for seen in begun)

    def note_ends(self, observations: Sequence[Observation]) -> tuple[set[AttemptId], list[Job]]:
        """The ended in whose place nobody is already; and of those, one for each place that is empty now."""
        started = {seen.attempt_id: seen.at for seen in observations if isinstance(seen, Started)}
        ends = [seen for seen in observations if isinstance(seen, Ended)]
        alone = []
        for seen in ends:
            job = self._newest(seen)
            self._lanes.note_end(started.get(seen.attempt_id) or (job.started_at if job else None), seen.at)
            if job and seen.attempt_id not in self._lanes:
                alone.append(job)
        gone, places = self._lanes.end([seen.attempt_id for seen in ends], time.monotonic())
        return gone, alone + places

    def fill(self, this_round: Round, relay: Relay, active: Iterable[Job]) -> Round:
        """Who is to stand ready besides what was decided. `active` are those that ran before this round."""
        if self._engine.capabilities.lines_up:
            ended = {seen.attempt_id for seen in this_round.observations if isinstance(seen, Ended)}
            others_run = any(job.attempt_id not in self._lanes and job.attempt_id not in ended for job in active)
            starts, now = this_round.plan.starts, time.monotonic()
            this_round.to_line_up = self._lanes.fill(relay, starts, now, others_run=others_run)
        return this_round

    def note_round(self, this_round: Round) -> None:
        """It is recorded, and the engine has not heard of it yet. Who was to start may have been cancelled."""
        started = {attempt.id for attempt in this_round.started}
        planned = [attempt_id(start.job.id, start.job.attempt + 1) for start in this_round.plan.starts]
        self.leave(number for number in planned if number not in started)
        for attempt in this_round.started:
            if attempt.behind is not None:
                self._lanes.stand(attempt.id, attempt.behind)

    def take_back(self, relay: Relay) -> None:
        """Those who stand ready where the next one is no longer certain, or not soon to start."""
        back = self._lanes.close(time.monotonic(), relay)
        if back and isinstance(self._engine, LinesUp):
            self._engine.take_back(back)

    def runs_low(self, relay: Relay) -> bool:
        """Whether a line that could go on is about to be empty. Others may ask too."""
        return relay.waiting > 0 and does(self._engine, LinesUp) and self._engine.runs_low()  # type: ignore[type-abstract]

    def seconds_left(self) -> list[float]:
        """Until somebody has run for too long with others behind it."""
        left = self._lanes.seconds_to_close(time.monotonic())
        return [] if left is None else [left]
