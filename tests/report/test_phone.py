"""The page on a phone, 390 pixels wide, in a real browser: row heads stay words, and tables show that they scroll."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

import csst
from csst.estimation.held_out_scores import HeldOutScores
from csst.fitting.metrics import describe_trades
from csst.report import report_page
from csst.rules.frontier import trace_frontier
from tests.helpers import toys
from tests.helpers.browser import BROWSER, Browser
from tests.report.samples import write_run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine"),
]
NAMES = ["telephone company", "checking account", "debt collection"]
#: how many lines the words of every row head of the confusion take
COUNT_LINES = """Array.from(document.querySelectorAll(".explorer .confusion tbody th"), head => {
  const range = document.createRange();
  range.selectNodeContents(head);
  return new Set(Array.from(range.getClientRects(), box => Math.round(box.top))).size;
})"""
#: the tables in boxes, which scroll to one end: where each box is on the page, and whether it has more than it shows
FIND_TABLES = """(side => Array.from(document.querySelectorAll(".scroll"), box => {
  box.scrollLeft = side * box.scrollWidth;
  const place = box.getBoundingClientRect();
  return {x: place.x + scrollX, y: place.y + scrollY, width: place.width, height: place.height,
          scrolls: box.scrollWidth > box.clientWidth + 20, isTable: box.querySelector("table") !== null};
}).filter(box => box.isTable && box.height > 0))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A page of one run with an explorer, at 390 pixels."""
    place = tmp_path_factory.mktemp("phone")
    folder = write_run(place / "run", NAMES, updates=0, posthoc=True, objective="max min(recall)")
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    x, labels = toys.sample(200, seed=1)
    evidence = HeldOutScores.from_probs(toys.probs(x), labels, toys.probs(x), train_prior=toys.PRIOR)
    objective = csst.objective("max min(recall)").bind(3, NAMES)
    metrics["adjusted"]["trades"] = describe_trades(trace_frontier(evidence, np.full(3, 1 / 3), objective))
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    (place / "page.html").write_text(report_page([folder]), encoding="utf-8")
    with Browser(place / "page.html", place / "profile", width=390, height=800) as browser:
        browser.evaluate("document.querySelectorAll('details').forEach(block => { block.open = true; })")
        yield browser
        assert browser.errors == []


def measure_edge(browser: Browser, box: dict, is_right: bool) -> np.ndarray:
    """How bright the last three pixels of a box are at its right or left edge: a quarter and a half are no brighter.

    The head of the table of classes, which stays where it is, covers up to half of an edge.
    """
    x = box["x"] + box["width"] - 3 if is_right else box["x"]
    clip = {"x": x, "y": box["y"], "width": 3, "height": box["height"], "scale": 1}
    picture = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))).convert("L"))
    return np.quantile(pixels, [0.25, 0.5])


def test_row_heads_of_the_confusion_break_between_words_only(browser):
    lines = browser.evaluate(COUNT_LINES)
    assert len(lines) == len(NAMES)
    assert all(count <= len(name.split()) for count, name in zip(lines, NAMES, strict=True)), lines


def test_a_table_shows_on_which_side_it_goes_on(browser):
    begin = browser.evaluate(f"{FIND_TABLES}(0)")
    scrolling = [box for box in begin if box["scrolls"]]
    assert len(scrolling) >= 2
    for box in scrolling:
        assert measure_edge(browser, box, is_right=True)[0] < 200
        assert measure_edge(browser, box, is_right=False)[1] > 240
    for box in browser.evaluate(f"{FIND_TABLES}(1)"):
        assert measure_edge(browser, box, is_right=True)[1] > 220
        assert not box["scrolls"] or measure_edge(browser, box, is_right=False)[0] < 200
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
