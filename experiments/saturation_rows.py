"""Rows of softmax weights, and what each of them is like; for `scaling_prevents_saturation.py`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import attention_scores, attention_weights

KEYS, ROWS = 1024, 16
FROZEN = 1e-3  # a row whose ‖J‖ is below

Rows = dict[str, np.ndarray]  # each statistic, [heads, rows]


def rows_at(variances: list[float], heads: int, size: int) -> dict[float, Rows]:
    """Rows whose scores have exactly these variances, drawn afresh for each."""
    draw = jax.jit(jax.vmap(partial(row_at, size), in_axes=(None, 0)))
    found = {}
    for number, c in enumerate(variances):
        keys = jax.random.split(jax.random.key(number), heads)
        found[c] = {name: np.asarray(value) for name, value in draw(c, keys).items()}
    return found


def row_at(size: int, c: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """Statistics of one head's rows, every query stretched to ‖q‖² = c."""
    query, keys = queries_and_keys(size, key)
    query = query * jnp.sqrt(c / jnp.sum(query**2, axis=-1, keepdims=True))
    return statistics(attention_scores(query, keys, scale=1.0))


def drawn_rows(size: int, heads: int) -> tuple[Rows, Rows]:
    """Rows of drawn queries with σ = 1/√d, and the same rows with σ = 1."""
    keys = jax.random.split(jax.random.key(1000 + size), heads)
    # One head after the other, since all keys at once would be half a gigabyte.
    found = jax.jit(lambda keys: jax.lax.map(partial(drawn_row, size), keys))(keys)
    scaled, plain = ({name: np.asarray(x) for name, x in rows.items()} for rows in found)
    return scaled, plain


def drawn_row(size: int, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Statistics of one head's rows with and without scaling, and each row's c."""
    query, keys = queries_and_keys(size, key)
    square = jnp.sum(query**2, axis=-1)
    scaled = statistics(attention_scores(query, keys))
    plain = statistics(attention_scores(query, keys, scale=1.0))
    return {"c": square / size, **scaled}, {"c": square, **plain}


def queries_and_keys(size: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`[ROWS, d]` and `[KEYS, d]`, standard normal, to be computed with in float64."""
    normal = jax.random.normal(key, (ROWS + KEYS, size), jnp.float32).astype(jnp.float64)
    return normal[:ROWS], normal[ROWS:]


def statistics(scores: jax.Array) -> dict[str, jax.Array]:
    """`[..., n] -> [...]`: what the softmax of each row is like.

    ‖J‖² = Σ_i p_i² (1 - p_i)² + Σ_{i≠j} p_i² p_j², with the largest weight p = 1 - r apart: r is
    summed from the others, since 1 - p would lose all digits in a frozen row.
    """
    weights = attention_weights(scores)
    largest = jnp.max(weights, axis=-1)
    place = jnp.argmax(weights, axis=-1, keepdims=True)
    places = jax.lax.broadcasted_iota(place.dtype, scores.shape, scores.ndim - 1)
    others = jnp.where(places == place, 0, weights)
    rest, squares = jnp.sum(others, axis=-1), jnp.sum(others**2, axis=-1)
    off_diagonal = 2 * largest**2 * squares + squares**2 - jnp.sum(others**4, axis=-1)
    diagonal = (largest * rest) ** 2 + jnp.sum((others * (1 - others)) ** 2, axis=-1)
    return {
        "entropy": jnp.sum(jax.scipy.special.entr(weights), axis=-1),
        "largest weight": largest,
        "Σ p²": largest**2 + squares,
        "‖J‖²": diagonal + off_diagonal,
        "log Z": jax.nn.logsumexp(scores, axis=-1),
    }


def median_norm(rows: Rows) -> float:
    """The median of ‖J‖ over rows."""
    return float(np.sqrt(np.median(rows["‖J‖²"])))


def frozen_share(rows: Rows) -> float:
    """The share of rows that pass no gradient worth the name."""
    return float(np.mean(rows["‖J‖²"] < FROZEN**2))


def described(rows: Rows) -> str:
    """One line of means and quantiles."""
    entropy, largest, square = (rows[name].mean() for name in ("entropy", "largest weight", "‖J‖²"))
    low, middle, high = np.sqrt(np.quantile(rows["‖J‖²"], [0.05, 0.5, 0.95]))
    return (
        f"entropy {entropy:.3f}, largest weight {largest:.3f}, mean ‖J‖² {square:.4f}, "
        f"‖J‖ at 5/50/95 % {low:.2g} / {middle:.2g} / {high:.2g}, frozen {frozen_share(rows):.1%}"
    )
