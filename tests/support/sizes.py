"""One test at several sizes: what every run has time for, what CI has, and what only a soak has."""

from typing import Any

import pytest


def sizes(name: str, *, quick: Any = None, slow: Any = None, soak: Any = None) -> pytest.MarkDecorator:
    """Return a parametrisation of ``name``; a size that is ``None`` is left out."""
    marks = {"quick": [], "slow": [pytest.mark.slow], "soak": [pytest.mark.soak, pytest.mark.timeout(7_200)]}
    values = {"quick": quick, "slow": slow, "soak": soak}
    return pytest.mark.parametrize(
        name, [pytest.param(values[size], id=size, marks=marks[size]) for size in marks if values[size] is not None]
    )
