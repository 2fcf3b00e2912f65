"""The fair-share tree: what is whose by right, who used what lately, and who therefore waits longer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import Response

from heliostat.models import User
from heliostat.services.accounts.shares import COUNTED_BY_HELIOSTAT, AccountShare, share_tree, usage_source
from heliostat.web import formatting, svg_plots
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep

router = APIRouter()
_DEPTHS = {"department": 0, "project": 1, "user": 2}
_MOST_TIMES = 2.0  # times one's share at which the bar is full


@dataclass(frozen=True, slots=True)
class ShareRow:
    id: str
    kind: str
    name: str
    depth: int
    is_mine: bool
    may_manage: bool
    share: int
    entitled_fraction: float | None  # None: not in use lately
    usage_gpu_hours: float  # GPU-hours, faded
    used_fraction: float  # of all that was used
    ratio: float
    share_status: str
    priority_points_lost: float
    entitled_bar: Markup
    used_bar: Markup
    ratio_bar: Markup


@dataclass(frozen=True, slots=True)
class ShareView:
    rows: tuple[ShareRow, ...]
    shows_users: bool
    half_life: str
    has_usage: bool
    hides_other_users: bool
    usage_source: str  # the name of an engine with a count of its own; empty: we count


@router.get("/share")
def show_share(visit: AuthenticatedDep, people: bool | None = None) -> Response:
    """With everybody in it; for admins, whom that would drown, when they ask for it."""
    tree = share_tree(visit.context, visit.caller)
    with_people = not visit.user.is_admin if people is None else people
    days = visit.context.settings.queue.half_life_days
    view = ShareView(
        rows=tuple(_rows(tree, visit.user, _scale(tree), 3 if with_people else 2)),
        shows_users=with_people,
        half_life=formatting.format_count(round(days, 2), "day"),
        has_usage=any(department.entitled is not None for department in tree),
        hides_other_users=not visit.user.is_admin,
        usage_source=""
        if (counts := usage_source(visit.context)) == COUNTED_BY_HELIOSTAT
        else counts.capitalize(),
    )
    return render_page(visit, PageSpec("fair_share.html", "Share", live_topics=("rules",)), view)


@dataclass(frozen=True, slots=True)
class _Scale:
    used: float  # by all
    longest: float  # the part of all that fills a bar


def _scale(tree: Sequence[AccountShare]) -> _Scale:
    used = sum(department.usage for department in tree)
    parts = [part for one in tree for part in (one.entitled or 0.0, one.usage / used if used else 0.0)]
    return _Scale(used, max(parts, default=0.0) or 1.0)


def _rows(
    tree: Sequence[AccountShare], user: User, scale: _Scale, levels: int, above: str = ""
) -> Iterator[ShareRow]:
    for one in tree if levels else ():
        place = f"{above}{one.kind[0]}-{one.name}"
        yield _row(one, user, scale, place)
        yield from _rows(one.children, user, scale, levels - 1, place + "-")


def _row(one: AccountShare, user: User, scale: _Scale, place: str) -> ShareRow:
    part = one.usage / scale.used if scale.used else 0.0
    return ShareRow(
        id=place,
        kind=one.kind,
        name=one.name,
        depth=_DEPTHS[one.kind],
        is_mine=_is_mine(one, user),
        may_manage=user.is_admin if one.kind != "project" else user.may_manage(one.name),
        share=one.share,
        entitled_fraction=one.entitled,
        usage_gpu_hours=one.usage,
        used_fraction=part,
        ratio=one.ratio,
        share_status=_verdict(one),
        priority_points_lost=one.points,
        entitled_bar=svg_plots.draw_bar(
            (one.entitled or 0.0) / scale.longest, f"entitled to {formatting.format_percent(one.entitled)}", 3
        ),
        used_bar=svg_plots.draw_bar(part / scale.longest, f"used {formatting.format_percent(part)} of all", 1),
        ratio_bar=svg_plots.draw_bar(one.ratio / _MOST_TIMES, f"{one.ratio:.2f} times its share", 2),
    )


def _is_mine(one: AccountShare, user: User) -> bool:
    if one.kind == "user":
        return one.name == user.name
    return one.kind == "project" and user.is_member_of(one.name)


def _verdict(one: AccountShare) -> str:
    if one.entitled is None:
        return "not in use"
    if one.ratio < _LITTLE:
        return "below"
    return "above" if one.ratio > _MUCH else "about even"


_LITTLE, _MUCH = 0.8, 1.25
