"""Writes tests/data/keras.json and tests/data/torch_grid_sample.json: what others answer.

Run by hand, where the library is installed: KERAS_BACKEND=jax python -m tests.outside_references
keras (or torch).
"""

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

DATA = pathlib.Path(__file__).parent / "data"

# Of Keras' layer: whether it has a scale, how many queries and keys are there, whether in order.
ADDITIVE = {
    "no scale": dict(scale=False),
    "scale": {},
    "padded keys": dict(keys=[5, 2]),
    "padded queries and keys": dict(queries=[1, 3], keys=[3, 4]),
    "in order": dict(causal=True),
}
LEVELS = ((3, 4), (2, 2))


def additive_inputs(seed):
    """Operands of `jaxattn.additive_attention`, and a cotangent."""
    shapes = dict(query=(2, 3, 4), key=(2, 5, 6), value=(2, 5, 2), w_query=(4, 7), w_key=(6, 7))
    shapes |= dict(vector=(7,), cotangent=(2, 3, 2))
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def keras_additive(inputs, scale=True, queries=None, keys=None, causal=False):
    """`AdditiveAttention` on projected queries and keys: out, and gradients by JAX."""
    import keras

    layer = keras.layers.AdditiveAttention(use_scale=scale, dtype="float64")
    layer.build([(2, 3, 7), (2, 5, 2), (2, 5, 7)])
    there = lambda lengths, size: None if lengths is None else np.arange(size) < np.c_[lengths]
    options = dict(mask=[there(queries, 3), there(keys, 5)], use_causal_mask=causal)

    def function(operands):
        query, key = (operands[n] @ operands[f"w_{n}"] for n in ("query", "key"))
        variables = [operands["vector"]] if scale else []
        given = [query, operands["value"], key]
        return layer.stateless_call(variables, [], given, **options)[0]

    operands = {name: jnp.asarray(x) for name, x in inputs.items() if name != "cotangent"}
    if not scale:
        del operands["vector"]
    out, pullback = jax.vjp(function, operands)
    return {"out": out} | pullback(jnp.asarray(inputs["cotangent"]))[0]


def deformable_inputs(seed):
    """Operands of `jaxattn.deformable_attention`, and a cotangent; locations reach outside."""
    rng = np.random.default_rng(seed)
    looks = (2, 3, 2, len(LEVELS), 2)
    return dict(
        value=rng.standard_normal((2, sum(h * w for h, w in LEVELS), 2, 3)),
        locations=0.5 + 0.7 * rng.uniform(-1, 1, (*looks, 2)),
        weights=rng.standard_normal(looks),
        cotangent=rng.standard_normal((2, 3, 2, 3)),
    )


def torch_deformable(inputs):
    """A weighted sum of `grid_sample`: out, and gradients by PyTorch."""
    import torch

    given = {name: torch.tensor(x, requires_grad=True) for name, x in inputs.items()}
    start, out = 0, 0.0
    for level, (height, width) in enumerate(LEVELS):
        cells = given["value"][:, start : start + height * width].permute(0, 2, 3, 1)
        grid = 2 * given["locations"][:, :, :, level].transpose(1, 2) - 1
        samples = torch.nn.functional.grid_sample(
            cells.reshape(-1, cells.shape[2], height, width),
            grid.flatten(0, 1),
            mode="bilinear",
            padding_mode="zeros",
            align_corners=False,
        )
        samples = samples.unflatten(0, cells.shape[:2])
        out = out + torch.einsum("bnhtp,btnp->btnh", samples, given["weights"][:, :, :, level])
        start += height * width
    names = ("value", "locations", "weights")
    gradients = torch.autograd.grad(out, [given[n] for n in names], given["cotangent"])
    found = dict(zip(("out", *names), (out, *gradients), strict=True))
    return {name: x.detach().numpy() for name, x in found.items()}


def from_keras():
    import keras

    inputs = additive_inputs(0)
    answers = {name: keras_additive(inputs, **options) for name, options in ADDITIVE.items()}
    return f"AdditiveAttention of Keras {keras.__version__} on JAX", inputs, answers


def from_torch():
    import torch

    inputs = deformable_inputs(0)
    return f"grid_sample of PyTorch {torch.__version__}", inputs, torch_deformable(inputs)


FILES = {"keras": (from_keras, "keras.json"), "torch": (from_torch, "torch_grid_sample.json")}


def main(name):
    jax.config.update("jax_enable_x64", True)
    function, file = FILES[name]
    source, inputs, answers = function()
    command = f"KERAS_BACKEND=jax python -m tests.outside_references {name}"
    found = dict(source=source, command=command, inputs=inputs, answers=answers)
    (DATA / file).write_text(json.dumps(found, default=lambda x: np.asarray(x).tolist()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
