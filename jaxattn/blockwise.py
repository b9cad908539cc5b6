"""The same answer as the dense definition at O(T) memory, in every derivative.

The value is an online softmax over tiles. Its derivative rule is the tangent of a surrogate that
recomputes the weights from the result (out, lse), held fixed:

    g_out = Σ_j w_ij v_j - (Σ_j w_ij) out_i,   g_lse = Σ_j w_ij,   w_ij = exp(s_ij - lse_i)

The two parts of lse, the largest score and the logarithm of the sum relative to it, are kept apart:
the sum of both would lose the second where scores are large, as beside a bias of -1e9.

(out, lse) is the root of g = (0, 1), and ∂g/∂(out, lse) = -1 there. So, by the implicit function
theorem, d(out, lse) = dg with (out, lse) fixed. The surrogate is a sum over tiles, which JAX
differentiates, transposes and batches; differentiating the rule again meets (out, lse), and with
them the rule. Letters: see `jaxattn._typing`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn._door import Inputs
from jaxattn._hoist import hoist, hoist_mask
from jaxattn._mesh import on_one_mesh
from jaxattn._precision import accumulator
from jaxattn._typing import Array
from jaxattn.biases import Bias
from jaxattn.dense import dense_attention
from jaxattn.layout import Layout, arrange, chosen_rows, restore, steps_of, together, unpacked
from jaxattn.partial import Partial
from jaxattn.plan import default_plan
from jaxattn.products import products, split_products, turned_back, turned_like
from jaxattn.softmax import finite_or_zero, log_or_minus_inf, positive_or_one
from jaxattn.steps import Step, Tile, view
from jaxattn.tile_scores import dropped, score_tile
from jaxattn.tiles import EMPTY, FULL, Plan


def blockwise_attention(inputs: Inputs) -> Partial:
    """`partial_attention` over tiles, for inputs that passed the door."""
    if 0 in inputs.batch + inputs.sizes[:2]:
        return dense_attention(inputs).partial  # no pairs, hence no tiles
    inputs = on_one_mesh(inputs)
    plan = default_plan(inputs)
    leaves, structure = flatten(hoisted(plan, inputs))
    return compiled(plan, structure, leaves)


class Structure(NamedTuple):
    """How leaves make the inputs: a static argument, equal only where the classes are.

    JAX calls the trees of two dataclasses equal whose fields have equal names and static values.
    """

    tree: Any  # a PyTreeDef
    classes: tuple[Any, ...]

    def unflatten(self, leaves: list[Array]) -> Inputs:
        """The inputs with these leaves."""
        return self.tree.unflatten(leaves)


def flatten(inputs: Inputs) -> tuple[list[Array], Structure]:
    """Leaves and structure."""
    leaves, tree = jax.tree_util.tree_flatten(inputs)
    return leaves, Structure(tree, classes_of(tree))


def classes_of(tree: Any) -> tuple[Any, ...]:
    """The class of every node, nested as the nodes are."""
    node = tree.node_data()
    return (node and node[0], *map(classes_of, tree.children()))


def hoisted(plan: Plan, inputs: Inputs) -> Inputs:
    """Inputs whose functions show every array that they hold or close over."""
    batch = () if plan.looped else inputs.batch
    given = (inputs.query_positions, inputs.key_positions)
    lead_rows, lead_columns = (
        batch if x is not None and x.ndim > 1 else (1,) * len(batch) for x in given
    )
    rows = jax.ShapeDtypeStruct((*lead_rows, 1, plan.rows, 1), jnp.int32)
    columns = jax.ShapeDtypeStruct((*lead_columns, 1, 1, plan.columns), jnp.int32)
    scores = (*batch, inputs.query.shape[-2], plan.rows, plan.columns)
    tile = jax.ShapeDtypeStruct(scores, accumulator(inputs.query.dtype))
    bias, mod = inputs.bias_function, inputs.score_mod
    return dataclasses.replace(
        inputs,
        mask=hoist_mask(inputs.mask, rows, columns),
        bias_function=bias
        if bias is None or isinstance(bias, Bias)
        else hoist(bias, rows, columns),
        score_mod=None if mod is None else hoist(mod, tile, rows, columns),
    )


class Attended(NamedTuple):
    """`out [*B, T, N, Hv]`, and both parts of lse `[*B, T, N]`: lse = shift + log_total."""

    out: Array
    log_total: Array
    shift: Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def attend(plan: Plan, structure: Structure, leaves: list[Array]) -> Attended:
    """`partial_attention` over tiles; `leaves` and `structure` are the inputs, flattened.

    Derivatives count the change of lse as that of `log_total`, and `shift` as a constant. So do
    those of the code as it stands, at O(T) memory too: where a loop is differentiated twice, JAX
    may take the code for the rule.
    """
    inputs = structure.unflatten(leaves)
    layouts = arrange(plan._replace(columns=plan.wide), inputs)

    def values(layout: Layout) -> tuple[Array, ...]:
        @recomputed
        def step(_: None, index: Any) -> tuple[None, tuple[Array, ...]]:
            return None, online_softmax(view(layout, index, picked=False))

        return jax.lax.scan(step, None, layout.steps)[1]

    found = zip(*map(values, layouts), strict=True)
    out, *parts = (together(layouts, list(x)) for x in found)
    return Attended(restore(plan, inputs, out), *(restore(plan, inputs, x)[..., 0] for x in parts))


@functools.partial(jax.jit, static_argnums=(0, 1))
def compiled(plan: Plan, structure: Structure, leaves: list[Array]) -> Partial:
    """`attend`, compiled once for calls of one structure that no `jit` surrounds."""
    found = attend(plan, structure, leaves)
    return Partial(found.out, jax.lax.stop_gradient(found.shift) + found.log_total)


@functools.partial(attend.defjvp, symbolic_zeros=True)
def attend_jvp(
    plan: Plan, structure: Structure, primals: Any, tangents: Any
) -> tuple[Attended, Attended]:
    """`d(out, lse) = dg`; what does not move costs nothing."""
    (leaves,), (moves,) = primals, tangents
    found = attend(plan, structure, leaves)
    moving = [i for i, move in enumerate(moves) if not is_zero(move)]

    def residual(moved: list[Array]) -> Partial:
        now = list(leaves)
        for i, leaf in zip(moving, moved, strict=True):
            now[i] = leaf
        return surrogate(plan, structure.unflatten(now), found)

    at, along = [leaves[i] for i in moving], [moves[i] for i in moving]
    moved = jax.jvp(residual, (at,), (along,))[1]
    return found, Attended(moved.out, moved.lse, jnp.zeros_like(found.shift))


def is_zero(tangent: Any) -> bool:
    """A tangent that is known to be zero, or of an integer."""
    symbolic = isinstance(tangent, jax.custom_derivatives.SymbolicZero)
    return symbolic or tangent.dtype == jax.dtypes.float0


def surrogate(plan: Plan, inputs: Inputs, found: Attended) -> Partial:
    """`g(inputs; out, lse)`: both sums over tiles, with the weights recomputed from lse."""
    layouts = arrange(plan, inputs)
    fixed = (found.out, found.log_total[..., None], jax.lax.stop_gradient(found.shift)[..., None])
    fixed = tuple(steps_of(plan, inputs, x) for x in fixed)

    def sums(layout: Layout) -> tuple[Array, Array]:
        @recomputed
        def step(_: None, xs: Any) -> tuple[None, tuple[Array, Array]]:
            index, *results = xs
            out, log_total, shift = (unpacked(plan, x) for x in results)
            total, summed = weighted_sums(view(layout, index), finite_or_zero(log_total), shift)
            return None, (summed - total * out, total)

        here = (chosen_rows(plan, inputs, x, layout.rows) for x in fixed)
        return jax.lax.scan(step, None, (layout.steps, *here))[1]

    parts = zip(*map(sums, layouts), strict=True)
    g_out, g_lse = (together(layouts, list(x)) for x in parts)
    return Partial(restore(plan, inputs, g_out), restore(plan, inputs, g_lse)[..., 0])


def online_softmax(step: Step) -> tuple[Array, Array, Array]:
    """`out [.., N, t, Hv]`, log l and m `[.., N, t, 1]` of one block of queries.

    For every tile: m' = max(m, max_j s_j), l' = e^(m - m') l + Σ_j e^(s_j - m'), and likewise the
    weighted sum; then out = sum / l and lse = m + log l, where m is 0 in an empty row (Milakov and
    Gimelshein 2018).
    """

    def absorb(carry: tuple[Array, Array, Array], tile: Tile, mixed: bool) -> Any:
        largest, total, summed = carry
        scored = score_tile(step, tile, mixed)
        scores = scored.scores
        if scored.allowed is not None:
            scores = jnp.where(scored.allowed, scores, -jnp.inf)
        larger = jnp.maximum(largest, jnp.max(scores, axis=-1, keepdims=True))
        larger = jax.lax.stop_gradient(larger)
        shift = finite_or_zero(larger)
        weights = jnp.exp(scores - shift)
        rescale = jnp.exp(largest - shift)
        total = rescale * total + jnp.sum(weights, axis=-1, keepdims=True)
        summed = rescale * summed + products(dropped(step, tile, weights), scored.value, step)
        return larger, total, summed

    start = (step.rows_like(-jnp.inf), step.rows_like(0.0), step.out_like())
    largest, total, summed = over_tiles(step, absorb, start)
    log_total = log_or_minus_inf(total, jnp.zeros_like(total))
    return summed / positive_or_one(total), log_total, finite_or_zero(largest)


def weighted_sums(step: Step, log_total: Array, shift: Array) -> tuple[Array, Array]:
    """`Σ_j exp(s_ij - lse_i)`, and the same with each value; log_total is 0 in empty rows."""

    def add(carry: tuple[Array, Array, Array], tile: Tile, mixed: bool) -> Any:
        total, summed, turned = carry
        scored = score_tile(step, stored(tile), mixed)
        if scored.allowed is None:
            weights = jnp.exp(scored.scores - shift - log_total)
        else:
            exponent = jnp.where(scored.allowed, scored.scores, shift) - shift - log_total
            weights = jnp.where(scored.allowed, jnp.exp(exponent), 0)
        total = total + jnp.sum(weights, axis=-1, keepdims=True)
        parts = split_products(dropped(step, tile, weights), scored.value, step)
        return total, summed + parts[0], turned + parts[1]

    zeros = step.out_like()
    start = (step.rows_like(0.0), zeros, turned_like(zeros, step.groups))
    total, summed, turned = over_tiles(step, add, start)
    return total, summed + turned_back(turned, zeros)


def stored(tile: Tile) -> Tile:
    """The tile with key and value laid out in memory as their axes say.

    Products of the gradient contract the queries of a tile: `dKᵀ = Qᵀ dS` leaves the keys last, as
    they are in dS, and runs up to three times as fast on a CPU as `dK = dSᵀ Q`.
    """
    # One barrier each: where only one of them moves, the other's derivative must stay zero.
    key, value = map(jax.lax.optimization_barrier, (tile.key, tile.value))
    return tile._replace(key=key, value=value)


def recomputed(body: Any) -> Any:
    """The same, whose derivative computes again what it needs, and stores nothing of a tile."""
    return jax.checkpoint(body, prevent_cse=False)


def over_tiles(step: Step, visit: Any, carry: Any) -> Any:
    """Fold `visit(carry, tile, mixed)` over the tiles of one step; empty ones cost nothing.

    A derivative recomputes in the body of the loop, and in each kind of visit: one that recomputes
    inside a branch has nothing of a tile's size to hand from branch to branch.
    """
    branches = [
        (lambda carry, tile: carry)
        if kind == EMPTY
        else recomputed(lambda carry, tile, mixed=kind != FULL: visit(carry, tile, mixed))
        for kind in step.kinds
    ]

    @recomputed
    def body(carry: Any, xs: tuple[Array, Array, Array]) -> tuple[Any, None]:
        block, kind, place = xs
        tile = step.tile(block, place)
        if len(branches) == 1:
            return branches[0](carry, tile), None
        which = sum(jnp.where(kind > k, 1, 0) for k in step.kinds[:-1])
        return jax.lax.switch(which, branches, carry, tile), None

    if not step.kinds:
        return carry
    return jax.lax.scan(body, carry, (step.block, step.kind, step.place))[0]
