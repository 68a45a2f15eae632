"""Drawings: matplotlib figures as small inline SVG that follow the page's colours, in light and in dark.

matplotlib knows no CSS, so a figure is drawn in stand-in colours, and these become CSS variables afterwards.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

#: width of a drawing in inches: two beside each other on a screen, one on a phone without shrinking the words much
WIDTH = 4.6
#: stand-ins of the text, of lines behind the data, of the bars, and of the runs
INK, FAINT, ACCENT = "#0000e0", "#0000e1", "#0000e2"
RUNS = tuple(f"#0000f{n}" for n in range(8))
#: from the class with most labeled examples to the one with fewest; as bright as both a white and a black page allow
CLASSES = (
    *("#5684da", "#048fd1", "#0099bd", "#009fa0", "#00a07d", "#3a9d56"),
    *("#6f952a", "#948900", "#af7c00", "#c26e13", "#cb6344", "#cc5e6b"),
)
#: shapes of the runs, and the same as characters for a legend; with the colours 24 looks that differ
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
CHARACTERS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★", "◀", "▶", "⬟", "⬢")
_VARIABLES = {INK: "currentColor", FAINT: "var(--faint)", ACCENT: "var(--accent)"} | {
    colour: f"var(--run{n})" for n, colour in enumerate(RUNS)
}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "csst",
    "text.parse_math": False,  # a class may be called $x$
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
}


@dataclass(frozen=True)
class Key:
    """An entry of a legend. mark: `line`, `dash`, `band`, or a character."""

    mark: str
    colour: str
    label: str


@dataclass(frozen=True)
class Drawing:
    """A figure: its SVG as matplotlib wrote it, what it shows in words, a caption, a legend."""

    svg: str
    alt: str
    caption: str
    legend: tuple[Key, ...] = ()
    wide: bool = False

    def html(self, number: int) -> str:
        """The figure for a page; `number` keeps its ids apart from those of the page's other figures."""
        keys = "".join(f"<li>{_mark(key)}{escape(key.label)}</li>" for key in self.legend)
        legend = f"<ul class='legend'>{keys}</ul>" if keys else ""
        return (
            f"<figure{' class=wide' if self.wide else ''}><figcaption>{escape(self.caption)}</figcaption>"
            f"<div class='scroll'>{cleaned(self.svg, self.alt, f'f{number}-')}</div>{legend}</figure>"
        )


def draw(
    paint: Callable[[Any], None],
    height: float,
    alt: str,
    caption: str,
    legend: tuple[Key, ...] = (),
    width: float = WIDTH,
) -> Drawing:
    """A drawing `width` × `height` inches; `paint` gets the empty matplotlib figure."""
    import matplotlib
    from matplotlib.figure import Figure

    out = io.StringIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # the browser's fonts write the words, so what matplotlib's own font lacks does not matter
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return Drawing(out.getvalue(), shortened(alt, 600), caption, legend, width > WIDTH)


def cleaned(svg: str, alt: str, prefix: str) -> str:
    """matplotlib's SVG for the inside of a page: CSS variables, unique ids, short numbers, a label; no more.

    Only tags are touched: what stands between them is text (escaped by matplotlib), perhaps a user's.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", " ".join(re.findall(r"<[^>]*>", svg))))

    def renamed(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in used else ""

    def tag(match: re.Match[str]) -> str:
        text = re.sub(r'\sid="([^"]*)"', renamed, match[0])
        text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
        text = re.sub(r"#0000[ef]\d", lambda m: _VARIABLES.get(m[0], m[0]), text)
        text = re.sub(r'\stransform="rotate\(-?0 [^"]*"', "", text)
        text = re.sub(r"font(-family)?: [^;\"]*'[^;\"]*", _font, text)
        return text if "base64" in text else re.sub(r"-?\d+\.\d{2,}", _short, text)

    svg = re.sub(r"<[^>]*>", tag, svg)
    svg = re.sub(r"<defs>\s*</defs>|<g>\s*</g>", "", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def shortened(text: object, length: int) -> str:
    """One line of printable characters, at most `length` of them."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def ranked_colours(counts: list[int] | None, classes: int) -> list[str]:
    """A colour for each class, by its place in the order of labeled examples (of the index where there are none)."""
    order = sorted(range(classes), key=lambda c: (-counts[c] if counts else 0, c))
    colours = [""] * classes
    for rank, c in enumerate(order):
        colours[c] = CLASSES[round(rank * (len(CLASSES) - 1) / max(1, classes - 1))]
    return colours


def look(n: int) -> tuple[str, str, str]:
    """Colour, shape and character of the n-th run."""
    return RUNS[n % len(RUNS)], SHAPES[n % len(SHAPES)], CHARACTERS[n % len(CHARACTERS)]


def css(colour: str) -> str:
    """The CSS of a stand-in colour."""
    return _VARIABLES.get(colour, colour)


def _mark(key: Key) -> str:
    if key.mark in ("line", "dash", "band"):
        return f"<i class='{key.mark}' style='color:{css(key.colour)}'></i>"
    return f"<i style='color:{css(key.colour)}'>{key.mark}</i>"


def _font(match: re.Match[str]) -> str:
    size = re.search(r"[\d.]+px", match[0])
    return f"font-size: {size[0]}" if size else "font-family: inherit"


def _short(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".") or "0"
