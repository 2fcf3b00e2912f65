"""Exceptions with a code, a message and a hint for users.

    HeliostatError
    ├── BadRequest          400  the request cannot be read
    │   └── Invalid         422  it can be read, but a field is wrong
    ├── NotAuthenticated    401
    ├── Forbidden           403
    ├── NotFound            404
    ├── Conflict            409  the current state does not allow this
    ├── TooLarge            413
    ├── TooManyRequests     429
    ├── StoreUnavailable    503  the database cannot be written
    ├── EngineUnavailable   502  the engine does not respond
    ├── ServerUnreachable   (client only) no response
    ├── WaitTimedOut        (client only) the wait ended before the jobs; also a TimeoutError
    └── JobFailed           (client only) a job of `wait(check=True)` did not complete

Each has a code for programs, a message with the cause, and a hint with the next step.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class HeliostatError(Exception):
    """Something went wrong."""

    status = 500
    code = "internal"
    default_hint: str | None = None

    def __init__(
        self,
        message: str | None = None,
        hint: str | None = None,
        *,
        code: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message or (self.__doc__ or "")
        self.hint = hint or self.default_hint
        self.code = code or type(self).code
        self.fields = dict(fields or {})
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def in_part(self, subject: str, path: str) -> "HeliostatError":
        """The same error in a part of a document: `job train: gpus: …`, with the field `jobs.train.gpus`."""
        message = "\n".join(f"{subject}{line}" for line in self.message.splitlines())
        fields = {f"{path}{name}": problem for name, problem in self.fields.items()}
        return type(self)(message, self.hint, code=self.code, fields=fields)

    def as_dict(self) -> dict[str, object]:
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "hint": self.hint,
                "fields": self.fields,
            }
        }


class BadRequest(HeliostatError):
    """The request cannot be read."""

    status = 400
    code = "bad_request"


class Invalid(BadRequest):
    """A field of the request is wrong."""

    status = 422
    code = "invalid"


class NotAuthenticated(HeliostatError):
    """You are not logged in."""

    status = 401
    code = "not_authenticated"


class Forbidden(HeliostatError):
    """You do not have permission for this."""

    status = 403
    code = "forbidden"


class NotFound(HeliostatError):
    """It does not exist."""

    status = 404
    code = "not_found"


class Conflict(HeliostatError):
    """The current state does not allow this."""

    status = 409
    code = "conflict"


class TooLarge(HeliostatError):
    """The request is too large."""

    status = 413
    code = "too_large"


class TooManyRequests(HeliostatError):
    """Too many requests."""

    status = 429
    code = "too_many_requests"


class StoreUnavailable(HeliostatError):
    """The database cannot be written."""

    status = 503
    code = "store_unavailable"


class EngineUnavailable(HeliostatError):
    """The engine that runs the jobs does not respond."""

    status = 502
    code = "engine_unavailable"
    default_hint = "Try again later. An admin can find the cause with `helio doctor`."


class ServerUnreachable(HeliostatError):
    """No Heliostat server responds."""

    status = 0
    code = "server_unreachable"


class WaitTimedOut(HeliostatError, TimeoutError):
    """The jobs have not ended in time."""

    status = -1
    code = "wait_timed_out"


class JobFailed(HeliostatError):
    """A job did not complete."""

    status = -2
    code = "job_failed"


class ErrorCollector:
    """Collects the errors of the parts of a document, so that all are reported at once."""

    def __init__(self, most: int = 20) -> None:
        self._errors: list[HeliostatError] = []
        self._most = most

    @contextmanager
    def part(self, subject: str, path: str) -> Iterator[None]:
        """Keeps an error of this part and goes on; raises when there are too many."""
        try:
            yield
        except (BadRequest, Forbidden) as error:
            self._errors.append(error.in_part(subject, path))
            if len(self._errors) >= self._most:
                self.raise_errors()

    def raise_errors(self) -> None:
        """Raises one error for all that were collected, if there are any: one line for each."""
        if not self._errors:
            return
        messages = dict.fromkeys(error.message for error in self._errors)
        hints = dict.fromkeys(error.hint for error in self._errors if error.hint)
        fields = {name: problem for error in self._errors for name, problem in error.fields.items()}
        first = self._errors[0]
        raise type(first)("\n".join(messages), "\n".join(hints), code=first.code, fields=fields)


def error_class_for_status(status: int) -> type[HeliostatError]:
    """The class that a client raises for a response with this status."""
    known = {cls.status: cls for cls in _descendants(HeliostatError)}
    return known.get(status, HeliostatError)


def _descendants(cls: type[HeliostatError]) -> list[type[HeliostatError]]:
    return [cls] + [descendant for child in cls.__subclasses__() for descendant in _descendants(child)]


def safe_repr(text: str) -> str:
    """ASCII and short, so that it is safe to print on any terminal."""
    return ascii(text if len(text) <= 64 else text[:64] + "...")


def invalid_field(field: str, what: str) -> Invalid:
    return Invalid(f"{field}: {what}.", "Change that field and try again.", fields={field: what})
