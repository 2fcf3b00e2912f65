"""Notifications over HTTP."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_context import AllUsersParam, CallerDep, ContextDep, IdPath
from heliostat.models.notifications import NotificationChannel, parse_triggers
from heliostat.services import notifications as services

router = APIRouter(tags=["notifications"])


class NotificationBody(BaseModel):
    """Where to tell you, and what."""

    model_config = ConfigDict(extra="forbid")

    channel: NotificationChannel
    address: Annotated[str, StringConstraints(min_length=1, max_length=2000, strict=True)] = Field(
        description="A URL, or an address of e-mail. It is not shown again."
    )
    triggers: Annotated[tuple[str, ...], BeforeValidator(parse_triggers)] = Field(
        default=("ended",),
        description="started, ended, failed, late, ends_soon; []: only of jobs that ask.",
    )
    project: Annotated[str, StringConstraints(min_length=1, max_length=63, strict=True)] | None = Field(
        default=None, description="Of all its jobs, for its managers; left out: of your own."
    )


class NotificationResponse(BaseModel):
    id: int
    user: str
    project: str | None
    channel: NotificationChannel
    address: str = Field(description="Of a URL only the host: the rest may be a secret.")
    triggers: list[str]
    created_at: datetime
    sent_at: datetime | None = Field(description="The last that arrived.")
    problem: str | None = Field(description="Why the last try did not arrive.")
    pending_deliveries: int = Field(description="How many are on their way.")
    failed_deliveries: int = Field(description="How many never arrived, of the last month.")

    @classmethod
    def of(cls, shown: services.NotificationView) -> "NotificationResponse":
        one = shown.notification
        return cls(
            id=one.id,
            user=one.user,
            project=one.project,
            channel=one.channel,
            address=shown.address,
            triggers=list(one.triggers),
            created_at=one.created_at,
            sent_at=one.sent_at,
            problem=one.problem,
            pending_deliveries=shown.pending_deliveries,
            failed_deliveries=shown.failed_deliveries,
        )


class NewNotificationResponse(NotificationResponse):
    secret: str | None = Field(default=None, description="What signs it; told this once.")


class NotificationTestResponse(BaseModel):
    arrived: bool
    problem: str | None


@router.get("/notifications", summary="Where you are told what; all=true, for admins: of all people")
def list_notifications(
    caller: CallerDep, context: ContextDep, all_users: AllUsersParam = False
) -> ListResponse[NotificationResponse]:
    found = services.list_notifications(context, caller, all_users=all_users)
    return ListResponse(items=[NotificationResponse.of(one) for one in found])


@router.post("/notifications", status_code=201, summary="Be told what happens to jobs")
def add_notification(body: NotificationBody, caller: CallerDep, context: ContextDep) -> NewNotificationResponse:
    wish = services.NotificationRequest(body.channel, body.address, body.triggers, body.project)
    shown, secret = services.add_notification(context, caller, wish)
    return NewNotificationResponse(**NotificationResponse.of(shown).model_dump(), secret=secret)


@router.post("/notifications/{notification_id}/test", summary="Send a test now, and say whether it arrived")
def send_test_notification(
    notification_id: IdPath, caller: CallerDep, context: ContextDep
) -> NotificationTestResponse:
    outcome = services.send_test_notification(context, caller, notification_id)
    return NotificationTestResponse(arrived=outcome.arrived, problem=outcome.problem)


@router.delete("/notifications/{notification_id}", status_code=204, summary="Be told no longer")
def remove_notification(notification_id: IdPath, caller: CallerDep, context: ContextDep) -> None:
    services.remove_notification(context, caller, notification_id)
