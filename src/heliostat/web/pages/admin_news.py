"""News, for admins: what everybody should know, until when."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, NotFound
from heliostat.models import Announcement
from heliostat.services import announcements as services
from heliostat.web.admin import ADMIN, PageNumber, paged
from heliostat.web.forms import Filled, Reading, refused
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.views import Address, Confirmation, Pager
from heliostat.web.visits import AdminDep, FormDep, Visit

router = APIRouter()
_NEWS = ("News", "/admin/news")
_SHOWN_OF_TEXT = 300


@dataclass(frozen=True, slots=True)
class NewsRow:
    news: Announcement
    is_over: bool


@dataclass(frozen=True, slots=True)
class NewsView:
    form: Filled
    zone: str
    longest: int
    rows: tuple[NewsRow, ...]
    pager: Pager


@router.get("/admin/news")
def show_news(visit: AdminDep, page: PageNumber = 1) -> Response:
    return _news_page(visit, Filled(), page)


@router.post("/admin/news")
def add_news(visit: AdminDep, form: FormDep) -> Response:
    try:
        reading = Reading(form)
        ends_at = (
            reading.moment("ends_at", visit.context.settings.server.effective_time_zone)
            if form.get("ends_at")
            else None
        )
        reading.check()
        services.add_announcement(visit.context, visit.caller, form.raw("text"), ends_at)
    except BadRequest as error:
        return _news_page(visit, refused(form, error, {}))
    return redirect(visit, "/admin/news", "Everybody sees it now.")


@router.post("/admin/news/remove")
def remove_news(visit: AdminDep, form: FormDep) -> Response:
    number = form.get("news")
    found = next(
        (one for one in services.list_all_announcements(visit.context, visit.caller) if str(one.id) == number),
        None,
    )
    if found is None:
        raise NotFound("There is no such news.", "Load the page again; it may be gone already.")
    if form.get("confirmed") != "yes":
        text = found.text if len(found.text) <= _SHOWN_OF_TEXT else found.text[:_SHOWN_OF_TEXT] + " …"
        view = Confirmation(
            question="Remove this news?",
            consequence="Nobody sees it any more. This cannot be undone.",
            action="/admin/news/remove",
            label="Remove it",
            fields=(("confirmed", "yes"), ("news", number)),
            back="/admin/news",
            items=(text,),
        )
        return render(visit, Page("confirm.html", "Remove", crumbs=(ADMIN, _NEWS)), view)
    services.remove_announcement(visit.context, visit.caller, found.id)
    return redirect(visit, "/admin/news", "It is removed.")


def _news_page(visit: Visit, form: Filled, page: int = 1) -> Response:
    now = visit.context.now()
    found, pages = paged(
        services.list_all_announcements(visit.context, visit.caller), Address("/admin/news", {}), page
    )
    rows = tuple(NewsRow(one, one.is_expired(now)) for one in found)
    view = NewsView(form, visit.context.settings.server.effective_time_zone, services.MAX_TEXT_LENGTH, rows, pages)
    return render(visit, Page("admin/news.html", "News", status=form.status), view)
