"""Endpoints of announcements from the admins."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.time_fields import ZonedTime
from heliostat.models import Announcement
from heliostat.services import announcements as services

router = BodyRouter(tags=["cluster"])


class AnnouncementBody(RequestBody):
    """An announcement to all users."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=services.MAX_TEXT_LENGTH, strict=True)]
    ends_at: ZonedTime | None = Field(default=None, description="Default: until it is removed.")


class AnnouncementResponse(BaseModel):
    id: int
    text: str
    author: str
    created_at: datetime
    ends_at: datetime | None = Field(description="Null: until it is removed.")

    @classmethod
    def of(cls, announcement: Announcement) -> "AnnouncementResponse":
        return cls(
            id=announcement.id,
            text=announcement.text,
            author=announcement.author,
            created_at=announcement.created_at,
            ends_at=announcement.ends_at,
        )


@router.get(
    "/announcements", summary="List announcements, newest first; past=true includes expired ones (admins only)"
)
def list_announcements(
    caller: CallerDep, context: ContextDep, past: bool = False
) -> ListResponse[AnnouncementResponse]:
    announcements = (
        services.list_all_announcements(context, caller) if past else services.list_active_announcements(context)
    )
    return ListResponse(items=[AnnouncementResponse.of(announcement) for announcement in announcements])


@router.post("/announcements", status_code=201, summary="Show an announcement to all users")
def add_announcement(body: AnnouncementBody, caller: CallerDep, context: ContextDep) -> AnnouncementResponse:
    return AnnouncementResponse.of(services.add_announcement(context, caller, body.text, body.ends_at))


@router.delete("/announcements/{announcement_id}", status_code=204, summary="Remove an announcement")
def remove_announcement(announcement_id: IdPath, caller: CallerDep, context: ContextDep) -> None:
    services.remove_announcement(context, caller, announcement_id)
