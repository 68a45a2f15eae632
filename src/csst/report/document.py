"""The HTML around the content: style, the script that sorts tables, and a policy that lets nothing else load or run."""

from __future__ import annotations

import base64
import hashlib
from html import escape

_LIGHT = (
    "--paper:#ffffff;--ink:#1d2330;--soft:#5a6372;--faint:#c9cfd8;--tint:#f3f5f8;--accent:#2a78c2;--warn:#fff4d6;"
    "--run0:#1f6fb4;--run1:#c2570c;--run2:#2a8a57;--run3:#a23b8f;--run4:#8a6d00;--run5:#0f8a94;--run6:#c0392b;"
    "--run7:#5f6b7a;"
)
_DARK = (
    "--paper:#15181e;--ink:#e4e8ee;--soft:#a3adbb;--faint:#414957;--tint:#1e232c;--accent:#62a8ea;--warn:#3a2f12;"
    "--run0:#6cb2f0;--run1:#f2994a;--run2:#5cc98d;--run3:#dd86cf;--run4:#d9b93c;--run5:#4fcad3;--run6:#f0776a;"
    "--run7:#a5b0be;"
)
STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
@media print {{ :root {{ color-scheme: light; {_LIGHT} }} }}
* {{ box-sizing: border-box; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 3rem;
  color: var(--ink); background: var(--paper); overflow-wrap: anywhere; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 1rem; }}
h2 {{ font-size: 1.25rem; line-height: 1.3; margin: 2.2rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid var(--faint); }}
h3 {{ font-size: 1.05rem; margin: 1.4rem 0 .5rem; }}
.sentence {{ font-size: 1.12rem; }}
.soft {{ color: var(--soft); font-size: .9rem; }}
.notes {{ background: var(--warn); border-radius: 8px; padding: .7rem 1rem; margin: 1rem 0; }}
.notes ul {{ margin: .3rem 0 0; padding-left: 1.2rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }}
th, td {{ padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; padding-left: .2rem; white-space: normal;
  min-width: min(11rem, 38vw); }}
caption {{ text-align: left; color: var(--soft); font-size: .9rem; padding-left: .2rem; }}
thead th {{ vertical-align: bottom; white-space: normal; overflow-wrap: normal; }}
th button {{ all: unset; cursor: pointer; font-weight: 600; color: inherit; }}
th button::after {{ content: "\\2195"; opacity: .45; padding-left: .25em; font-weight: 400; }}
th[aria-sort=ascending] button::after {{ content: "\\2191"; opacity: 1; }}
th[aria-sort=descending] button::after {{ content: "\\2193"; opacity: 1; }}
th button:focus-visible, summary:focus-visible {{ outline: 2px solid var(--accent); outline-offset: 2px; }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.6rem 2rem;
  align-items: start; grid-auto-flow: dense; margin: 1.4rem 0; }}
figure {{ margin: 0; min-width: 0; }}
figure.wide {{ grid-column: 1 / -1; }}
figure svg {{ display: block; max-width: 100%; height: auto; overflow: visible; }}
figure.wide svg {{ max-width: none; }}
figure svg * {{ stroke-linejoin: round; }}
figcaption {{ font-weight: 600; font-size: .93rem; margin-bottom: .35rem; }}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin: .3rem 0 0; padding: 0;
  font-size: .84rem; }}
.legend i {{ font-style: normal; display: inline-block; min-width: 1.1em; margin-right: .3em; text-align: center; }}
.legend .line, .legend .dash {{ width: 1.5em; border-top: 2.5px solid; vertical-align: middle; }}
.legend .dash {{ border-top-style: dashed; }}
.legend .band {{ width: 1.1em; height: .8em; background: currentColor; opacity: .35; vertical-align: middle; }}
details {{ margin: .8rem 0; }}
summary {{ cursor: pointer; font-weight: 600; }}
pre {{ background: var(--tint); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto;
  font-size: .82rem; line-height: 1.4; }}
@media (max-width: 40rem) {{ body {{ padding: 1rem 1rem 2rem; }} h1 {{ font-size: 1.4rem; }}
  th, td {{ padding: .3rem .45rem; }} }}
@media print {{
  body {{ max-width: none; padding: 0; font-size: 11pt; }}
  figure, tr, .notes {{ break-inside: avoid; }}
  table {{ font-size: 8.5pt; }} th, td {{ padding: .15rem .35rem; white-space: normal; }}
  th:first-child, td:first-child {{ min-width: 6rem; }}
  .notes, .band {{ print-color-adjust: exact; }}
  h2, h3, figcaption {{ break-after: avoid; }}
  .scroll, pre {{ overflow: visible; }} pre {{ white-space: pre-wrap; }}
  figure.wide svg {{ max-width: 100%; }}
  th button::after {{ content: none; }}
  .figures {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }}
}}
"""
#: numbers sort by their value, other cells as words; cells without a value stay last
SCRIPT = """
"use strict";
const blank = text => text === "" || text === "–";
const number = text => {
  const found = /^[-+−]?[\\d,]*\\.?\\d+(e[-+]?\\d+)?/i.exec(text);
  return found ? Number(found[0].replace(/,/g, "").replace("−", "-")) : NaN;
};
const sort = button => {
  const head = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  const cell = row => row.cells[head.cellIndex].textContent.trim();
  const rows = Array.from(body.rows);
  const numeric = rows.every(row => blank(cell(row)) || !Number.isNaN(number(cell(row))));
  const order = (a, b) => numeric ? number(a) - number(b) : a.localeCompare(b, undefined, { numeric: true });
  rows.sort((one, two) => {
    const a = cell(one), b = cell(two);
    if (blank(a) || blank(b)) return blank(a) - blank(b);
    return down ? order(b, a) : order(a, b);
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows);
};
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button));
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
"""


def document(title: str, body: str) -> str:
    """The whole page. Nothing is fetched, and of scripts only the one above runs: the policy says so to the browser."""
    own = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{own}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<link rel='icon' href='data:,'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
    return page.encode("utf-8", "replace").decode()  # a lone surrogate from a JSON file cannot be written


def table(rows: list[list[str]], label: str) -> str:
    """A table whose columns sort at a click on their head; the first row is the head."""
    head = "".join(f"<th scope='col'><button type='button'>{escape(cell)}</button></th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows[1:])
    return (
        f"<div class='scroll' tabindex='0'><table><caption>{escape(label)}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def notes(sentences: list[str], heading: str) -> str:
    """Warnings in a box; nothing where there are none."""
    if not sentences:
        return ""
    shown = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<div class='notes'><strong>{escape(heading)}</strong><ul>{shown}</ul></div>\n"


def folded(heading: str, text: str) -> str:
    """A long text that opens at a click."""
    return f"<details><summary>{escape(heading)}</summary><pre>{escape(text)}</pre></details>\n"
