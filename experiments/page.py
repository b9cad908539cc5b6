"""`report.html`: one file that needs nothing else, readable on a desk and on a phone."""

import base64
import mimetypes
from html import escape
from pathlib import Path
from typing import Any

from experiments.report import Claim, Outcome, plain, short

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --soft: #5b6470;
  --line: #d9dee4; --card: #f6f8fa; --good: #00694d; --bad: #b3400a; --odd: #7a5b00; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --text: #e6e9ec; --soft: #9aa4af;
  --line: #333a42; --card: #1d2126; --good: #3fc79a; --bad: #ff8a50; --odd: #e0b94a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1.1rem 4rem; background: var(--back);
  color: var(--text); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .2rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; }
code { overflow-wrap: anywhere; } code, pre { font: .85rem/1.45 ui-monospace, monospace; }
pre { white-space: pre-wrap; background: var(--card); padding: .7rem; border-radius: 6px; }
nav ul { list-style: none; margin: 1rem 0; padding: 0; border-top: 1px solid var(--line); }
nav li { border-bottom: 1px solid var(--line); padding: .45rem 0; }
a { color: inherit; }
section { margin-top: 2.2rem; padding-top: 1.4rem; border-top: 2px solid var(--line); }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .92rem; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: .4rem .7rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: #fff;
  border: 1px solid var(--line); border-radius: 6px; }
.mark { font-weight: 700; white-space: nowrap; } .holds { color: var(--good); }
.fails, .raised { color: var(--bad); } .skipped, .interrupted { color: var(--odd); }
summary { cursor: pointer; color: var(--soft); }
@media (max-width: 40rem) {
  table.claims thead { display: none; }
  table.claims, table.claims tbody, table.claims tr, table.claims td { display: block; }
  table.claims tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  table.claims td { border: 0; padding: .1rem 0; }
  table.claims td[data-name]::before { content: attr(data-name) ": "; color: var(--soft); } }
"""
WORDS = {
    "holds": "✓ holds",
    "fails": "✗ fails",
    "raised": "✗ raised an error",
    "skipped": "– skipped",
    "interrupted": "– interrupted",
}


def page(outcomes: list[Outcome], about: dict[str, Any], counts: dict[str, Any]) -> str:
    """The whole document."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    verdict = f"{counts['hold']} of {counts['claims']} claims hold"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>jaxattn: {verdict}</title><style>{STYLE}</style></head><body>",
            f"<header><h1>jaxattn: {verdict}</h1>",
            f"<p class=soft>{len(outcomes)} experiments in {duration(counts['seconds'])}"
            f"{' · quick sizes' if about['quick'] else ''} · <code>{escape(about['command'])}"
            f"</code><br>{escape(about['machine'])} · Python {about['python']} · "
            f"{escape(versions)}</p></header>",
            f"<nav><ul>{''.join(entry(outcome) for outcome in outcomes)}</ul></nav>",
            *(section(outcome) for outcome in outcomes),
            "</body></html>\n",
        ]
    )


def entry(outcome: Outcome) -> str:
    """One line of the contents."""
    return (
        f"<li>{mark(outcome['status'])} &nbsp;<a href='#{escape(outcome['name'])}'>"
        f"{title(outcome)}</a> <span class=soft>{duration(outcome['seconds'])}</span></li>"
    )


def section(outcome: Outcome) -> str:
    """One experiment: claims, figures, numbers, and the error if there was one."""
    parts = [
        f"<section id='{escape(outcome['name'])}'><h2>{title(outcome)}</h2>",
        f"<p>{escape(outcome['claim'])}</p>",
        f"<p class=soft>{mark(outcome['status'])} after {duration(outcome['seconds'])} · "
        f"<code>{escape(outcome['command'])}</code></p>",
    ]
    if outcome["error"]:
        parts.append(f"<pre>{escape(outcome['error'].strip())}</pre>")
    if outcome["claims"]:
        parts.append(claims_table(outcome["claims"]))
    parts += [image(path, title(outcome)) for path in outcome["figures"]]
    if outcome["numbers"]:
        parts.append(numbers_table(outcome["numbers"]))
    header = f"<pre>{escape(outcome['about'])}</pre>"
    parts.append(f"<details><summary>what it does and why</summary>{header}</details>")
    return "\n".join([*parts, "</section>"])


def claims_table(claims: list[Claim]) -> str:
    """Claim, expected, measured, verdict; on a narrow screen one below the other."""
    rows = "".join(
        f"<tr><td>{escape(claim['claim'])}</td>"
        f"<td data-name=expected>{escape(str(claim['expected']))}</td>"
        f"<td data-name=measured class=number>{escape(short(claim['measured']))}</td>"
        f"<td>{mark('holds' if claim['holds'] else 'fails')}</td></tr>"
        for claim in claims
    )
    head = "<thead><tr><th>claim<th>expected<th>measured<th></tr></thead>"
    return f"<table class=claims>{head}<tbody>{rows}</tbody></table>"


def numbers_table(numbers: dict[str, Any]) -> str:
    """Every number that the experiment returned, folded away."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class=number>{number(value)}</td></tr>"
        for name, value in numbers.items()
    )
    return f"<details><summary>{len(numbers)} numbers</summary><table>{rows}</table></details>"


def number(value: Any) -> str:
    """A number, a list of them, or a text; texts of several lines keep these."""
    if isinstance(value, dict):
        return "<br>".join(f"{escape(str(name))}: {number(item)}" for name, item in value.items())
    if isinstance(value, list | tuple) and any(isinstance(item, dict | list) for item in value):
        return "<br>".join(number(item) for item in value)
    text = escape(short(value))
    return f"<pre>{text}</pre>" if "\n" in str(plain(value)) else text


def image(path: Path, label: str) -> str:
    """The image itself, inside the page."""
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    text = f"{label}: {escape(path.stem.replace('_', ' '))}"
    return f'<figure><img alt="{text}" src="data:{kind};base64,{data}"></figure>'


def title(outcome: Outcome) -> str:
    """The file's name as a sentence."""
    return escape(outcome["name"].replace("_", " ").capitalize())


def mark(status: str) -> str:
    """A coloured word that also says it without the colour."""
    return f'<span class="mark {status}">{WORDS[status]}</span>'


def duration(seconds: float) -> str:
    """Seconds, or minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
