"""Fair-share page: entitlement and recent usage of departments, projects and users."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import Response

from heliostat.models import User
from heliostat.services.accounts.share_tree import COUNTED_BY_HELIOSTAT, AccountShare, share_tree, usage_source
from heliostat.web import formatting, svg_plots
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep

router = APIRouter()
DEPTHS = {"department": 0, "project": 1, "user": 2}
_FULL_BAR_RATIO = 2.0  # usage relative to the share at which the bar is full


@dataclass(frozen=True, slots=True)
class ShareRow:
    id: str
    kind: str
    name: str
    depth: int
    is_mine: bool
    may_manage: bool
    share: int
    entitled_fraction: float | None  # None: no recent usage
    usage_gpu_hours: float  # decayed, without the reserved ones
    reserved_gpu_hours: float
    credit_gpu_hours: float
    used_fraction: float  # of the total usage
    ratio: float
    share_status: str
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
    usage_source: str  # name of an engine with its own accounting; empty: Heliostat


@router.get("/share")
def show_share(request: AuthenticatedDep, people: bool | None = None) -> Response:
    """Users are shown by default, except to admins, whose list would be long."""
    tree = share_tree(request.context, request.caller)
    shows_users = not request.user.is_admin if people is None else people
    days = request.context.settings.queue.half_life_days
    view = ShareView(
        rows=tuple(_rows(tree, request.user, _scale(tree), 3 if shows_users else 2)),
        shows_users=shows_users,
        half_life=formatting.format_count(round(days, 2), "day"),
        has_usage=any(department.entitled is not None for department in tree),
        hides_other_users=not request.user.is_admin,
        usage_source=""
        if (counts := usage_source(request.context)) == COUNTED_BY_HELIOSTAT
        else counts.capitalize(),
    )
    return render_page(request, PageSpec("fair_share.html", "Fair share", live_topics=("rules",)), view)


@dataclass(frozen=True, slots=True)
class _Scale:
    used: float  # total
    full_bar: float  # the fraction that fills a bar


def _scale(tree: Sequence[AccountShare]) -> _Scale:
    used = sum(department.usage for department in tree)
    parts = [
        used_fraction
        for share in tree
        for used_fraction in (share.entitled or 0.0, share.usage / used if used else 0.0)
    ]
    return _Scale(used, max(parts, default=0.0) or 1.0)


def _rows(
    tree: Sequence[AccountShare], user: User, scale: _Scale, levels: int, parent_id: str = ""
) -> Iterator[ShareRow]:
    for share in tree if levels else ():
        row_id = f"{parent_id}{share.kind[0]}-{share.name}"
        yield _row(share, user, scale, row_id)
        yield from _rows(share.children, user, scale, levels - 1, row_id + "-")


def _row(share: AccountShare, user: User, scale: _Scale, row_id: str) -> ShareRow:
    used_fraction = share.usage / scale.used if scale.used else 0.0
    return ShareRow(
        id=row_id,
        kind=share.kind,
        name=share.name,
        depth=DEPTHS[share.kind],
        is_mine=is_own_account(share.kind, share.name, user),
        may_manage=user.is_admin if share.kind != "project" else user.may_manage(share.name),
        share=share.share,
        entitled_fraction=share.entitled,
        usage_gpu_hours=share.usage - share.reserved,
        reserved_gpu_hours=share.reserved,
        credit_gpu_hours=share.credit,
        used_fraction=used_fraction,
        ratio=share.ratio,
        share_status=_share_status(share),
        entitled_bar=svg_plots.draw_bar(
            (share.entitled or 0.0) / scale.full_bar, f"entitled to {formatting.format_percent(share.entitled)}", 3
        ),
        used_bar=svg_plots.draw_bar(
            used_fraction / scale.full_bar, f"used {formatting.format_percent(used_fraction)} of the total", 1
        ),
        ratio_bar=svg_plots.draw_bar(share.ratio / _FULL_BAR_RATIO, f"{share.ratio:.2f} times its share", 2),
    )


def is_own_account(kind: str, name: str, user: User) -> bool:
    """Whether it is the user, or a project of the user."""
    return name == user.name if kind == "user" else kind == "project" and user.is_member_of(name)


def _share_status(share: AccountShare) -> str:
    if share.entitled is None:
        return "inactive"
    if share.ratio < _LOW_RATIO:
        return "below"
    return "above" if share.ratio > _HIGH_RATIO else "even"


_LOW_RATIO, _HIGH_RATIO = 0.8, 1.25
