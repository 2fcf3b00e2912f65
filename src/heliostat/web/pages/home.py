"""The first page."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.services.listing import Counts, JobQuery, count_jobs
from heliostat.web.rendering import Page, render
from heliostat.web.visits import VisitDep

router = APIRouter()


@dataclass(frozen=True, slots=True)
class HomeView:
    name: str
    address: str
    counts: Counts


@router.get("/")
def home(visit: VisitDep) -> Response:
    counts = count_jobs(visit.context, visit.caller, JobQuery(user=visit.user.name))
    view = HomeView(visit.user.name, str(visit.request.base_url).rstrip("/"), counts)
    return render(visit, Page("home.html", "Home", live=("jobs",)), view)
