"""The table of mutants, and what each claims to support."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import gradients, masks, results, scores, tangents


class Mutant(NamedTuple):
    """A broken attention: its name, what is wrong with it, and the features that it claims."""

    name: str
    function: Callable[..., Any]
    wrong: str
    supports: tuple[str, ...] = ()


def mutant(name: str) -> Mutant:
    """The mutant of that name."""
    return next(each for each in MUTANTS if each.name == name)


def _of(function: Callable[..., Any], *supports: str) -> Mutant:
    """A mutant whose docstring says what is wrong."""
    return Mutant(function.__name__, function, (function.__doc__ or "").strip(), supports)


BY_HAND = ("-jvp",)  # a hand-written backward pass has no forward derivatives
LSE, BIAS, SCALE = ("lse",), ("bias",), ("scale",)

MUTANTS: tuple[Mutant, ...] = (
    _of(scores.scale_one_over_size, "lse"),
    _of(scores.no_scale),
    _of(scores.scale_from_value),
    _of(scores.scale_fixed_at_four),
    _of(scores.softmax_over_queries),
    _of(scores.softmax_over_heads),
    _of(scores.softmax_off_by_one),
    _of(scores.negative_weights),
    _of(scores.stray_position_bias),
    _of(scores.normalised_keys),
    _of(scores.exp_without_maximum),
    _of(scores.no_rescale),
    _of(scores.last_tile_dropped),
    _of(scores.rounded_scores),
    _of(scores.float32_inside),
    _of(scores.always_float32),
    _of(masks.mask_after_softmax),
    _of(masks.padding_in_denominator),
    _of(masks.mask_minus_twenty),
    _of(masks.mask_minus_billion),
    _of(masks.mask_ignored),
    _of(masks.causal_off_by_one),
    _of(masks.causal_strict),
    _of(masks.window_one_too_wide),
    _of(masks.reversed_causal),
    _of(masks.causal_without_mask),
    _of(masks.mean_on_empty_rows),
    _of(masks.nan_on_empty_rows),
    _of(masks.nan_gradient_on_empty_rows),
    _of(masks.nan_from_padding),
    _of(masks.nan_from_empty_query),
    _of(masks.wrong_grouping),
    _of(masks.examples_mixed),
    _of(masks.stale_cache_slot),
    _of(masks.square_only),
    _of(masks.first_batch_axis_only),
    _of(masks.squashed_value),
    _of(masks.value_clipped),
    _of(masks.transposed_layout),
    _of(results.lse_in_base_two, *LSE),
    _of(results.lse_gradient_dropped, *LSE),
    _of(results.finite_lse_on_empty_rows, *LSE),
    _of(results.bias_after_softmax, *BIAS),
    _of(results.bias_gradient_missing, *BIAS),
    _of(results.scale_gradient_missing, *SCALE),
    _of(results.another_when_compiled),
    _of(results.another_every_call),
    _of(results.mask_must_be_known),
    _of(results.quantised_out),
    _of(results.vmap_ignored),
    _of(results.vmap_ignored_in_gradient, "-jvp", "-second_order"),
    _of(results.carry_does_not_vary),
    _of(results.claims_linear_memory, "linear_memory"),
    _of(results.prints_and_is_nan),
    _of(results.wrong_shape),
    Mutant(
        "gradient_without_row_sum",
        gradients.gradient_without_row_sum,
        "dscores = P (e vᵀ), without D.",
        BY_HAND,
    ),
    Mutant(
        "key_gradient_without_scale", gradients.key_gradient_without_scale, "dk lacks σ.", BY_HAND
    ),
    Mutant(
        "key_gradient_with_wrong_sign",
        gradients.key_gradient_with_wrong_sign,
        "dk has the wrong sign.",
        BY_HAND,
    ),
    Mutant(
        "gradient_off_by_a_millionth",
        gradients.gradient_off_by_a_millionth,
        "dv is 1 + 1e-6 times too large.",
        BY_HAND,
    ),
    Mutant(
        "last_head_without_gradient",
        gradients.last_head_without_gradient,
        "dv of the last head is zero.",
        BY_HAND,
    ),
    Mutant(
        "weight_decay_in_gradient",
        gradients.weight_decay_in_gradient,
        "dv has v / 1000 added.",
        BY_HAND,
    ),
    Mutant(
        "weights_squared_in_gradient",
        gradients.weights_squared_in_gradient,
        "dscores has P² in place of P.",
        BY_HAND,
    ),
    Mutant(
        "gradient_without_mask",
        gradients.gradient_without_mask,
        "The backward pass forgets the mask.",
        BY_HAND,
    ),
    Mutant(
        "gradient_with_lse_in_base_two",
        gradients.gradient_with_lse_in_base_two,
        "The backward pass reads lse in base 2.",
        BY_HAND,
    ),
    _of(gradients.dropout_differs_in_backward),
    Mutant("tangent_without_lse", tangents.tangent_without_lse, "The tangent lacks -dL out."),
    Mutant("tangent_without_key", tangents.tangent_without_key, "The tangent ignores dk."),
    Mutant(
        "tangent_with_query_twice",
        tangents.tangent_with_query_twice,
        "The tangent counts dq twice.",
    ),
    Mutant(
        "weights_frozen_in_tangent",
        tangents.weights_frozen_in_tangent,
        "The tangent's weights have no derivative.",
    ),
    Mutant(
        "second_order_dropped",
        tangents.second_order_dropped,
        "out and lse have no derivative in the rule.",
    ),
    Mutant(
        "third_order_dropped",
        tangents.third_order_dropped,
        "The residuals' second derivative is missing.",
    ),
    _of(tangents.jvp_and_vjp_apart, "-second_order", "-vmap", "-shard_map"),
)
