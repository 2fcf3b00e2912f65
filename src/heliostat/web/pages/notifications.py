"""Where one is told what: listed, added, tried out, removed."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
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
_NOTIFICATIONS = ("Notifications", "/notifications")
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
    triggers: tuple[tuple[str, str], ...] = tuple((name, _LABELS[name]) for name in NOTIFICATION_TRIGGERS)


@router.get("/notifications")
def show_notifications(
    visit: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False
) -> Response:
    return _page(visit, FormState({"channel": _usual(visit)}), all_users=all_users)


@router.post("/notifications")
def add_notification(visit: AuthenticatedDep, form: FormDep) -> Response:
    try:
        _, secret = services.add_notification(visit.context, visit.caller, _wish(form))
    except (BadRequest, Conflict, Forbidden, NotFound) as error:
        filled = form_with_errors(form, error, {"project": "", "triggers": ""})
        return _page(visit, filled, ticked=tuple(form.get_all("trigger")))
    if secret is not None:
        return _page(visit, FormState({"channel": _usual(visit)}), secret=secret)
    return redirect(visit, "/notifications", "You will be told. Send a test to see that it arrives.")


@router.post("/notifications/{number}/test")
def send_test_notification(visit: AuthenticatedDep, form: FormDep, number: NotificationId) -> Response:
    outcome = services.send_test_notification(visit.context, visit.caller, number)
    words = "The test has arrived." if outcome.arrived else f"The test has not arrived: {outcome.problem}."
    return redirect(visit, "/notifications", words)


@router.post("/notifications/{number}/remove")
def remove_notification(visit: AuthenticatedDep, form: FormDep, number: NotificationId) -> Response:
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Remove notification {number}?",
            consequence="You are no longer told there. What is on its way is dropped.",
            action=f"/notifications/{number}/remove",
            label="Remove it",
            fields=(("confirmed", "yes"),),
            back="/notifications",
        )
        return render_page(visit, PageSpec("confirmation.html", "Remove", breadcrumbs=(_NOTIFICATIONS,)), view)
    services.remove_notification(visit.context, visit.caller, number)
    return redirect(visit, "/notifications", "It is removed.")


def _wish(form: SubmittedForm) -> NotificationRequest:
    reading = FormReader(form)
    channel = form.get("channel")
    if channel not in list(NotificationChannel):
        reading.add_error("channel", "must be one of these")
    if not form.get("address"):
        reading.add_error("address", "must not be empty")
    reading.raise_if_invalid()
    triggers = tuple(name for name in NOTIFICATION_TRIGGERS if name in form.get_all("trigger"))
    return NotificationRequest(
        NotificationChannel(channel), form.get("address"), triggers, form.get("project") or None
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
    all_users: bool = False,
    ticked: tuple[str, ...] = ("ended",),
    secret: str = "",
) -> Response:
    user, notifications = visit.user, visit.context.settings.notifications
    managed = [one.project for one in user.memberships if user.may_manage(one.project)]
    view = NotificationsView(
        form=form,
        rows=tuple(services.list_notifications(visit.context, visit.caller, all_users=all_users)),
        shows_all_users=all_users,
        may_show_all_users=user.is_admin,
        projects=(("", "my own jobs"), *((name, f"all jobs of {name}") for name in managed)),
        selected_occasions=ticked,
        sends_mail=notifications.smtp_host is not None,
        hosts=", ".join(notifications.hosts),
        secret=secret,
    )
    return render_page(visit, PageSpec("notifications.html", "Notifications", status=form.status), view)
