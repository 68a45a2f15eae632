"""Drawings: matplotlib figures as small inline SVG that follow the page's colors, in light and in dark.

matplotlib knows no CSS, so a figure is drawn in stand-in colors, and these become CSS variables afterwards.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import as_file, files
from typing import Any, NamedTuple

from markupsafe import Markup

#: width of a drawing in inches: two fit beside each other on a screen, and one on a phone hardly shrinks
WIDTH = 4.6
#: stand-ins for the colors of the text, of lines behind the data, of the bars, and of the runs
INK = "#0000e0"
FAINT = "#0000e1"
ACCENT = "#0000e2"
RUNS = tuple(f"#0000f{n}" for n in range(8))
#: colors from the class with most labeled examples to the one with fewest, visible on white and on black
CLASSES = (
    *("#5684da", "#048fd1", "#0099bd", "#009fa0", "#00a07d", "#3a9d56"),
    *("#6f952a", "#948900", "#af7c00", "#c26e13", "#cb6344", "#cc5e6b"),
)
#: markers of the runs, and as characters for a legend; with the colors, 24 different styles
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★", "◀", "▶", "⬟", "⬢")
_VARIABLES = {INK: "currentColor", FAINT: "var(--faint)", ACCENT: "var(--accent)"} | {
    color: f"var(--run{n})" for n, color in enumerate(RUNS)
}


class Key(NamedTuple):
    """An entry of a legend. symbol: `line`, `dash`, `band`, or a character."""

    symbol: str
    color: str
    label: str

    @property
    def css(self) -> str:
        """The color as a CSS value."""
        return _VARIABLES.get(self.color, self.color)


class RunStyle(NamedTuple):
    """Color and marker of a run, and the marker as a character for a legend."""

    color: str
    marker: str
    symbol: str

    def as_key(self, label: str, symbol: str = "") -> Key:
        """Return the entry of a legend, with the marker or another symbol."""
        return Key(symbol or self.symbol, self.color, shorten(label, 60))


@dataclass(frozen=True)
class Drawing:
    """A figure: its SVG as matplotlib wrote it, a description (alt), a caption, a legend."""

    svg: str
    alt: str
    caption: str
    legend: tuple[Key, ...] = ()
    is_wide: bool = False

    def inline(self, number: int) -> Markup:
        """Return the SVG for a page; `number` makes its ids unique on the page."""
        return Markup(clean_svg(self.svg, self.alt, f"f{number}-"))


def draw(
    paint: Callable[[Any], None],
    height: float,
    alt: str,
    caption: str,
    legend: Iterable[Key] = (),
    width: float = WIDTH,
) -> Drawing:
    """Return a drawing of `width` × `height` inches; `paint` fills an empty matplotlib figure."""
    import matplotlib.style
    from matplotlib.figure import Figure

    style = as_file(files(__package__) / "figures.mplstyle")
    with style as path, matplotlib.style.context(path), warnings.catch_warnings():
        # the browser draws the text with its own fonts, so glyphs missing in matplotlib's font do not matter
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        svg = write_svg(figure)
    return Drawing(svg, shorten(alt, 600), caption, tuple(legend), width > WIDTH)


def write_svg(figure: Any) -> str:
    """Return a matplotlib figure as SVG."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()


def clean_svg(svg: str, alt: str, prefix: str) -> str:
    """Return matplotlib's SVG for the inside of a page: with CSS variables, unique ids, short numbers and a label.

    Only tags are changed: the text between them, escaped by matplotlib, may be a user's.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    tags = " ".join(re.findall(r"<[^>]*>", svg))
    references = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", tags))

    def rename_id(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in references else ""

    def clean_tag(match: re.Match[str]) -> str:
        text = re.sub(r'\sid="([^"]*)"', rename_id, match[0])
        text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
        text = re.sub(r"#0000[ef]\d", lambda m: _VARIABLES.get(m[0], m[0]), text)
        text = re.sub(r'\stransform="rotate\(-?0 [^"]*"', "", text)
        text = re.sub(r"font(-family)?: [^;\"]*'[^;\"]*", _keep_font_size, text)
        return text if "base64" in text else re.sub(r"-?\d+\.\d{2,}", _round, text)

    svg = re.sub(r"<[^>]*>", clean_tag, svg)
    svg = re.sub(r"<defs>\s*</defs>|<g>\s*</g>", "", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def begin_at_zero(axes: Any, name: str, values: Iterable[float]) -> None:
    """Begin the axis `name`, "x" or "y", at 0 if it extends below 0 although no value does."""
    low, high = getattr(axes, f"get_{name}lim")()
    if low < 0 <= min(values):
        getattr(axes, f"set_{name}lim")(0, high)


def shorten(text: object, length: int) -> str:
    """Return text as one line of at most `length` printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def rank_colors(counts: Sequence[int] | None, classes: int) -> list[str]:
    """Return a color for each class, by its rank in labeled examples (by its index without counts)."""
    colors = [""] * classes
    for rank, c in enumerate(sort_classes(counts, classes)):
        colors[c] = CLASSES[round(rank * (len(CLASSES) - 1) / max(1, classes - 1))]
    return colors


def sort_classes(counts: Sequence[int] | None, classes: int) -> list[int]:
    """Return the indices of the classes from most to fewest labeled examples."""
    return sorted(range(classes), key=lambda c: (-counts[c] if counts else 0, c))


def run_style(n: int) -> RunStyle:
    """Return the style of the n-th run."""
    return RunStyle(RUNS[n % len(RUNS)], MARKERS[n % len(MARKERS)], SYMBOLS[n % len(SYMBOLS)])


def _keep_font_size(match: re.Match[str]) -> str:
    size = re.search(r"[\d.]+px", match[0])
    return f"font-size: {size[0]}" if size else "font-family: inherit"


def _round(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".") or "0"
