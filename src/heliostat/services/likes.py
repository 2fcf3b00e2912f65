"""Thousands of jobs of one request may be the same: what is said of one is said of all."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def once_for_each(make: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """What is made of each; of one that is there several times, once."""
    made = {key: make(thing) for key, thing in {id(thing): thing for thing in things}.items()}
    return [made[id(thing)] for thing in things]
