"""What a function may claim. Ordinary features are assumed; optional ones have to be named.

`supports=("lse", "-gqa")` claims logsumexp and takes back grouped heads. A check that needs
a feature not claimed is reported as unsupported, never as passed.
"""

from __future__ import annotations

from collections.abc import Iterable

ORDINARY = {
    "mask": "takes a boolean [T, S] mask, True where the key takes part",
    "traced_mask": "the mask may be traced by jit",
    "empty_rows": "a query that may attend to nothing gives zeros",
    "padding": "what nobody may attend to changes nothing, NaN in it included",
    "unordered": "not causal by itself: keys and queries may come in any order",
    "cross": "S may differ from T",
    "lengths": "any T and S, no multiples of anything",
    "gqa": "fewer key heads than query heads",
    "value_head_size": "value's head size may differ from key's",
    "batch_axes": "any number of leading batch axes, also none",
    "float32": "takes float32",
    "float64": "takes float64 and computes in it",
    "jit": "may be compiled",
    "vmap": "may be batched by jax.vmap",
    "jvp": "has forward derivatives",
    "vjp": "has reverse derivatives",
    "second_order": "has second derivatives",
    "third_order": "has third derivatives",
    "shard_map": "works inside jax.shard_map",
}

OPTIONAL = {
    "lse": "returns (out, lse) when called with returns_lse=True",
    "bias": "takes bias=, an array [1, N, T, S] added to the scores",
    "scale": "takes scale=, a number that may be differentiated",
    "hides": "hides some keys from some queries: it takes a mask or is causal (found, not named)",
    "linear_memory": "makes no array of T * S elements, in any derivative",
    "float16": "takes float16",
    "bfloat16": "takes bfloat16",
}

MASKED = ("mask", "traced_mask", "empty_rows", "padding")
CAUSAL_LACKS = (*MASKED, "unordered", "cross")


def claimed(supports: Iterable[str] | None, causal: bool = False) -> frozenset[str]:
    """The features a function claims: the ordinary ones, plus the named, less those with a "-".

    A function that is causal by itself takes no mask and has equal lengths, unless named.

    >>> from jaxattn.verify.features import claimed
    >>> "lse" in claimed(("lse",)), "gqa" in claimed(("-gqa",))
    (True, False)
    """
    names = tuple(supports or ())
    known = {**ORDINARY, **OPTIONAL}
    unknown = sorted({name.removeprefix("-") for name in names} - set(known))
    if unknown:
        raise ValueError(f"unknown features {unknown}; known are {sorted(known)}")
    removed = {name[1:] for name in names if name.startswith("-")}
    removed |= set(MASKED) if "mask" in removed else set()
    removed |= {"second_order", "third_order"} if {"vjp", "second_order"} & removed else set()
    added = {name for name in names if not name.startswith("-")}
    if causal and "mask" in added:
        raise ValueError("causal=True is for functions without a mask; for mask=, leave it out")
    base = set(ORDINARY) - (set(CAUSAL_LACKS) if causal else set())
    features = (base | added) - removed
    return frozenset(features | {"hides"} if causal or "mask" in features else features)
