"""Checks a built site: every link and picture of it is there, and nothing is loaded from elsewhere.

python docs/check_site.py site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: attributes by which a page loads something, unlike the href of a link, which a reader may follow or not
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class Page(HTMLParser):
    """The targets of a page: what it loads, what it links to, and the places within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.places |= {value for key in ("id", "name") if (value := values.get(key))}
        for key, value in values.items():
            if value and (tag, key) in LOADS:
                self.loads.append(value)
            elif value and tag == "a" and key == "href":
                self.links.append(value)


def find_faults(site: Path) -> list[str]:
    """What is wrong with a site, one sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        for target in [*page.loads, *page.links]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    faults.append(f"{path}: loads {target} from elsewhere")
                continue
            base = (
                site if parts.path.startswith("/") else path.parent
            )  # the page for what is not there begins at the root
            place = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            if not place.is_relative_to(site) or not place.exists():
                faults.append(f"{path}: {target} is not there")
            elif parts.fragment and place in pages and unquote(parts.fragment) not in pages[place].places:
                faults.append(f"{path}: {target} has no such place")
    for path in sorted(site.rglob("*.css")):
        for target in re.findall(r"url\(['\"]?([^)'\"]+)", path.read_text(encoding="utf-8")):
            if re.match(r"(https?:)?//", target):
                faults.append(f"{path}: loads {target} from elsewhere")
    return faults if pages else [f"{site} has no page"]


if __name__ == "__main__":
    found = find_faults(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "every link leads somewhere, and nothing is loaded from elsewhere")
    sys.exit(bool(found))
