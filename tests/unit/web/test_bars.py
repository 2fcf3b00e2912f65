import re

from heliostat.web.pages.reports import draw_two_part_bar


def test_the_part_ends_where_the_whole_ends() -> None:
    widths = re.findall(r'(?:x="([\d.]+)" )?width="([\d.]+)"', draw_two_part_bar(0.5, 0.2, "t"))
    assert widths == [("", "50.00"), ("30.00", "20.00")]


def test_a_part_is_never_larger_than_the_whole() -> None:
    assert 'x="0.00" width="10.00"' in draw_two_part_bar(0.1, 0.9, "t")


def test_a_hostile_title_stays_text() -> None:
    assert "<script>" not in draw_two_part_bar(1, 0, "</title><script>alert(1)</script>")
