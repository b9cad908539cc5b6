"""jaxattn: the attention primitive for JAX. One written semantics, every derivative.

The contents page, in the order in which data flows:

    project, split_heads, merge_heads      Q = X W_q; N heads            projection.py
    attention_scores                       Ω = Q Kᵀ / √H                 scores.py
    attention_weights, weighted_sum        A = softmax(Ω); C = A V       softmax.py
    self_attention, cross_attention        one head, X to C              path.py
    attention                              the primitive                 dispatch.py, _door.py
    attention_with_weights                 and its weights               dispatch.py
    partial_attention, Partial, merge      over a part of the keys       dispatch.py, partial.py
    explain                                which would run, at what cost explanation.py
    IMPLEMENTATIONS                        what can compute it           dispatch.py
      "dense"                              the definition                dense.py
      "blockwise"                          the same at O(T) memory       blockwise.py, tiles.py,
                                                                         layout.py, steps.py,
                                                                         tile_scores.py
    additive_attention, additive_scores    v · tanh(W q + U k)           additive.py
    multiplicative_attention,              q W · k                       multiplicative.py
      multiplicative_scores
    linear_attention                       φ(Q) (φ(K)ᵀ V), in time T     linear.py, linear_scan.py
      linear_attention_with_state          what comes before and after   linear.py, _linear_door.py
      linear_attention_step, LinearState   one token                     linear.py
    channel_attention, hard_sigmoid        x ∘ σ(W₂ relu(W₁ mean x))     channel.py
    deformable_attention                   a few points of each map      deformable.py
      sampling_locations                   where they are                deformable.py
    row_attention, column_attention        axial, on images              grid.py
    neighbourhood_attention                a window on images            grid.py
    grid_cost, GridCost                    tokens and pairs of an image  grid.py
    feature_maps                           elu + 1, relu, random         feature_maps.py
    masks                                  who may attend to whom        masks/
    biases                                 added to scores               biases/
    positions                              sinusoidal, rotary            positions/
    cache                                  keys and values so far        cache/
    compat                                 others' signatures            compat.py
    dropout                                counted, not drawn            dropout.py
    nn                                     Flax modules (import it)      nn/
    interop                                weights of others (import)    interop/
    verify                                 judge any attention (import)  verify/
    bench                                  `python -m jaxattn bench`     bench/

Importing jaxattn loads JAX and NumPy, and neither Flax nor a kernel. Letters of shapes are in
`jaxattn._typing`; what every path promises is in README.md, "Semantics".
"""

from jaxattn import biases as biases
from jaxattn import cache as cache
from jaxattn import compat as compat
from jaxattn import dropout as dropout
from jaxattn import feature_maps as feature_maps
from jaxattn import masks as masks
from jaxattn import positions as positions
from jaxattn.additive import additive_attention as additive_attention
from jaxattn.additive import additive_scores as additive_scores
from jaxattn.channel import channel_attention as channel_attention
from jaxattn.channel import hard_sigmoid as hard_sigmoid
from jaxattn.deformable import deformable_attention as deformable_attention
from jaxattn.deformable import sampling_locations as sampling_locations
from jaxattn.dispatch import IMPLEMENTATIONS as IMPLEMENTATIONS
from jaxattn.dispatch import attention as attention
from jaxattn.dispatch import attention_with_weights as attention_with_weights
from jaxattn.dispatch import partial_attention as partial_attention
from jaxattn.explanation import explain as explain
from jaxattn.grid import GridCost as GridCost
from jaxattn.grid import column_attention as column_attention
from jaxattn.grid import grid_cost as grid_cost
from jaxattn.grid import neighbourhood_attention as neighbourhood_attention
from jaxattn.grid import row_attention as row_attention
from jaxattn.linear import LinearState as LinearState
from jaxattn.linear import linear_attention as linear_attention
from jaxattn.linear import linear_attention_step as linear_attention_step
from jaxattn.linear import linear_attention_with_state as linear_attention_with_state
from jaxattn.multiplicative import multiplicative_attention as multiplicative_attention
from jaxattn.multiplicative import multiplicative_scores as multiplicative_scores
from jaxattn.partial import Partial as Partial
from jaxattn.partial import merge as merge
from jaxattn.path import cross_attention as cross_attention
from jaxattn.path import self_attention as self_attention
from jaxattn.projection import merge_heads as merge_heads
from jaxattn.projection import project as project
from jaxattn.projection import split_heads as split_heads
from jaxattn.scores import attention_scores as attention_scores
from jaxattn.softmax import attention_weights as attention_weights
from jaxattn.softmax import weighted_sum as weighted_sum

__version__ = "0.1.0"

__all__ = [
    "GridCost",
    "IMPLEMENTATIONS",
    "LinearState",
    "Partial",
    "additive_attention",
    "additive_scores",
    "attention",
    "attention_scores",
    "attention_weights",
    "attention_with_weights",
    "biases",
    "cache",
    "channel_attention",
    "column_attention",
    "compat",
    "cross_attention",
    "deformable_attention",
    "dropout",
    "explain",
    "feature_maps",
    "grid_cost",
    "hard_sigmoid",
    "linear_attention",
    "linear_attention_step",
    "linear_attention_with_state",
    "masks",
    "merge",
    "merge_heads",
    "multiplicative_attention",
    "multiplicative_scores",
    "neighbourhood_attention",
    "partial_attention",
    "positions",
    "project",
    "row_attention",
    "sampling_locations",
    "self_attention",
    "split_heads",
    "weighted_sum",
]
