"""What the inspector takes in a real browser: frames while a session is dragged, and the time to open a long one.

A store of messages is served on loopback and shown by a Chromium without a window. The knob of the scrubber is dragged
over the whole track and back, and the page counts the intervals between its frames; then a session of a million events
is opened, until the page is there and until its track is whole. Figures are medians of several runs, with their
quartiles. Needs `chromium` and `chromedriver`, and what tools/lock/dev.txt installs. Run it::

    python benchmarks/inspector.py [RUNS] [EVENTS] [LONG_EVENTS]
"""

import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from selenium import webdriver

from refold import Memory
from refold.listener import listening_on
from refold.web import app_of
from refold.web.server import web_server

SESSION = "long"
BATCH_EVENTS = 5_000
FRAMES_PER_SECOND = 60
OPEN_MS = 1_000
WAIT_SECONDS = 120
STEP_SECONDS = 0.008
"""The mouse moves about twice within a frame, as a mouse of 125 Hz does."""

COUNT_FRAMES = """
window.frames_seen = []; window.counting = true;
(function count(now) {
  window.frames_seen.push(now);
  if (window.counting) requestAnimationFrame(count);
})(performance.now());
"""


def fill(path: Path, events: int) -> None:
    """Write a session: messages, and now and then what is noted beside them."""
    with Memory(path) as memory:
        chat = memory.conversation(SESSION, project="acme", window_tokens=4_000)
        for begin in range(0, events, BATCH_EVENTS):
            with memory.batch():
                for number in range(begin, min(begin + BATCH_EVENTS, events)):
                    if number % 10 == 9:
                        chat.scratchpad.set(f"key {number % 7}", f"value {number}")
                    else:
                        chat.append("user" if number % 2 else "assistant", f"message {number} " + "of a talk " * 8)


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve the pages of a store; yield their address."""
    listening = listening_on(0)
    with Memory(path) as memory:
        server = web_server(app_of(memory))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
            listening.close()


@contextmanager
def browsing() -> Iterator[Any]:
    """Start a browser without a window."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = found("chromium")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(found("chromedriver")))
    browser.set_window_size(1_320, 1_000)
    try:
        yield browser
    finally:
        browser.quit()


def found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise SystemExit(f"{program} is not installed; this needs chromium and chromedriver")
    return path


def wait(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"the page did not come within {WAIT_SECONDS} s")
        time.sleep(0.005)


def is_ready(browser: Any) -> bool:
    return bool(browser.execute_script("return document.getElementById('scrubber').dataset.ready"))


def intervals(browser: Any, address: str) -> list[float]:
    """Drag the knob over the whole track and back; return the intervals between frames in milliseconds."""
    browser.get(f"{address}/sessions/{SESSION}")
    wait(lambda: is_ready(browser))
    box = browser.find_element("id", "range").rect
    left, right, y = box["x"] + 8, box["x"] + box["width"] - 8, box["y"] + box["height"] / 2
    places = [right - (right - left) * step / 200 for step in (*range(200), *range(200, -1, -1))]

    def mouse(kind: str, x: float) -> None:
        about = {"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", about)

    mouse("mousePressed", right)
    browser.execute_script(COUNT_FRAMES)
    for x in places:
        due = time.perf_counter() + STEP_SECONDS
        mouse("mouseMoved", x)
        time.sleep(max(due - time.perf_counter(), 0))
    seen: list[float] = browser.execute_script("window.counting = false; return window.frames_seen;")
    mouse("mouseReleased", right)
    browser.get("about:blank")
    return [after - before for before, after in pairwise(seen)]


def opening(browser: Any, address: str) -> tuple[float, float, float]:
    """Open a session; return the milliseconds until its first byte, until the page is there, and its whole track."""
    browser.get(f"{address}/sessions/{SESSION}")
    entry = "const it = performance.getEntriesByType('navigation')[0]; return [it.responseStart, it.loadEventEnd];"
    wait(lambda: browser.execute_script(entry)[1])
    wait(lambda: is_ready(browser))
    first, there = browser.execute_script(entry)
    ready = browser.execute_script("return performance.now()")
    browser.get("about:blank")  # Else its stream of notices would hold up the end of the server.
    return first, there, ready


def quartiles(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:9.1f} ({low:.1f}-{high:.1f})"


def main(runs: int, events: int, long_events: int) -> None:
    with tempfile.TemporaryDirectory() as directory, browsing() as browser:
        short, long = Path(directory, "short"), Path(directory, "long")
        fill(short, events)
        fill(long, long_events)
        with served(short) as address:
            dragged = [intervals(browser, address) for _ in range(runs)]
        rates = [1_000 * len(one) / sum(one) for one in dragged]
        late = [100 * sum(each > 1_500 / FRAMES_PER_SECOND for each in one) / len(one) for one in dragged]
        print(f"a drag over {events:,} events, medians of {runs} runs (quartiles)")
        print(f"  frames a second           {quartiles(rates)}, to reach {FRAMES_PER_SECOND}")
        print(f"  frames that were late, %  {quartiles(late)}")
        print(f"  the longest frame, ms     {quartiles([max(one) for one in dragged])}")
        with served(long) as address:
            opened = [opening(browser, address) for _ in range(runs + 1)]
        print(f"opening a session of {long_events:,} events, ms; the first of a server: {opened[0][1]:.0f}")
        first, there, whole = map(quartiles, zip(*opened[1:], strict=True))
        print(f"  first byte                {first}")
        print(f"  the page is there         {there}, to reach {OPEN_MS}")
        print(f"  its track is whole        {whole}")


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(7, 10_000, 1_000_000)[len(given) :])
