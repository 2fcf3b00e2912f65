import pytest

from heliostat.models import Device, count_cards
from heliostat.models.gpu_types import (
    accepts_gpu_type,
    card_fraction,
    card_type,
    is_slice,
    slice_memory_mib,
    slice_type,
)


@pytest.mark.parametrize(
    ("gpu_type", "card", "fraction"),
    [
        ("A100-1g.10gb", "A100", 1 / 7),
        ("A100-3g.40gb", "A100", 3 / 7),
        ("H100-7g.80gb", "H100", 1),
        ("A100-2c.3g.40gb", "A100", 2 / 7),  # a compute instance of a larger slice
        ("A30-1g.6gb", "A30", 1 / 4),
        ("A30-4g.24gb", "A30", 1),
        ("RTX-PRO-6000-2g.48gb", "RTX-PRO-6000", 1 / 2),
        ("1g.10gb", "", 1 / 7),  # names in Slurm
        ("a100_1g.5gb", "a100", 1 / 7),
        ("nvidia_a100-sxm4-40gb_1g.5gb+me", "nvidia_a100-sxm4-40gb", 1 / 7),
        ("nvidia_rtx_pro_6000_1g.24gb", "nvidia_rtx_pro_6000", 1 / 4),
    ],
)
def test_a_slice_counts_as_its_part_of_its_card(gpu_type: str, card: str, fraction: float) -> None:
    assert is_slice(gpu_type)
    assert (card_type(gpu_type), card_fraction(gpu_type)) == (card, pytest.approx(fraction))


@pytest.mark.parametrize("gpu_type", ["A100", "RTX-3090", "unknown", "", "1g", "10gb", "A100-8g.80gb", "x1g.10gb"])
def test_a_whole_card_counts_as_one(gpu_type: str) -> None:
    assert not is_slice(gpu_type)
    assert (card_type(gpu_type), card_fraction(gpu_type), slice_memory_mib(gpu_type)) == (gpu_type, 1, None)


def test_an_unspecified_type_counts_as_a_whole_card() -> None:
    assert not is_slice(None)
    assert card_fraction(None) == 1


def test_the_type_of_a_slice_names_card_and_profile() -> None:
    assert slice_type("A100", "1g.10gb+me") == "A100-1g.10gb"
    assert slice_type("A100", "huge") is None
    assert slice_memory_mib("A100-1g.10gb") == 10 * 1024


def test_a_slice_is_only_for_requests_that_name_its_type() -> None:
    assert accepts_gpu_type("a100-1G.10GB", "A100-1g.10gb")
    assert not accepts_gpu_type(None, "A100-1g.10gb")
    assert not accepts_gpu_type("A100", "A100-1g.10gb")
    assert accepts_gpu_type(None, "A100")


def test_the_slices_of_a_card_count_together_as_one_card() -> None:
    slices = [Device(f"MIG-{at}", 0, "A100-1g.10gb", "", 9728, slice_index=at) for at in range(7)]
    assert count_cards(slices) == 1
    assert count_cards([*slices[:3], Device("GPU-1", 1, "A100", "", 81920)]) == pytest.approx(10 / 7, abs=1e-6)
