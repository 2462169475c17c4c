"""The views: one file for each kind of memory, registered here in the order in which a stream holds them."""

from typing import Any, Final

from refold.event import View
from refold.views.actors import ACTORS
from refold.views.board import BOARD
from refold.views.episodes import EPISODES
from refold.views.facts import FACTS
from refold.views.files import FILES
from refold.views.profile import JOURNAL, PROFILE
from refold.views.scratchpad import SCRATCH
from refold.views.session import CONTEXTS, SESSION, WORK
from refold.views.skills import SKILLS
from refold.views.state import STATE
from refold.views.store import SETTINGS, SWITCHES
from refold.views.table import TABLE
from refold.views.window import WINDOW

VIEWS: Final[tuple[View[Any], ...]] = (
    WINDOW,
    SCRATCH,
    STATE,
    SESSION,
    PROFILE,
    JOURNAL,
    FACTS,
    EPISODES,
    SETTINGS,
    WORK,
    CONTEXTS,
    SWITCHES,
    SKILLS,
    BOARD,
    FILES,
    ACTORS,
    TABLE,
)
"""A new view must come last: checkpoint rows from before it existed lack its part, which was empty then."""
