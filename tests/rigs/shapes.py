"""Which numbers of processes and threads the rigs run with."""

from typing import Final

SHAPES: Final = ((1, 1), (1, 4))
"""Processes and threads of each. As soon as several processes may write, ``(2, 2)`` and ``(4, 2)`` belong here too."""

SEVERAL_PROCESSES: Final = ((2, 2), (4, 2))
