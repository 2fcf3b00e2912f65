"""Page of notifications: list, add, test, remove."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, Forbidden, NotFound
from heliostat.models.notifications import (
    ALERTS_TRIGGER,
    SUBSCRIPTION_TRIGGERS,
    NotificationChannel,
)
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
    "ended": "a job ends",
    "failed": "a job fails, times out or is lost",
    "late": "a job will start much later than forecast",
    "ends_soon": "a session ends soon",
    "monthly_report": "a month is over: its waste report",
    ALERTS_TRIGGER: "the monitoring reports an alert",
}


@dataclass(frozen=True, slots=True)
class NotificationsView:
    form: FormState
    rows: tuple[NotificationView, ...]
    shows_all_users: bool
    may_show_all_users: bool
    projects: tuple[tuple[str, str], ...]
    selected_triggers: tuple[str, ...]
    sends_mail: bool
    hosts: str
    triggers: tuple[tuple[str, str], ...]
    secret: str = ""  # of the notification just created; shown only once
    channels: tuple[tuple[str, str], ...] = _CHANNELS


@router.get("/notifications")
def show_notifications(
    request: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False
) -> Response:
    return _page(request, FormState({"channel": _default_channel(request)}), all_users=all_users)


@router.post("/notifications")
def add_notification(request: AuthenticatedDep, form: FormDep) -> Response:
    try:
        _, secret = services.add_notification(request.context, request.caller, _read_request(form))
    except (BadRequest, Conflict, Forbidden, NotFound) as error:
        filled = form_with_errors(form, error, {"project": "", "triggers": ""})
        return _page(request, filled, selected=tuple(form.get_all("trigger")))
    if secret is not None:
        return _page(request, FormState({"channel": _default_channel(request)}), secret=secret)
    return redirect(request, "/notifications", "Notification added. Send a test to check it.")


@router.post("/notifications/{number}/test")
def send_test_notification(request: AuthenticatedDep, form: FormDep, number: NotificationId) -> Response:
    outcome = services.send_test_notification(request.context, request.caller, number)
    message = "Test sent." if outcome.arrived else f"The test failed: {outcome.problem}."
    return redirect(request, "/notifications", message)


@router.post("/notifications/{number}/remove")
def remove_notification(request: AuthenticatedDep, form: FormDep, number: NotificationId) -> Response:
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Remove notification {number}?",
            consequence="No more messages are sent to this address. Pending messages are dropped.",
            action=f"/notifications/{number}/remove",
            label="Remove notification",
            fields=(("confirmed", "yes"),),
            back="/notifications",
        )
        return render_page(request, PageSpec("confirmation.html", "Remove", breadcrumbs=(_NOTIFICATIONS,)), view)
    services.remove_notification(request.context, request.caller, number)
    return redirect(request, "/notifications", "Notification removed.")


def _read_request(form: SubmittedForm) -> NotificationRequest:
    reader = FormReader(form)
    channel = form.get("channel")
    if channel not in list(NotificationChannel):
        reader.add_error("channel", "choose one of the list")
    if not form.get("address"):
        reader.add_error("address", "must not be empty")
    reader.raise_if_invalid()
    triggers = tuple(name for name in SUBSCRIPTION_TRIGGERS if name in form.get_all("trigger"))
    return NotificationRequest(
        NotificationChannel(channel), form.get("address"), triggers, form.get("project") or None
    )


def _default_channel(request: AuthenticatedRequest) -> str:
    return (
        NotificationChannel.EMAIL.value
        if request.context.settings.notifications.smtp_host
        else NotificationChannel.CHAT.value
    )


def _page(
    request: AuthenticatedRequest,
    form: FormState,
    *,
    all_users: bool = False,
    selected: tuple[str, ...] = ("ended",),
    secret: str = "",
) -> Response:
    user, notifications = request.user, request.context.settings.notifications
    managed = [membership.project for membership in user.memberships if user.may_manage(membership.project)]
    triggers = [name for name in SUBSCRIPTION_TRIGGERS if user.is_admin or name != ALERTS_TRIGGER]
    view = NotificationsView(
        form=form,
        rows=tuple(services.list_notifications(request.context, request.caller, all_users=all_users)),
        shows_all_users=all_users,
        may_show_all_users=user.is_admin,
        projects=(("", "my own jobs"), *((name, f"all jobs of {name}") for name in managed)),
        selected_triggers=selected,
        sends_mail=notifications.smtp_host is not None,
        hosts=", ".join(notifications.hosts),
        triggers=tuple((name, _LABELS[name]) for name in triggers),
        secret=secret,
    )
    return render_page(request, PageSpec("notifications.html", "Notifications", status=form.status), view)
