from datetime import UTC, datetime, timedelta
from pathlib import Path

from heliostat.models.gpu_errors import GpuError
from heliostat.store.database import Store
from heliostat.store.gpus import (
    GpuUse,
    add_gpu_error,
    add_gpu_use,
    find_gpu,
    list_failed_gpus,
    list_gpu_errors,
    return_gpu,
)
from unit.auth.stand_ins import new_store

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)


def error(kind: str, message: str | None = None, minutes: int = 0, job_id: int | None = None) -> GpuError:
    return GpuError("GPU-a", "0", kind, NOW + timedelta(minutes=minutes), message, job_id)


def add(store: Store, *errors: GpuError) -> list[bool]:
    return store.write(lambda tx: [add_gpu_error(tx, "n1", each) for each in errors])


def kinds(store: Store) -> list[str]:
    with store.read() as conn:
        return [each.kind for each in list_gpu_errors(conn, "GPU-a", 1000)]


def failed(store: Store) -> dict[str, str | None]:
    with store.read() as conn:
        return {uuid: record.failed_kind for uuid, record in list_failed_gpus(conn).items()}


def test_the_first_error_takes_the_card_out_and_later_ones_are_recorded(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        assert add(store, error("xid_31", "1"), error("xid_79", "2"), error("xid_48", "3")) == [False, True, False]
        assert failed(store) == {"GPU-a": "xid_79"}
        assert sorted(kinds(store)) == ["xid_31", "xid_48", "xid_79"]


def test_a_line_of_the_kernel_log_is_recorded_once_also_after_the_card_returned(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        add(store, error("xid_79", "boot:5"), error("xid_79", "boot:5"))
        assert kinds(store) == ["xid_79"]
        store.write(lambda tx: return_gpu(tx, "GPU-a", NOW + timedelta(minutes=5)))
        assert add(store, error("xid_79", "boot:5"), error("xid_79", "boot:6", minutes=4)) == [False, False]
        assert failed(store) == {}
        assert add(store, error("xid_79", "boot:7", minutes=6)) == [True]


def test_an_error_that_lasts_is_recorded_once_while_the_card_is_taken_out(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        assert add(store, error("lost"), error("lost", minutes=5)) == [True, False]
        assert kinds(store) == ["lost"]
        store.write(lambda tx: return_gpu(tx, "GPU-a", NOW))
        assert add(store, error("lost", minutes=9)) == [True]


def test_errors_of_programs_do_not_push_out_those_of_the_card(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        add(store, error("xid_48", "card"))
        add(store, *(error("xid_31", str(number), number) for number in range(300)))
        found = kinds(store)
        assert found.count("xid_31") == 200
        assert found.count("xid_48") == 1


def test_use_is_summed_and_the_peak_temperature_kept(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for seconds, temperature in ((60.0, None), (30.0, 71), (0.0, 64), (0.0, None)):
            use = GpuUse("GPU-a", "n1", "0", seconds, temperature)
            store.write(lambda tx, use=use: add_gpu_use(tx, [use], NOW))
        with store.read() as conn:
            record = find_gpu(conn, "GPU-a")
        assert record is not None
        assert (record.used_seconds, record.peak_temperature, record.first_seen_at) == (90.0, 71, NOW)
