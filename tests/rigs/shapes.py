"""Which numbers of processes and threads the rigs run with."""

from typing import Final

# One process writes at a time so far; as soon as several may, the second line takes the place of the first.
SHAPES: Final = ((1, 1), (1, 4))
# SHAPES: Final = ((1, 1), (1, 4), (2, 2), (4, 2))  # noqa: ERA001
