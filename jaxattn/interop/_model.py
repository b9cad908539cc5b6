"""Weights into a Flax model, and out of it. Flax is loaded with the first call."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxattn.interop._convert import to_ours, to_theirs
from jaxattn.interop._names import Names


def load(
    model: Any,
    tree: Mapping[str, Any],
    names: Names,
    *,
    prefix: str | None = None,
    ignore: tuple[str, ...] = (),
) -> None:
    """Put the weights of a tree into a model of `jaxattn.nn`.

    Nothing changes unless everything fits: each parameter of the model has one array of its
    shape, and each array of the tree a parameter. Numbers are cast to the parameters' dtype.

    Args:
      model: a module; one from `nnx.eval_shape`, without numbers, will do.
      tree: arrays by name: a torch `state_dict()`, `read_safetensors(path)`, `numpy.load(path)`.
      names: a name map, for example `jaxattn.interop.GPT2`.
      prefix: of the tree's names, where it is not the map's.
      ignore: arrays to leave out, `*` for anything: `("pooler.*",)`.

    Raises:
      ValueError: arrays that are missing, unknown or of another shape, all of them in one list.

    Example:
      >>> import numpy as np
      >>> from flax import nnx
      >>> from jaxattn import interop
      >>> from jaxattn.nn import MultiHeadAttention
      >>> layer = MultiHeadAttention(2, 4, rngs=nnx.Rngs(0))
      >>> tree = {"in_proj_weight": np.ones((12, 4)), "in_proj_bias": np.zeros(12),
      ...         "out_proj.weight": np.ones((4, 4)), "out_proj.bias": np.zeros(4)}
      >>> interop.load(layer, tree, interop.TORCH_ATTENTION)
      >>> layer.query.kernel.shape
      (4, 2, 2)
    """
    from flax import nnx

    flat = _flat(model)
    single = unstacked({name: x for name, (_, x) in flat.items()}, names)
    found = restacked(to_ours(tree, names, single, prefix=prefix, ignore=ignore), flat)
    update = [
        (path, x.replace(jnp.asarray(found[name], x.dtype))) for name, (path, x) in flat.items()
    ]
    nnx.update(model, nnx.from_flat_state(update))


def save(model: Any, names: Names, *, prefix: str | None = None) -> dict[str, np.ndarray]:
    """The weights of a model as the tree that `load` takes, exactly.

    Args:
      model: a module.
      names: a name map.
      prefix: of the tree's names, where it is not to be the map's.

    Returns:
      arrays by name, in the parameters' dtype. Arrays that repeat others (a tied head) are left
      out.

    Raises:
      ValueError: the map has no name for some parameters; all of them in one list.

    Example:
      >>> from flax import nnx
      >>> from jaxattn import interop
      >>> from jaxattn.nn import MultiHeadAttention
      >>> layer = MultiHeadAttention(2, 4, rngs=nnx.Rngs(0))
      >>> interop.save(layer, interop.TORCH_ATTENTION)["in_proj_weight"].shape
      (12, 4)
    """
    values = {name: np.asarray(x[...]) for name, (_, x) in _flat(model).items()}
    return to_theirs(unstacked(values, names), names, prefix=prefix)


def _flat(model: Any) -> dict[str, tuple[Any, Any]]:
    """The model's parameters: by dotted name, their path and variable."""
    from flax import nnx

    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {".".join(map(str, path)): (path, x) for path, x in flat}


class Shape(tuple):
    """What is known of a parameter without numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Itself."""
        return tuple(self)


def unstacked(parameters: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Parameters of a scanned stack, `blocks.kernel [L, ...]`, as those of L layers."""
    scanned = {
        name.replace("*.", ""): name for row in names.rows for name in row.ours if "*." in name
    }
    found: dict[str, Any] = {}
    for name, x in parameters.items():
        if name not in scanned:
            found[name] = x
            continue
        for layer in range(x.shape[0]):
            part = x[layer] if isinstance(x, np.ndarray) else Shape(x.shape[1:])
            found[scanned[name].replace("*", str(layer))] = part
    return found


def restacked(found: Mapping[str, np.ndarray], flat: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """`unstacked` backwards, for the names that the model has."""
    stacked: dict[str, list[np.ndarray]] = {}
    for name, x in found.items():
        if name not in flat:
            whole = ".".join(part for part in name.split(".") if not part.isdigit())
            stacked.setdefault(whole, []).append(x)
    return dict(found) | {name: np.stack(parts) for name, parts in stacked.items()}
