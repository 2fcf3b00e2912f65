"""Admin page: announcements to all users."""

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
def show_announcements(request: AdminDep, page: PageNumber = 1) -> Response:
    return _page(request, FormState(), page)


@router.post("/admin/announcements")
def add_announcement(request: AdminDep, form: FormDep) -> Response:
    try:
        reader = FormReader(form)
        ends_at = (
            reader.read_time("ends_at", request.context.settings.server.effective_time_zone)
            if form.get("ends_at")
            else None
        )
        reader.raise_if_invalid()
        services.add_announcement(request.context, request.caller, form.get_raw("text"), ends_at)
    except BadRequest as error:
        return _page(request, form_with_errors(form, error, {}))
    return redirect(request, "/admin/announcements", "Announcement published.")


@router.post("/admin/announcements/remove")
def remove_announcement(request: AdminDep, form: FormDep) -> Response:
    number = form.get("announcements")
    announcements = next(
        (one for one in services.list_all_announcements(request.context, request.caller) if str(one.id) == number),
        None,
    )
    if announcements is None:
        raise NotFound("The announcement does not exist.", "Reload the page; it may already be removed.")
    if form.get("confirmed") != "yes":
        text = (
            announcements.text
            if len(announcements.text) <= _SHOWN_OF_TEXT
            else announcements.text[:_SHOWN_OF_TEXT] + " …"
        )
        view = Confirmation(
            question="Remove this announcement?",
            consequence="It is no longer shown. This cannot be undone.",
            action="/admin/announcements/remove",
            label="Remove announcement",
            fields=(("confirmed", "yes"), ("announcements", number)),
            back="/admin/announcements",
            items=(text,),
        )
        return render_page(
            request, PageSpec("confirmation.html", "Remove", breadcrumbs=(ADMIN_BREADCRUMB, _BREADCRUMB)), view
        )
    services.remove_announcement(request.context, request.caller, announcements.id)
    return redirect(request, "/admin/announcements", "Announcement removed.")


def _page(request: AuthenticatedRequest, form: FormState, page: int = 1) -> Response:
    now = request.context.now()
    announcements, pager = paginate(
        services.list_all_announcements(request.context, request.caller), PageUrl("/admin/announcements", {}), page
    )
    rows = tuple(AnnouncementRow(one, one.is_expired(now)) for one in announcements)
    view = AnnouncementsView(
        form, request.context.settings.server.effective_time_zone, services.MAX_TEXT_LENGTH, rows, pager
    )
    return render_page(request, PageSpec("admin/announcements.html", "Announcements", status=form.status), view)
