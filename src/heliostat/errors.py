"""Everything that can go wrong and be said to a person.

    HeliostatError
    ├── BadRequest          400  the request cannot be read
    │   └── Invalid         422  it can be read, but a field is wrong
    ├── NotAuthenticated    401
    ├── Forbidden           403
    ├── NotFound            404
    ├── Conflict            409  the thing is in a state that does not allow this
    ├── TooLarge            413
    ├── TooManyRequests     429
    ├── StoreUnavailable    503  the database cannot be written
    ├── EngineUnavailable   502  what runs the jobs does not answer
    └── ServerUnreachable   (client only) nobody answers
Each has a code for programs, a message that names the cause, and a hint that names the next step.
"""

from collections.abc import Mapping


class HeliostatError(Exception):
    """Something went wrong."""

    status = 500
    code = "internal"
    default_hint: str | None = None  # where none is given

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
    """We do not know who you are."""

    status = 401
    code = "not_authenticated"


class Forbidden(HeliostatError):
    """You may not do this."""

    status = 403
    code = "forbidden"


class NotFound(HeliostatError):
    """There is no such thing."""

    status = 404
    code = "not_found"


class Conflict(HeliostatError):
    """The present state does not allow this."""

    status = 409
    code = "conflict"


class TooLarge(HeliostatError):
    """The request is too large."""

    status = 413
    code = "too_large"


class TooManyRequests(HeliostatError):
    """Too many tries."""

    status = 429
    code = "too_many_requests"


class StoreUnavailable(HeliostatError):
    """The database cannot be written."""

    status = 503
    code = "store_unavailable"


class EngineUnavailable(HeliostatError):
    """What runs the jobs does not answer."""

    status = 502
    code = "engine_unavailable"
    usual_hint = "Try again in a while; an admin finds out more with `helio doctor`."


class ServerUnreachable(HeliostatError):
    """No Heliostat server answers."""

    status = 0
    code = "server_unreachable"


def error_class_for_status(status: int) -> type[HeliostatError]:
    """The class a client raises for an answer with this status."""
    known = {cls.status: cls for cls in _descendants(HeliostatError)}
    return known.get(status, HeliostatError)


def _descendants(cls: type[HeliostatError]) -> list[type[HeliostatError]]:
    return [cls] + [found for child in cls.__subclasses__() for found in _descendants(child)]


def safe_repr(text: str) -> str:
    """Safe to print on any terminal, however odd and long the text is."""
    return ascii(text if len(text) <= 64 else text[:64] + "...")


def invalid_field(field: str, what: str) -> Invalid:
    return Invalid(f"{field}: {what}.", "Change that field and try again.", fields={field: what})
