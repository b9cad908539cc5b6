"""A GRU with additive attention and a Transformer learn to read dates in 50 languages.

Dates from 1950 to 2049 in 50 locales of Latin script and three styles (`babel`: medium, long, full;
"ceturtdiena, 2026. gada 3. septembris") become ISO 8601 ("2026-09-03"), character by character,
without being told the locale. Both models train on the same 30,000 pairs, with the same loss, and
are judged on 2,000 texts of days that training never saw: every character must be right. The GRU is
that of 2014 (an encoder in both directions, a decoder that looks at the source before each
character), the Transformer that of 2017 (pre-norm, 2 + 2 blocks). Weights are drawn side by side.

Command: python -m experiments attention_translates_dates
Minutes: 5
Expected: exact match on days never seen, GRU at least 99 % after 1,000 steps (100 % of 2,000),
Transformer at least 98 % after 1,500 (99.35 %); a beam of 4 hardly matters (100 and 99.3 %)

Stopped by Ctrl-C, the same command goes on where it was. Needs `babel`, which the extra
`experiments` installs.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from experiments import alignment_figure, dates, figures, fitting, translation
from experiments.dates import Pairs, Texts
from experiments.fitting import Plan
from experiments.report import Claim, Result
from experiments.translation import Size

LENGTH = 40  # of the longest text
BEAMS = 4
GRU, TRANSFORMER = "GRU with attention, 2014", "Transformer, 2017"
LIMITS = {GRU: 0.99, TRANSFORMER: 0.98}
SHOWN = 2  # alignments in the figure


class Sizes(NamedTuple):
    """How large everything is."""

    locales: tuple[str, ...] = dates.LOCALES
    train: int = 30_000
    test: int = 2_000
    recurrent: Size = Size(width=32, hidden=96)
    transformer: Size = Size(width=64, layers=2, heads=4)
    plans: tuple[Plan, Plan] = (
        Plan(steps=1000, batch=64, learning_rate=4e-3, warmup=50),
        Plan(steps=1500, batch=64, learning_rate=3e-3, warmup=100),
    )


SMALL_PLAN = Plan(steps=60, batch=16, learning_rate=1e-2, warmup=10)
QUICK = Sizes(
    ("en", "de"), 500, 50, Size(16, 32), Size(16, layers=1, heads=2), (SMALL_PLAN, SMALL_PLAN)
)


def run(out: Path, quick: bool) -> Result:
    """Train both, and judge them; if quick, only that they learn."""
    sizes = QUICK if quick else Sizes()
    (texts, test), train, vocabulary = data(sizes)
    plans: dict[str, Plan] = dict(zip((GRU, TRANSFORMER), sizes.plans, strict=True))
    trained = {
        name: fitting.fit(model, translation.surprise, train, plans[name], folder(out, name), name)
        for name, model in models(vocabulary, sizes).items()
    }
    drawn = draw(out, texts, test, trained)
    losses = {name: fitting.losses(folder(out, name)) for name in trained}
    figures_made = [drawn, loss_figure(out, losses)]
    if quick:
        fitting.finish(folder(out, name) for name in trained)
        numbers = {name: [float(x[0]), float(x[-1])] for name, x in losses.items()}
        return Result(claims=falls(losses), numbers=numbers, figures=figures_made)
    found = {name: judged(model, test) for name, model in trained.items()}
    numbers = {
        **{f"{name}, exact match": shares for name, shares in found.items()},
        "parameters": {name: parameters(model) for name, model in trained.items()},
    }
    fitting.finish(folder(out, name) for name in trained)
    return Result(claims=claims(found, plans), numbers=numbers, figures=figures_made)


def data(sizes: Sizes) -> tuple[tuple[Texts, Pairs], Pairs, int]:
    """Test texts and tokens, training tokens, and how many source tokens there are."""
    train = dates.draw(sizes.train, True, seed=1, locales=sizes.locales)
    test = dates.draw(sizes.test, False, seed=2, locales=sizes.locales)
    characters = dates.alphabet(train.written + test.written)
    as_tokens = [dates.tokens(texts, characters, LENGTH) for texts in (train, test)]
    return (test, as_tokens[1]), as_tokens[0], dates.SPECIAL + len(characters)


def models(vocabulary: int, sizes: Sizes) -> dict[str, Any]:
    """Both, as they start."""
    target = len("2026-09-03") + 1  # and the end, or the start
    return {
        GRU: translation.recurrent(vocabulary, sizes.recurrent),
        TRANSFORMER: translation.transformer(vocabulary, sizes.transformer, LENGTH, target),
    }


def judged(model: Any, test: Pairs) -> dict[str, float]:
    """The share of texts without a mistake, greedy and with a beam."""
    return {
        "greedy": float(translation.right(model, test).mean()),
        f"beam of {BEAMS}": float(translation.right(model, test, BEAMS).mean()),
    }


def claims(found: dict[str, dict[str, float]], plans: dict[str, Plan]) -> list[Claim]:
    """What the header says."""
    return [
        Claim(
            claim=f"{name}: exact match on days never seen, greedy, {plans[name].steps} steps",
            expected=f"at least {limit}",
            measured=found[name]["greedy"],
            holds=found[name]["greedy"] >= limit,
        )
        for name, limit in LIMITS.items()
    ]


def falls(losses: dict[str, np.ndarray]) -> list[Claim]:
    """The claim of a smoke run."""
    return [
        Claim(
            claim=f"{name}: the training loss falls within {len(curve)} steps",
            expected=f"at least 0.8 nats below its start, {curve[0]:.3f}",
            measured=float(curve[-5:].mean()),
            holds=bool(curve[-5:].mean() < curve[0] - 0.8),
        )
        for name, curve in losses.items()
    ]


def parameters(model: nnx.Module) -> int:
    """How many numbers are trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def folder(out: Path, name: str) -> Path:
    """Where a model's run is kept."""
    return out / name.split()[0].strip(",").lower()


def draw(out: Path, texts: Texts, test: Pairs, trained: dict[str, Any]) -> Path:
    """The weights of both models on the longest of the first texts and on the first."""
    first = np.argsort(-test.lengths[:20], kind="stable")[: SHOWN - 1].tolist()
    chosen = [*first, next(i for i in range(20) if i not in first)]
    pairs = Pairs(*(x[chosen] for x in test))
    shown = [(texts.written[i], texts.iso[i]) for i in chosen]
    columns = {
        name: np.asarray(translation.alignments(model, pairs)) for name, model in trained.items()
    }
    return alignment_figure.draw(out, shown, columns)


def loss_figure(out: Path, losses: dict[str, np.ndarray]) -> Path:
    """Both losses over steps, logarithmic."""
    made, ((ax,),) = figures.figure(width=6.0)
    for (name, curve), colour in zip(losses.items(), (figures.BLUE, figures.ORANGE), strict=True):
        ax.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=0.8, label=name)
    ax.set(yscale="log", xlabel="step", ylabel="training loss, nats per character")
    ax.legend(frameon=False, fontsize=8)
    return figures.save(made, out, "loss")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
