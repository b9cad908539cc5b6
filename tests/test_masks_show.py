"""The picture of a mask shows the mask, and the tiles that its `tiles` names."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.masks import Causal, Dense, Prefix, Segments, SlidingWindow, show
from jaxattn.masks._show import ALLOWED, FULL, MIXED, PAPER


def colours(figure):
    """The colours of the picture as hexadecimal strings `[T, S]`."""
    pixels = np.asarray(figure.axes[0].images[0].get_array())
    return np.array([["#" + bytes(pixel).hex() for pixel in row] for row in pixels])


def test_pairs_are_dark_where_allowed():
    mask = Causal() & SlidingWindow(left=2, right=0)
    figure = show(mask, 6)
    np.testing.assert_array_equal(colours(figure), np.where(mask.dense(6), ALLOWED, PAPER))
    assert figure.axes[0].get_title() == repr(mask)
    assert figure.axes[0].get_legend() is None


def test_tiles_are_blank_orange_and_green():
    got = colours(show(Causal(), 6, tile=2))
    want = np.full((6, 6), PAPER, dtype="<U7")
    for block in (0, 2, 4):
        want[block : block + 2, :block] = FULL
        want[block : block + 2, block : block + 2] = [[ALLOWED, MIXED], [ALLOWED, ALLOWED]]
    np.testing.assert_array_equal(got, want)


def test_legend_counts_tiles():
    figure = show(Causal(align="end"), 3, 8, tile=(2, 4), title="a cache")
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert words == ["0 empty tiles", "3 mixed", "1 full"]
    assert figure.axes[0].get_title() == "a cache"


def test_an_entry_of_the_batch():
    mask = Segments(jnp.array([[0, 0, 1, 1], [0, 1, 1, 1]]))
    for entry in (0, 1):
        got = colours(show(mask, 4, entry=(entry, 0)))
        np.testing.assert_array_equal(got == ALLOWED, mask.dense(4)[entry, 0])
    assert (colours(show(mask, 4, tile=2, entry=(0, 0))) == FULL).sum() == 8
    heads = Dense(jnp.stack([jnp.eye(2, dtype=bool), ~jnp.eye(2, dtype=bool)]))
    np.testing.assert_array_equal(
        colours(show(heads, 2, entry=(1,))) == ALLOWED, ~np.eye(2, dtype=bool)
    )


def test_a_figure_can_be_written(tmp_path):
    show(Causal() | Prefix(9), 50, tile=16).savefig(tmp_path / "mask.png")
    assert (tmp_path / "mask.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"tile": 0}, "tile must be at least 1"),
        ({"entry": (0,)}, "entry must choose"),
        ({"keys": 3}, "align"),
        ({"queries": 0}, "at least one query"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        show(Causal(), **{"queries": 4, **options})


def test_without_matplotlib():
    """The library loads without it, and `show` says what is missing."""
    program = """
import sys
import jaxattn.masks
assert not any(name.startswith("matplotlib") for name in sys.modules)
sys.modules["matplotlib"] = sys.modules["matplotlib.figure"] = None
try:
    jaxattn.masks.show(jaxattn.masks.Causal(), 4)
except ImportError as error:
    assert "pip install matplotlib" in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
