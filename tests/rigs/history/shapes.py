"""Which numbers of processes and threads the rigs run with."""

from typing import Final

SHAPES: Final = ((1, 1), (1, 4), (2, 2), (4, 2))
