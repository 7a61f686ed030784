"""Selection: the part of a hit that a fetch sends: layers, parts, kv heads, from which token on."""
from __future__ import annotations

import dataclasses
from typing import Tuple

from .wire import Reader, Record, Writer, u16, u32

TO_END = 0xffff
ALL = (0, TO_END)
Range = Tuple[int, int]


def _within(given: Range, i: int) -> bool:
    return given[0] <= i and (given[1] == TO_END or i < given[1])


@dataclasses.dataclass(frozen=True)
class Selection(Record):
    """Each range is (first, end); end TO_END: all from first on.

    from_token: objects all of whose rows are at lower positions stay away. parts: by their index in
    their layer. heads: rows of one head come whole, whatever is asked for.
    """

    from_token: int = 0
    layers: Range = ALL
    parts: Range = ALL
    heads: Range = ALL

    def has(self, layer: int, part: int) -> bool:
        return _within(self.layers, layer) and _within(self.parts, part)

    def heads_of(self, heads: int) -> int:
        """The number of heads that come, of so many."""
        if heads <= 1 or self.heads == ALL:
            return heads
        return min(self.heads[1], heads) - min(self.heads[0], heads)

    def write(self, w: Writer) -> None:
        u32.write(w, self.from_token)
        for first, end in (self.layers, self.parts, self.heads):
            u16.write(w, first)
            u16.write(w, end)

    @classmethod
    def read(cls, r: Reader) -> Selection:
        from_token = u32.read(r)
        layers, parts, heads = [(u16.read(r), u16.read(r)) for _ in range(3)]
        return cls(from_token, layers, parts, heads)
