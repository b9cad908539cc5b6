"""Prompts and their pictures, the flow, and what is measured of words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import flow, painter, prompt_measures, prompted_digits, prompts_draw_digits
from experiments.report import checked_result
from jaxattn.nn import MultiHeadAttention
from tests.calls import jit

EACH = 3  # digits of a class on the shelf


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        with jax.numpy_rank_promotion("allow"):
            yield


@pytest.fixture
def shelf():
    """Digits that are squares of one value, their class."""
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(10), EACH))
    pictures = np.broadcast_to(classes[:, None, None, None], (len(classes), 8, 8, 1))
    return prompted_digits.shelf(pictures.astype(np.float32), classes)


def read(pictures):
    """Logits of such digits."""
    means = jnp.mean(pictures, axis=(1, 2, 3))
    return -jnp.abs(means[:, None] - jnp.arange(10.0))


def asked(*prompts):
    return jnp.asarray([prompted_digits.tokens(prompt) for prompt in prompts])


def test_a_prompt_is_its_words():
    assert prompted_digits.tokens("three above seven") == (3, 10, 7)
    for words in prompted_digits.prompts(True):
        assert prompted_digits.tokens(prompted_digits.sentence(words)) == tuple(words)


@pytest.mark.parametrize(
    "prompt", ["three seven above", "three above", "above", "", "three above 7", "a b c d"]
)
def test_another_prompt_is_an_error(prompt):
    with pytest.raises(ValueError, match="a number, a relation and a number.*got"):
        prompted_digits.tokens(prompt)


def test_pairs_are_trained_on_or_not():
    trained, kept = (set(map(tuple, prompted_digits.pairs(unseen))) for unseen in (False, True))
    assert len(trained) == 80 and len(kept) == 20 and not trained & kept
    assert kept == {(b, a) for a, b in kept}  # "a above b" and "b below a" are the same picture
    for side in (0, 1):
        assert {pair[side] for pair in trained} == {pair[side] for pair in kept} == set(range(10))


def test_pictures_are_what_prompts_ask_for(shelf):
    words = asked("three above seven", "three below seven", "three before seven", "one after nine")
    pictures = np.asarray(jit(prompted_digits.painted)(jax.random.key(0), shelf, words))[..., 0]
    corners = [pictures[:, r, c] for r, c in ((0, 4), (15, 11), (4, 0), (11, 15), (0, 0))]
    p = np.float32(prompted_digits.PAPER)
    expected = [[3, 7, p, p], [7, 3, p, p], [p, p, 3, 9], [p, p, 7, 1], [p, p, p, p]]
    assert np.array_equal(corners, np.asarray(expected, np.float32))


def test_no_pair_that_is_kept_is_drawn(shelf):
    draw = jit(prompted_digits.draw, static_argnums=2)
    pictures, words = draw(jax.random.key(0), shelf, 2000)
    drawn = {tuple(pair) for pair in np.asarray(words)[:, ::2]}
    assert drawn == set(map(tuple, prompted_digits.pairs(False)))
    assert set(np.asarray(words)[:, 1]) == {10, 11, 12, 13}
    assert prompt_measures.right(read, pictures, words).all()


def test_every_digit_of_a_class_is_drawn():
    """Numbers that say which digit it is."""
    own = np.arange(10.0 * EACH, dtype=np.float32)[:, None, None, None] + np.zeros((1, 8, 8, 1))
    numbered = prompted_digits.shelf(own.astype(np.float32), np.repeat(np.arange(10), EACH))
    pictures, words = jit(prompted_digits.draw, static_argnums=2)(jax.random.key(1), numbered, 2000)
    found = np.asarray(jax.vmap(prompted_digits.cut)(pictures, words[:, 1]))[:, :, 0, 0, 0]
    assert np.array_equal(found // EACH, np.asarray(words)[:, ::2])
    assert len(np.unique(found)) == 10 * EACH


def test_a_digit_in_the_wrong_place_is_not_right(shelf):
    pictures = prompted_digits.painted(jax.random.key(0), shelf, asked("three above seven"))
    for prompt, expected in (
        ("three above seven", [True, True]),
        ("seven below three", [True, True]),
        ("three above six", [True, False]),
        ("seven above three", [False, False]),
        ("three below seven", [False, False]),
    ):
        found = prompt_measures.right(read, pictures, asked(prompt))
        assert found.tolist() == [expected], prompt


def test_patches_are_pixels_in_another_order():
    picture = jax.random.normal(jax.random.key(0), (2, 16, 16, 1))
    patches = painter.patched(picture)
    assert patches.shape == (2, 16, 16)
    np.testing.assert_array_equal(patches[1, 7].reshape(4, 4), picture[1, 4:8, 12:16, 0])
    np.testing.assert_array_equal(painter.pixels(patches), picture)


def straight(target):
    """The velocity of lines that end in `target`."""
    return lambda x, time, words: (target - x) / (1 - time[:, None, None, None] + 1e-6)


def test_lines_to_a_picture_end_there():
    target = jax.random.normal(jax.random.key(0), (2, 4, 4, 1))
    noise = jax.random.normal(jax.random.key(1), target.shape)
    velocity = lambda x, time, words: target - noise
    path = flow.follow(velocity, noise, jnp.zeros((2, 3), jnp.int32), 5)
    assert path.shape == (6, 2, 4, 4, 1)
    for moment, x in enumerate(path):
        np.testing.assert_allclose(x, noise + moment / 5 * (target - noise), atol=1e-6)


def test_the_rule_is_of_second_order():
    """`dx/dt = x` from 1, where Euler's error would be a half with half the steps."""
    velocity = lambda x, time, words: x * (1 + time[:, None, None, None])
    one = jnp.ones((1, 1, 1, 1))
    ends = [float(flow.follow(velocity, one, one, n)[-1].squeeze()) for n in (10, 20, 40)]
    errors = np.abs(np.asarray(ends) - np.exp(1.5))
    assert (errors[:-1] / errors[1:] > 3.5).all() and errors[-1] < 0.01


def test_no_error_is_that_of_the_line_itself():
    pictures = jax.random.normal(jax.random.key(0), (8, 4, 4, 1))
    words = jnp.zeros((8, 3), jnp.int32)
    key = jax.random.key(1)
    assert float(flow.error(straight(pictures), pictures, words, key)) < 1e-6
    wrong = lambda x, time, words: 1 + straight(pictures)(x, time, words)
    np.testing.assert_allclose(flow.error(wrong, pictures, words, key), 1, rtol=1e-3)


def test_times_are_spread():
    times = np.asarray(flow.spread(jax.random.key(0), 10))
    assert np.array_equal(np.floor(10 * times), np.arange(10))


def test_guidance_goes_on_from_what_no_prompt_gives():
    velocity = lambda x, time, words: x + jnp.sum(words, axis=1)[:, None, None, None]
    words, x = jnp.array([[1, 2, 3], [4, 5, 6]]), jnp.zeros((2, 4, 4, 1))
    found = flow.guided(velocity, 2, 3.0)(x, jnp.zeros(2), words)
    np.testing.assert_allclose(found[:, 0, 0, 0], [6 + 3 * (6 - 6), 6 + 3 * (15 - 6)])


def test_a_prompt_is_unsaid_as_a_whole():
    words = jnp.ones((4000, 3), jnp.int32)
    found = np.asarray(flow.unsaid(jax.random.key(0), words, 9, 0.25))
    silent = (found == 9).all(axis=1)
    assert np.array_equal(silent, (found == 9).any(axis=1)) and 0.2 < silent.mean() < 0.3


@pytest.fixture(scope="module")
def model():
    """One that has learned nothing, but says something."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        made = painter.Painter(rngs=nnx.Rngs(0))
        made.velocity.kernel[...] = jax.random.normal(jax.random.key(0), made.velocity.kernel.shape)
        return made


def test_the_painter_looks_at_all_it_is_given(model):
    picture = jax.random.normal(jax.random.key(0), (4, 16, 16, 1)).at[1:].set(0.0)
    picture = picture.at[0].set(0.0).at[1, 3, 3].set(1.0)
    time = jnp.array([0.5, 0.5, 0.6, 0.5])
    words = asked(*["two above one"] * 3, "one above two")
    out = np.asarray(jit(lambda *x: model(*x))(picture, time, words))
    for other in out[1:]:
        assert np.abs(other - out[0]).max() > 1e-2


def test_weights_of_words_are_those_that_the_painter_uses(model, monkeypatch):
    used, call = [], MultiHeadAttention.__call__

    def spied(self, x, context=None, **options):
        if context is not None:
            used.append(self.with_weights(x, context)[1])
        return call(self, x, context, **options)

    given = jnp.ones((1, 16, 16, 1)), jnp.full(1, 0.5), asked("two above one")
    monkeypatch.setattr(MultiHeadAttention, "__call__", spied)
    model(*given)
    assert len(used) == painter.LAYERS
    monkeypatch.undo()
    weights = painter.word_weights(model, *given)
    assert weights.shape == (painter.LAYERS, 1, painter.HEADS, 16, 3)
    np.testing.assert_allclose(jnp.sum(weights, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(weights, jnp.stack(used), atol=1e-6)


def test_own_share_by_hand():
    words = asked("two above one", "two after one")
    inside = np.asarray(jax.vmap(prompt_measures.areas)(words[:, 1]))
    assert inside.shape == (2, 2, 16, 16) and (inside.sum(axis=(2, 3)) == 64).all()
    assert inside[0, 0, :8, 4:12].all() and inside[0, 1, 8:, 4:12].all()
    assert inside[1, 0, 4:12, 8:].all() and inside[1, 1, 4:12, :8].all()
    patches = inside[..., ::4, ::4].reshape(2, 2, 16).astype(np.float32)
    own = np.zeros((2, 16, 3), np.float32)
    own[..., 0], own[..., 2] = patches[:, 0], patches[:, 1]
    mixed = own + np.float32(0.5) * own[..., ::-1]
    maps = jnp.stack([own, own[..., ::-1], mixed, np.ones_like(own)])
    shares = prompt_measures.own_share(maps, words)
    expected = np.array([1, 0, 2 / 3, 1 / 2])[:, None, None]
    np.testing.assert_allclose(shares, np.broadcast_to(expected, (4, 2, 2)), rtol=1e-6)


def test_own_change_by_hand():
    words = asked("two above one")
    before = jnp.zeros((1, 16, 16, 1))
    after = before.at[0, 2, 5].set(2.0).at[0, 12, 5].set(1.0).at[0, 12, 0].set(1.0)
    for which, expected in ((0, 4 / 6), (1, 1 / 6)):
        found = prompt_measures.own_change(before, after, words, which)
        np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_the_nearest_digit():
    known = jnp.zeros((2, 8, 8, 1)).at[1].set(1.0)
    found = jnp.stack([known[1], known[0].at[0, 0].set(0.5)])
    np.testing.assert_allclose(prompt_measures.nearest(found, known), [0, 0.5], atol=1e-3)


def test_claims_compare():
    names = [name for name, _, _ in prompts_draw_digits.BOUNDS]
    good = dict(zip(names, (99.0, 99.0, 1.0, 99.0, 99.0), strict=True))
    bad = dict(zip(names, (50.0, 50.0, 50.0, 50.0, 50.0), strict=True))
    assert [claim["holds"] for claim in prompts_draw_digits.claims(good)] == [True] * 5
    assert [claim["holds"] for claim in prompts_draw_digits.claims(bad)] == [False] * 5


@pytest.mark.slow
def test_quick(tmp_path):
    pytest.importorskip("sklearn")
    result = checked_result(prompts_draw_digits.run(tmp_path, quick=True))
    assert [claim for claim in result["claims"] if not claim["holds"]] == []
    assert all(figure.stat().st_size > 10_000 for figure in result["figures"])
