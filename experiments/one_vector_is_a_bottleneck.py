"""Two dates do not pass through one fixed vector; attention reads them one after the other.

The same GRU encoder and decoder, with additive attention and with one vector for the whole source,
train for 500 steps each on inputs with two dates ("Thursday, September 3, 2026 / 3.9.2026", both in
any of 50 locales and three styles) and on inputs with one short date (style medium). Exact match is
measured on days that training never saw, and drawn over the length of the input.

Command: python -m experiments one_vector_is_a_bottleneck
Minutes: 4
Expected: two dates, exact match at least 80 % with attention (97.4 %), at most 20 % through one
vector (0.4 %); on one short date the gap closes to less than half: 100.0 % and 88.7 %

Stopped by Ctrl-C, the same command goes on where it was. Needs `babel`, which the extra
`experiments` installs.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import dates, figures, fitting, translation
from experiments.dates import Pairs
from experiments.fitting import Plan
from experiments.report import Claim, Result
from experiments.translation import Size

ATTENTION, VECTOR = "with attention", "one fixed vector"
KINDS = {ATTENTION: "additive", VECTOR: None}
LIMITS = {ATTENTION: 0.80, VECTOR: 0.20}
COLOURS = {ATTENTION: figures.BLUE, VECTOR: figures.VERMILION}


class Task(NamedTuple):
    """What is read: so many dates in these styles, at most so many characters."""

    name: str
    dates: int
    styles: tuple[str, ...]
    length: int
    marker: str


TWO = Task("two dates", 2, dates.STYLES, 80, "o")
ONE = Task("one short date", 1, ("medium",), 24, "s")


class Sizes(NamedTuple):
    """How large everything is."""

    locales: tuple[str, ...] = dates.LOCALES
    train: int = 20_000
    test: int = 1_000
    model: Size = Size(width=32, hidden=96)
    plan: Plan = Plan(steps=500, batch=64, learning_rate=4e-3, warmup=50)


QUICK = Sizes(("en", "de"), 300, 100, Size(8, 16), Plan(40, 8, 1e-2, 5))


def run(out: Path, quick: bool) -> Result:
    """Train four times, and judge; if quick, on two dates only that it learns."""
    sizes = QUICK if quick else Sizes()
    tests, found = {}, {}
    for task in (TWO,) if quick else (TWO, ONE):
        train, tests[task.name], vocabulary = data(task, sizes)
        for kind, attention in KINDS.items():
            model = translation.recurrent(vocabulary, sizes.model, attention)
            about = f"{task.name}, {kind}"
            place = folder(out, about)
            model = fitting.fit(model, translation.surprise, train, sizes.plan, place, about)
            found[task.name, kind] = translation.right(model, tests[task.name])
    shares = {name: float(right.mean()) for name, right in found.items()}
    fitting.finish(folder(out, ", ".join(name)) for name in found)
    return Result(
        claims=falls(out) if quick else claims(shares, sizes.plan.steps),
        numbers={
            "exact match": {", ".join(name): share for name, share in shares.items()},
            "exact match by length of the input": {
                ", ".join(name): by_length(tests[name[0]].lengths, right)
                for name, right in found.items()
            },
        },
        figures=[draw(out, tests, found)],
    )


def data(task: Task, sizes: Sizes) -> tuple[Pairs, Pairs, int]:
    """Training and test tokens, and how many source tokens there are."""
    options: dict[str, Any] = dict(dates=task.dates, locales=sizes.locales, styles=task.styles)
    texts = [
        dates.draw(sizes.train, True, seed=3, **options),
        dates.draw(sizes.test, False, seed=4, **options),
    ]
    characters = dates.alphabet(texts[0].written + texts[1].written)
    train, test = (dates.tokens(x, characters, task.length) for x in texts)
    return train, test, dates.SPECIAL + len(characters)


def claims(shares: dict[tuple[str, str], float], steps: int) -> list[Claim]:
    """What the header says."""
    gaps = {
        task.name: shares[task.name, ATTENTION] - shares[task.name, VECTOR] for task in (TWO, ONE)
    }
    two = {kind: shares[TWO.name, kind] for kind in KINDS}
    about = f"two dates, {steps} steps, exact match on days never seen"
    return [
        Claim(
            claim=f"{about}: {ATTENTION}",
            expected=f"at least {LIMITS[ATTENTION]}",
            measured=two[ATTENTION],
            holds=two[ATTENTION] >= LIMITS[ATTENTION],
        ),
        Claim(
            claim=f"{about}: {VECTOR}",
            expected=f"at most {LIMITS[VECTOR]}",
            measured=two[VECTOR],
            holds=two[VECTOR] <= LIMITS[VECTOR],
        ),
        Claim(
            claim="on one short date the gap between both is smaller",
            expected=f"less than half of that on two dates, {gaps[TWO.name]:.3f}",
            measured=gaps[ONE.name],
            holds=gaps[ONE.name] < gaps[TWO.name] / 2,
        ),
    ]


def falls(out: Path) -> list[Claim]:
    """The claim of a smoke run."""
    curves = {kind: fitting.losses(folder(out, f"{TWO.name}, {kind}")) for kind in KINDS}
    return [
        Claim(
            claim=f"{kind}: the training loss falls within {len(curve)} steps",
            expected=f"at least 0.3 nats below its start, {curve[0]:.3f}",
            measured=float(curve[-5:].mean()),
            holds=bool(curve[-5:].mean() < curve[0] - 0.3),
        )
        for kind, curve in curves.items()
    ]


def folder(out: Path, about: str) -> Path:
    """Where a run is kept."""
    return out / about.replace(",", "").replace(" ", "_")


def by_length(lengths: np.ndarray, right: np.ndarray, width: int = 8) -> dict[str, float]:
    """The share that is right among inputs of length 0 to 7, 8 to 15 and so on; 20 or more each."""
    found = {}
    for start in range(0, int(lengths.max()) + 1, width):
        here = (lengths >= start) & (lengths < start + width)
        if here.sum() >= 20:
            found[f"{start}-{start + width - 1}"] = round(float(right[here].mean()), 4)
    return found


def draw(out: Path, tests: dict[str, Pairs], found: dict[tuple[str, str], np.ndarray]) -> Path:
    """Exact match over the length of the input."""
    made, ((ax,),) = figures.figure(width=6.4, height=3.8)
    markers = {task.name: task.marker for task in (TWO, ONE)}
    for (task, kind), right in found.items():
        shares = by_length(tests[task].lengths, right)
        middles = [np.mean([int(x) for x in name.split("-")]) for name in shares]
        style = dict(color=COLOURS[kind], marker=markers[task], markersize=5)
        ax.plot(middles, list(shares.values()), **style, label=f"{task}, {kind}")
    ax.set(xlabel="characters of the input", ylabel="exact match", ylim=(-0.03, 1.03))
    ax.legend(frameon=False, fontsize=8)
    return figures.save(made, out, "accuracy_over_length")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
