"""Name maps of encoders: BERT to `TextEncoder`, vision transformers to `VisionTransformer`."""

from jaxattn.interop._names import names, within
from jaxattn.interop.torch_layers import LINEAR, NORM

BERT_LAYER = """
    attention.self.query.weight          attention.query.kernel       (N H) D -> D N H
    attention.self.query.bias            attention.query.bias         (N H) -> N H
    attention.self.key.weight            attention.key.kernel         (N H) D -> D N H
    attention.self.key.bias              attention.key.bias           (N H) -> N H
    attention.self.value.weight          attention.value.kernel       (N H) D -> D N H
    attention.self.value.bias            attention.value.bias         (N H) -> N H
    attention.output.dense.weight        attention.out.kernel         D (N H) -> N H D
    attention.output.dense.bias          attention.out.bias
    attention.output.LayerNorm.weight    attention_norm.scale
    attention.output.LayerNorm.bias      attention_norm.bias
    intermediate.dense.weight            feed_forward.hidden.kernel   F D -> D F
    intermediate.dense.bias              feed_forward.hidden.bias
    output.dense.weight                  feed_forward.out.kernel      D F -> F D
    output.dense.bias                    feed_forward.out.bias
    output.LayerNorm.weight              feed_forward_norm.scale
    output.LayerNorm.bias                feed_forward_norm.bias
"""

BERT = names(
    """
    embeddings.word_embeddings.weight         embed.embedding
    embeddings.position_embeddings.weight     positions.embedding
    embeddings.token_type_embeddings.weight   kinds.embedding
    embeddings.LayerNorm.weight               norm.scale
    embeddings.LayerNorm.bias                 norm.bias
    """
    + within(BERT_LAYER, "encoder.layer.*.", "encoder.blocks.*."),
    ignored=("embeddings.position_ids",),
)
"""BERT and MiniLM, as `transformers` names them: post-norm, ε = 1e-12, GELU by erf.

`prefix="bert."` for a tree with a head; `ignore=("pooler.*",)` drops the pooler.
"""

ALBERT_LAYER = """
    attention.query.weight               attention.query.kernel       (N H) D -> D N H
    attention.query.bias                 attention.query.bias         (N H) -> N H
    attention.key.weight                 attention.key.kernel         (N H) D -> D N H
    attention.key.bias                   attention.key.bias           (N H) -> N H
    attention.value.weight               attention.value.kernel       (N H) D -> D N H
    attention.value.bias                 attention.value.bias         (N H) -> N H
    attention.dense.weight               attention.out.kernel         D (N H) -> N H D
    attention.dense.bias                 attention.out.bias
    attention.LayerNorm.weight           attention_norm.scale
    attention.LayerNorm.bias             attention_norm.bias
    ffn.weight                           feed_forward.hidden.kernel   F D -> D F
    ffn.bias                             feed_forward.hidden.bias
    ffn_output.weight                    feed_forward.out.kernel      D F -> F D
    ffn_output.bias                      feed_forward.out.bias
    full_layer_layer_norm.weight         feed_forward_norm.scale
    full_layer_layer_norm.bias           feed_forward_norm.bias
"""

ALBERT = names(
    """
    embeddings.word_embeddings.weight               embed.embedding
    embeddings.position_embeddings.weight           positions.embedding
    embeddings.token_type_embeddings.weight         kinds.embedding
    embeddings.LayerNorm.weight                     norm.scale
    embeddings.LayerNorm.bias                       norm.bias
    encoder.embedding_hidden_mapping_in.weight      projection.kernel    D E -> E D
    encoder.embedding_hidden_mapping_in.bias        projection.bias
    """
    + within(ALBERT_LAYER, "encoder.albert_layer_groups.*.albert_layers.0.", "encoder.blocks.*."),
    prefix="albert.",
    ignored=("embeddings.position_ids",),
)
"""ALBERT, as `transformers` names it: BERT with narrow embeddings and one layer used many times.

`ignore=("albert.pooler.*", "predictions.*")` drops what stands on top.
"""

VIT_ATTENTION = """
    attention.attention.query.weight     attention.query.kernel       (N H) D -> D N H
    attention.attention.query.bias       attention.query.bias         (N H) -> N H
    attention.attention.key.weight       attention.key.kernel         (N H) D -> D N H
    attention.attention.key.bias         attention.key.bias           (N H) -> N H
    attention.attention.value.weight     attention.value.kernel       (N H) D -> D N H
    attention.attention.value.bias       attention.value.bias         (N H) -> N H
    attention.output.dense.weight        attention.out.kernel         D (N H) -> N H D
    attention.output.dense.bias          attention.out.bias
"""

VIT_EMBEDDINGS = """
    embeddings.cls_token                            class_token       1 1 D -> D
    embeddings.position_embeddings                  positions         1 S D -> S D
    embeddings.patch_embeddings.projection.weight   patches.kernel    D c h w -> h w c D
    embeddings.patch_embeddings.projection.bias     patches.bias
    layernorm.weight                                encoder.norm.scale
    layernorm.bias                                  encoder.norm.bias
"""

VIT_LAYER = "\n".join(
    [
        VIT_ATTENTION,
        within(NORM, "layernorm_before.", "attention_norm."),
        within(NORM, "layernorm_after.", "feed_forward_norm."),
        within(LINEAR, "intermediate.dense.", "feed_forward.hidden."),
        within(LINEAR, "output.dense.", "feed_forward.out."),
    ]
)

VIT = names(
    VIT_EMBEDDINGS
    + within(VIT_LAYER, "encoder.layer.*.", "encoder.blocks.*.")
    + "\n"
    + within(LINEAR, "/classifier.", "head."),
    prefix="vit.",
)
"""ViT, as `transformers` names it: pre-norm, ε = 1e-12, GELU by erf.

`prefix=""` and `ignore=("pooler.*",)` for a tree of `ViTModel`.
"""

DINOV2_LAYER = "\n".join(
    [
        VIT_ATTENTION,
        within(NORM, "norm1.", "attention_norm."),
        within(NORM, "norm2.", "feed_forward_norm."),
        within(LINEAR, "mlp.fc1.", "feed_forward.hidden."),
        within(LINEAR, "mlp.fc2.", "feed_forward.out."),
        "layer_scale1.lambda1 attention_scale",
        "layer_scale2.lambda1 feed_forward_scale",
    ]
)

DINOV2 = names(
    VIT_EMBEDDINGS + within(DINOV2_LAYER, "encoder.layer.*.", "encoder.blocks.*."),
    ignored=("embeddings.mask_token",),
)
"""DINOv2, as `transformers` names it: `ResidualBlock(..., layer_scale=1.0)`, ε = 1e-6.

Its table of positions is of one size of picture; `resize_positions` makes one for another.
"""

TIMM_LAYER = "\n".join(
    [
        "attn.qkv.weight  attention.{query,key,value}.kernel  (P N H) D -> P D N H",
        "attn.qkv.bias    attention.{query,key,value}.bias    (P N H) -> P N H",
        "attn.proj.weight attention.out.kernel                D (N H) -> N H D",
        "attn.proj.bias   attention.out.bias",
        within(NORM, "norm1.", "attention_norm."),
        within(NORM, "norm2.", "feed_forward_norm."),
        within(LINEAR, "mlp.fc1.", "feed_forward.hidden."),
        within(LINEAR, "mlp.fc2.", "feed_forward.out."),
        "ls1.gamma        attention_scale",
        "ls2.gamma        feed_forward_scale",
    ]
)

TIMM = names(
    """
    cls_token                class_token       1 1 D -> D
    pos_embed                positions         1 S D -> S D
    patch_embed.proj.weight  patches.kernel    D c h w -> h w c D
    patch_embed.proj.bias    patches.bias
    """
    + within(TIMM_LAYER, "blocks.*.", "encoder.blocks.*.")
    + "\n"
    + within(NORM, "norm.", "encoder.norm.")
    + "\n"
    + within(LINEAR, "head.", "head."),
    ignored=("mask_token",),
)
"""ViT and DINOv2 with the names of their first code (and timm's): one matrix for q, k and v."""
