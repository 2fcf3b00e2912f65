"""What every engine promises, asked of every engine."""

import pytest
from contract import DEADLINE_SECONDS, EXIT_CODE_VARIABLE, SECONDS_VARIABLE, Bench, as_running

from heliostat.engines.contract import RunsPrograms
from heliostat.models import AttemptEnded, AttemptStarted, EndCause, NodeState, Observation


@pytest.mark.parametrize("exit_code", [0, 3])
def test_an_attempt_is_reported_started_and_then_ended_with_its_exit_code(bench: Bench, exit_code: int) -> None:
    attempt = bench.finishing(exit_code)
    bench.start(attempt)
    ended = bench.wait_for_end(attempt)
    started, _ = bench.reports_of(attempt)
    assert isinstance(started, AttemptStarted)
    assert (ended.cause, ended.exit_code) == (EndCause.EXITED, exit_code)
    assert started.at <= ended.at
    assert ended.at.utcoffset() is not None


def test_starting_what_runs_or_ran_does_nothing(bench: Bench) -> None:
    attempt = bench.finishing()
    bench.start(attempt)
    bench.start(attempt)
    bench.wait_for_end(attempt)
    bench.start(attempt)
    bench.let_another_one_finish()
    assert [type(report) for report in bench.reports_of(attempt)] == [AttemptStarted, AttemptEnded]


def test_the_same_attempt_twice_in_one_call_starts_once(bench: Bench) -> None:
    attempt = bench.finishing()
    bench.start(attempt, attempt)
    bench.wait_for_end(attempt)
    bench.let_another_one_finish()
    assert [type(report) for report in bench.reports_of(attempt)] == [AttemptStarted, AttemptEnded]


def test_many_attempts_at_once_are_each_reported_once_and_in_order(bench: Bench) -> None:
    attempts = [bench.finishing(exit_code=number % 5) for number in range(40)]
    bench.start(*attempts)
    for number, attempt in enumerate(attempts):
        assert bench.wait_for_end(attempt).exit_code == number % 5
    for attempt in attempts:
        assert [type(report) for report in bench.reports_of(attempt)] == [AttemptStarted, AttemptEnded]


def test_stopping_a_running_attempt_ends_it_as_stopped(bench: Bench) -> None:
    attempt = bench.running_long()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    bench.engine.stop(attempt, grace_seconds=10)
    assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_stopping_twice_reports_one_end(bench: Bench) -> None:
    attempt = bench.running_long()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    bench.engine.stop(attempt, grace_seconds=10)
    bench.engine.stop(attempt, grace_seconds=10)
    bench.wait_for_end(attempt)
    bench.let_another_one_finish()
    assert len(bench.ends_of(attempt)) == 1


def test_what_ignores_term_is_killed_after_the_grace(bench: Bench) -> None:
    attempt = bench.ignoring_term()
    bench.start(attempt)
    bench.wait_until_ignoring(attempt)
    bench.engine.stop(attempt, grace_seconds=0.5)
    assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_a_stop_with_less_grace_hastens_an_earlier_stop(bench: Bench) -> None:
    attempt = bench.ignoring_term()
    bench.start(attempt)
    bench.wait_until_ignoring(attempt)
    bench.engine.stop(attempt, grace_seconds=5000)
    bench.engine.stop(attempt, grace_seconds=0)
    assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_stopping_an_unknown_or_ended_attempt_is_success(bench: Bench) -> None:
    bench.engine.stop(bench.running_long(), grace_seconds=0)
    ended = bench.finishing()
    bench.start(ended)
    bench.wait_for_end(ended)
    bench.engine.stop(ended, grace_seconds=0)
    bench.let_another_one_finish()
    assert [end.cause for end in bench.ends_of(ended)] == [EndCause.EXITED]


def test_an_attempt_over_its_time_limit_ends_as_timed_out(bench: Bench) -> None:
    attempt = bench.running_long(time_limit_seconds=1)
    bench.start(attempt)
    ended = bench.wait_for_end(attempt)
    started = bench.reports_of(attempt)[0]
    assert ended.cause is EndCause.TIMED_OUT
    assert (ended.at - started.at).total_seconds() >= 0.9


def test_an_attempt_that_is_given_more_time_outlives_its_first_limit(bench: Bench) -> None:
    engine = bench.engine
    if not isinstance(engine, RunsPrograms):
        pytest.skip("this engine gives no more time")
    extended, other = (bench.running_long(time_limit_seconds=8) for _ in range(2))
    bench.start(extended)
    bench.wait_for_start(extended)
    engine.extend_time_limit(extended, 3600)
    engine.extend_time_limit(extended, 1)  # never a shorter one
    bench.start(other)
    assert bench.wait_for_end(other).cause is EndCause.TIMED_OUT  # started later, with the same limit
    assert bench.ends_of(extended) == []
    engine.stop(extended, grace_seconds=10)
    assert bench.wait_for_end(extended).cause is EndCause.STOPPED


def test_an_attempt_with_overtime_runs_past_its_limit(bench: Bench) -> None:
    attempt = bench.in_overtime(1.5)
    bench.start(attempt)
    ended = bench.wait_for_end(attempt)
    assert (ended.cause, ended.exit_code) == (EndCause.EXITED, 0)


def test_an_attempt_can_be_stopped_with_a_signal_of_its_choice(bench: Bench) -> None:
    attempt = bench.heeding_usr1()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    bench.engine.stop(attempt, grace_seconds=DEADLINE_SECONDS, signal="USR1")
    ended = bench.wait_for_end(attempt)
    assert ended.cause is EndCause.STOPPED
    assert ended.exit_code == (7 if bench.under_test.runs_commands else 143)


def test_another_signal_is_sent_too(bench: Bench) -> None:
    attempt = bench.heeding_usr1()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    bench.engine.stop(attempt, grace_seconds=DEADLINE_SECONDS)
    bench.engine.stop(attempt, grace_seconds=DEADLINE_SECONDS, signal="USR1")
    assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_the_tasks_of_a_gang_start_together_and_end_once(bench: Bench) -> None:
    gang = bench.gang(3)
    bench.start(gang)
    ended = bench.wait_for_end(gang)
    bench.let_another_one_finish()
    assert (ended.cause, ended.exit_code) == (EndCause.EXITED, 0)
    assert [type(report) for report in bench.reports_of(gang)] == [AttemptStarted, AttemptEnded]


def test_a_gang_ends_with_the_code_of_its_first_failure(bench: Bench) -> None:
    script = 'if [ "$HELIOSTAT_TASK" = 1 ]; then exit 5; fi; exec sleep 600'
    gang = bench.gang(3, script, **{EXIT_CODE_VARIABLE: "5"})
    bench.start(gang)
    ended = bench.wait_for_end(gang)
    assert (ended.cause, ended.exit_code) == (EndCause.EXITED, 5)


def test_stopping_a_gang_stops_all_its_tasks(bench: Bench) -> None:
    gang = bench.gang(2, "exec sleep 600", **{SECONDS_VARIABLE: "36000"})
    bench.start(gang)
    bench.wait_for_start(gang)
    bench.engine.stop(gang, grace_seconds=10)
    assert bench.wait_for_end(gang).cause is EndCause.STOPPED


def test_the_devices_of_a_gang_are_free_again_when_it_has_ended(bench: Bench) -> None:
    first, second = bench.gang(4), bench.gang(4)
    bench.start(first)
    bench.wait_for_end(first)
    bench.start(second)
    assert bench.wait_for_end(second).exit_code == 0


def test_several_attempts_share_a_device(bench: Bench) -> None:
    if not bench.under_test.shares_devices:
        pytest.skip("this engine gives out whole devices only")
    sharing = [bench.sharing(0.5), bench.sharing(0.25), bench.sharing(0.25)]
    bench.start(*sharing)
    for attempt in sharing:
        bench.wait_for_start(attempt)
    for attempt in sharing:
        bench.engine.stop(attempt, grace_seconds=10)
        assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_observing_gives_the_start_of_what_runs_and_the_end_of_what_ran(bench: Bench) -> None:
    running, over = bench.running_long(), bench.finishing(exit_code=4)
    bench.start(running, over)
    bench.wait_for_start(running)
    bench.wait_for_end(over)
    seen: list[Observation] = []

    def has_ended() -> bool:
        """An engine that is not certain for a moment that nothing is left says that it runs."""
        seen[:] = bench.engine.observe([running, over])
        return isinstance(seen[-1], AttemptEnded)

    bench.wait_until(has_ended, "the end to be observed")
    first, second = seen[0], seen[-1]
    assert isinstance(first, AttemptStarted)
    assert isinstance(second, AttemptEnded)
    assert (first.attempt_id, second.attempt_id) == (running.id, over.id)
    assert (second.cause, second.exit_code) == (EndCause.EXITED, 4)


def test_observing_an_unknown_attempt_disowns_it_for_good(bench: Bench) -> None:
    attempt = bench.finishing()
    (observed,) = bench.engine.observe([attempt])
    assert isinstance(observed, AttemptEnded)
    assert observed.cause is EndCause.NOT_STARTED
    bench.start(attempt)
    bench.let_another_one_finish()
    assert not any(isinstance(report, AttemptStarted) for report in bench.reports_of(attempt))
    (again,) = bench.engine.observe([attempt])
    assert isinstance(again, AttemptEnded)
    assert again.cause is EndCause.NOT_STARTED


def test_after_a_restart_a_running_attempt_goes_on_or_is_lost_as_the_engine_says(bench: Bench) -> None:
    attempt = bench.running_long()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    attempt = as_running(attempt, bench.reports_of(attempt)[0].at)
    bench.restart()
    (observed,) = bench.engine.observe([attempt])
    if not bench.engine.capabilities.survives_restart:
        assert isinstance(observed, AttemptEnded)
        assert observed.cause is EndCause.LOST
        return
    assert isinstance(observed, AttemptStarted)
    bench.engine.stop(attempt, grace_seconds=10)
    assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_after_a_restart_a_running_attempt_is_found_without_the_database_and_stopped_unless_it_is_kept(
    bench: Bench,
) -> None:
    attempt = bench.running_long()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    attempt = as_running(attempt, bench.reports_of(attempt)[0].at)
    bench.restart()
    found = bench.engine.find_leftovers(bench.engine.recorded_attempts())
    if not bench.engine.capabilities.survives_restart or not found:
        assert bench.engine.name == "simulated"
        return
    assert [(left.id, left.is_running) for left in found] == [(attempt.id, True)]
    bench.engine.forget_all_except([attempt.id])
    assert isinstance(bench.engine.observe([attempt])[0], AttemptStarted)
    bench.engine.forget_all_except([])
    bench.wait_until(
        lambda: not any(left.is_running for left in bench.engine.find_leftovers([attempt.id])), "it to be stopped"
    )


def test_nodes_are_up_with_cpus_and_memory_and_names_of_their_own(bench: Bench) -> None:
    nodes = bench.engine.nodes()
    assert nodes
    assert len({node.name for node in nodes}) == len(nodes)
    assert all(node.state is NodeState.UP and node.cpus > 0 and node.memory_mib > 0 for node in nodes)
    uuids = [device.uuid for node in nodes for device in node.devices]
    assert len(set(uuids)) == len(uuids)


def test_closing_twice_is_fine(bench: Bench) -> None:
    bench.let_another_one_finish()
    bench.engine.close()
    bench.engine.close()


def test_what_runs_and_every_node_is_sampled_and_what_is_over_no_longer(bench: Bench) -> None:
    engine = bench.engine
    if not engine.capabilities.samples_attempts:
        pytest.skip("this engine does not say what is used")
    running, gang = bench.running_long(), bench.gang(2, "exec sleep 600", **{SECONDS_VARIABLE: "36000"})
    bench.start(running, gang)
    bench.wait_for_start(running)
    bench.wait_for_start(gang)
    engine.sample()
    bench.under_test.let_time_pass()
    readings = engine.sample()
    assert set(readings.attempts) == {running.id, gang.id}
    assert {len(reading.devices) for reading in readings.attempts.values()} == {0, 2}
    for reading in (*readings.attempts.values(), *readings.nodes.values()):
        assert reading.cpus is None or reading.cpus >= 0
        assert reading.memory_mib is None or reading.memory_mib >= 0
        assert all(0 <= (device.utilisation or 0) <= 100 for device in reading.devices)
    for node in engine.nodes():
        assert len(readings.nodes[node.name].devices) == len(node.devices)
        assert 0 < (readings.nodes[node.name].memory_mib or 0)
    engine.stop(running, 0)
    bench.wait_for_end(running)
    assert set(engine.sample().attempts) == {gang.id}


def test_nothing_of_a_new_engine_is_sampled_but_its_nodes(bench: Bench) -> None:
    if not bench.engine.capabilities.samples_attempts:
        pytest.skip("this engine does not say what is used")
    readings = bench.engine.sample()
    assert readings.attempts == {}
    assert set(readings.nodes) == {node.name for node in bench.engine.nodes()}
