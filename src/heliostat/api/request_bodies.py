"""Request bodies: limits of what is validated, and routes that parse and validate off the event loop."""

import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Body
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from heliostat.api.validation_errors import FIELDS_HINT, MAX_PROBLEMS, read_model
from heliostat.errors import BadRequest

_MAX_FIELDS = 1000  # of an object: each unknown field would be an error
_MAX_DEPTH = 50


class RequestBody(BaseModel):
    """Base of all bodies. Unknown fields are refused, and counted before anything is validated."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    fields_hint: ClassVar[str] = FIELDS_HINT

    @model_validator(mode="before")
    @classmethod
    def _check_field_count(cls, values: object) -> object:
        if isinstance(values, dict) and len(values) > _MAX_FIELDS:
            raise ValueError(f"an object can have at most {_MAX_FIELDS} fields")
        return values


@dataclass(frozen=True)
class Entries:
    """Limits a list or a dict: counted before it is validated, which stops after some errors."""

    maximum: int
    minimum: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        schema["max_length"] = self.maximum
        if schema["type"] == "dict":
            schema["fail_fast"] = True
        check = self._each if schema["type"] == "list" else self._all
        return core_schema.no_info_wrap_validator_function(check, schema)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler(schema)
        return described | ({"minItems": self.minimum} if self.minimum else {})

    def _all(self, values: object, validate: Callable[[object], Any]) -> Any:
        self._count(values)
        return validate(values)

    def _each(self, values: object, validate: Callable[[object], Any]) -> Any:
        """Other threads can run between two entries."""
        if not isinstance(values, list):
            return validate(values)
        self._count(values)
        validated: list[Any] = []
        problems: list[InitErrorDetails] = []
        for index, value in enumerate(values):
            try:
                validated += validate([value])
            except ValidationError as error:
                problems += _moved(error, index)
            if len(problems) >= MAX_PROBLEMS:
                break
        if problems:
            raise ValidationError.from_exception_data("list", problems)
        return validated

    def _count(self, values: object) -> None:
        if isinstance(values, list | dict) and len(values) > self.maximum:
            raise ValueError(f"must have at most {self.maximum} items")
        if isinstance(values, list | dict) and len(values) < self.minimum:
            raise ValueError("must not be empty")


def _moved(error: ValidationError, index: int) -> Iterator[InitErrorDetails]:
    """The errors of a list with one entry, as those of the entry with this index."""
    for problem in error.errors(include_url=False):
        kind = PydanticCustomError(problem["type"], problem["msg"], problem.get("ctx"))
        yield InitErrorDetails(type=kind, loc=(index, *problem["loc"][1:]), input=problem["input"])


def described(**schema: Any) -> Any:
    """Only describes what services check themselves, with better messages."""
    return Field(json_schema_extra=schema)


def without_null(schema: dict[str, Any]) -> None:
    """For fields that may be omitted, but not be null."""
    schema["anyOf"] = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    schema.pop("default", None)


def check_depth(value: dict[str, Any]) -> dict[str, Any]:
    """For fields with any content: code that handles it may recurse."""
    level: Iterable[Any] = (value,)
    for _ in range(_MAX_DEPTH):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _members(outer)]
        if not level:
            return value
    raise ValueError("is nested too deeply")


JsonObject = Annotated[dict[str, Any], AfterValidator(check_depth)]


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def parse_json(text: bytes) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(f"The body is not JSON: {error.msg}.", "Send a JSON object.") from None
    except (ValueError, RecursionError):
        raise BadRequest(
            "The body cannot be read.", "Send a JSON object in UTF-8, not nested too deeply."
        ) from None


def no_json_object() -> BadRequest:
    return BadRequest(
        "The body is not a JSON object.", f"Send an object with Content-Type: application/json. {FIELDS_HINT}"
    )


class BodyRouter(APIRouter):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"route_class": BodyRoute} | options)


class BodyRoute(APIRoute):
    """Parses and validates the body in the thread that runs the endpoint."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _with_body(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_UnparsedRequest(request.scope, request.receive))

        return handler


@dataclass(frozen=True)
class _UnparsedJson:
    text: bytes


class _UnparsedRequest(Request):
    async def json(self) -> _UnparsedJson:
        return _UnparsedJson(await self.body())


@dataclass(frozen=True)
class _Unparsed:
    """The type of a parameter that gets the unparsed body; described as its model."""

    model: type[BaseModel]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        model = handler.generate_schema(self.model)
        return core_schema.no_info_wrap_validator_function(lambda body, _: body, model)

    def read(self, body: object) -> BaseModel:
        content = parse_json(body.text) if isinstance(body, _UnparsedJson) else None
        if not isinstance(content, dict):
            raise no_json_object()
        return read_model(self.model, content)


def _with_body(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint with an unparsed body instead of its model."""
    signature = inspect.signature(endpoint)
    models = {name: model for name, one in signature.parameters.items() if (model := _model_of(one))}
    if not models:
        return endpoint
    ((name, model),) = models.items()
    body = _Unparsed(model)

    @functools.wraps(endpoint)
    def run(**arguments: Any) -> Any:
        return endpoint(**arguments | {name: body.read(arguments[name])})

    @functools.wraps(endpoint)
    async def run_async(**arguments: Any) -> Any:
        return await endpoint(**arguments | {name: await run_in_threadpool(body.read, arguments[name])})

    wrapper: Any = run_async if inspect.iscoroutinefunction(endpoint) else run
    parameters = [
        one.replace(annotation=Annotated[Any, body, Body()]) if one.name == name else one
        for one in signature.parameters.values()
    ]
    wrapper.__signature__ = signature.replace(parameters=parameters)
    return wrapper  # type: ignore[no-any-return]


def _model_of(parameter: inspect.Parameter) -> type[BaseModel] | None:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
