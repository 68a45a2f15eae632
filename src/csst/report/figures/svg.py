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
#: markers of the runs, and the same as characters for a legend; with the colors 24 styles that differ
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
        return _VARIABLES.get(self.color, self.color)


class RunStyle(NamedTuple):
    """How a run is drawn, and the character that stands for its marker in a legend."""

    color: str
    marker: str
    symbol: str


@dataclass(frozen=True)
class Drawing:
    """A figure: its SVG as matplotlib wrote it, what it shows in words, a caption, a legend."""

    svg: str
    alt: str
    caption: str
    legend: tuple[Key, ...] = ()
    is_wide: bool = False

    def inline(self, number: int) -> Markup:
        """The SVG for a page; `number` keeps its ids apart from those of the page's other figures."""
        return Markup(clean_svg(self.svg, self.alt, f"f{number}-"))


def draw(
    paint: Callable[[Any], None],
    height: float,
    alt: str,
    caption: str,
    legend: Iterable[Key] = (),
    width: float = WIDTH,
) -> Drawing:
    """A drawing `width` × `height` inches; `paint` gets the empty matplotlib figure."""
    import matplotlib.style
    from matplotlib.figure import Figure

    style = as_file(files(__package__) / "figures.mplstyle")
    with style as path, matplotlib.style.context(path), warnings.catch_warnings():
        # the browser's fonts write the words, so what matplotlib's own font lacks does not matter
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        svg = write_svg(figure)
    return Drawing(svg, shorten(alt, 600), caption, tuple(legend), width > WIDTH)


def write_svg(figure: Any) -> str:
    """A painted matplotlib figure as SVG."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue()


def clean_svg(svg: str, alt: str, prefix: str) -> str:
    """matplotlib's SVG for the inside of a page: CSS variables, unique ids, short numbers, a label; no more.

    Only tags are touched: what stands between them is text (escaped by matplotlib), perhaps a user's.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", " ".join(re.findall(r"<[^>]*>", svg))))

    def rename_id(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in used else ""

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
    """Begin the axis `name`, "x" or "y", at 0 where only a margin or a spread lies below it and no value does."""
    low, high = getattr(axes, f"get_{name}lim")()
    if low < 0 <= min(values):
        getattr(axes, f"set_{name}lim")(0, high)


def shorten(text: object, length: int) -> str:
    """One line of printable characters, at most `length` of them."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def rank_colors(counts: Sequence[int] | None, classes: int) -> list[str]:
    """A color for each class, by its place in the order of labeled examples (of the index where there are none)."""
    colors = [""] * classes
    for rank, c in enumerate(sort_classes(counts, classes)):
        colors[c] = CLASSES[round(rank * (len(CLASSES) - 1) / max(1, classes - 1))]
    return colors


def sort_classes(counts: Sequence[int] | None, classes: int) -> list[int]:
    """The indices of the classes from most to fewest labeled examples."""
    return sorted(range(classes), key=lambda c: (-counts[c] if counts else 0, c))


def run_style(n: int) -> RunStyle:
    """The style of the n-th run."""
    return RunStyle(RUNS[n % len(RUNS)], MARKERS[n % len(MARKERS)], SYMBOLS[n % len(SYMBOLS)])


def _keep_font_size(match: re.Match[str]) -> str:
    size = re.search(r"[\d.]+px", match[0])
    return f"font-size: {size[0]}" if size else "font-family: inherit"


def _round(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".") or "0"
