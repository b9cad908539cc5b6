"""The report as one page, without scripts or anything fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem;
       color: #1b1f24; background: #ffffff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #e3e6ea; }
td.family { color: #68707a; }
td.number { text-align: right; font-variant-numeric: tabular-nums; color: #68707a; }
.pass { color: #14682f; } .fail { color: #ffffff; background: #b3261e; font-weight: 600; }
.unsupported { color: #8a929c; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: #f5f6f8; padding: 1rem; overflow-x: auto; white-space: pre-wrap; }
@media (prefers-color-scheme: dark) {
  body { color: #e3e6ea; background: #15181c; } th, td { border-color: #30363d; }
  .pass { color: #6fcf87; } pre { background: #1f242a; }
}
"""


def page(
    name: str,
    about: str,
    rows: Sequence[tuple[str, str, str, dict[str, Any]]],
    failures: str,
    dtypes: Sequence[str],
) -> str:
    """A heading, the table with a cell a dtype, and the failures in full."""
    heads = "".join(
        f"<th>{escape(text)}</th>" for text in ("family", "check", *dtypes, "seconds", "property")
    )
    body, before = [], ""
    for row in rows:
        body.append(_row(row, dtypes, row[0] if row[0] != before else ""))
        before = row[0]
    told = f"<h2>Failures and notes</h2><pre>{escape(failures)}</pre>" if failures else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(name)}</h1><p>{escape(about)}</p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>{told}"
        "</body></html>\n"
    )


def _row(row: tuple[str, str, str, dict[str, Any]], dtypes: Sequence[str], family: str) -> str:
    _, check, formula, by_dtype = row
    cells = "".join(_cell(by_dtype.get(dtype)) for dtype in dtypes)
    seconds = sum(result.seconds for result in by_dtype.values())
    return (
        f'<tr><td class="family">{escape(family)}</td><td><code>{escape(check)}</code></td>{cells}'
        f'<td class="number">{seconds:.2f}</td><td>{escape(formula)}</td></tr>'
    )


def _cell(result: Any) -> str:
    if result is None:
        return "<td></td>"
    measured = (
        "" if result.error is None else f"error {result.error:.3g}, allowed {result.tolerance:.3g}"
    )
    title = escape(result.message or measured, quote=True)
    return f'<td class="{result.status}" title="{title}">{result.status}</td>'
