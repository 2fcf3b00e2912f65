"""Endpoints of notifications: where users are notified about which events of jobs."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import AllUsersParam, CallerDep, ContextDep, IdPath
from heliostat.models.notifications import NotificationChannel, parse_subscription_triggers
from heliostat.services import notifications as services

router = BodyRouter(tags=["notifications"])


class NotificationBody(RequestBody):
    """Channel and address of notifications, and the events that trigger them."""

    channel: NotificationChannel
    address: Annotated[str, StringConstraints(min_length=1, max_length=2000, strict=True)] = Field(
        description="A URL or an e-mail address. Of a URL only the host is shown again."
    )
    triggers: Annotated[tuple[str, ...], BeforeValidator(parse_subscription_triggers)] = Field(
        default=("ended",),
        description="started, ended, failed, late, ends_soon, monthly_report, alerts (admins only); []: only for "
        "jobs that request notifications.",
    )
    project: Annotated[str, StringConstraints(min_length=1, max_length=63, strict=True)] | None = Field(
        default=None, description="For all jobs of this project (managers only). Default: for your own jobs."
    )


class NotificationResponse(BaseModel):
    id: int
    user: str
    project: str | None
    channel: NotificationChannel
    address: str = Field(description="Of a URL only the host: the path may contain a secret.")
    triggers: list[str]
    created_at: datetime
    sent_at: datetime | None = Field(description="Time of the last successful delivery.")
    problem: str | None = Field(description="Why the last delivery failed.")
    pending_deliveries: int = Field(description="Number of messages that wait for delivery.")
    failed_deliveries: int = Field(description="Number of messages of the last month that were not delivered.")

    @classmethod
    def of(cls, view: services.NotificationView) -> "NotificationResponse":
        notification = view.notification
        return cls(
            id=notification.id,
            user=notification.user,
            project=notification.project,
            channel=notification.channel,
            address=view.address,
            triggers=list(notification.triggers),
            created_at=notification.created_at,
            sent_at=notification.sent_at,
            problem=notification.problem,
            pending_deliveries=view.pending_deliveries,
            failed_deliveries=view.failed_deliveries,
        )


class NewNotificationResponse(NotificationResponse):
    secret: str | None = Field(default=None, description="Secret that signs webhook messages; returned only here.")


class NotificationTestResponse(BaseModel):
    arrived: bool
    problem: str | None


@router.get("/notifications", summary="List your notifications; all=true: of all users (admins only)")
def list_notifications(
    caller: CallerDep, context: ContextDep, all_users: AllUsersParam = False
) -> ListResponse[NotificationResponse]:
    notifications = services.list_notifications(context, caller, all_users=all_users)
    return ListResponse(items=[NotificationResponse.of(view) for view in notifications])


@router.post("/notifications", status_code=201, summary="Add a notification about jobs")
def add_notification(body: NotificationBody, caller: CallerDep, context: ContextDep) -> NewNotificationResponse:
    request = services.NotificationRequest(body.channel, body.address, body.triggers, body.project)
    view, secret = services.add_notification(context, caller, request)
    return NewNotificationResponse(**NotificationResponse.of(view).model_dump(), secret=secret)


@router.post("/notifications/{notification_id}/test", summary="Send a test message and return whether it arrived")
def send_test_notification(
    notification_id: IdPath, caller: CallerDep, context: ContextDep
) -> NotificationTestResponse:
    result = services.send_test_notification(context, caller, notification_id)
    return NotificationTestResponse(arrived=result.arrived, problem=result.problem)


@router.delete("/notifications/{notification_id}", status_code=204, summary="Remove a notification")
def remove_notification(notification_id: IdPath, caller: CallerDep, context: ContextDep) -> None:
    services.remove_notification(context, caller, notification_id)
