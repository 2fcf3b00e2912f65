"""How Slurm numbers its jobs: `100`, and `100_3` for the element 3 of the array 100. Pure."""

import re

_TEXT = re.compile(r"(\d{1,18})(?:_(\d{1,9}))?", re.ASCII)
_SHIFT = 64


class ElementNumber(int):
    """The number of an array's element. It goes wherever the number of a job goes, is equal to no other, and is
    written as Slurm writes it."""

    @classmethod
    def of(cls, array: int, index: int) -> "ElementNumber":
        return cls((index + 1) << _SHIFT | array)

    @property
    def array(self) -> int:
        return self & (1 << _SHIFT) - 1

    @property
    def index(self) -> int:
        return (self >> _SHIFT) - 1

    def __str__(self) -> str:
        return f"{self.array}_{self.index}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def read_number(text: str) -> int | None:
    """`12` or `12_3`; None: neither, as `12_[3-9]`, which stands for several."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    return ElementNumber.of(int(found[1]), int(found[2])) if found[2] else int(found[1])
