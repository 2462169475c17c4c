"""Names that are blanks, or begin or end with some: REST and the pages take and show them as they are."""

import re
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from refold import Memory
from tests.web.site import client_of
from tests.web.test_pages import shown

NAMES = (" ", " lead", "trail ", "\t", "\u3000", "two\nlines", "\u200b")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_keeps_its_blanks(name: str) -> None:
    with Memory() as memory:
        client = client_of(memory)
        chat = memory.conversation(name, project=name)
        message = chat.append("user", "hello")
        chat.scratchpad.set(name, "value")
        memory.project(name).add("hello")
        ids = {"session_id": name}
        assert client.patch("/api/working-memory/working_history", json={**ids, "value": "x"}).status_code == 200
        assert memory.board(session=name).get("working_history") == "x"
        asked: dict[str, Any] = {
            f"/api/sessions/{quote(name, safe='')}": {},
            f"/api/projects/{quote(name, safe='')}": {},
            "/api/working-memory": ids,
            "/api/working-memory/context": ids,
            "/api/why": {"x": message.seq, "session": name},
            "/api/blame": {"key": name, "session": name},
            "/api/search": {"q": "hello", "in": "messages", "session": name},
        }
        for path, query in asked.items():
            assert client.get(path, params=query).status_code == 200, path
        assert client.get("/api/blame", params=asked["/api/blame"]).json()["revisions"]
        hits = client.get("/api/search", params={"q": "hello", "project": name}).json()["hits"]
        assert [hit["entry"]["content"] for hit in hits] == ["hello"]


def test_the_pages_of_a_list_go_on_behind_blanks() -> None:
    with Memory() as memory:
        for name in (*NAMES, "trail", "lead"):
            memory.conversation(name).append("user", "hello")
        client, found, after = client_of(memory), list[str](), dict[str, str]()
        while True:
            page = client.get("/api/sessions", params={"limit": 1, **after}).json()
            found += [row["id"] for row in page["sessions"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert found == memory.conversations()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_blanks_is_seen_and_followed(name: str) -> None:
    with Memory() as memory:
        chat = memory.conversation(name, project=name)
        chat.append("user", "hello")
        chat.scratchpad.set(name, "value")
        chat.state.set(name, "value")
        memory.project(name).add("hello")
        memory.board(session=name).set_working_history("x")
        memory.board(project=name, node=name).set_working_history("x")
        client, walked = client_of(memory), set[str]()
        paths = ["/", "/projects", "/boards", "/search?q=hello&in=messages"]
        while paths:
            path = paths.pop()
            walked.add(path)
            answer = client.get(path)
            assert answer.status_code == 200, path
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            links = re.findall(r"<a ([^>]*)>(.*?)</a>", answer.text, re.DOTALL)
            assert [link for link, text in links if not text.strip() and "aria-label" not in link] == []
            assert all(text.strip() for text in re.findall(r"<h[12][^>]*>(.*?)</h[12]>", answer.text, re.DOTALL))
            found = [unescape(each) for link, _ in links for each in re.findall('href="(/[^"]*)"', link)]
            paths += {each for each in found if "lang=" not in each} - walked - set(paths)
        assert len(walked) > 20
        page = shown(client, "/search?" + urlencode({"q": "hello", "project": name}))
        assert name in [each.get("value") for each in page.all("option") if "selected" in each]
        assert "hello" in page.text
