"""The pages in a real browser: the scrubber, live parts, keys, languages, and what a judge of accessibility says."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.web import app_of, words
from refold.web.server import web_server
from tests.web import showcase
from tests.web.site import filled
from tests.web.test_pages import is_part, pages_of

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
AXE = Path(__file__).parents[2] / "tools" / "node" / "node_modules" / "axe-core" / "axe.min.js"
SECONDS = 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its chromedriver is installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Site:
    """A memory on a server of its own, and its address."""

    def __init__(self, memory: Memory, **options: Any) -> None:
        self.memory = memory
        self.server = web_server(app_of(memory, writes=True, **options))
        self.server.config.host, self.server.config.port = "127.0.0.1", 0
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        until(lambda: self.server.started)
        self.address = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join()


def until(holds: Callable[[], Any]) -> Any:
    """Wait until something holds; return what it is."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to hold")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Memory() as memory:
        made = Site(filled(memory))
        yield made
        made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver: Any = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    sized(made, 1_320)
    yield made
    made.quit()


def sized(browser: Any, width: int, scale: int = 1) -> None:
    metrics = {"width": width, "height": 1_000, "deviceScaleFactor": scale, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def scheme(browser: Any, value: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": value}]}
    )


def opened(browser: Any, site: Site, path: str) -> None:
    browser.get(f"{site.address}{path}")


def pressed(browser: Any, x: int, y: int) -> None:
    for kind in ("mousePressed", "mouseReleased"):
        about = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", about)


def complaints(browser: Any) -> list[str]:
    """Return what the browser complained of: errors of scripts, and what the policy of the pages refused."""
    return [each["message"] for each in browser.get_log("browser") if "404" not in each["message"]]


def scrubbing(browser: Any, site: Site, at: str = "") -> Any:
    opened(browser, site, f"/sessions/trip{at}")
    until(lambda: browser.execute_script("return document.getElementById('scrubber').dataset.ready"))
    return browser.find_element("id", "range")


def shown_at(browser: Any) -> int:
    return int(browser.execute_script("return document.querySelector('#moment > .moment').dataset.at"))


def seqs_of(site: Site) -> list[int]:
    return [stamp.seq for _, stamp in site.memory.conversation("trip").events()]


def test_a_session_is_dragged_and_walked_by_keys(browser: Any, site: Site) -> None:
    actions: Any = pytest.importorskip("selenium.webdriver").ActionChains
    keys: Any = pytest.importorskip("selenium.webdriver.common.keys").Keys
    track, seqs = scrubbing(browser, site), seqs_of(site)
    assert shown_at(browser) == seqs[-1]
    track.send_keys(keys.ARROW_LEFT)
    until(lambda: shown_at(browser) == seqs[-2])
    track.send_keys(keys.ARROW_LEFT, keys.ARROW_LEFT)
    until(lambda: shown_at(browser) == seqs[-4])
    track.send_keys(keys.ARROW_RIGHT)
    until(lambda: shown_at(browser) == seqs[-3])
    assert browser.current_url.endswith(f"?at={seqs[-3]}")
    track.send_keys(keys.HOME)
    until(lambda: shown_at(browser) < seqs[1])
    width = track.size["width"]
    drag = actions(browser).move_to_element_with_offset(track, -width // 2 + 8, 0).click_and_hold()
    for _ in range(10):
        drag = drag.move_by_offset((width - 16) // 20, 0)
    drag.release().perform()
    middle = until(lambda: seqs[3] < shown_at(browser) < seqs[-3] and shown_at(browser))
    assert middle in seqs
    messages = [row.text for row in browser.find_elements("css selector", "li.message:not(.left) .text")]
    assert messages == [message.content for message in site.memory.conversation("trip").at(middle).window()]
    assert complaints(browser) == []


def test_what_leaves_is_struck_through_while_it_plays(browser: Any, site: Site) -> None:
    step = next(step for step in site.memory.conversation("trip").replay() if step.evicted)
    seqs = seqs_of(site)
    scrubbing(browser, site, f"?at={seqs[seqs.index(step.stamp.seq) - 1]}")
    play = browser.find_element("id", "play")
    play.click()
    assert play.get_attribute("aria-pressed") == "true"
    struck = until(lambda: [each.text for each in browser.find_elements("css selector", "li.left del")])
    assert struck == [message.content for message in step.evicted]
    until(lambda: shown_at(browser) > step.stamp.seq)
    play.click()
    until(lambda: play.get_attribute("aria-pressed") == "false")
    assert complaints(browser) == []


def test_a_link_leads_to_its_moment(browser: Any, site: Site) -> None:
    seqs = seqs_of(site)
    scrubbing(browser, site, f"?at={seqs[5]}")
    assert shown_at(browser) == seqs[5]
    browser.find_element("id", "next").click()
    until(lambda: shown_at(browser) == seqs[6])
    field = browser.find_element("id", "at")
    field.clear()
    field.send_keys(str(seqs[8]))
    field.submit()
    until(lambda: shown_at(browser) == seqs[8])


def test_the_second_track_moves_with_the_first(browser: Any, site: Site) -> None:
    keys: Any = pytest.importorskip("selenium.webdriver.common.keys").Keys
    seqs = seqs_of(site)
    opened(browser, site, f"/sessions/trip/what-if?window_tokens=40&eviction=fifo&at={seqs[9]}")
    until(lambda: browser.execute_script("return document.getElementById('scrubber').dataset.ready"))
    cursor = browser.find_element("id", "cursor")
    before = float(cursor.get_attribute("x1"))
    browser.find_element("id", "range").send_keys(keys.ARROW_RIGHT, keys.ARROW_RIGHT)
    moved = "return document.querySelector('#moment > .columns').dataset.at"
    until(lambda: int(browser.execute_script(moved)) == seqs[11])
    assert float(cursor.get_attribute("x1")) > before
    assert f"at={seqs[11]}" in browser.current_url
    assert "window_tokens=40&eviction=fifo" in browser.current_url
    held = [row.text for row in browser.find_elements("css selector", "#h-other")]
    assert held == ["With 40 tokens · fifo"]
    scenario = site.memory.what_if(window_tokens=40, eviction="fifo").memory.at(seqs[11]).conversation("trip")
    shown = browser.find_elements("css selector", "[aria-labelledby=h-other] .text")
    assert [row.text for row in shown] == [message.content for message in scenario.window()]
    assert complaints(browser) == []


def test_another_policy_is_said_to_be_looked_up_and_its_track_is_dragged(browser: Any, site: Site) -> None:
    keys: Any = pytest.importorskip("selenium.webdriver.common.keys").Keys
    seqs = seqs_of(site)
    opened(browser, site, f"/sessions/trip/what-if?lang=en&window_tokens=40&at={seqs[9]}")
    until(lambda: browser.execute_script("return document.getElementById('scrubber').dataset.ready"))
    status = "form.filters [role=status][aria-live=polite]"
    assert not browser.find_element("css selector", status).is_displayed()
    browser.execute_script(
        f"""const status = document.querySelector("{status}"); window.said = [];
        new MutationObserver(() => window.said.push(status.checkVisibility() && status.textContent))
          .observe(status.closest("form"), {{ attributes: true }});"""
    )
    browser.find_element("id", "range").send_keys(keys.ARROW_RIGHT)
    until(lambda: f"at={seqs[10]}" in browser.current_url)
    field = browser.find_element("css selector", "form.filters [name=window_tokens]")
    field.clear()
    field.send_keys("60", keys.ENTER)
    until(lambda: "60 tokens" in browser.execute_script("return document.getElementById('h-other').textContent"))
    assert "Looking it up…" in browser.execute_script("return window.said"), "nothing was loaded anew"
    assert not browser.find_element("css selector", status).is_displayed()
    assert {"window_tokens=60", f"at={seqs[10]}"} <= set(browser.current_url.partition("?")[2].split("&"))
    until(lambda: browser.execute_script("return document.getElementById('scrubber').dataset.ready"))
    browser.find_element("id", "range").send_keys(keys.ARROW_LEFT)
    until(lambda: f"at={seqs[9]}" in browser.current_url)
    assert complaints(browser) == []


def test_a_question_is_answered_in_a_dialog_that_keeps_the_focus(browser: Any, site: Site) -> None:
    keys: Any = pytest.importorskip("selenium.webdriver.common.keys").Keys
    actions: Any = pytest.importorskip("selenium.webdriver").ActionChains
    step = next(step for step in site.memory.conversation("trip").replay() if step.evicted)
    scrubbing(browser, site, f"?lang=en&at={step.stamp.seq}")
    link = browser.find_element("css selector", "li.left a.ask")
    dialog = browser.find_element("id", "dialog")
    ways: tuple[Callable[[], Any], ...] = (
        lambda: browser.find_element("tag name", "body").send_keys(keys.ESCAPE),
        lambda: dialog.find_element("css selector", ".close").click(),
        lambda: pressed(browser, 3, 3),
    )
    for leave in ways:
        link.click()
        until(lambda: len(dialog.find_elements("css selector", ".chain li")) == 2)
        assert "it left the window" in dialog.text
        for _ in range(8):
            actions(browser).send_keys(keys.TAB).perform()
            focused = "const at = document.activeElement; return at === document.body || !!at.closest('#dialog')"
            assert browser.execute_script(focused)
        leave()
        until(lambda: not dialog.get_attribute("open"))
    assert complaints(browser) == []


def test_the_panel_over_a_session_switches_skills_in_place(browser: Any, site: Site) -> None:
    scrubbing(browser, site, "?lang=en")
    browser.find_element("css selector", ".title a[data-ask]").click()
    switch = "#dialog button[role=switch][aria-label=harbour-skill]"
    for wanted in ("false", "true"):
        until(lambda: browser.find_elements("css selector", switch))
        browser.find_element("css selector", switch).click()
        until(partial(browser.find_elements, "css selector", f"{switch}[aria-checked={wanted}]"))
        assert site.memory.skills.library.is_enabled("harbour-skill") is (wanted == "true")
    assert browser.find_element("id", "dialog").get_attribute("open")
    assert complaints(browser) == []


def test_a_verification_shows_its_progress_and_what_came_out(browser: Any, site: Site) -> None:
    opened(browser, site, "/store?lang=en")
    browser.find_element("css selector", "form[data-progress] button").click()
    sound = f"The store is sound: {site.memory.head} events."
    text = "return document.getElementById('verify').textContent"
    until(lambda: sound in browser.execute_script(text))
    assert browser.current_url.endswith("lang=en"), "nothing was loaded anew"
    assert complaints(browser) == []


def test_a_search_answers_while_it_is_typed(browser: Any, site: Site) -> None:
    opened(browser, site, "/search?project=acme%2Fapi")
    browser.find_element("name", "q").send_keys("harbour preference")
    hits = until(lambda: browser.find_elements("css selector", ".hit"))
    assert "preference" in hits[0].text
    assert complaints(browser) == []


def test_a_board_is_live_and_escape_leaves_it(browser: Any, site: Site) -> None:
    keys: Any = pytest.importorskip("selenium.webdriver.common.keys").Keys
    opened(browser, site, "/board?session_id=trip")
    until(lambda: browser.find_elements("css selector", "#notices[data-open]"))
    words_now = f"changed at {time.monotonic()}"
    site.memory.board(session="trip").set_working_history(words_now)
    until(lambda: words_now in browser.find_element("id", "live").text)
    browser.find_element("tag name", "body").send_keys(keys.ESCAPE)
    until(lambda: browser.current_url.endswith("/boards"))


def test_a_notice_is_shown_and_said(browser: Any, site: Site) -> None:
    opened(browser, site, "/?lang=en")
    until(lambda: browser.find_elements("css selector", "#notices[data-open]"))
    site.memory.skills.library.learn("add-api-endpoint", "Adds an endpoint.", "Body.")
    notice = until(lambda: browser.find_elements("css selector", ".notice"))[0]
    assert notice.text == "Generated skill: 'add-api-endpoint' from this session"


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_judge_of_accessibility_finds_nothing(browser: Any, site: Site, language: str, colours: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed below tools/node")
    source = AXE.read_text(encoding="utf-8")
    scheme(browser, colours)
    found: list[tuple[str, str, str]] = []
    for path in pages_of(site.memory):
        if is_part(path):
            continue
        opened(browser, site, f"{path}{'&' if '?' in path else '?'}lang={language}")
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": source})
        result = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        found += [(path, each["id"], each["nodes"][0]["html"][:120]) for each in result["violations"]]
    scheme(browser, "light")
    assert found == []


@pytest.mark.parametrize(("width", "scale"), [(360, 1), (640, 2)], ids=["phone", "zoomed to 200 %"])
def test_nothing_is_cut_off_on_a_small_screen(browser: Any, site: Site, width: int, scale: int) -> None:
    sized(browser, width, scale)
    try:
        wide = []
        for path in pages_of(site.memory):
            opened(browser, site, path)
            if browser.execute_script("return document.documentElement.scrollWidth") > width:
                wide.append(path)
        assert [path for path in wide if not is_part(path)] == []
        opened(browser, site, "/sessions/trip")
        browser.find_element("css selector", "li.message a.ask").click()
        until(lambda: browser.find_elements("css selector", "#dialog .chain li"))
        box = browser.find_element("id", "dialog").rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert browser.execute_script("return dialog.scrollWidth <= dialog.clientWidth")
    finally:
        sized(browser, 1_320)


@pytest.fixture(scope="module")
def named() -> Iterator[Site]:
    """A store with long names, short ones, and a memory that was made of a message."""
    with Memory() as memory:
        for session, project in (("x" * 160, "y" * 90), ("short", "acme")):
            message = memory.conversation(session, project=project).append("user", "A sentence of many words. " * 6)
            memory.project(project).add("Tests need Docker.", sources=[message])
        made = Site(memory)
        yield made
        made.close()


def sizes(browser: Any, selector: str, attribute: str) -> list[float]:
    found = f"[...document.querySelectorAll('{selector}')].map(each => each.getBoundingClientRect().{attribute})"
    return list(browser.execute_script(f"return {found}"))


def test_a_long_name_leaves_room_for_the_other_columns(browser: Any, named: Site) -> None:
    opened(browser, named, "/")
    assert browser.execute_script("const t = document.querySelector('.scroll'); return t.scrollWidth <= t.clientWidth")
    sized(browser, 390)
    try:
        opened(browser, named, "/")
        assert sizes(browser, "thead th", "right")[0] < 300
        short, long = (sizes(browser, f"tbody tr:nth-child({row}) th a", "height")[0] for row in (1, 2))
        assert 3 * short < long, "one wraps, the other does not"
    finally:
        sized(browser, 1_320)


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("width", [360, 390])
def test_the_header_of_a_small_screen_has_two_rows(browser: Any, named: Site, width: int, language: str) -> None:
    sized(browser, width)
    try:
        opened(browser, named, f"/?lang={language}")
        edges = zip(sizes(browser, ".bar > *", "top"), sizes(browser, ".bar > *", "bottom"), strict=True)
        brand, _, mode, languages = (top + bottom for top, bottom in edges)
        assert [mode, languages] == pytest.approx([brand, brand], abs=4)
        assert len(set(sizes(browser, ".bar nav:not(.langs) a", "top"))) == 1
        assert max(sizes(browser, ".bar nav a", "right")) <= width
    finally:
        sized(browser, 1_320)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_all_steps_of_a_chain_look_alike(browser: Any, named: Site, colours: str) -> None:
    scheme(browser, colours)
    try:
        opened(browser, named, "/why?x=docker&lang=en")
        assert "made of" in browser.find_element("css selector", ".chain").text
        looks = """return [...document.querySelectorAll(".chain li p:first-child")].map(each => {
            const look = getComputedStyle(each);
            return [look.fontSize, look.fontWeight, look.letterSpacing, look.color, look.backgroundColor].join();
        })"""
        assert len(set(browser.execute_script(looks))) == 1
    finally:
        scheme(browser, "light")


def test_a_board_is_a_dialog_over_what_it_is_of(browser: Any, site: Site) -> None:
    opened(browser, site, "/boards?lang=en")
    until(lambda: browser.find_elements("css selector", "#notices[data-open]"))
    browser.find_element("css selector", "a[data-ask]").click()
    until(lambda: browser.find_elements("css selector", "#dialog #live"))
    words_now = f"in the dialog at {time.monotonic()}"
    site.memory.board(session="trip").set_working_history(words_now)
    live = "return document.getElementById('live').textContent"
    until(lambda: words_now in browser.execute_script(live))
    assert browser.find_elements("css selector", "#dialog [name=auto_refresh_interval]")
    pressed(browser, 3, 3)
    until(lambda: not browser.find_element("id", "dialog").get_attribute("open"))
    assert "/boards" in browser.current_url
    assert complaints(browser) == []


# Screenshots.


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store with the story of the showcase, its skills and reports of benchmarks."""
    directory = tmp_path_factory.mktemp("story")
    for name in ("project", "reports"):
        (directory / name).mkdir()
    (directory / "reports" / "retrieval.json").write_text(json.dumps(showcase.REPORT), encoding="utf-8")
    with Memory(clock_ns=showcase.clock()) as memory:
        given = {"roots": showcase.skilled(directory / "project"), "reports": directory / "reports"}
        made = Site(showcase.told(memory), **given)
        yield made
        made.close()


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_each_page_is_drawn(browser: Any, story: Site, language: str, tmp_path: Path) -> None:
    """The images of the documentation are some of these: set `REFOLD_SCREENSHOTS` to a directory to keep them all."""
    directory = Path(os.environ.get("REFOLD_SCREENSHOTS") or tmp_path)
    for name, (path, chosen, ready) in showcase.pages(story.memory).items():
        opened(browser, story, f"{path}{'&' if '?' in path else '?'}lang={language}")
        if chosen:
            browser.find_element("css selector", chosen).click()
        until(partial(browser.find_elements, "css selector", ready))
        until(
            partial(browser.execute_script, "return document.getAnimations().every(one => one.playState != 'running')")
        )
        browser.save_screenshot(str(directory / f"{name}-{language}.png"))
    assert len(list(directory.glob(f"*-{language}.png"))) >= len(showcase.pages(story.memory))
    assert complaints(browser) == []
