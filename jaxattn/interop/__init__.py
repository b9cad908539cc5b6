"""Weights from elsewhere: name maps into the models of `jaxattn.nn`, and back. Import it.

    load, save               a tree of arrays into a model, and out of it     _model.py
    to_ours, to_theirs       the same without Flax: names and arrays          _convert.py
    names, within, Names     a map, as a table of text                        _names.py
    read_safetensors         the arrays of a file                             _files.py
    resize_positions         learned positions for another grid               _positions.py
    TORCH_ATTENTION          nn.MultiheadAttention                            torch_layers.py
      TORCH_ATTENTION_SEPARATE  the same with kdim and vdim
      TORCH_ENCODER_LAYER, TORCH_DECODER_LAYER, TORCH_ENCODER, TORCH_DECODER
    GPT2                     to LanguageModel                                 language.py
    LLAMA, MISTRAL, QWEN     likewise; one map
    BERT, ALBERT             to TextEncoder; MiniLM too                       encoders.py
    VIT, DINOV2, TIMM        to VisionTransformer
    WHISPER                  to EncoderDecoder                                whisper.py

A map is data: a line for each array, with its axes and ours. What a map does not say (ε,
activation, window) the model does; `load` lists all that does not fit.
"""

from jaxattn.interop._convert import to_ours as to_ours
from jaxattn.interop._convert import to_theirs as to_theirs
from jaxattn.interop._files import read_safetensors as read_safetensors
from jaxattn.interop._model import load as load
from jaxattn.interop._model import save as save
from jaxattn.interop._names import Names as Names
from jaxattn.interop._names import names as names
from jaxattn.interop._names import within as within
from jaxattn.interop._positions import resize_positions as resize_positions
from jaxattn.interop.encoders import ALBERT as ALBERT
from jaxattn.interop.encoders import BERT as BERT
from jaxattn.interop.encoders import DINOV2 as DINOV2
from jaxattn.interop.encoders import TIMM as TIMM
from jaxattn.interop.encoders import VIT as VIT
from jaxattn.interop.language import GPT2 as GPT2
from jaxattn.interop.language import LLAMA as LLAMA
from jaxattn.interop.language import MISTRAL as MISTRAL
from jaxattn.interop.language import QWEN as QWEN
from jaxattn.interop.torch_layers import TORCH_ATTENTION as TORCH_ATTENTION
from jaxattn.interop.torch_layers import TORCH_ATTENTION_SEPARATE as TORCH_ATTENTION_SEPARATE
from jaxattn.interop.torch_layers import TORCH_DECODER as TORCH_DECODER
from jaxattn.interop.torch_layers import TORCH_DECODER_LAYER as TORCH_DECODER_LAYER
from jaxattn.interop.torch_layers import TORCH_ENCODER as TORCH_ENCODER
from jaxattn.interop.torch_layers import TORCH_ENCODER_LAYER as TORCH_ENCODER_LAYER
from jaxattn.interop.whisper import WHISPER as WHISPER

__all__ = [
    "ALBERT",
    "BERT",
    "DINOV2",
    "GPT2",
    "LLAMA",
    "MISTRAL",
    "Names",
    "QWEN",
    "TIMM",
    "TORCH_ATTENTION",
    "TORCH_ATTENTION_SEPARATE",
    "TORCH_DECODER",
    "TORCH_DECODER_LAYER",
    "TORCH_ENCODER",
    "TORCH_ENCODER_LAYER",
    "VIT",
    "WHISPER",
    "load",
    "names",
    "read_safetensors",
    "resize_positions",
    "save",
    "to_ours",
    "to_theirs",
    "within",
]
