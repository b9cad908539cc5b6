"""Name maps of language models to `LanguageModel`: GPT-2, Llama and its relatives."""

from jaxattn.interop._names import names, within

GPT2_LAYER = """
    ln_1.weight          attention_norm.scale
    ln_1.bias            attention_norm.bias
    attn.c_attn.weight   attention.{query,key,value}.kernel   D (P N H) -> P D N H
    attn.c_attn.bias     attention.{query,key,value}.bias     (P N H) -> P N H
    attn.c_proj.weight   attention.out.kernel                 (N H) D -> N H D
    attn.c_proj.bias     attention.out.bias
    ln_2.weight          feed_forward_norm.scale
    ln_2.bias            feed_forward_norm.bias
    mlp.c_fc.weight      feed_forward.hidden.kernel
    mlp.c_fc.bias        feed_forward.hidden.bias
    mlp.c_proj.weight    feed_forward.out.kernel
    mlp.c_proj.bias      feed_forward.out.bias
"""

GPT2 = names(
    """
    wte.weight        embed.embedding
    wpe.weight        positions.embedding
    ln_f.weight       stack.norm.scale
    ln_f.bias         stack.norm.bias
    /lm_head.weight   head                  V D -> D V
    """
    + within(GPT2_LAYER, "h.*.", "stack.blocks.*."),
    ignored=("h.*.attn.bias", "h.*.attn.masked_bias"),
    tied={"/lm_head.weight": "wte.weight"},
)
"""GPT-2, as `transformers` names it: LayerNorm with ε = 1e-5, GELU by tanh, tied head.

`prefix="transformer."` for a tree of `GPT2LMHeadModel`.
"""

LLAMA_LAYER = """
    input_layernorm.weight            attention_norm.scale
    self_attn.q_proj.weight           attention.query.kernel       (N H) D -> D N H
    self_attn.k_proj.weight           attention.key.kernel         (K H) D -> D K H
    self_attn.v_proj.weight           attention.value.kernel       (K H) D -> D K H
    self_attn.q_proj.bias             attention.query.bias         (N H) -> N H
    self_attn.k_proj.bias             attention.key.bias           (K H) -> K H
    self_attn.v_proj.bias             attention.value.bias         (K H) -> K H
    self_attn.q_norm.weight           attention.query_ln.scale
    self_attn.k_norm.weight           attention.key_ln.scale
    self_attn.sinks                   attention.sink
    self_attn.o_proj.weight           attention.out.kernel         D (N H) -> N H D
    self_attn.o_proj.bias             attention.out.bias
    post_attention_layernorm.weight   feed_forward_norm.scale
    mlp.gate_proj.weight              feed_forward.gate.kernel     F D -> D F
    mlp.up_proj.weight                feed_forward.hidden.kernel   F D -> D F
    mlp.down_proj.weight              feed_forward.out.kernel      D F -> F D
"""

LLAMA = names(
    """
    embed_tokens.weight   embed.embedding
    norm.weight           stack.norm.scale
    /lm_head.weight       head               V D -> D V
    """
    + within(LLAMA_LAYER, "layers.*.", "stack.blocks.*."),
    prefix="model.",
    ignored=("layers.*.self_attn.rotary_emb.inv_freq",),
    tied={"/lm_head.weight": "embed_tokens.weight"},
)
"""Llama, Mistral and Qwen, as `transformers` names them.

RMSNorm, SwiGLU, no biases, half-split rotary, grouped heads. The model's options say the rest:
Mistral's window is `Scoring(mask=SlidingWindow(...))`, Qwen2's biases
`Projections(use_bias=("query", "key", "value"))`, Qwen3's norms `Scoring(normalize_qk=RMSNorm)`,
Llama 3's wavelengths `Rotary(base=500000.0, scaling=Llama3Scaling(...))`.
"""
MISTRAL = QWEN = LLAMA
