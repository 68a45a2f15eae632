"""The page in a real browser without a display: no error, nothing fetched, tables sort, it fits and follows dark."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess

import numpy as np
import pytest
from PIL import Image

from csst.report import report_page
from tests.helpers.browser import BROWSER, FLAGS
from tests.report.samples import XSS, draw_figures, write_run

pytestmark = [
    pytest.mark.usefixtures("real_figures"),
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine"),
]
FLAGS = [*FLAGS, "--enable-logging=stderr", "--virtual-time-budget=3000"]
DARK = "--blink-settings=preferredColorScheme=0"
LOOK = """
const box = node => node.getBoundingClientRect();
const svgs = Array.from(document.querySelectorAll("figure svg"));
const style = node => getComputedStyle(node);
tell({
  figures: svgs.length,
  drawn: svgs.filter(svg => box(svg).width > 100 && box(svg).height > 60).length,
  clipped: Array.from(document.querySelectorAll("[clip-path]")).filter(
    node => !document.querySelector(node.getAttribute("clip-path").slice(4, -1) + " > *")).length,
  overflow: document.documentElement.scrollWidth - innerWidth,
  smallest: Math.min(...Array.from(document.querySelectorAll("figure svg text"), text =>
    parseFloat(style(text).fontSize) * text.getScreenCTM().a || Infinity)),
  width: innerWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  ink: style(document.querySelector("figure svg text")).fill,
  paper: style(document.body).backgroundColor,
  fetched: performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:")),
  alerts: window.alerts,
  images: document.querySelectorAll("img").length,
});
"""
SORT = """
const column = name => Array.from(document.querySelectorAll("th")).find(th => th.textContent.trim() === name);
const cells = name => {
  const head = column(name);
  return Array.from(head.closest("table").tBodies[0].rows).map(row => row.cells[head.cellIndex].textContent);
};
const said = {};
for (const name of ["min recall", "seconds", "run"]) {
  const button = column(name).querySelector("button");
  button.click();
  const up = [cells(name), column(name).getAttribute("aria-sort")];
  button.click();
  said[name] = [up, [cells(name), column(name).getAttribute("aria-sort")]];
}
said.marked = document.querySelectorAll("th[aria-sort]").length;
tell(said);
"""


def opened(path, *flags):
    """Run the browser on a file; what it wrote to stdout, after making sure that the console stayed empty."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={path.parent / 'profile'}", *flags, path.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    assert console == []
    return done.stdout.decode()


def told(page, script, folder, width=1280, *flags):
    """What a script says about a page. The page's policy stays in force and is told of this one script only.

    The page is in a frame, as the browser's own window cannot be narrower than 500 pixels.
    """
    before = "window.alerts = 0; window.alert = () => { window.alerts += 1; };"
    after = "const tell = said => parent.postMessage(JSON.stringify(said), '*');" + script
    for text in (before, after):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        page = page.replace("script-src 'sha256-", f"script-src 'sha256-{digest}' 'sha256-", 1)
    page = page.replace("<style>", f"<script>{before}</script><style>", 1)
    page = page.replace("</body>", f"<script>{after}</script></body>")
    (folder / "page.html").write_text(page, encoding="utf-8")
    (folder / "frame.html").write_text(
        "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><style>:root{color-scheme:light dark}</style>"
        "<body><script>onmessage = event => { document.body.dataset.said = event.data; };</script>"
        f"<iframe src=page.html style='border:0;height:900px;width:{width}px'></iframe>"
    )
    found = re.search(r'data-said="([^"]*)"', opened(folder / "frame.html", "--dump-dom", *flags))
    assert found, "the script did not run to its end"
    return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with draw_figures():
        return report_page([write_run(tmp_path_factory.mktemp("one") / "run", XSS, posthoc=True)])


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_is_drawn_fits_and_follows_the_colors(page, tmp_path, width, dark):
    found = told(page, LOOK, tmp_path, width, *([DARK] if dark else []))
    assert found["width"] == width
    assert found["figures"] == found["drawn"] == 8
    assert found["clipped"] == 0
    assert found["overflow"] <= 0
    assert found["smallest"] > 9
    assert found["fetched"] == []
    assert (found["alerts"], found["images"]) == (0, 0)
    assert found["dark"] == dark
    ink, paper = (np.mean([float(n) for n in re.findall(r"[\d.]+", found[key])[:3]]) for key in ("ink", "paper"))
    assert (ink - paper) * (1 if dark else -1) > 150


READ = """
const texts = query => Array.from(document.querySelectorAll(query), node => node.textContent.trim());
const rows = Array.from(document.querySelectorAll("details table tbody tr"), row =>
  Array.from(row.cells, cell => cell.textContent));
const bars = Array.from(document.querySelectorAll("figure svg")).find(svg =>
  svg.getAttribute("aria-label").includes("recall of every class"));
tell({
  facts: texts(".facts dd"),
  rows,
  bars: Array.from(bars.querySelectorAll("text"), text => text.textContent),
  top: document.querySelector(".facts").getBoundingClientRect().bottom,
  title: document.title,
});
"""


def test_the_numbers_of_the_page_are_those_of_the_deployed_model(tmp_path):
    """Of a page whose model as trained has other numbers in every place."""
    folder = write_run(tmp_path / "run", 3, updates=0, posthoc=True, skill=0.6)
    metrics = json.loads((folder / "metrics.json").read_text())
    adjusted, trained = metrics["adjusted"], metrics["test"]
    shown = told(report_page([folder]), READ, tmp_path)
    assert shown["title"] == f"made-up: {metrics['objective']}"
    assert shown["facts"][0] == f"{adjusted['value']:.3f}"
    assert f"on test {adjusted['test']['objective_value']:.3f}" in shown["facts"][1]
    assert f"{trained['objective_value']:.3f}" not in " ".join(shown["facts"])
    assert shown["top"] < 900, "the first screen"
    triples = [shown["bars"][n : n + 3] for n in range(len(shown["bars"]))]
    assert [f"{value:.2f}" for value in adjusted["test"]["recall"]] in triples
    assert [f"{value:.2f}" for value in trained["recall"]] not in triples
    rows = [row[-3:] for row in shown["rows"]]
    for k in range(3):
        assert [f"{adjusted['test'][name][k]:.3f}" for name in ("recall", "precision", "coverage")] in rows
        assert [f"{trained[name][k]:.3f}" for name in ("recall", "precision", "coverage")] not in rows


def test_names_of_the_user_do_nothing_even_without_the_policy(page, tmp_path):
    bare = re.sub(r"<meta http-equiv=.*?>", "", page)
    assert "Content-Security-Policy" not in bare
    found = told(bare, LOOK, tmp_path)
    assert (found["alerts"], found["images"]) == (0, 0)


def test_a_click_on_a_head_sorts(tmp_path):
    folders = [
        write_run(tmp_path / m, 3, updates=0, method=m, skill=s) for m, s in zip("cab", (0.9, 0.5, 0.7), strict=True)
    ]
    seconds = iter((9.5, 1234.0, 30.0))
    for folder in folders:
        metrics = json.loads((folder / "metrics.json").read_text())
        (folder / "metrics.json").write_text(json.dumps(metrics | {"seconds": next(seconds)}))
    folders.append(write_run(tmp_path / "d", 3, updates=0, method="d", finished=False))
    found = told(report_page(folders), SORT, tmp_path)
    assert found["seconds"] == [
        [["9.5", "30.0", "1,234.0", "–"], "ascending"],
        [["1,234.0", "30.0", "9.5", "–"], "descending"],
    ]
    assert found["run"] == [[["a", "b", "c", "d"], "ascending"], [["d", "c", "b", "a"], "descending"]]
    (up, _), (down, _) = found["min recall"]
    assert up[:3] == sorted(up[:3], key=float)
    assert down == [*reversed(up[:3]), "–"]
    assert found["marked"] == 1


@pytest.mark.slow  # small: the colors that the browser computes, above
@pytest.mark.parametrize("width", [1280, 390])
def test_pictures_of_it_are_neither_blank_nor_the_same_in_dark(page, tmp_path, width):
    bright, path = [], tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    for flags in ([], [DARK]):
        picture = tmp_path / "picture.png"
        opened(path, f"--screenshot={picture}", f"--window-size={width},1200", *flags)
        pixels = np.asarray(Image.open(picture).convert("L"), float)
        assert pixels.shape == (1200, width)
        assert pixels.std() > 10
        bright.append(pixels.mean())
    assert bright[0] > 200
    assert bright[1] < 80


def test_a_class_name_is_no_script(tmp_path):
    name = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    page = report_page([write_run(tmp_path / "<b>run", [name, *XSS[1:]])])
    found = told(page, LOOK, tmp_path)
    assert (found["alerts"], found["images"], found["fetched"]) == (0, 0, [])
