"""Operations on an attention: its value and derivatives. `attend` maps (query, key, value) to out.

Each works for results that are trees, such as (out, lse), and for a fourth argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Attend = Callable[..., Any]
Arrays = tuple[Any, ...]


def value(attend: Attend, x: Arrays) -> Any:
    """out."""
    return attend(*x)


def push(attend: Attend, x: Arrays, dx: Arrays) -> Any:
    """The tangent J dx, by jvp."""
    return jax.jvp(attend, x, dx)[1]


def pull(attend: Attend, x: Arrays, cotangent: Any) -> Arrays:
    """The gradients J^T e, by vjp."""
    out, back = jax.vjp(attend, *x)
    return back(jax.tree.map(lambda e, o: jnp.asarray(e).astype(o.dtype), cotangent, out))


def forward_over_reverse(attend: Attend, x: Arrays, dx: Arrays, cotangent: Any) -> Arrays:
    """Hessian of <e, out> times dx, as the tangent of the gradient."""
    return jax.jvp(lambda *x: pull(attend, x, cotangent), x, dx)[1]


def reverse_over_reverse(attend: Attend, x: Arrays, dx: Arrays, cotangent: Any) -> Arrays:
    """The same, as the gradient of <gradient, dx>."""
    return jax.grad(lambda *x: inner(pull(attend, x, cotangent), dx), tuple(range(len(x))))(*x)


def reverse_over_forward(attend: Attend, x: Arrays, dx: Arrays, cotangent: Any) -> Arrays:
    """The same, as the gradient of <e, tangent>."""
    return jax.grad(lambda *x: inner(push(attend, x, dx), cotangent), tuple(range(len(x))))(*x)


def forward_over_forward(attend: Attend, x: Arrays, dx: Arrays, ddx: Arrays) -> Any:
    """Second derivative of out along dx and ddx."""
    return jax.jvp(lambda *x: push(attend, x, dx), x, ddx)[1]


def third(attend: Attend, x: Arrays, dx: Arrays, cotangent: Any) -> Arrays:
    """Third derivative of <e, out>, twice along dx, as a gradient."""
    return jax.jvp(lambda *x: forward_over_reverse(attend, x, dx, cotangent), x, dx)[1]


def inner(left: Any, right: Any) -> Any:
    """<left, right>, summed over all leaves."""
    leaves = jax.tree.leaves(left)
    wide = max((leaf.dtype for leaf in leaves), key=lambda dtype: dtype.itemsize)
    pairs = zip(leaves, jax.tree.leaves(right), strict=True)
    total = jnp.zeros((), wide)
    for a, b in pairs:
        total += jnp.sum(a.astype(wide) * jnp.asarray(b).astype(wide))
    return total
