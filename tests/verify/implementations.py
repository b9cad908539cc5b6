"""Right attentions, written in different ways: none of them may fail a check."""

import jax.numpy as jnp

from jaxattn.verify import dense_attention
from jaxattn.verify.door import make_subject
from jaxattn.verify.mutants import gradients, scores, tangents


def online(query, key, value, mask=None):
    """Tile by tile; NaN in padding survives, which it does not claim otherwise."""
    allowed = jnp.ones((query.shape[-3], key.shape[-3]), bool) if mask is None else mask
    tile = max(4, key.shape[-3] // 3)
    return scores.online(query, key, value, allowed, tile, rescale=True)


def causal(query, key, value):
    """Causal by itself: takes no mask."""
    return dense_attention(query, key, value, jnp.tri(query.shape[-3], dtype=bool))


def unmasked(query, key, value):
    """Everybody attends to everybody."""
    return dense_attention(query, key, value)


RIGHT = {
    "dense": (dense_attention, False, ("lse", "bias", "scale")),
    "backward by hand": (gradients.right_by_hand, False, ("-jvp",)),
    "tangent by surrogate": (tangents.right_by_surrogate, False, ()),
    "online": (online, False, ("-padding",)),
    "causal": (causal, True, ()),
    "unmasked": (unmasked, False, ("-mask",)),
}


def subject_of(name):
    function, is_causal, supports = RIGHT[name]
    return make_subject(function, is_causal, supports, name)
