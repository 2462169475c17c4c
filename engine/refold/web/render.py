"""Rendering: templates, the words of a language, and the helper functions of templates."""

import datetime as dates
import shlex
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from refold.importers.values import message_json
from refold.message import Message
from refold.text import countable_texts
from refold.web import words
from refold.web.site import Site

LANGUAGE_COOKIE: Final = "refold_lang"
BADGES: Final = {"preference": "PREF", "convention": "CONV", "pattern": "PATN", "correction": "WARN", "fact": "FACT"}
_STARS: Final = 5
_BRIEF_CHARS: Final = 140
_VALUE_CHARS: Final = 400
_YEAR_SECONDS: Final = 365 * 24 * 3600
_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)


def language_of(request: Request) -> str:
    """Return the language of an answer: the user's explicit choice, else the language that the browser prefers."""
    for given in (request.query_params.get("lang"), request.cookies.get(LANGUAGE_COOKIE)):
        if given in words.LANGUAGES:
            return given
    return words.choose_language(request.headers.get("accept-language", ""))


def page(site: Site, request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a template as an answer in the language of the request."""
    language = language_of(request)
    chosen = request.query_params.get("lang")

    def in_language(code: str) -> str:
        pairs = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
        return f"{_raw_path(request)}?{urlencode([*pairs, ('lang', code)])}"

    def query_with(**changed: Any) -> str:
        pairs = {name: value for name, value in request.query_params.items() if name != "lang"}
        merged = pairs | changed
        return urlencode({name: value for name, value in merged.items() if value not in {None, ""}})

    context: dict[str, Any] = {
        "lang": language,
        "languages": words.LANGUAGES,
        "t": partial(words.word, language=language),
        "in_language": in_language,
        "query_with": query_with,
        "writes": site.writes,
        "token": site.token,
        "here": "",
    }
    content = _environment().get_template(template).render(context | values)
    response = Response(content, status, media_type="text/html; charset=utf-8")
    response.headers["vary"] = "accept-language, cookie"
    if chosen in words.LANGUAGES:
        response.set_cookie(LANGUAGE_COOKIE, chosen, max_age=_YEAR_SECONDS, httponly=True, samesite="strict")
    return response


def _raw_path(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode("utf-8", "replace")
    # A link that begins with two slashes leads to another host.
    return "/" + raw.split(b"?")[0].decode("latin-1").lstrip("/\\")


def url(*names: object) -> str:
    """Return the path of a page from its names, with every special character escaped."""
    return "".join(f"/{quote(str(name), safe='')}" for name in names)


def visible_name(name: str) -> str:
    """Return a name as it is shown: with quotes and escapes if blanks at its ends, or all of it, would not be seen."""
    return name if name == name.strip() and any(map(str.isprintable, name)) else repr(name)


def _query_pairs(**about: Any) -> list[tuple[str, Any]]:
    """Return the pairs of a query that have a value."""
    return [(name, value) for name, value in about.items() if value is not None]


def time_text(time_ns: int | None) -> str:
    """Format a time for readers, in UTC."""
    if time_ns is None:
        return "-"
    return f"{_EPOCH + dates.timedelta(microseconds=time_ns // 1_000):%Y-%m-%d %H:%M:%S}"


def value_text(value: Any) -> str:
    """Format a value on one line: a text as it is, any other value as JSON; a long one is cut."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


def pretty_json(value: Any) -> str:
    """Format a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def text_of(message: dict[str, Any]) -> str:
    """Return the text and the calls of a message."""
    return "\n".join(countable_texts(message.get("content"), message.get("tool_calls")))


def message_row(message: Any) -> dict[str, Any]:
    """Return the values that a page shows for a message, given as a `Message` or as plain values."""
    fields: dict[str, Any] = message_json(message) if isinstance(message, Message) else message
    return {
        "seq": fields["seq"],
        "role": fields["role"],
        "speaker": fields.get("name") or fields["role"],
        "text": text_of(fields),
        "tokens": fields["tokens"],
        "pinned": fields.get("pinned", False),
        "erased": fields.get("erased", False),
    }


def _brief(message: dict[str, Any]) -> str:
    return " ".join(text_of(message)[: 4 * _BRIEF_CHARS].split())[:_BRIEF_CHARS]


def _share(value: float, most: float) -> str:
    return f"{max(0.0, min(100.0, 100 * value / most)):.2f}" if most > 0 else "0"


def _track_position(seq: int, first: int, last: int) -> str:
    """Return the position of a seq on a track that is 1,000 wide."""
    return f"{1_000 * max(0.0, min(1.0, (seq - first) / (last - first))):.1f}" if last > first else "500"


def _stars(importance: float) -> int:
    return max(0, min(_STARS, round(importance * _STARS)))


def _source_class(skill: Any) -> str:
    """Return the class that colours a skill by its source."""
    if skill.source == "external":
        return "vercel"
    return skill.source if skill.source in {"builtin", "generated"} else "local"


def _markdown(text: str) -> Markup:
    """Render Markdown as HTML; HTML in it is shown as text, and only harmless links become links."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(text)
    for token in tokens:
        if token.type.startswith("heading_"):  # They belong below the headings of the page.
            token.tag = f"h{min(int(token.tag[1:]) + 3, 6)}"
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - the parser escapes what it must


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names: dict[str, Any] = {
        "badges": BADGES,
        "url": url,
        "visible": visible_name,
        "asked": _query_pairs,
        "when": time_text,
        "value_text": value_text,
        "pretty": pretty_json,
        "brief": _brief,
        "share": _share,
        "spread": _track_position,
        "star_count": _stars,
        "source_class": _source_class,
        "markdown": _markdown,
        "grouped": "{:,}".format,
        "shell": shlex.quote,
        "literal": repr,
    }
    environment.globals.update(names)
    return environment
