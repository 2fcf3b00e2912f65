"""News from the admins over HTTP."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from heliostat.api.deps import CallerDep, ContextDep, IdPath
from heliostat.api.people_schemas import Page
from heliostat.api.reservations import Time
from heliostat.models import Announcement
from heliostat.services import announcements as services

router = APIRouter(tags=["cluster"])


class NewsBody(BaseModel):
    """What everybody should read."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, StringConstraints(min_length=1, max_length=services.MAX_TEXT_LENGTH, strict=True)]
    ends_at: Time | None = Field(default=None, description="Left out: until it is removed.")


class NewsAnswer(BaseModel):
    id: int
    text: str
    author: str
    created_at: datetime
    ends_at: datetime | None = Field(description="Null: until it is removed.")

    @classmethod
    def of(cls, one: Announcement) -> "NewsAnswer":
        return cls(id=one.id, text=one.text, author=one.author, created_at=one.created_at, ends_at=one.ends_at)


@router.get("/news", summary="What everybody should read, newest first; past=true, for admins: all of it")
def list_news(caller: CallerDep, context: ContextDep, past: bool = False) -> Page[NewsAnswer]:
    found = (
        services.list_all_announcements(context, caller) if past else services.list_active_announcements(context)
    )
    return Page(items=[NewsAnswer.of(one) for one in found])


@router.post("/news", status_code=201, summary="Tell everybody something")
def add_news(body: NewsBody, caller: CallerDep, context: ContextDep) -> NewsAnswer:
    return NewsAnswer.of(services.add_announcement(context, caller, body.text, body.ends_at))


@router.delete("/news/{news_id}", status_code=204, summary="Take news away")
def remove_news(news_id: IdPath, caller: CallerDep, context: ContextDep) -> None:
    services.remove_announcement(context, caller, news_id)
