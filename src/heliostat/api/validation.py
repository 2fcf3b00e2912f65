"""What is wrong with a body, in words; and one job read as the API reads it."""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from heliostat.api.request_schemas import JobBody, StartForecastBody
from heliostat.errors import Invalid
from heliostat.models import JobRequest

_MOST_ECHOED = 300
_MOST_PROBLEMS = 20
_HINT = "The fields of a job are described at /api/v1/openapi.json."


class AsciiJSONResponse(JSONResponse):
    """What is said of a request, and may repeat half characters of it, which UTF-8 cannot hold: in ASCII."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def validation_error(problems: Sequence[Mapping[str, Any]], hint: str | None = None) -> Invalid:
    """`problems` as pydantic lists them, the places without `body` in front."""
    found = [(_field(problem["loc"]), _message(problem)) for problem in problems[:_MOST_PROBLEMS]]
    name, message = found[0]
    fields = {name: message for name, message in found if name}
    return Invalid(f"{name}: {message}." if name else f"{message}.", hint, fields=fields)


def read_job(body: Mapping[str, object], *, to_ask: bool = False) -> JobRequest:
    """As `POST /jobs` takes it; `to_ask`, as `POST /when` does. Raises Invalid with the same words."""
    kind = StartForecastBody if to_ask else JobBody
    try:
        return kind.model_validate(dict(body)).to_request()
    except ValidationError as error:
        raise validation_error(error.errors(include_url=False), _HINT) from None


def _field(location: tuple[Any, ...]) -> str:
    words = [str(part) for part in location]
    return _short(".".join(word for word in words if not word.startswith(("constrained-", "list[", "function-"))))


def _message(problem: Mapping[str, Any]) -> str:
    if problem["type"] != "extra_forbidden":
        return _plain(problem["msg"])
    near = difflib.get_close_matches(str(problem["loc"][-1])[:50], JobBody.model_fields, 1)
    return "there is no such field" + (f", perhaps {near[0]}" if near else "")


def _plain(message: str) -> str:
    return _short(message.removeprefix("Value error, ").rstrip("."))


def _short(text: str) -> str:
    """What was sent may be large and comes back in messages; and it may hold what cannot be sent back."""
    return text[:_MOST_ECHOED].encode("utf-8", "backslashreplace").decode()
