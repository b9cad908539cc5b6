"""Name maps of PyTorch's own layers (`torch.nn`).

PyTorch's normalisations have ε = 1e-5, and its encoder and decoder layers are post-norm with ReLU
unless told otherwise: `ResidualBlock(..., norm="post", make_norm=partial(LayerNorm, epsilon=1e-5))`
around `FeedForward(..., activation=jax.nn.relu)`.
"""

from jaxattn.interop._names import names, within

ATTENTION = """
    in_proj_weight    {query,key,value}.kernel    (P N H) D -> P D N H
    in_proj_bias      {query,key,value}.bias      (P N H) -> P N H
    out_proj.weight   out.kernel                  D (N H) -> N H D
    out_proj.bias     out.bias
"""

LINEAR = """
    weight            kernel                      F D -> D F
    bias              bias
"""

NORM = """
    weight            scale
    bias              bias
"""

FEED_FORWARD = (
    within(LINEAR, "linear1.", "feed_forward.hidden.")
    + "\n"
    + within(LINEAR, "linear2.", "feed_forward.out.")
)

ENCODER_LAYER = "\n".join(
    [
        within(ATTENTION, "self_attn.", "attention."),
        within(NORM, "norm1.", "attention_norm."),
        within(NORM, "norm2.", "feed_forward_norm."),
        FEED_FORWARD,
    ]
)

DECODER_LAYER = "\n".join(
    [
        within(ATTENTION, "self_attn.", "attention."),
        within(ATTENTION, "multihead_attn.", "cross_attention."),
        within(NORM, "norm1.", "attention_norm."),
        within(NORM, "norm2.", "cross_attention_norm."),
        within(NORM, "norm3.", "feed_forward_norm."),
        FEED_FORWARD,
    ]
)

TORCH_ATTENTION = names(ATTENTION)
"""`nn.MultiheadAttention` to `MultiHeadAttention`; without `add_bias_kv`, which has no like."""

TORCH_ATTENTION_SEPARATE = names(
    """
    q_proj_weight     query.kernel                (N H) D -> D N H
    k_proj_weight     key.kernel                  (N H) E -> E N H
    v_proj_weight     value.kernel                (N H) E -> E N H
    in_proj_bias      {query,key,value}.bias      (P N H) -> P N H
    out_proj.weight   out.kernel                  D (N H) -> N H D
    out_proj.bias     out.bias
    """
)
"""`nn.MultiheadAttention` with `kdim` and `vdim` of its own."""

TORCH_ENCODER_LAYER = names(ENCODER_LAYER)
"""`nn.TransformerEncoderLayer` to `ResidualBlock` or `TransformerBlock`."""

TORCH_DECODER_LAYER = names(DECODER_LAYER)
"""`nn.TransformerDecoderLayer` to a `ResidualBlock` with cross-attention."""

TORCH_ENCODER = names(
    within(ENCODER_LAYER, "layers.*.", "blocks.*.") + "\n" + within(NORM, "norm.", "norm.")
)
"""`nn.TransformerEncoder` to `Encoder`; `make_norm=None` where it has no `norm`."""

TORCH_DECODER = names(
    within(DECODER_LAYER, "layers.*.", "blocks.*.") + "\n" + within(NORM, "norm.", "norm.")
)
"""`nn.TransformerDecoder` to `Decoder`; `make_norm=None` where it has no `norm`."""
