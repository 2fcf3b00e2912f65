"""Page that compares what departments, projects and users were entitled to with what they received."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.responses import Response

from heliostat.models import User
from heliostat.services.accounts.share_delivery import MAX_DAYS, AccountDelivery, ShareDelivery, share_delivery
from heliostat.web import formatting, svg_plots
from heliostat.web.pages.fair_share import DEPTHS, is_own_account
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep
from heliostat.web.usage_plots import UsagePlot
from heliostat.web.view_models import PageUrl

router = APIRouter()
_WEEKS = (2, 4, 12)
_MAX_PLOTS = 12


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    account: AccountDelivery
    depth: int
    is_mine: bool
    entitled: float  # GPU-hours, like delivered
    delivered: float
    ratio_bar: Markup


@dataclass(frozen=True, slots=True)
class DeliveryView:
    rows: tuple[DeliveryRow, ...]
    plots: tuple[UsagePlot, ...]  # of departments and of the user's projects
    step: str  # day or week
    week_links: tuple[tuple[str, str, bool], ...]  # name, URL, whether it is shown
    people_links: tuple[tuple[str, str, bool], ...]
    hides_other_users: bool


@router.get("/share/delivery")
def show_delivery(
    request: AuthenticatedDep,
    weeks: Annotated[int, Query(ge=1, le=MAX_DAYS // 7)] = 4,
    people: bool = False,
) -> Response:
    since = request.context.now().date() - timedelta(weeks=weeks)
    report = share_delivery(request.context, request.caller, since)
    url = PageUrl("/share/delivery", {"weeks": str(weeks), "people": str(people).lower()})
    view = DeliveryView(
        rows=tuple(_rows(report.departments, request.user, 3 if people else 2)),
        plots=tuple(_plots(report, request.user)),
        step="day" if report.period.step_days == 1 else "week",
        week_links=tuple((f"{each} weeks", url.with_query(weeks=each), each == weeks) for each in _WEEKS),
        people_links=(
            ("Projects", url.with_query(people="false"), not people),
            ("Projects and users", url.with_query(people="true"), people),
        ),
        hides_other_users=not request.user.is_admin,
    )
    spec = PageSpec("share_delivery.html", "Entitled and delivered", breadcrumbs=(("Fair share", "/share"),))
    return render_page(request, spec, view)


def _rows(accounts: Sequence[AccountDelivery], user: User, levels: int) -> Iterator[DeliveryRow]:
    for account in accounts if levels else ():
        ratio = account.ratio or 0.0
        yield DeliveryRow(
            account,
            DEPTHS[account.kind],
            is_own_account(account.kind, account.name, user),
            sum(account.entitled),
            sum(account.delivered),
            svg_plots.draw_bar(ratio / 2, f"delivered {formatting.format_percent(ratio)} of entitled", 2),
        )
        yield from _rows(account.children, user, levels - 1)


def _plots(report: ShareDelivery, user: User) -> Iterator[UsagePlot]:
    projects = [project for department in report.departments for project in department.children]
    own = [project for project in projects if user.is_member_of(project.name)]
    active = [account for account in (*report.departments, *own) if account.share_fraction is not None]
    return (_plot(account, report) for account in active[:_MAX_PLOTS])


def _plot(account: AccountDelivery, report: ShareDelivery) -> UsagePlot:
    """Without the last step, which is not over."""
    step = timedelta(days=report.period.step_days)
    curves = [
        svg_plots.Curve(
            name, [(report.period.start + step * at, amount) for at, amount in enumerate(amounts[:-1])], colour
        )
        for name, amounts, colour in (("entitled", account.entitled, 3), ("delivered", account.delivered, 1))
    ]
    options = svg_plots.PlotOptions(title=f"{account.kind} {account.name}", width=520, height=180)
    return UsagePlot(options.title, svg_plots.draw_line_plot(curves, options), svg_plots.draw_legend(curves))
