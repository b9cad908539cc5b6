"""Name map of Whisper to an `EncoderDecoder` of an `AudioEncoder` and a `LanguageModel`."""

from jaxattn.interop._names import names, within
from jaxattn.interop.torch_layers import LINEAR, NORM

ATTENTION = """
    q_proj.weight     query.kernel    (N H) D -> D N H
    q_proj.bias       query.bias      (N H) -> N H
    k_proj.weight     key.kernel      (N H) D -> D N H
    v_proj.weight     value.kernel    (N H) D -> D N H
    v_proj.bias       value.bias      (N H) -> N H
    out_proj.weight   out.kernel      D (N H) -> N H D
    out_proj.bias     out.bias
"""

LAYER = "\n".join(
    [
        within(ATTENTION, "self_attn.", "attention."),
        within(NORM, "self_attn_layer_norm.", "attention_norm."),
        within(LINEAR, "fc1.", "feed_forward.hidden."),
        within(LINEAR, "fc2.", "feed_forward.out."),
        within(NORM, "final_layer_norm.", "feed_forward_norm."),
    ]
)

CROSS = "\n".join(
    [
        within(ATTENTION, "encoder_attn.", "cross_attention."),
        within(NORM, "encoder_attn_layer_norm.", "cross_attention_norm."),
    ]
)

WHISPER = names(
    """
    encoder.conv1.weight             encoder.first.kernel           D c w -> w c D
    encoder.conv1.bias               encoder.first.bias
    encoder.conv2.weight             encoder.second.kernel          D c w -> w c D
    encoder.conv2.bias               encoder.second.bias
    encoder.embed_positions.weight   encoder.positions
    encoder.layer_norm.weight        encoder.encoder.norm.scale
    encoder.layer_norm.bias          encoder.encoder.norm.bias
    decoder.embed_tokens.weight      decoder.embed.embedding
    decoder.embed_positions.weight   decoder.positions.embedding
    decoder.layer_norm.weight        decoder.stack.norm.scale
    decoder.layer_norm.bias          decoder.stack.norm.bias
    """
    + within(LAYER, "encoder.layers.*.", "encoder.encoder.blocks.*.")
    + "\n"
    + within(LAYER, "decoder.layers.*.", "decoder.stack.blocks.*.")
    + "\n"
    + within(CROSS, "decoder.layers.*.", "decoder.stack.blocks.*."),
    prefix="model.",
    tied={"/proj_out.weight": "decoder.embed_tokens.weight"},
)
"""Whisper, as `transformers` names it: pre-norm, ε = 1e-5, GELU by erf, keys without bias."""
