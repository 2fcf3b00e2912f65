"""Announcements, for admins: what everybody should know, until when."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, NotFound
from heliostat.models import Announcement
from heliostat.services import announcements as services
from heliostat.web.admin_fields import ADMIN_BREADCRUMB, PageNumber, paginate
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import Confirmation, Pager, PageUrl

router = APIRouter()
_BREADCRUMB = ("Announcements", "/admin/announcements")
_SHOWN_OF_TEXT = 300


@dataclass(frozen=True, slots=True)
class AnnouncementRow:
    announcement: Announcement
    is_expired: bool


@dataclass(frozen=True, slots=True)
class AnnouncementsView:
    form: FormState
    time_zone: str
    max_characters: int
    rows: tuple[AnnouncementRow, ...]
    pager: Pager


@router.get("/admin/announcements")
def show_announcements(visit: AdminDep, page: PageNumber = 1) -> Response:
    return _news_page(visit, FormState(), page)


@router.post("/admin/announcements")
def add_announcement(visit: AdminDep, form: FormDep) -> Response:
    try:
        reading = FormReader(form)
        ends_at = (
            reading.read_time("ends_at", visit.context.settings.server.effective_time_zone)
            if form.get("ends_at")
            else None
        )
        reading.raise_if_invalid()
        services.add_announcement(visit.context, visit.caller, form.get_raw("text"), ends_at)
    except BadRequest as error:
        return _news_page(visit, form_with_errors(form, error, {}))
    return redirect(visit, "/admin/announcements", "Everybody sees it now.")


@router.post("/admin/announcements/remove")
def remove_announcement(visit: AdminDep, form: FormDep) -> Response:
    number = form.get("announcements")
    found = next(
        (one for one in services.list_all_announcements(visit.context, visit.caller) if str(one.id) == number),
        None,
    )
    if found is None:
        raise NotFound("There is no such announcement.", "Load the page again; it may be gone already.")
    if form.get("confirmed") != "yes":
        text = found.text if len(found.text) <= _SHOWN_OF_TEXT else found.text[:_SHOWN_OF_TEXT] + " …"
        view = Confirmation(
            question="Remove this announcement?",
            consequence="Nobody sees it any more. This cannot be undone.",
            action="/admin/announcements/remove",
            label="Remove it",
            fields=(("confirmed", "yes"), ("announcements", number)),
            back="/admin/announcements",
            items=(text,),
        )
        return render_page(
            visit, PageSpec("confirmation.html", "Remove", breadcrumbs=(ADMIN_BREADCRUMB, _BREADCRUMB)), view
        )
    services.remove_announcement(visit.context, visit.caller, found.id)
    return redirect(visit, "/admin/announcements", "It is removed.")


def _news_page(visit: AuthenticatedRequest, form: FormState, page: int = 1) -> Response:
    now = visit.context.now()
    found, pages = paginate(
        services.list_all_announcements(visit.context, visit.caller), PageUrl("/admin/announcements", {}), page
    )
    rows = tuple(AnnouncementRow(one, one.is_expired(now)) for one in found)
    view = AnnouncementsView(
        form, visit.context.settings.server.effective_time_zone, services.MAX_TEXT_LENGTH, rows, pages
    )
    return render_page(visit, PageSpec("admin/announcements.html", "Announcements", status=form.status), view)
