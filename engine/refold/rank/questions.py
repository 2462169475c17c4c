"""How much of a text is a question: what only asks seldom holds the answer."""

import re
from typing import Final

_SPEAKER: Final = re.compile(r"\w[\w .'-]{0,40}: ")
_SENTENCES: Final = re.compile(r"(?<=[.?!\u061f])\s+|(?<=[\u3002\uff01\uff1f])\s*")
_QUESTION_MARKS: Final = ("?", "\u061f", "\uff1f")


def question_share(text: str) -> float:
    """Return which part of a text, by characters, stands in sentences that end as questions; a speaker is left out.

    >>> question_share("Ada: How are you?")
    1.0
    """
    speaker = _SPEAKER.match(text)
    said = text[speaker.end() :] if speaker else text
    if not any(mark in said for mark in _QUESTION_MARKS):
        return 0.0
    sentences = [sentence.strip() for sentence in _SENTENCES.split(said)]
    asked = sum(len(sentence) for sentence in sentences if sentence.endswith(_QUESTION_MARKS))
    return asked / max(1, sum(map(len, sentences)))
