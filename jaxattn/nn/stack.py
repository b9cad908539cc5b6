"""Blocks one after the other. Letters: see `jaxattn._typing`; L is the number of blocks."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.masks import Causal, Mask
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.norm import LayerNorm
from jaxattn.nn.residual import BlockCache, ResidualBlock
from jaxattn.nn.scanned import StackCache, check_room, extend_layers


class Stack(nnx.Module):
    """L blocks of one kind, then a normalisation.

        x = block(x), L times;   out = norm(x)

    Args:
      layers: L.
      block: a function `rngs -> ResidualBlock`, called for each.
      make_norm: of the last normalisation, from D; None for none (after post-norm blocks).
      remat: whether what blocks compute is computed again for the gradient instead of kept:
        memory for one block's insides instead of L.
      scan: whether the blocks' parameters are stacked (`blocks`, each with an axis of L in front)
        and looped over, so that one block is compiled instead of L. The caches are then stacked
        too, behind `*B`; a step copies each block's part out of them and back.
      rngs: handed to `block`.

    Raises:
      TypeError, ValueError: L is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import Stack, TransformerBlock
      >>> block = lambda rngs: TransformerBlock(8, num_heads=2, rngs=rngs)
      >>> make = lambda: Stack(3, block, scan=True, remat=True, rngs=nnx.Rngs(0))
      >>> nnx.eval_shape(lambda x: make()(x), jnp.ones((2, 5, 8))).shape
      (2, 5, 8)

    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost" (remat).
    """

    def __init__(
        self,
        layers: int,
        block: Callable[[nnx.Rngs], ResidualBlock],
        *,
        make_norm: Callable[[int], nnx.Module] | None = LayerNorm,
        remat: bool = False,
        scan: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(layers=layers)
        self.layers, self.remat, self.scan = layers, remat, scan
        if scan:
            make = nnx.split_rngs(splits=layers)(nnx.vmap(block))
            self.blocks: Any = make(rngs)
        else:
            self.blocks = nnx.List(block(rngs) for _ in range(layers))
        self.width = self.blocks.width if scan else self.blocks[0].width
        self.norm = nnx.data(None if make_norm is None else make_norm(self.width))

    def __call__(
        self,
        x: Float[Array, "*B T D"],
        context: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
        context_mask: Mask | Bool[Array, "..."] | None = None,
        positions: Int[Array, "*B T"] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D] -> [*B, T, D]`; arguments as in `ResidualBlock`."""
        options: dict[str, Any] = dict(
            mask=mask, context_mask=context_mask, positions=positions, deterministic=deterministic
        )

        if self.remat or self.scan:
            x = self._transformed(x, context, rngs, options)
        else:
            for block in self.blocks:
                x = block(x, context, rngs=rngs, **options)
        return x if self.norm is None else self.norm(x)

    def _transformed(self, x: Array, context: Any, rngs: Any, options: dict[str, Any]) -> Array:
        """The blocks under remat and scan, into which keys go, and no stream of them."""
        keys = split_keys(rngs, self.layers)
        blocks = [self.blocks] if self.scan else self.blocks
        for i, block in enumerate(blocks):
            graph, state = nnx.split(block)

            def run(x: Array, given: Any, graph: Any = graph) -> tuple[Array, Any]:
                state, key = given
                block = nnx.merge(graph, state)
                rngs = None if key is None else nnx.Rngs(dropout=key)
                return block(x, context, rngs=rngs, **options), nnx.state(block, nnx.RngState)

            run = jax.checkpoint(run) if self.remat else run
            if self.scan:
                x, drawn = jax.lax.scan(run, x, (state, keys))
            else:
                x, drawn = run(x, (state, None if keys is None else keys[i]))
            own_drew = keys is None and options["deterministic"] is not True
            if own_drew and jax.tree.leaves(drawn):
                nnx.update(block, drawn)
        return x

    def init_cache(
        self,
        batch: int | tuple[int, ...],
        length: int,
        context: Float[Array, "*B S E"] | None = None,
        **options: Any,
    ) -> StackCache:
        """An empty cache for each block; arguments as in `ResidualBlock.init_cache`.

        Returns:
          L caches, or where `scan` is True one, whose arrays have an axis of L behind `*B`.
        """
        if not self.scan:
            return tuple(
                block.init_cache(batch, length, context, **options) for block in self.blocks
            )
        graph, states = nnx.split(self.blocks)

        def init(state: Any) -> BlockCache:
            return nnx.merge(graph, state).init_cache(batch, length, context, **options)

        axis = len(batch) if isinstance(batch, tuple) else 1
        return jax.vmap(init, out_axes=axis, axis_size=self.layers)(states)

    def extend(
        self,
        x: Float[Array, "*B T D"],
        cache: StackCache,
        *,
        mask: Mask | None = Causal(),  # noqa: B008
        valid: Bool[Array, "*B T"] | None = None,
    ) -> tuple[Float[Array, "*B T D"], StackCache]:
        """The stack for T new tokens; see `MultiHeadAttention.extend`. Nothing is dropped."""
        _cache_checks.caches(cache, self.layers, self.scan)
        if self.scan:
            x, after = self._extend_scanned(x, cache, mask=mask, valid=valid)
            return x if self.norm is None else self.norm(x), after
        every = []
        for block, held in zip(self.blocks, cache, strict=True):
            x, held = block.extend(x, held, mask=mask, valid=valid)
            every.append(held)
        return x if self.norm is None else self.norm(x), tuple(every)

    def _extend_scanned(self, x: Array, cache: Any, **options: Any) -> tuple[Array, BlockCache]:
        """The blocks in one loop, each with its own part of the cache."""
        check_room(cache, x.shape[-2], options["valid"])
        graph, states = nnx.split(self.blocks)

        def extend(state: Any, x: Array, held: BlockCache) -> tuple[Array, BlockCache]:
            return nnx.merge(graph, state).extend(x, held, **options)

        return extend_layers(extend, states, x, cache)


class Encoder(Stack):
    """Blocks in which all tokens see each other, unless a mask says otherwise: a `Stack`.

    Args, Raises: as in `Stack`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Lengths
      >>> from jaxattn.nn import Encoder, TransformerBlock
      >>> block = lambda rngs: TransformerBlock(8, 2, rngs=rngs)
      >>> def encoded(x):
      ...     return Encoder(2, block, rngs=nnx.Rngs(0))(x, mask=Lengths(key=jnp.array([5, 3])))
      >>> nnx.eval_shape(encoded, jnp.ones((2, 5, 8))).shape
      (2, 5, 8)

    Source: Vaswani et al. 2017, section 3.1.
    """


class Decoder(Stack):
    """Blocks in which a token sees those before it, and a context: a `Stack` with these defaults.

    Args, Raises: as in `Stack`; the block has `cross_attention`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import Decoder, FeedForward, MultiHeadAttention, ResidualBlock
      >>> def block(rngs):
      ...     own, other = (MultiHeadAttention(2, 8, rngs=rngs) for _ in range(2))
      ...     return ResidualBlock(own, FeedForward(8, rngs=rngs), cross_attention=other)
      >>> def decoded(x, context):
      ...     return Decoder(2, block, rngs=nnx.Rngs(0))(x, context)
      >>> nnx.eval_shape(decoded, jnp.ones((1, 3, 8)), jnp.ones((1, 7, 8))).shape
      (1, 3, 8)

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __call__(
        self,
        x: Float[Array, "*B T D"],
        context: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = Causal(),  # noqa: B008
        **options: Any,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D]`, `[*B, S, E]` -> `[*B, T, D]`; arguments as in `ResidualBlock`."""
        return super().__call__(x, context, mask=mask, **options)


def split_keys(rngs: nnx.Rngs | nnx.RngStream | None, count: int) -> Array | None:
    """So many keys from the stream, or None without one."""
    if rngs is None:
        return None
    key = rngs.dropout() if isinstance(rngs, nnx.Rngs) else rngs()
    return jax.random.split(key, count)
