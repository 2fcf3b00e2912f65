"""Validation errors of request bodies, and validation of one job outside a request."""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from heliostat.api.request_schemas import JobBody, StartForecastBody
from heliostat.errors import Invalid
from heliostat.models import JobRequest

_MAX_ECHOED_CHARACTERS = 300
_MAX_PROBLEMS = 20
_HINT = "The fields of a job are described at /api/v1/openapi.json."


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII: errors repeat parts of the request, which may contain surrogates that UTF-8 cannot encode."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def validation_error(problems: Sequence[Mapping[str, Any]], hint: str | None = None) -> Invalid:
    """`problems` are the errors of pydantic, their locations without the leading `body`."""
    messages = [(_field(problem["loc"]), _message(problem)) for problem in problems[:_MAX_PROBLEMS]]
    name, message = messages[0]
    fields = {name: message for name, message in messages if name}
    return Invalid(f"{name}: {message}." if name else f"{message}.", hint, fields=fields)


def read_job(body: Mapping[str, object], *, for_forecast: bool = False) -> JobRequest:
    """Reads a body of `POST /jobs`, or with `for_forecast` of `POST /when`. Raises Invalid as these do."""
    schema = StartForecastBody if for_forecast else JobBody
    try:
        return schema.model_validate(dict(body)).to_request()
    except ValidationError as error:
        raise validation_error(error.errors(include_url=False), _HINT) from None


def _field(location: tuple[Any, ...]) -> str:
    parts = [str(part) for part in location]
    return _short(".".join(part for part in parts if not part.startswith(("constrained-", "list[", "function-"))))


def _message(problem: Mapping[str, Any]) -> str:
    if problem["type"] != "extra_forbidden":
        return _plain(problem["msg"])
    matches = difflib.get_close_matches(str(problem["loc"][-1])[:50], JobBody.model_fields, 1)
    return "there is no such field" + (f" (did you mean {matches[0]}?)" if matches else "")


def _plain(message: str) -> str:
    return _short(message.removeprefix("Value error, ").rstrip("."))


def _short(text: str) -> str:
    """Sent texts are repeated in messages: limits their length and escapes what UTF-8 cannot encode."""
    return text[:_MAX_ECHOED_CHARACTERS].encode("utf-8", "backslashreplace").decode()
