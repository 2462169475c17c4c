"""The contract of a memory in lists and dicts: small, slow, and no line of it shared with the engine.

``Model`` has a method for each public mutation, called ``class_verb``, which takes what the verb takes, the handle's
name first. It returns what the verb has to return: a plain value, fields of the result by name, or ``...`` where the
readings afterwards say it all.
"""

from tests.differential.boards import Boards


class Model(Boards):
    """A whole memory."""
