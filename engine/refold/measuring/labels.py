"""What answers what: the labels of public sets, those of a file of queries, and what an agent's own calls tell.

A conversation that has no labels is not without needs: when an assistant calls a tool, the names, numbers and dates in
its arguments stood somewhere before. The last message that said one of them is what the call needed.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from refold.measuring.cases import WEEK_NS, Case, Item, Question, places

_DIALOGUE: Final = re.compile(r"D(\d+):(\d+)")
_UNANSWERABLE: Final = "5"
"""LoCoMo's adversarial questions have no answer in the conversation, so nothing that is found is right."""

_SPAN_WEEKS: Final = 26
_VALUE_CHARS_MIN: Final = 5
_TELLING: Final = re.compile(r"\d")


def labelled(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    """Return a conversation with the questions that its source has, or with those of its own tool calls."""
    if _asks(source.get("qa")):
        return _locomo(name, items, source)
    if _asks_for_sessions(source):
        return _longmemeval(name, items, source)
    if _asks(source.get("questions")):
        return _beam(name, items, source)
    return Case("tool calls", name, items, tuple(_called(items)))


def _asks(value: Any) -> bool:
    """Return whether something is a list of questions as public sets have them; a source may say anything."""
    return isinstance(value, list) and all(
        isinstance(each, dict) and "question" in each for each in cast("list[object]", value)
    )


def _asks_for_sessions(source: dict[str, Any]) -> bool:
    """Return whether a source has questions with the sessions that answer each, as LongMemEval has them."""
    asked, cited = source.get("questions"), source.get("answer_session_ids")
    if not isinstance(asked, list) or not isinstance(cited, list):
        return False
    lists = cast("list[object]", cited)
    return len(cast("list[object]", asked)) == len(lists) and all(isinstance(each, list) for each in lists)


def _locomo(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    place_of = places(items)
    questions: list[Question] = []
    for asked in source["qa"]:
        turns = _DIALOGUE.findall(" ".join(map(str, _leaves(asked.get("evidence")))))
        cited = {f"D{one.lstrip('0') or 0}:{two.lstrip('0') or 0}" for one, two in turns}
        category = str(asked.get("category"))
        found = () if category == _UNANSWERABLE else (place_of[key] for key in cited if key in place_of)
        questions.append(Question(str(asked["question"]), category, frozenset(found), len(items)))
    return Case("LoCoMo", name, items, tuple(questions))


def _beam(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    """Few messages have a time, so all are drawn out by position, and no word of a date is added to them."""
    place_of = places(items)
    span = _SPAN_WEEKS * WEEK_NS
    timed = tuple(
        replace(item, accessed_ns=place * span // max(len(items) - 1, 1), occurred_ns=None)
        for place, item in enumerate(items)
    )
    questions = tuple(
        Question(
            str(asked["question"]),
            str(asked.get("type")),
            frozenset(place_of[str(key)] for key in _leaves(asked.get("source_chat_ids")) if str(key) in place_of),
            len(items),
        )
        for asked in source["questions"]
    )
    return Case("BEAM", name, timed, questions)


def _longmemeval(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    sessions = list(dict.fromkeys(str(item.session) for item in items))
    number_of = {session: number for number, session in enumerate(sessions)}
    category = str(source.get("question_type"))
    questions = [
        Question(
            str(text), category, frozenset(number_of[each] for each in _texts(cited) if each in number_of), len(items)
        )
        for text, cited in zip(source["questions"], source["answer_session_ids"], strict=True)
    ]
    units = tuple(number_of[str(item.session)] for item in items)
    return Case("LongMemEval", name, items, tuple(questions), units)


def _leaves(value: Any) -> list[Any]:
    """Return everything in a nest of lists and objects, in its order; the nest may be of any depth."""
    leaves: list[Any] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting.extend(reversed(list(cast("dict[str, Any]", each).values())))
        elif isinstance(each, list):
            waiting.extend(reversed(cast("list[object]", each)))
        elif each is not None:
            leaves.append(each)
    return leaves


def _texts(value: Any) -> list[str]:
    return list(map(str, _leaves(value)))


def _called(items: tuple[Item, ...]) -> Iterator[Question]:
    """Yield a question for each call whose arguments repeat what was said before."""
    asked = ""
    last: dict[str, tuple[int, int | None]] = {}
    for place, item in enumerate(items):
        if item.call_ids:
            evidence = {_last_saying(items, place, value, last) for value in _values(item.text)} - {None}
            if evidence:
                yield Question(asked, "tool call", frozenset(cast("set[int]", evidence)), place)
        elif item.role == "user":
            asked = item.text


def _last_saying(items: tuple[Item, ...], end: int, value: str, last: dict[str, tuple[int, int | None]]) -> int | None:
    """Return the last place before ``end`` whose text has a value; no text is looked through twice for the same one."""
    begin, before = last.get(value, (0, None))
    found = next((place for place in range(end - 1, begin - 1, -1) if value in items[place].text), before)
    last[value] = end, found
    return found


def _values(text: str) -> set[str]:
    """Return the texts in the arguments of calls that tell one thing from another: long enough, and with a digit."""
    values: set[str] = set()
    for line in text.splitlines():
        try:
            found = _leaves(msgspec.json.decode(line))
        except (msgspec.DecodeError, RecursionError):
            continue  # The name of a tool, what was said beside the call, or a nest that no tool could read.
        values.update(leaf for leaf in found if isinstance(leaf, str) and len(leaf) >= _VALUE_CHARS_MIN)
    return {value for value in values if _TELLING.search(value)}
