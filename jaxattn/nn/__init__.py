"""Flax NNX modules: they own parameters and call functions. Needs `jaxattn[flax]`.

The contents page:

    SelfAttention            one head, three matrices                    self_attention.py
    SelfAttentionLinear      one head, three Linear, optional bias       self_attention.py
    linear_from_matrices     the same head, second form                  self_attention.py
    MultiHeadAttention       self, cross, grouped, cached; Flax's parameters  multi_head.py
      Projections, Scoring   its options, grouped                        attention_options.py
      ALiBiBias, RelativeBias  biases for Scoring                        attention_options.py
    FeedForward              Linear, activation, Linear; SwiGLU          feed_forward.py
    TransformerBlock         attention and feed-forward, with residuals  transformer.py
      ResidualBlock          the same from finished modules              residual.py
      BlockCache             what a block remembers                      residual.py
      pre_norm, post_norm    where the normalisation stands              sublayer.py
    LayerNorm, layer_norm    mean 0, variance 1                          norm.py
    RMSNorm, rms_norm        mean square 1                               norm.py
    Stack, Encoder, Decoder  blocks one after the other; remat, scan     stack.py
    LanguageModel            tokens to logits                            language_model.py
    TextEncoder              tokens to vectors                           encoder_decoder.py
    EncoderDecoder           one sequence to another                     encoder_decoder.py
    VisionTransformer        a picture to a vector                       vision.py
    AudioEncoder             a spectrogram to vectors                    audio.py
    generate                 a prompt to more tokens; Generated          generate.py
      stream                 each as it comes                            stream.py
      generate_beams         the likeliest that a beam finds             generate_beams.py
    sample                   logits to a token                           sampling.py
      keep_top_k, keep_top_p among which to draw                         sampling.py
    AdditiveAttention        v · tanh(W q + U k), a decoder's reading    additive.py
    MultiplicativeAttention  q W · k, likewise                           additive.py
    DeformableAttention      learns where to look                        deformable.py
    ConvBlock, Bottleneck    convolutions of detectors                   convolution.py, c3k2.py
    PositionSensitiveAttention  over a small map, with a convolution     position_sensitive.py
      PSABlock, C2PSA        and the blocks that hold it                 position_sensitive.py
    C3k2                     bottlenecks, with attention or not          c3k2.py
    SqueezeExcitation        channel attention for images                channel.py
    LinearAttention          attention in time T, with a state           linear.py
    RecurrentEncoderDecoder  one sequence to another, by GRUs            recurrent.py
      RecurrentEncoder       tokens to states, in both directions        recurrent.py
      RecurrentDecoder       Source to tokens, with attention or not     recurrent_decoder.py
      GRU, gru, gru_step     GRUWeights to Recurrence                    gru.py
    greedy_search            the likeliest token each time               search.py
    beam_search              the likeliest sequences found; Beams        search.py
    next_token_loss          nats per token                              loss.py
    initial                  how parameters start                        initial.py

`model.train()` and `model.eval()` turn dropout on and off, as in Flax; dropout draws from the
stream `rngs.dropout`.
"""

from jaxattn.nn import _flax as _flax
from jaxattn.nn import initial as initial
from jaxattn.nn.additive import AdditiveAttention as AdditiveAttention
from jaxattn.nn.additive import MultiplicativeAttention as MultiplicativeAttention
from jaxattn.nn.attention_options import ALiBiBias as ALiBiBias
from jaxattn.nn.attention_options import Projections as Projections
from jaxattn.nn.attention_options import RelativeBias as RelativeBias
from jaxattn.nn.attention_options import Scoring as Scoring
from jaxattn.nn.audio import AudioEncoder as AudioEncoder
from jaxattn.nn.c3k2 import Bottleneck as Bottleneck
from jaxattn.nn.c3k2 import C3k2 as C3k2
from jaxattn.nn.channel import SqueezeExcitation as SqueezeExcitation
from jaxattn.nn.convolution import ConvBlock as ConvBlock
from jaxattn.nn.deformable import DeformableAttention as DeformableAttention
from jaxattn.nn.encoder_decoder import EncoderDecoder as EncoderDecoder
from jaxattn.nn.encoder_decoder import TextEncoder as TextEncoder
from jaxattn.nn.feed_forward import FeedForward as FeedForward
from jaxattn.nn.generate import Generated as Generated
from jaxattn.nn.generate import generate as generate
from jaxattn.nn.generate_beams import generate_beams as generate_beams
from jaxattn.nn.gru import GRU as GRU
from jaxattn.nn.gru import GRUWeights as GRUWeights
from jaxattn.nn.gru import Recurrence as Recurrence
from jaxattn.nn.gru import gru as gru
from jaxattn.nn.gru import gru_step as gru_step
from jaxattn.nn.language_model import LanguageModel as LanguageModel
from jaxattn.nn.linear import LinearAttention as LinearAttention
from jaxattn.nn.loss import next_token_loss as next_token_loss
from jaxattn.nn.multi_head import MultiHeadAttention as MultiHeadAttention
from jaxattn.nn.norm import LayerNorm as LayerNorm
from jaxattn.nn.norm import RMSNorm as RMSNorm
from jaxattn.nn.norm import layer_norm as layer_norm
from jaxattn.nn.norm import rms_norm as rms_norm
from jaxattn.nn.position_sensitive import C2PSA as C2PSA
from jaxattn.nn.position_sensitive import PositionSensitiveAttention as PositionSensitiveAttention
from jaxattn.nn.position_sensitive import PSABlock as PSABlock
from jaxattn.nn.recurrent import RecurrentEncoder as RecurrentEncoder
from jaxattn.nn.recurrent import RecurrentEncoderDecoder as RecurrentEncoderDecoder
from jaxattn.nn.recurrent_decoder import RecurrentDecoder as RecurrentDecoder
from jaxattn.nn.recurrent_decoder import Source as Source
from jaxattn.nn.residual import BlockCache as BlockCache
from jaxattn.nn.residual import ResidualBlock as ResidualBlock
from jaxattn.nn.sampling import keep_top_k as keep_top_k
from jaxattn.nn.sampling import keep_top_p as keep_top_p
from jaxattn.nn.sampling import sample as sample
from jaxattn.nn.search import Beams as Beams
from jaxattn.nn.search import beam_search as beam_search
from jaxattn.nn.search import greedy_search as greedy_search
from jaxattn.nn.self_attention import SelfAttention as SelfAttention
from jaxattn.nn.self_attention import SelfAttentionLinear as SelfAttentionLinear
from jaxattn.nn.self_attention import linear_from_matrices as linear_from_matrices
from jaxattn.nn.stack import Decoder as Decoder
from jaxattn.nn.stack import Encoder as Encoder
from jaxattn.nn.stack import Stack as Stack
from jaxattn.nn.stream import stream as stream
from jaxattn.nn.sublayer import post_norm as post_norm
from jaxattn.nn.sublayer import pre_norm as pre_norm
from jaxattn.nn.transformer import TransformerBlock as TransformerBlock
from jaxattn.nn.vision import VisionTransformer as VisionTransformer

__all__ = [
    "ALiBiBias",
    "AdditiveAttention",
    "AudioEncoder",
    "Beams",
    "BlockCache",
    "Bottleneck",
    "C2PSA",
    "C3k2",
    "ConvBlock",
    "Decoder",
    "DeformableAttention",
    "Encoder",
    "EncoderDecoder",
    "FeedForward",
    "GRU",
    "GRUWeights",
    "Generated",
    "LanguageModel",
    "LayerNorm",
    "LinearAttention",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "PSABlock",
    "PositionSensitiveAttention",
    "Projections",
    "RMSNorm",
    "Recurrence",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RecurrentEncoderDecoder",
    "RelativeBias",
    "ResidualBlock",
    "Scoring",
    "SelfAttention",
    "SelfAttentionLinear",
    "Source",
    "SqueezeExcitation",
    "Stack",
    "TextEncoder",
    "TransformerBlock",
    "VisionTransformer",
    "beam_search",
    "generate",
    "generate_beams",
    "greedy_search",
    "gru",
    "gru_step",
    "initial",
    "keep_top_k",
    "keep_top_p",
    "layer_norm",
    "linear_from_matrices",
    "next_token_loss",
    "post_norm",
    "pre_norm",
    "rms_norm",
    "sample",
    "stream",
]
