"""A language model and the steps that train it: pure functions of a `State`.

What a step draws (which windows, what is dropped) is a function of the seed and the number of the
step alone: there is no generator to save, and a resumed run draws what an unbroken one would.

Letters: B examples, C the context, V = 256 symbols.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.text import SYMBOLS, random_windows
from jaxattn.nn import LanguageModel


class Recipe(NamedTuple):
    """What a run is made of; stored beside it, so that `--resume` continues the same one."""

    context: int = 128
    """bytes that the model sees"""
    width: int = 128
    """features of a token"""
    layers: int = 4
    """blocks"""
    heads: int = 4
    """attention heads of a block"""
    batch: int = 16
    """windows in a step"""
    steps: int = 1500
    """steps in all"""
    warmup: int = 150
    """steps until the full learning rate, which then falls as a cosine"""
    learning_rate: float = 3e-3
    """of AdamW"""
    dropout: float = 0.0
    """share dropped in training"""
    seed: int = 0
    """of parameters, windows and dropout"""


def check(recipe: Recipe) -> None:
    """Raise unless sizes are at least 1 and rates make sense.

    Raises:
      ValueError: names the option, what it must be, and what it is.
    """
    for name in ("context", "width", "layers", "heads", "batch", "steps"):
        if getattr(recipe, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(recipe, name)}")
    if recipe.warmup < 0:
        raise ValueError(f"--warmup must be at least 0, got {recipe.warmup}")
    if not recipe.learning_rate > 0:
        raise ValueError(f"--learning-rate must be above 0, got {recipe.learning_rate}")


class State(NamedTuple):
    """All that a step changes."""

    step: jax.Array  # int32
    params: nnx.State
    optimizer: optax.OptState


class Model(NamedTuple):
    """A module without its parameters: what a step does not change."""

    graph: nnx.GraphDef
    rest: Any
    optimizer: optax.GradientTransformation
    recipe: Recipe


def create(recipe: Recipe) -> tuple[Model, State]:
    """A model with its first state."""
    module = LanguageModel(
        SYMBOLS,
        recipe.width,
        recipe.layers,
        recipe.heads,
        recipe.context,
        dropout_rate=recipe.dropout,
        rngs=nnx.Rngs(recipe.seed),
    )
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    optimizer = adamw(recipe)
    state = State(jnp.zeros((), jnp.int32), params, optimizer.init(params))
    return Model(graph, rest, optimizer, recipe), state


def adamw(recipe: Recipe) -> optax.GradientTransformation:
    """AdamW on gradients of norm at most 1; linear warm-up, then a cosine to a hundredth."""
    peak = recipe.learning_rate
    warmup = min(recipe.warmup, recipe.steps - 1)
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, warmup, recipe.steps, peak / 100)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98, weight_decay=0.1))


class Compiled(NamedTuple):
    """The two functions that take time, compiled once for a model."""

    advance: Callable[..., tuple[State, jax.Array]]
    window_nats: Callable[..., jax.Array]


def compiled(model: Model) -> Compiled:
    """`advance` reuses the memory of the state that it is given: that one is gone afterwards."""
    steps = functools.partial(advance, model)
    return Compiled(
        jax.jit(steps, static_argnames="length", donate_argnames="state"),
        jax.jit(functools.partial(window_nats, model)),
    )


def advance(model: Model, state: State, tokens: jax.Array, length: int) -> tuple[State, jax.Array]:
    """`length` steps in one dispatch: the state after them and the loss of each, `[length]`."""
    return jax.lax.scan(lambda at, _: one_step(model, at, tokens), state, length=length)


def one_step(model: Model, state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
    """Windows, loss, gradient, update."""
    recipe = model.recipe
    here, dropped = jax.random.split(jax.random.fold_in(jax.random.key(recipe.seed), state.step))
    windows = random_windows(here, tokens, recipe.batch, recipe.context)

    def loss_of(params: nnx.State) -> jax.Array:
        return jnp.mean(surprise(model, params, windows, dropped))

    loss, gradient = jax.value_and_grad(loss_of)(state.params)
    updates, optimizer = model.optimizer.update(gradient, state.optimizer, state.params)
    params = cast(nnx.State, optax.apply_updates(state.params, updates))
    return State(state.step + 1, params, optimizer), loss


def surprise(
    model: Model, params: nnx.State, windows: jax.Array, dropped: jax.Array | None = None
) -> jax.Array:
    """`-log p(byte | those before it)`: `[B, C + 1] -> [B, C]`, in nats; dropout with a key."""
    predicted = logits(model, params, windows[:, :-1], dropped)
    return optax.softmax_cross_entropy_with_integer_labels(predicted, windows[:, 1:])


def logits(
    model: Model, params: nnx.State, tokens: jax.Array, dropped: jax.Array | None = None
) -> jax.Array:
    """`[B, T] -> [B, T, V]`."""
    module = nnx.merge(model.graph, params, model.rest)
    if dropped is None or not model.recipe.dropout:
        return module(tokens, deterministic=True)
    return module(tokens, deterministic=False, rngs=nnx.Rngs(dropout=dropped))


def window_nats(
    model: Model, params: nnx.State, windows: jax.Array, counts: jax.Array
) -> jax.Array:
    """The nats of each window's counted predictions: `[N, B, C + 1], [N, B, C] -> [N, B]`."""

    def batch_nats(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        tokens, counted = given
        nats = surprise(model, params, tokens.astype(jnp.int32))
        return jnp.sum(jnp.where(counted, nats, 0), axis=-1)

    return jax.lax.map(batch_nats, (windows, counts))


def validate(
    functions: Compiled, params: nnx.State, windows: np.ndarray, counts: np.ndarray, batch: int
) -> float:
    """Nats per byte over the counted predictions; see `text.validation_windows`."""
    parts = (x.reshape(-1, batch, x.shape[-1]) for x in (windows, counts))
    nats = np.asarray(functions.window_nats(params, *map(jnp.asarray, parts)))
    return float(np.sum(nats, dtype=np.float64) / np.sum(counts))
