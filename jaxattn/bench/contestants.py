"""Who is timed. Each is asked for a case and a derivative, and gives a call without arguments.

A contestant that cannot do a job, or would need more memory than it is given, says why instead.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxattn
from jaxattn.bench.cases import DOCUMENT, WINDOW, Case
from jaxattn.masks import Causal, Segments, SlidingWindow

GIB = 2**30


class LeftOut(Exception):
    """Why a contestant does not take part in a case."""


class Contestant(NamedTuple):
    """`prepare(case, mode)` compiles, and returns a call that waits for its result."""

    name: str
    prepare: Callable[[Case, str], Callable[[], Any]]


def arrays(case: Case) -> tuple[Any, ...]:
    """Query, key, value and a cotangent, in float32."""
    rng = np.random.default_rng(0)
    query = (case.batch, case.length, case.heads, case.size)
    keys = (case.batch, case.length, case.key_heads, case.size)
    return tuple(rng.standard_normal(s, np.float32) for s in (query, keys, keys, query))


def derivative(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """The function of a cotangent and operands, or its derivative in all operands, along them."""

    def gradient(cotangent: Any, *operands: Any) -> Any:
        return jax.vjp(function, *operands)[1](cotangent)

    def curvature(cotangent: Any, *operands: Any) -> Any:
        return jax.jvp(functools.partial(gradient, cotangent), operands, operands)[1]

    return {
        "forward": lambda _, *operands: function(*operands),
        "grad": gradient,
        "jvp": lambda _, *operands: jax.jvp(function, operands, operands),
        "hvp": curvature,
    }[mode]


def jax_call(function: Callable[..., Any], case: Case, mode: str) -> Callable[[], Any]:
    """A compiled call of a function of query, key and value."""
    *operands, cotangent = (jnp.asarray(x) for x in arrays(case))
    run = jax.jit(derivative(function, mode)).lower(cotangent, *operands).compile()
    return lambda: jax.block_until_ready(run(cotangent, *operands))


def documents(length: int) -> np.ndarray:
    """The document of each token."""
    return np.arange(length) // DOCUMENT


def allowed(case: Case) -> np.ndarray:
    """The mask as a boolean array `[T, S]`."""
    i, j = np.ogrid[: case.length, : case.length]
    mask = j <= i
    if case.mask == "window":
        mask = mask & (j > i - WINDOW)
    if case.mask == "packed":
        ids = documents(case.length)
        mask = mask & (ids[:, None] == ids)
    return mask


def fits(case: Case, mode: str, limit: float) -> None:
    """LeftOut where the scores of a dense path, as often as the derivative holds them, do not."""
    copies = {"forward": 2, "grad": 3, "jvp": 5, "hvp": 8}[mode]
    needed = 4.0 * copies * case.scores / GIB
    if needed > limit:
        raise LeftOut(f"about {needed:.0f} GiB of scores")


def ours(case: Case, mode: str, implementation: str | None = None) -> Callable[[], Any]:
    """`jaxattn.attention`."""
    mask = {
        "full": None,
        "causal": Causal(),
        "window": SlidingWindow(WINDOW - 1, 0),
        "packed": Causal() & Segments(jnp.asarray(documents(case.length))),
    }[case.mask]
    return jax_call(
        lambda *operands: jaxattn.attention(*operands, mask=mask, implementation=implementation),
        case,
        mode,
    )


def our_dense(case: Case, mode: str, limit: float) -> Callable[[], Any]:
    """`jaxattn.attention` with `implementation="dense"`."""
    fits(case, mode, limit)
    return ours(case, mode, "dense")


def our_blockwise(case: Case, mode: str, limit: float) -> Callable[[], Any]:
    """`jaxattn.attention` with `implementation="blockwise"`."""
    return ours(case, mode, "blockwise")


def jax_nn(case: Case, mode: str, limit: float) -> Callable[[], Any]:
    """`jax.nn.dot_product_attention`, with the options that it has for the mask."""
    fits(case, mode, limit)
    options: dict[str, Any] = {"is_causal": case.mask != "full"}
    if case.mask == "window":
        options["local_window_size"] = (WINDOW - 1, 0)
    if case.mask == "packed":
        options["mask"] = jnp.asarray(allowed(case))[None, None]
    return jax_call(functools.partial(jax.nn.dot_product_attention, **options), case, mode)


def flax(case: Case, mode: str, limit: float) -> Callable[[], Any]:
    """`flax.linen.dot_product_attention`, with a boolean array for the mask."""
    try:
        from flax import linen
    except ImportError:
        raise LeftOut("Flax is not installed") from None
    fits(case, mode, limit)
    if case.heads != case.key_heads:
        raise LeftOut("has no grouped heads")
    mask = None if case.mask == "full" else jnp.asarray(allowed(case))[None, None]
    return jax_call(functools.partial(linen.dot_product_attention, mask=mask), case, mode)


def einsum(case: Case, mode: str, limit: float) -> Callable[[], Any]:
    """What people write by hand."""
    fits(case, mode, limit)
    if case.heads != case.key_heads:
        raise LeftOut("has no grouped heads")
    mask = None if case.mask == "full" else jnp.asarray(allowed(case))

    def attend(query: Any, key: Any, value: Any) -> Any:
        scores = jnp.einsum("btnh,bsnh->bnts", query, key) / query.shape[-1] ** 0.5
        if mask is not None:
            scores = jnp.where(mask, scores, -jnp.inf)
        return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores), value)

    return jax_call(attend, case, mode)


def torch(case: Case, mode: str, limit: float) -> Callable[[], Any]:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    from jaxattn.bench import torch_sdpa

    return torch_sdpa.prepare(case, mode)


def everybody(limit: float) -> tuple[Contestant, ...]:
    """All contestants, ours first; dense paths may hold `limit` GiB of scores."""
    others = {"jax.nn": jax_nn, "flax": flax, "einsum": einsum, "torch": torch}
    others |= {"dense": our_dense, "blockwise": our_blockwise}
    return (
        Contestant("jaxattn", ours),
        *(Contestant(n, functools.partial(f, limit=limit)) for n, f in others.items()),
    )
