"""One self-contained HTML page: a sentence, a table, figures. Works offline, in light and dark."""

from __future__ import annotations

from html import escape
from typing import Any

from csst.report.figures import over_time, recall_bars

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; background: #fff; border-radius: 6px; padding: .5rem; overflow-x: auto; }
figure svg { width: 100%; height: auto; } .pair { display: flex; flex-wrap: wrap; gap: 1rem; }
.pair figure { flex: 1 1 24rem; margin: 0; } .wide { overflow-x: auto; } td { white-space: nowrap; }
small { opacity: .7; }
"""


def comparison_page(title: str, sentence: str, table: list[list[str]], runs: dict[str, dict[str, Any]]) -> str:
    """The page. `runs`: method → {"metrics": metrics.json, "journal": records, "labels": names of the multipliers}."""
    first = next(iter(runs.values()))["metrics"]
    recalls = {name: run["metrics"]["test"]["recall"] for name, run in runs.items()}
    parts = [f"<h1>{escape(title)}</h1>", f"<p><strong>{escape(sentence)}</strong></p>", _table(table)]
    parts.append("<h2>Recall of every class</h2>")
    parts.append(recall_bars(recalls, first["class_names"], first["labeled_counts"]))
    for name, run in runs.items():
        if run["labels"]:
            parts.append(f"<h2>{escape(name)}: the game</h2><div class='pair'>")
            parts.append(over_time(run["journal"], "multipliers", run["labels"], "multiplier λ"))
            parts.append(over_time(run["journal"], "recall", first["class_names"], "validation recall"))
            parts.append("</div>")
    split = (
        f"split {first['split_hash']}, {sum(first['labeled_counts'])} labeled and {first['unlabeled_count']} unlabeled"
    )
    parts.append(f"<p><small>{escape(split)} examples; figures show seed {first['seed']}.</small></p>")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _table(rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
