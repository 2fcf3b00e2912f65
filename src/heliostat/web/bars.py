"""Bars that lie: how much of the most, and which part of that was for nothing."""

from markupsafe import Markup


def two_part_bar(whole: float, part: float, title: str) -> Markup:
    """Both of the most there is (0 … 1); the part is at the end of the whole. As wide as the room it is given."""
    width = 100 * min(1.0, max(0.0, whole))
    wasted = min(width, 100 * max(0.0, part))
    return Markup(
        '<svg class="lying" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<rect class="bar c1" width="{:.2f}" height="10"></rect>'
        '<rect class="bar c2" x="{:.2f}" width="{:.2f}" height="10"></rect></svg>'
    ).format(title, max(0.3, width), width - wasted, wasted)
