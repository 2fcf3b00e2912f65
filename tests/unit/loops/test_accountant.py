"""What attempts used is recorded once, when it is known."""

from pathlib import Path

from heliostat.loops.sampler import EngineUsageRecorder
from heliostat.models import AttemptId, AttemptUsage
from heliostat.store.usage import list_attempt_usage
from unit.auth.stand_ins import new_store


class Ledger:
    """An engine that keeps accounts, and no queue worth the name."""

    def __init__(self, **known: AttemptUsage | None) -> None:
        self.known: dict[AttemptId, AttemptUsage | None] = {
            name.removeprefix("a").replace("_", "."): usage for name, usage in known.items()
        }

    def final_usage(self) -> dict[AttemptId, AttemptUsage | None]:
        return dict(self.known)

    def wait_reason(self, attempt_id: object) -> None: ...

    def outage(self) -> None: ...

    def forecast_start(self, attempt: object) -> None: ...

    def foreign_jobs(self) -> None: ...

    def acknowledge_usage(self, attempt_ids: object) -> None:
        for attempt_id in list(attempt_ids):  # type: ignore[call-overload]
            del self.known[attempt_id]


def test_what_is_known_is_recorded_and_what_never_will_be_is_not_asked_for_again(tmp_path: Path) -> None:
    first, second = AttemptUsage(60.0, 30.0, 512.0, 120.0), AttemptUsage(5.0, out_of_memory=True)
    with new_store(tmp_path) as store:
        ledger = Ledger(a12_1=first, a12_2=second, a13_1=None)
        accountant = EngineUsageRecorder(ledger, store)  # type: ignore[arg-type]
        assert (accountant.record_usage(), accountant.record_usage(), ledger.known) == (3, 0, {})
        with store.read() as conn:
            assert list_attempt_usage(conn, 12) == [first, second]
            assert list_attempt_usage(conn, 13) == []
        ledger.known["12.1"] = second
        accountant.record_usage()
        with store.read() as conn:
            assert list_attempt_usage(conn, 12) == [second, second]


def test_an_engine_without_accounts_is_left_in_peace(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        assert EngineUsageRecorder(object(), store).record_usage() == 0  # type: ignore[arg-type]
