"""What experiments on pictures are judged by: overlap, matching, precision, shapes, folds."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import attention_belongs_at_stride_32 as strides
from experiments import attention_can_be_a_convolution as convolution
from experiments import average_precision as ap
from experiments import (
    boxes,
    convolution_heads,
    detector,
    digits,
    object_queries_find_shapes,
    resumable,
    shapes,
    vision_transformer_reads_digits,
)
from experiments.report import checked_result
from tests.calls import jit


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        with jax.numpy_rank_promotion("allow"):
            yield


def by_hand(a, b):
    """IoU and GIoU of two boxes, with intervals."""
    sides = []
    for axis in (0, 1):
        low, high = ([x[axis] + s * x[axis + 2] / 2 for x in (a, b)] for s in (-1, 1))
        sides.append((max(0.0, min(high) - max(low)), max(high) - min(low)))
    shared = sides[0][0] * sides[1][0]
    hull = sides[0][1] * sides[1][1]
    union = a[2] * a[3] + b[2] * b[3] - shared
    return shared / union, shared / union - (hull - union) / hull


def test_overlap_is_that_of_intervals():
    rng = np.random.default_rng(0)
    pairs = rng.uniform(0.2, 0.8, (40, 2, 4)).astype(np.float32)
    pairs[0, 1] = pairs[0, 0]  # the same box: 1 and 1
    pairs[1] = [[0.1, 0.1, 0.2, 0.2], [0.9, 0.9, 0.2, 0.2]]  # far apart: 0 and below
    found = np.stack(boxes.overlap(pairs[:, 0], pairs[:, 1]), axis=-1)
    expected = [by_hand(a, b) for a, b in pairs]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found[1, 0] == 0 and found[1, 1] < -0.9


def test_the_match_is_the_cheapest_of_all():
    costs = np.random.default_rng(1).standard_normal((2, 3, 5, 3))
    for cost, found in zip(costs.reshape(-1, 5, 3), boxes.match(costs).reshape(-1, 3), strict=True):
        best = min(itertools.permutations(range(5), 3), key=lambda q: cost[q, range(3)].sum())
        assert tuple(found) == best


def test_more_boxes_than_queries_is_an_error():
    with pytest.raises(ValueError, match="Q >= G"):
        boxes.match(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("right", "total", "expected"),
    [
        ([1, 1], 2, 1.0),
        ([1, 0, 1], 2, 0.5 * 1 + 0.5 * 2 / 3),  # precision 1, then 2 of 3
        ([0, 1], 1, 0.5),
        ([1], 2, 0.5),  # one is never found
        ([0, 0], 3, 0.0),
    ],
)
def test_average_precision_by_hand(right, total, expected):
    scores = np.linspace(0.9, 0.1, len(right))
    order = np.random.default_rng(0).permutation(len(right))  # order of input does not matter
    found = ap.average_precision(scores[order], np.array(right, bool)[order], total)
    assert found == pytest.approx(expected)


def test_nothing_to_find_has_no_precision():
    assert np.isnan(ap.average_precision(np.array([0.5]), np.array([False]), 0))


def test_a_box_is_found_once_and_only_well_enough():
    scores, iou = np.array([0.3, 0.9, 0.8]), np.array([[0.9], [0.7], [0.95]])
    np.testing.assert_array_equal(ap.right_ones(scores, iou, 0.5), [False, True, False])
    np.testing.assert_array_equal(ap.right_ones(scores, iou, 0.8), [False, False, True])
    assert not ap.right_ones(scores, np.zeros((3, 0)), 0.5).any()


def truth_and_detections():
    true_boxes = np.array([[[0.3, 0.3, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2], [0, 0, 0, 0]]], np.float32)
    kinds, present = np.array([[0, 1, 1]]), np.array([[True, True, False]])
    detected = np.concatenate([true_boxes[:, :2], [[[0.7, 0.3, 0.2, 0.2]]]], axis=1)
    scores = np.array([[[0.9, 0.1], [0.1, 0.9], [0.2, 0.3]]])
    return scores, detected.astype(np.float32), true_boxes, kinds, present


def test_perfect_detections_have_precision_one_and_swapped_kinds_less():
    scores, *others = truth_and_detections()
    assert ap.mean_average_precision(scores, *others) == (1.0, [1.0, 1.0])
    swapped, _ = ap.mean_average_precision(scores[..., ::-1], *others)
    assert swapped < 0.5


def test_shapes_fill_their_boxes():
    scenes = jit(shapes.scenes, static_argnums=1)(jax.random.key(0), 3)
    assert scenes.picture.shape == (3, 32, 32, 3) and set(np.unique(scenes.kinds)) <= {0, 1, 2}
    assert np.asarray(scenes.present)[:, 0].all()
    middle, half = jnp.array([0.5, 0.5]), jnp.array([0.25, 0.125])
    covered = jit(jax.vmap(lambda k: shapes.coverage(middle, half, k)))(jnp.arange(3))
    share = np.asarray(covered).sum(axis=(1, 2)) / (0.5 * 0.25 * shapes.SIDE**2)
    np.testing.assert_allclose(share, [np.pi / 4, 1.0, 0.5], atol=0.06)
    for drawn in np.asarray(covered) > 0.5:
        rows, columns = np.nonzero(drawn)
        assert columns.min() >= 8 and columns.max() <= 23 and rows.min() >= 12 and rows.max() <= 19


def test_costs_and_loss_prefer_what_is_there():
    scores, detected, true_boxes, kinds, present = truth_and_detections()
    truth = shapes.Scenes(
        jnp.zeros((1, 32, 32, 3)), jnp.asarray(true_boxes), jnp.asarray(kinds), jnp.asarray(present)
    )
    boxes_found = jnp.full((1, 1, detector.QUERIES, 4), 0.5).at[0, 0, 2].set(true_boxes[0, 0])
    boxes_found = boxes_found.at[0, 0, 5].set(true_boxes[0, 1])
    logits = jnp.zeros((1, 1, detector.QUERIES, 4)).at[..., 3].set(9.0)
    logits = logits.at[0, 0, 2].set(jnp.array([9.0, 0, 0, 0])).at[0, 0, 5].set([0, 9.0, 0, 0])
    found = detector.Found(logits, boxes_found)
    costs = np.asarray(jit(detector.costs)(found, truth))
    matched = boxes.match(costs)
    assert list(matched[0, 0, :2]) == [2, 5] and (costs[..., 2] == 0).all()
    loss = jit(detector.loss)
    right = loss(found, truth, jnp.asarray(matched))
    wrong = loss(found, truth, jnp.asarray(matched[..., [1, 0, 2]]))
    assert right < 0.01 and wrong > right + 1


def test_heads_are_the_convolution_that_their_weights_say():
    kernel = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    offsets = np.stack(np.mgrid[-1:2, -1:2], axis=-1).reshape(9, 2)
    parameters = {
        "centre": jnp.asarray(offsets, jnp.float32),
        "log_sharpness": jnp.full(9, 4.0),
        "mix": jnp.asarray(kernel.reshape(-1), jnp.float32),
    }
    picture = jax.random.normal(jax.random.key(0), (2, 12, 12))
    out, weights = jit(convolution_heads.nine_heads)(parameters, picture)
    np.testing.assert_allclose(convolution_heads.kernel(weights), np.pad(kernel, 1), atol=1e-3)
    expected = convolution_heads.convolved(picture, kernel)
    inside = convolution_heads.inside
    np.testing.assert_allclose(inside(out), inside(expected), atol=1e-3)


def test_claims_on_strides_fail_where_memory_does_not_follow_pairs():
    counts = {stride: strides.grid_cost(640, 640, stride) for stride in (32, 16, 8)}

    def judged(dense, tiled, slow):
        found = {
            "attention, dense": {32: strides.Cost(1, 1), 8: strides.Cost(dense, slow)},
            "attention, tiled": {32: strides.Cost(1, 1), 8: strides.Cost(tiled, 1)},
        }
        return [claim["holds"] for claim in strides.judged(counts, found)]

    assert judged(256, 16, 256) == [True, True, True]
    assert judged(16, 256, 16) == [False, False, False]
    assert all(claim["holds"] for claim in strides.counted())


def test_claims_on_convolutions_compare():
    numbers = {
        "mean square error": {"without content": 3.0, "with content": 1.0},
        "how weights differ between pictures, greatest": {"without content": 0, "with content": 1},
    }
    good = convolution.claims({"edges": 0.01, "blur": 0.01}, numbers)
    bad = convolution.claims({"edges": 0.5, "blur": 0.01}, numbers)
    assert [claim["holds"] for claim in good] == [True] * 5
    assert [claim["holds"] for claim in bad] == [False] + [True] * 4


def test_folds_test_every_digit_once():
    data = (np.arange(23.0)[:, None], np.arange(23))
    tested = np.concatenate([digits.fold(number, data).test[1] for number in range(digits.FOLDS)])
    assert sorted(tested) == list(range(23))
    first = digits.fold(0, data)
    assert not set(first.train[1]) & set(first.test[1])


def test_another_model_or_length_has_another_folder(tmp_path):
    state = resumable.State(jnp.zeros((), jnp.int32), {"w": jnp.zeros(3)}, ())  # type: ignore
    wider = state._replace(params={"w": jnp.zeros(4)})
    names = {
        resumable.run_of(tmp_path, one, steps, "a model")
        for one in (state, wider)
        for steps in (1, 2)
    }
    assert len(names) == 4


def test_a_stopped_run_goes_on_and_a_finished_one_is_kept(tmp_path):
    made = []

    def advance(state, length):
        made.append(length)
        if state.step == 10 and len(made) == 2:
            import signal

            signal.raise_signal(signal.SIGINT)
        w = state.params["w"] * 2 + length
        return state._replace(step=state.step + length, params={"w": w}), [0.0] * length

    state = resumable.State(jnp.zeros((), jnp.int32), {"w": jnp.zeros(2)}, ())  # type: ignore
    with pytest.raises(KeyboardInterrupt, match="saved a run at step 20"):
        resumable.fit(advance, state, 35, tmp_path, "a run")
    end = resumable.fit(advance, state, 35, tmp_path, "a run")
    assert made == [10, 10, 10, 5]
    again = resumable.fit(advance, state, 35, tmp_path, "a run")
    assert len(made) == 4 and np.array_equal(again.params["w"], end.params["w"])
    resumable.forget(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment",
    [strides, convolution, object_queries_find_shapes, vision_transformer_reads_digits],
)
def test_quick(experiment, tmp_path):
    if experiment is vision_transformer_reads_digits:
        pytest.importorskip("sklearn")
    result = checked_result(experiment.run(tmp_path, quick=True))
    assert [claim for claim in result["claims"] if not claim["holds"]] == []
    assert all(figure.stat().st_size > 10_000 for figure in result["figures"])
