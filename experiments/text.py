"""Text as bytes: where it comes from, how it is split, and the windows that a model sees.

Shapes: B examples of a batch, C the context, W windows.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SYMBOLS = 256  # a token is a byte
VALIDATION = 0.1  # the last tenth of the text


class Text(NamedTuple):
    """A text in two parts, as bytes."""

    train: np.ndarray
    validation: np.ndarray


def read(path: Path | None) -> bytes:
    """The bytes of a UTF-8 file; for None the text that ships inside Python itself.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is empty or not UTF-8, or Python came without its texts.
    """
    if path is None:
        return python_topics()
    if not path.is_file():
        raise FileNotFoundError(f"--text must name a file, got {path}, which is none")
    data = path.read_bytes()
    if not data.strip():
        raise ValueError(f"--text must name a file with text in it, got {path}, which is empty")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--text must be UTF-8, got {path}, which is binary or of another encoding (byte "
            f"0x{data[error.start]:02x} at {error.start}); convert it, for example with "
            "`iconv -t UTF-8`"
        ) from None
    return data


def python_topics() -> bytes:
    """Python's own reference texts, those of `help("topics")`: about 465,000 characters."""
    try:
        from pydoc_data import topics
    except ImportError:
        raise ValueError(
            "this Python came without pydoc_data.topics, the default text; give a file by --text"
        ) from None
    return "\n".join(topics.topics.values()).encode("utf-8")


def split(data: bytes, context: int) -> Text:
    """The first nine tenths to train on, the last tenth to validate.

    Raises:
      ValueError: a part is too short for one window of `context` bytes and the byte after it.
    """
    tokens = np.frombuffer(data, np.uint8)
    border = len(tokens) - int(len(tokens) * VALIDATION)
    parts = Text(tokens[:border], tokens[border:])
    if min(map(len, parts)) <= context:
        needed = int((context + 1) / VALIDATION) + 1
        raise ValueError(
            f"the text must have at least {needed} bytes for context={context}, so that its last "
            f"tenth fills a window, got {len(tokens)}; take a longer text or a smaller --context"
        )
    return parts


def random_windows(key: jax.Array, tokens: jax.Array, batch: int, context: int) -> jax.Array:
    """`[B, C + 1]` bytes from random places: C to predict from, each one's next to predict."""
    starts = jax.random.randint(key, (batch, 1), 0, len(tokens) - context)
    places = starts + jnp.arange(context + 1, dtype=starts.dtype)[None, :]
    return tokens[places].astype(jnp.int32)


def validation_windows(text: Text, context: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows in which every byte of the validation text is predicted once, from enough context.

    Windows overlap by half: each one's last C // 2 predictions count, so that a byte is predicted
    from at least C - C // 2 + 1 bytes before it (for the first ones, of the training text).

    Returns:
      windows `[W, C + 1]`, W a multiple of the batch, and which predictions count `[W, C]`.
    """
    stride = max(context // 2, 1)
    before = context - stride + 1
    count = -(-len(text.validation) // stride)
    count += -count % batch
    padded = np.zeros(before + count * stride, np.uint8)
    tokens = np.concatenate([text.train[-before:], text.validation])
    padded[: len(tokens)] = tokens
    windows = np.lib.stride_tricks.sliding_window_view(padded, context + 1)[::stride]
    target = np.arange(count)[:, None] * stride + np.arange(1, context + 1)
    counts = (np.arange(context) >= context - stride) & (target < len(tokens))
    return windows, counts
