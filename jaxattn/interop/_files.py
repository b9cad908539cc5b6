"""Files of weights, without the libraries that wrote them."""

import json
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read_safetensors(*paths: str | pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, or of all files of a model that was cut into several.

    Eight bytes say how long the header is; the header, JSON, where each array lies. Arrays are
    read from the disk when they are used.

    Args:
      *paths: the files.

    Returns:
      read-only arrays by name.

    Raises:
      ValueError: a dtype that NumPy and JAX do not have, or one name in two files.

    Example:
      >>> import pathlib, struct, tempfile
      >>> from jaxattn.interop import read_safetensors
      >>> head = b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
      >>> content = struct.pack("<Q", len(head)) + head + struct.pack("<2f", 1.5, -2.0)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder, "model.safetensors")
      ...     _ = path.write_bytes(content)
      ...     print(read_safetensors(path)["x"])
      [ 1.5 -2. ]

    Source: the format's page, https://huggingface.co/docs/safetensors.
    """
    found: dict[str, np.ndarray] = {}
    for path in paths:
        content = np.memmap(path, np.uint8, mode="r")
        start = 8 + int.from_bytes(bytes(content[:8]), "little")
        header = json.loads(bytes(content[8:start]))
        header.pop("__metadata__", None)
        repeated = found.keys() & header.keys()
        if repeated:
            raise ValueError(f"{path} repeats arrays of another file: {sorted(repeated)}")
        found |= {name: _array(name, entry, content[start:]) for name, entry in header.items()}
    return found


def _array(name: str, entry: dict[str, Any], content: np.ndarray) -> np.ndarray:
    """One array, as its entry in the header says."""
    if entry["dtype"] not in DTYPES:
        raise ValueError(
            f"{name} has dtype {entry['dtype']}, which is none of {', '.join(DTYPES)}; convert the "
            "file first"
        )
    first, last = entry["data_offsets"]
    return content[first:last].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
