"""Models of `jaxattn.nn` for the trees of trees.py, float64, without numbers."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import nn
from jaxattn.positions import Rotary
from tests.interop.trees import LAYERS, D, F, S, V

OPTIONS = dict(param_dtype=jnp.float64)
EXACT = functools.partial(jax.nn.gelu, approximate=False)
NORM = functools.partial(nn.LayerNorm, epsilon=1e-5, **OPTIONS)
RMS = functools.partial(nn.RMSNorm, epsilon=1e-5, **OPTIONS)


def attention(rngs, *sizes, projections=(), **scoring):
    """Two heads; `sizes` are key heads and key features."""
    kv_heads, kv_features = (*sizes, None, None)[:2]
    return nn.MultiHeadAttention(
        2,
        D,
        num_kv_heads=kv_heads,
        in_kv_features=kv_features,
        projections=nn.Projections(**dict(projections)),
        scoring=nn.Scoring(**scoring),
        rngs=rngs,
        **OPTIONS,
    )


def block(rngs, *, activation, own=None, cross=False, norm="pre", make_norm=NORM, **options):
    """Attention, perhaps cross-attention, feed-forward."""
    gated = options.pop("gated", False)
    feed_forward = nn.FeedForward(
        D, F, activation=activation, gated=gated, use_bias=not gated, rngs=rngs, **OPTIONS
    )
    options |= dict(cross_attention=attention(rngs)) if cross else {}
    own = attention(rngs) if own is None else own
    return nn.ResidualBlock(own, feed_forward, norm=norm, make_norm=make_norm, **options)


def stack(kind, make, make_norm=NORM, **options):
    return kind(LAYERS, make, make_norm=make_norm, rngs=nnx.Rngs(0), **options)


def torch_stack(kind, activation, make_norm, **options):
    make = functools.partial(block, activation=activation, norm="post", **options)
    return stack(kind, make, make_norm)


def gpt2(tied=True, **options):
    layers = stack(nn.Stack, functools.partial(block, activation=nnx.gelu), **options)
    return nn.LanguageModel(V, D, context=S, stack=layers, tied=tied, rngs=nnx.Rngs(0), **OPTIONS)


def llama(biased=(), qk_norm=False):
    """One key head for two query heads."""

    def make(rngs):
        scoring = dict(rotary=Rotary(), normalize_qk=RMS if qk_norm else False)
        own = attention(rngs, 1, projections=dict(use_bias=biased), **scoring)
        return block(rngs, own=own, activation=jax.nn.silu, gated=True, make_norm=RMS)

    layers = stack(nn.Stack, make, RMS)
    return nn.LanguageModel(
        V, D, positions="none", tied=False, stack=layers, rngs=nnx.Rngs(0), **OPTIONS
    )


def bert():
    norm = functools.partial(nn.LayerNorm, epsilon=1e-12, **OPTIONS)
    make = functools.partial(block, activation=EXACT, norm="post", make_norm=norm)
    options = dict(context=S, kinds=2, make_norm=norm, rngs=nnx.Rngs(0), **OPTIONS)
    return nn.TextEncoder(V, stack(nn.Encoder, make, None), **options)


def albert():
    norm = functools.partial(nn.LayerNorm, epsilon=1e-12, **OPTIONS)
    one = block(nnx.Rngs(0), activation=EXACT, norm="post", make_norm=norm)
    options = dict(context=S, kinds=2, make_norm=norm, embed_features=4, rngs=nnx.Rngs(0))
    return nn.TextEncoder(V, stack(nn.Encoder, lambda rngs: one, None), **options, **OPTIONS)


def vit(epsilon=1e-12, classes=3, layer_scale=None, picture=(4, 6)):
    norm = functools.partial(nn.LayerNorm, epsilon=epsilon, **OPTIONS)
    make = functools.partial(block, activation=EXACT, make_norm=norm, layer_scale=layer_scale)
    encoder = stack(nn.Encoder, make, norm)
    options = dict(classes=classes, rngs=nnx.Rngs(0), **OPTIONS)
    return nn.VisionTransformer(picture, 2, encoder, **options)


def whisper():
    def make(rngs, cross=False):
        own, other = (
            attention(rngs, projections=dict(use_bias=("query", "value", "out"))) for _ in range(2)
        )
        made = block(rngs, own=own, activation=EXACT, cross=cross)
        if cross:
            made.cross_attention = other
        return made

    encoder = nn.AudioEncoder(5, 5, stack(nn.Encoder, make), rngs=nnx.Rngs(0), **OPTIONS)
    layers = stack(nn.Decoder, functools.partial(make, cross=True))
    decoder = nn.LanguageModel(V, D, context=S, stack=layers, rngs=nnx.Rngs(0), **OPTIONS)
    return nn.EncoderDecoder(encoder, decoder)


def one_block(**options):
    return block(nnx.Rngs(0), activation=jax.nn.relu, **options)


MODELS = {
    "torch_attention": lambda: attention(nnx.Rngs(0)),
    "torch_attention_separate": lambda: attention(nnx.Rngs(0), None, 5),
    "torch_encoder_layer": lambda: one_block(norm="post"),
    "torch_decoder_layer": lambda: one_block(cross=True),
    "torch_encoder": lambda: torch_stack(nn.Encoder, EXACT, NORM),
    "torch_decoder": lambda: torch_stack(nn.Decoder, jax.nn.relu, None, cross=True),
    "gpt2": gpt2,
    "llama": llama,
    "qwen2": lambda: llama(biased=("query", "key", "value")),
    "qwen3": lambda: llama(qk_norm=True),
    "bert": bert,
    "albert": albert,
    "vit": vit,
    "dinov2": lambda: vit(1e-6, None, 1.0, (4, 4)),
    "timm": lambda: vit(1e-6, None, 1.0),
    "whisper": whisper,
}
