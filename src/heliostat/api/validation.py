"""Validation of one job outside a request, and the format of errors."""

import json
from collections.abc import Mapping

from starlette.responses import JSONResponse

from heliostat.api.job_schemas import JobBody, StartForecastBody
from heliostat.api.validation_errors import read_model
from heliostat.models import JobRequest


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII: errors repeat parts of the request, which may contain surrogates that UTF-8 cannot encode."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def read_job(body: Mapping[str, object], *, for_forecast: bool = False) -> JobRequest:
    """Reads a body of `POST /jobs`, or with `for_forecast` of `POST /when`. Raises Invalid as these do."""
    return read_model(StartForecastBody if for_forecast else JobBody, dict(body)).to_request()
