"""Where one is told what: listed, added, tried out, removed."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, Forbidden, NotFound
from heliostat.models.notifications import NOTIFICATION_TRIGGERS, NotificationChannel
from heliostat.services import notifications as services
from heliostat.services.notifications import NotificationRequest, NotificationView
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import Confirmation

router = APIRouter()
NotificationId = Annotated[int, Path(ge=1, le=2**53)]
_NOTICES = ("Notices", "/notices")
_CHANNELS = (
    (NotificationChannel.EMAIL.value, "E-mail"),
    (NotificationChannel.CHAT.value, "Chat: Slack, Mattermost…"),
    (NotificationChannel.WEBHOOK.value, "Webhook: signed JSON"),
)
_LABELS = {
    "started": "a job starts",
    "ended": "a job ends, however",
    "failed": "a job fails, is lost or out of time",
    "late": "a job will start much later than foretold",
    "ends_soon": "a session ends soon",
}


@dataclass(frozen=True, slots=True)
class NotificationsView:
    form: FormState
    rows: tuple[NotificationView, ...]
    shows_all_users: bool
    may_show_all_users: bool
    projects: tuple[tuple[str, str], ...]
    selected_occasions: tuple[str, ...]
    sends_mail: bool
    hosts: str
    secret: str = ""  # of the one that was just made: shown this once
    channels: tuple[tuple[str, str], ...] = _CHANNELS
    occasions: tuple[tuple[str, str], ...] = tuple((name, _LABELS[name]) for name in NOTIFICATION_TRIGGERS)


@router.get("/notices")
def show_notifications(visit: AuthenticatedDep, everybodys: bool = False) -> Response:
    return _page(visit, FormState({"channel": _usual(visit)}), everybodys=everybodys)


@router.post("/notices")
def add_notification(visit: AuthenticatedDep, form: FormDep) -> Response:
    try:
        _, secret = services.add_notification(visit.context, visit.caller, _wish(form))
    except (BadRequest, Conflict, Forbidden, NotFound) as error:
        filled = form_with_errors(form, error, {"project": "", "occasions": ""})
        return _page(visit, filled, ticked=tuple(form.get_all("occasion")))
    if secret is not None:
        return _page(visit, FormState({"channel": _usual(visit)}), secret=secret)
    return redirect(visit, "/notices", "You will be told. Send a test to see that it arrives.")


@router.post("/notices/{number}/test")
def send_test_notification(visit: AuthenticatedDep, form: FormDep, number: NotificationId) -> Response:
    outcome = services.send_test_notification(visit.context, visit.caller, number)
    words = "The test has arrived." if outcome.arrived else f"The test has not arrived: {outcome.problem}."
    return redirect(visit, "/notices", words)


@router.post("/notices/{number}/remove")
def remove_notification(visit: AuthenticatedDep, form: FormDep, number: NotificationId) -> Response:
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Remove notice {number}?",
            consequence="You are no longer told there. What is on its way is dropped.",
            action=f"/notices/{number}/remove",
            label="Remove it",
            fields=(("confirmed", "yes"),),
            back="/notices",
        )
        return render_page(visit, PageSpec("confirmation.html", "Remove", breadcrumbs=(_NOTICES,)), view)
    services.remove_notification(visit.context, visit.caller, number)
    return redirect(visit, "/notices", "It is removed.")


def _wish(form: SubmittedForm) -> NotificationRequest:
    reading = FormReader(form)
    channel = form.get("channel")
    if channel not in list(NotificationChannel):
        reading.add_error("channel", "must be one of these")
    if not form.get("address"):
        reading.add_error("address", "must not be empty")
    reading.raise_if_invalid()
    occasions = tuple(name for name in NOTIFICATION_TRIGGERS if name in form.get_all("occasion"))
    return NotificationRequest(
        NotificationChannel(channel), form.get("address"), occasions, form.get("project") or None
    )


def _usual(visit: AuthenticatedRequest) -> str:
    return (
        NotificationChannel.EMAIL.value
        if visit.context.settings.notifications.smtp_host
        else NotificationChannel.CHAT.value
    )


def _page(
    visit: AuthenticatedRequest,
    form: FormState,
    *,
    everybodys: bool = False,
    ticked: tuple[str, ...] = ("ended",),
    secret: str = "",
) -> Response:
    user, notifications = visit.user, visit.context.settings.notifications
    managed = [one.project for one in user.memberships if user.may_manage(one.project)]
    view = NotificationsView(
        form=form,
        rows=tuple(services.list_notifications(visit.context, visit.caller, everybodys=everybodys)),
        shows_all_users=everybodys,
        may_show_all_users=user.is_admin,
        projects=(("", "my own jobs"), *((name, f"all jobs of {name}") for name in managed)),
        selected_occasions=ticked,
        sends_mail=notifications.smtp_host is not None,
        hosts=", ".join(notifications.hosts),
        secret=secret,
    )
    return render_page(visit, PageSpec("notifications.html", "Notices", status=form.status), view)
