"""Flax NNX modules: they own parameters and call functions. Needs `jaxattn[flax]`.

The contents page:

    SelfAttention            one head, three matrices                    self_attention.py
    SelfAttentionLinear      one head, three Linear, optional bias       self_attention.py
    linear_from_matrices     the same head, second form                  self_attention.py
    MultiHeadAttention       self, cross, grouped; Flax's parameters     multi_head.py
    FeedForward              Linear, activation, Linear, dropout         feed_forward.py
    TransformerBlock         attention and feed-forward, with residuals  transformer.py
      pre_norm, post_norm    where the normalisation stands              transformer.py
    LayerNorm, layer_norm    mean 0, variance 1                          norm.py
    LanguageModel            tokens to logits                            language_model.py
    next_token_loss          nats per token                              loss.py
    initial                  how parameters start                        initial.py

`model.train()` and `model.eval()` turn dropout on and off, as in Flax; dropout draws from the
stream `rngs.dropout`.
"""

from jaxattn.nn import _flax as _flax
from jaxattn.nn import initial as initial
from jaxattn.nn.feed_forward import FeedForward as FeedForward
from jaxattn.nn.language_model import LanguageModel as LanguageModel
from jaxattn.nn.loss import next_token_loss as next_token_loss
from jaxattn.nn.multi_head import MultiHeadAttention as MultiHeadAttention
from jaxattn.nn.norm import LayerNorm as LayerNorm
from jaxattn.nn.norm import layer_norm as layer_norm
from jaxattn.nn.self_attention import SelfAttention as SelfAttention
from jaxattn.nn.self_attention import SelfAttentionLinear as SelfAttentionLinear
from jaxattn.nn.self_attention import linear_from_matrices as linear_from_matrices
from jaxattn.nn.transformer import TransformerBlock as TransformerBlock
from jaxattn.nn.transformer import post_norm as post_norm
from jaxattn.nn.transformer import pre_norm as pre_norm

__all__ = [
    "FeedForward",
    "LanguageModel",
    "LayerNorm",
    "MultiHeadAttention",
    "SelfAttention",
    "SelfAttentionLinear",
    "TransformerBlock",
    "initial",
    "layer_norm",
    "linear_from_matrices",
    "next_token_loss",
    "post_norm",
    "pre_norm",
]
