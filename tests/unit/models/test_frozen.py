import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from heliostat.models.frozen import copier, quickly_made


@quickly_made
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    names: dict[str, int] = field(default_factory=dict)

    @property
    def both(self) -> int:
        return self.x + self.y


move = copier(Point)


def test_it_is_made_like_any_other() -> None:
    assert Point(1) == Point(x=1, y=2, names={})
    assert Point(1, y=5).both == 6
    assert Point(1).names is not Point(1).names
    assert repr(Point(1)) == "Point(x=1, y=2, names={})"
    assert list(inspect.signature(Point).parameters) == ["x", "y", "names"]
    with pytest.raises(TypeError, match="'z'"):
        Point(1, z=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'x'"):
        Point()  # type: ignore[call-arg]


def test_it_is_frozen_once_it_is_made() -> None:
    for point in (Point(1), move(Point(1), x=3), replace(Point(1), x=3), copy.copy(Point(1))):
        assert type(point) is Point
        with pytest.raises(FrozenInstanceError):
            point.x = 4  # type: ignore[misc]


def test_a_copy_has_new_values_and_leaves_the_first_as_it_was() -> None:
    first = Point(1, 5, {"a": 1})
    second = move(first, x=3)
    assert (first.x, second.x, second.y) == (1, 3, 5)
    assert second.names is first.names
    assert pickle.loads(pickle.dumps(second)) == second


def test_a_copy_with_an_unknown_value_is_refused() -> None:
    with pytest.raises(AttributeError):
        move(Point(1), z=3)


def test_what_is_done_after_making_one_would_be_forgotten_and_so_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Careful:
        x: int

        def __post_init__(self) -> None: ...

    with pytest.raises(TypeError, match="post_init"):
        quickly_made(Careful)


def test_what_could_not_be_made_like_this_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class ByName:
        x: int = field(kw_only=True)

    @dataclass(frozen=True, slots=True)
    class NotGiven:
        x: int = field(init=False, default=1)

    for cls in (ByName, NotGiven):
        with pytest.raises(TypeError, match="by their place"):
            quickly_made(cls)
    with pytest.raises(TypeError, match="derives"):
        type("Further", (Point,), {})
