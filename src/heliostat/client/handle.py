"""`Handle`: a job, workflow or sweep on the server, with the data of the last response."""

from typing import Generic, Self, TypeVar

from heliostat.client.transport import Transport

DataType = TypeVar("DataType")


class Handle(Generic[DataType]):
    """Its properties are those of the last response; `refresh()` updates them."""

    __slots__ = ("_data", "_transport", "id")
    _title = "Handle"  # in repr and in notebooks

    def __init__(self, transport: Transport, number: int, data: DataType | None = None) -> None:
        self._transport = transport
        self._data = data
        self.id = number

    def __repr__(self) -> str:
        return f"<{self._title} {self.id} {self._summary() if self._data else '(not loaded)'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self._title, self.id) == (other._title, other.id)

    def __hash__(self) -> int:
        return hash((self._title, self.id))

    def __int__(self) -> int:
        return self.id

    @property
    def data(self) -> DataType:
        """All fields, as in the API."""
        if self._data is None:
            self.refresh()
        assert self._data is not None  # noqa: S101 - refresh has set it
        return self._data

    def refresh(self) -> Self:
        """Loads the current data from the server."""
        raise NotImplementedError

    def update_data(self, data: DataType) -> None:
        """Replaces the data with that of another response."""
        self._data = data

    def _summary(self) -> str:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError
