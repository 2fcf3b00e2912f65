import pytest

from heliostat.models.amounts import format_count, format_percent, format_size, join_words


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (0.5, "0.5 jobs"), (12345, "12,345 jobs")]
)
def test_a_count_agrees_with_its_noun(count: float, text: str) -> None:
    assert format_count(count, "job") == text


@pytest.mark.parametrize(
    ("mib", "text"), [(0, "0 MiB"), (1023, "1023 MiB"), (1024, "1 GiB"), (1536, "1.5 GiB"), (2**21, "2 TiB")]
)
def test_a_size_has_a_binary_unit(mib: float, text: str) -> None:
    assert format_size(mib) == text


def test_a_percentage_has_no_blank() -> None:
    assert format_percent(0.784) == "78%"


@pytest.mark.parametrize(
    ("words", "text"), [([], ""), (["1 GPU"], "1 GPU"), (["1", "2"], "1 and 2"), (["1", "2", "3"], "1, 2 and 3")]
)
def test_words_are_joined_as_in_a_sentence(words: list[str], text: str) -> None:
    assert join_words(words) == text
