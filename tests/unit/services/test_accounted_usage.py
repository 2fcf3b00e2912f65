"""Usage from an engine's accounting, merged with samples."""

from heliostat.models import AttemptUsage, Resources, SeriesStatistics, UsageSummary
from heliostat.services.efficiency import assess_efficiency, merge_accounting_usage, total_attempt_usage
from heliostat.services.efficiency_facts import JobFacts, RequestLimits


def test_total_usage_sums_times_and_takes_the_maximum_memory() -> None:
    used = total_attempt_usage([AttemptUsage(60.0, 30.0, 512.0), AttemptUsage(40.0, None, 800.0, 80.0, True)])
    assert used == AttemptUsage(100.0, 30.0, 800.0, 80.0, True)
    assert total_attempt_usage([]) is None


def test_a_job_without_samples_is_assessed_by_its_accounting() -> None:
    used = merge_accounting_usage(UsageSummary(), AttemptUsage(600.0, 300.0, 2048.0))
    assert used == UsageSummary(600.0, SeriesStatistics(0.5), SeriesStatistics(None, 2048.0))
    said = assess_efficiency(JobFacts(Resources(8, 65536), used, 600.0, RequestLimits(8, 65536, 86400)))
    assert said.sentences == ("used at most 2 GiB of 64 GiB of memory", "used 0.5 of 8 CPUs")
    assert said.change == {"memory": "3G"}  # the peak of the CPUs is not known


def test_accounting_includes_peaks_between_two_samples() -> None:
    seen = UsageSummary(50.0, SeriesStatistics(1.0, 2.0, 1.5), SeriesStatistics(100.0, 120.0, 110.0))
    used = merge_accounting_usage(seen, AttemptUsage(60.0, 30.0, 512.0))
    assert used == UsageSummary(60.0, SeriesStatistics(0.5, 2.0, 1.5), SeriesStatistics(100.0, 512.0, 110.0))
    assert merge_accounting_usage(seen, None) == seen
    assert merge_accounting_usage(seen, AttemptUsage(0.0)) == seen
