"""Counters and histograms, as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families

from heliostat.metrics import Histogram, MetricFamily, Samples, format_labels, render_families


def read(family: MetricFamily, samples: Samples) -> list[tuple[str, dict[str, str], float]]:
    """The samples as the parser of Prometheus's own library finds them."""
    (found,) = text_string_to_metric_families(render_families([(family, samples)]).decode())
    assert (found.type, found.documentation) == (family.type, family.help)
    return [(sample.name, sample.labels, sample.value) for sample in found.samples]


def test_a_bucket_counts_everything_up_to_its_limit() -> None:
    waits = Histogram((1, 10))
    for seconds in (0.5, 1, 2, 50):
        waits.observe(seconds, "normal")
    family = MetricFamily("wait_seconds", "histogram", "Waits.", ("class",))
    assert read(family, waits.samples(family.labels)) == [
        ("wait_seconds_bucket", {"class": "normal", "le": "1.0"}, 2),
        ("wait_seconds_bucket", {"class": "normal", "le": "10.0"}, 3),
        ("wait_seconds_bucket", {"class": "normal", "le": "+Inf"}, 4),
        ("wait_seconds_sum", {"class": "normal"}, 53.5),
        ("wait_seconds_count", {"class": "normal"}, 4),
    ]


def test_any_text_can_be_the_value_of_a_label() -> None:
    odd = 'a"b\\c\nd} 7 # é'
    family = MetricFamily("odd", "gauge", "Odd.", ("name",))
    assert read(family, [(format_labels({"name": odd}), 1.5)]) == [("odd", {"name": odd}, 1.5)]


def test_a_family_without_samples_is_still_described() -> None:
    assert read(MetricFamily("none", "gauge", "None."), []) == []
