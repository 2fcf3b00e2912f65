"""The body of error responses."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    code: str
    message: str
    hint: str | None
    fields: dict[str, str]


class ErrorResponse(BaseModel):
    """The body of every error response."""

    error: ErrorDetail
