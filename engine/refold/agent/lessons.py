"""Parsing of a model's answer into lessons: bounded and clamped, without secrets, echoes and nonsense. Pure.

Each dropped item has a reason, which never shows a secret. What says nothing about the fact costs no fact: an unknown
category counts as "fact", and whatever is no finite number as an importance of 0.5.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.providers import NoJson
from refold.agent.secrets import secret_in
from refold.agent.tools import is_storable
from refold.entry import CATEGORIES, Entry
from refold.limits import EXTRACTED_CHARS_MAX, EXTRACTED_COUNT_MAX, KEYWORDS_COUNT_MAX
from refold.text import contains, contradiction, entails, is_unspaced
from refold.text import keywords as keywords_of

_KEYWORD_CHARS_MAX: Final = 100
_NUMBER_CHARS_MAX: Final = 9
_MEMORY: Final = "memory "
_SAID_SHARE: Final = 1 / 3
_MEANT_SHARE: Final = 1 / 2  # Of the words of a memory.
_LISTS: Final = ("memories", "items", "facts", "memory")  # The names under which models give the array.
_WORDS: Final = re.compile(r"[a-z]+")
# Words for the one whom most facts are about.
_USER: Final = re.compile(
    r"\b(?:users?|(?:be)?nutzer(?:s|in)?|usu[a\u00e1]ri[oa]|utilisat(?:eur|rice)|utente|gebruiker|u\u017cytkowni(?:k|czka)|"
    r"\u043f\u043e\u043b\u044c\u0437\u043e\u0432\u0430\u0442\u0435\u043b\u044c)\b|\u30e6\u30fc\u30b6\u30fc?|\u7528\u6237|\u7528\u6236|\u4f7f\u7528\u8005|\uc0ac\uc6a9\uc790",
    re.IGNORECASE,
)
_HIRAGANA: Final = re.compile(r"[\u3041-\u309f]+")


class Lesson(Struct, frozen=True):
    """A memory proposed by a model, ready to be stored; `replaces` is the known memory that it is to replace.

    `messages` are the numbers of the messages that it comes from, as the model says; empty if it does not say.
    """

    content: str
    category: str
    keywords: list[str]
    importance: float
    index: int
    replaces: Entry | None = None
    messages: tuple[int, ...] = ()


class Lessons(Struct, frozen=True):
    """The memories proposed by a model, and the reasons why other proposals were dropped."""

    items: tuple[Lesson, ...]
    dropped: tuple[str, ...]


def parse_lessons(
    answer: object,
    *,
    is_cut_off: bool = False,
    echoes: Mapping[str, str] | None = None,
    known: Sequence[Entry] = (),
    profile: Sequence[tuple[str, str]] = (),
) -> Lessons:
    """Parse an answer: an array, an object with one as `memories` or the like, or an array of such objects.

    `echoes` are the contents of the memories that the model was shown, by id: an item that says nothing beyond one of
    them, or beyond an earlier item, is dropped, unless it replaces that one. `known` are the memories that an item can
    replace, numbered from 1. Any other number is ignored and reported among `dropped`; so is that of a memory if
    another one is plainly meant. An item that replaces nothing and says nothing beyond one fact of the `profile`, given
    as key and value, is dropped. Raises `NoJson` for anything else than an array; an empty object is an empty one.
    """
    lessons: list[Lesson] = []
    dropped = ["the answer was cut off; only its whole items were read"] if is_cut_off else []
    contents = {f"{_MEMORY}{memory_id}": content for memory_id, content in (echoes or {}).items()}
    free = dict(enumerate(known, 1))
    for index, item in enumerate(_items(answer), 1):
        lesson = _lesson(item, index) if index <= EXTRACTED_COUNT_MAX else f"over {EXTRACTED_COUNT_MAX = }"
        refusal = ""
        if isinstance(lesson, Lesson):
            number = _replaced_number(cast("dict[str, Any]", item))
            refusal = _refuse_number(lesson, number, free) if number else ""
            lesson = replace(lesson, replaces=None if refusal else free.get(number))
            source = next((name for name, content in contents.items() if _is_repeat(lesson, name, content)), None)
            if source is None and lesson.replaces is None:  # The one that it corrects must not stay.
                source = next((f"the profile ({key})" for key, value in profile if _is_in(lesson, key, value)), None)
            lesson = lesson if source is None else f"{source} says it already"
        if isinstance(lesson, str):
            dropped.append(f"item {index}: {lesson}")
            continue
        lessons.append(lesson)
        contents[f"item {index}"] = lesson.content
        if refusal:
            dropped.append(beside(index, refusal))
        elif lesson.replaces is not None:
            free = {number: entry for number, entry in free.items() if entry is not lesson.replaces}
    return Lessons(tuple(lessons), tuple(dropped[: 2 * EXTRACTED_COUNT_MAX]))


def _is_repeat(lesson: Lesson, name: str, content: str) -> bool:
    """Return whether a lesson says nothing beyond a content; one that replaces a memory may say less than memories."""
    if not entails(content, lesson.content):
        return False
    if lesson.replaces is None or not name.startswith(_MEMORY):
        return True
    return name == f"{_MEMORY}{lesson.replaces.id}" and entails(lesson.content, content)


def _is_in(lesson: Lesson, key: str, value: str) -> bool:
    """Return whether a lesson says nothing beyond a fact of a profile."""
    fact = f"{key.replace('_', ' ').replace('-', ' ')}: {value}"
    own = _subject(lesson.content, (), ())
    return bool(own) and own <= _subject(fact, (), ()) and contradiction(fact, lesson.content) is None


def without_examples(lessons: Lessons, examples: Sequence[str], said: str) -> Lessons:
    """Leave out lessons that only copy an example of the question, unless a third of its words were said."""
    copies = [
        lesson
        for lesson in lessons.items
        if any(contains(each, lesson.content) and contains(lesson.content, each) for each in examples)
    ]
    words = _subject(said, (), ()) if copies else set[str]()
    copies = [lesson for lesson in copies if _share(_subject(lesson.content, (), ()), words) < _SAID_SHARE]
    reasons = (f"item {lesson.index}: it is an example of the question" for lesson in copies)
    return Lessons(tuple(each for each in lessons.items if each not in copies), (*lessons.dropped, *reasons))


def _share(own: AbstractSet[str], words: AbstractSet[str]) -> float:
    return len(own & words) / max(len(own), 1)


def _refuse_number(lesson: Lesson, number: int, known: Mapping[int, Entry]) -> str:
    """Return why the memory of a number must not be replaced by a lesson, or an empty text.

    The model's number holds: an update often says the new value in new words. It is a slip only if the two share no
    word but those of everyday talk, and the lesson has most words of another memory.
    """
    if number not in known:
        return "what it replaces is none of the known memories, or replaced already"
    from refold.index.terms import talk_terms  # noqa: PLC0415 - imported on first use

    names = [entry.speaker for entry in known.values() if entry.speaker is not None]
    own = _subject(lesson.content, lesson.keywords, names)
    if own & _subject(known[number].content, known[number].keywords, names) - talk_terms():
        return ""
    for other, entry in known.items():
        terms = _subject(entry.content, (), names)
        if other != number and own & terms - talk_terms() and _share(terms, own) > _MEANT_SHARE:
            return f"memory {entry.id} is closer to it than memory {known[number].id}, which it was to replace"
    return ""


def _subject(content: str, keywords: Iterable[str], names: Iterable[str]) -> AbstractSet[str]:
    """Return the terms of a memory, without those for users: most memories have these."""
    from refold.index.terms import forms_of, strip_contractions, terms_of  # noqa: PLC0415 - imported on first use

    text = _USER.sub(" ", strip_contractions(" ".join([content, *keywords])))
    people, terms = set(terms_of(" ".join(names), "porter")[0]), terms_of(text, "porter")[0]
    words = (term for term in terms if term not in people and (term.isascii() or _says_something(term)))
    return {forms_of(term, "porter")[0] for term in words}


def _says_something(term: str) -> bool:
    """Return whether a term is no single character of a script without spaces, and no ending in hiragana."""
    return not is_unspaced(term) or (len(term) > 1 and _HIRAGANA.fullmatch(term) is None)


def beside(index: int, reason: str) -> str:
    """Return the reason why an item replaced nothing."""
    return f"item {index}: {reason}; it was added beside them"


def _replaced_number(fields: Mapping[str, Any]) -> int:
    """Return the number of the known memory that an item replaces: 0 for none, -1 for what is no number."""
    value = fields.get("replaces")
    return 0 if value in (None, "", 0) else _number(value)


def _number(value: object) -> int:
    """Return a number that a model gave, -1 for what is none."""
    text = str(value).strip().removeprefix("#") if isinstance(value, (int, str)) else ""
    return int(text) if text.isdecimal() and len(text) <= _NUMBER_CHARS_MAX else -1


def _items(answer: object) -> list[object]:
    """Return the proposed items: of an array, of an object with one, or of several such objects."""
    if isinstance(answer, list):
        wrapped = ((each, _array_in(each)) for each in cast("list[object]", answer))
        return [item for each, items in wrapped for item in ([each] if items is None else items)]
    fields = cast("dict[str, object]", answer) if isinstance(answer, dict) else None
    lone_item: list[object] | None = [] if fields == {} else [answer] if fields and "content" in fields else None
    items = _array_in(fields) if lone_item is None else lone_item
    if items is None:
        got = checks.brief(cast("Any", answer))
        raise NoJson(f"Failed to parse memory extraction JSON: expected an array, got {got}")
    return items


def _array_in(answer: object) -> list[object] | None:
    """Return the array in an object, `None` if it has none."""
    fields = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
    items = None if "content" in fields else next((fields[name] for name in _LISTS if name in fields), None)
    return cast("list[object]", items) if isinstance(items, list) else None


_JSON_NOUNS: Final[Mapping[type, str]] = MappingProxyType(
    {str: "a text", int: "a number", float: "a number", bool: "true or false", list: "an array", type(None): "null"}
)


def _lesson(item: object, index: int) -> Lesson | str:
    """Check a proposal; return it as a lesson, or return the reason not to store it."""
    if not isinstance(item, dict):
        return f"it is {_JSON_NOUNS.get(type(item), 'no JSON')}, not an object"
    fields = cast("dict[str, Any]", item)
    content = fields.get("content")
    if not isinstance(content, str) or not content.strip():
        return "its content is empty"
    keywords = _keywords(fields.get("keywords"), content)
    if len(content) > EXTRACTED_CHARS_MAX:
        return f"its content is over {EXTRACTED_CHARS_MAX = }"
    kind = secret_in("\n".join([content, *keywords]))
    if kind is not None:
        return f"it seems to hold {kind}"
    if not is_storable(content):
        return "its content is no valid Unicode"
    importance = clamp_importance(fields.get("importance"))
    numbers = _message_numbers(fields.get("messages"))
    return Lesson(content.strip(), _category(fields.get("category")), keywords, importance, index, messages=numbers)


def _category(proposed: object) -> str:
    """Return the first category that an item names; anything else is a fact."""
    words = _WORDS.findall(proposed.lower()) if isinstance(proposed, str) else []
    return next((word for word in words if word in CATEGORIES), "fact")


def _message_numbers(proposed: object) -> tuple[int, ...]:
    """Return the numbers of messages that an item names: none if it names anything else beside them."""
    items = cast("list[object]", proposed) if isinstance(proposed, list) else [proposed]
    numbers = tuple(map(_number, items))
    return numbers if min(numbers, default=0) > 0 else ()


def clamp_importance(importance: object) -> float:
    """Clamp an importance to the range 0 to 1; anything but a finite number counts as 0.5."""
    is_number = isinstance(importance, (int, float)) and not isinstance(importance, bool)
    # An integer can be too large for a float.
    if not is_number or (isinstance(importance, float) and not isfinite(importance)):
        return 0.5
    return float(min(max(cast("float", importance), 0), 1))


def _keywords(proposed: object, content: str) -> list[str]:
    items = cast("list[object]", proposed) if isinstance(proposed, list) else []
    words = [word.strip()[:_KEYWORD_CHARS_MAX] for word in items if isinstance(word, str) and word.strip()]
    return list([word for word in words if is_storable(word)] or keywords_of(content))[:KEYWORDS_COUNT_MAX]
