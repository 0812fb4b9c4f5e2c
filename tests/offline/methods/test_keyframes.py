"""Rollouts that begin before high rewards: which rows, how many, and how deep rewards are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_learners import CADENCE, HARD, KNOWN, A, S, imagination, rows

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import to_device
from jaxrl_rollouts.offline.methods.admpo import Admpo
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.keyframes import depths, keyframes_of, rows_before
from jaxrl_rollouts.offline.methods.model_based import Rollouts, bind

KEY = jax.random.key(4)
BASE = Base(agent=HARD, **CADENCE)


def paid(*at: int) -> Any:
    """Four episodes of ten rows with a reward of 1 in some of them."""
    rewards = np.zeros(40, np.float32)
    rewards[list(at)] = 1.0
    return rows()._replace(rewards=rewards)


def test_they_are_the_top_tenth_of_the_rewards() -> None:
    frames = keyframes_of(paid(3, 12, 39))
    assert frames.rows.tolist() == [3, 12, 39] and frames.ages.tolist() == [3, 2, 9]
    assert float(frames.least) == 1.0
    order = np.random.default_rng(0).permutation(40).astype(np.float32)
    frames = keyframes_of(rows()._replace(rewards=order))
    assert sorted(order[np.asarray(frames.rows)]) == [36, 37, 38, 39]
    # More than a tenth of them is the highest there is.
    assert keyframes_of(paid(*range(20))).rows.tolist() == list(range(20))


def test_rows_before_them_stay_in_the_episode() -> None:
    frames = keyframes_of(paid(3, 12, 39))
    found = np.asarray(rows_before(frames, KEY, 3000, 4))
    counts = {row: int((found == row).sum()) for row in set(found.tolist())}
    assert set(counts) == {0, 1, 2, 3, 10, 11, 12, 35, 36, 37, 38, 39}
    assert sum(counts[row] for row in (0, 1, 2, 3)) == pytest.approx(1000, abs=100)
    assert counts[10] == pytest.approx(600, abs=100)  # leads of 2, 3 and 4
    assert set(np.asarray(rows_before(frames, KEY, 50, 0)).tolist()) == {3, 12, 39}


def test_a_share_of_the_rollouts_begins_there_and_the_others_where_they_did() -> None:
    data = imagination(BASE)
    data = data._replace(frames=keyframes_of(paid(3, 12, 39)))
    starts = {}
    for share in (0.0, 0.5):
        size = replace(BASE.rollouts, keyframe_share=share, keyframe_lead=1)
        learner: Any = bind(replace(BASE, rollouts=size).program(), KNOWN, S, A)
        trajectory = learner.imagine(learner.init(KEY, data), KEY, data)
        starts[share] = np.asarray(trajectory.steps.observations[0])
    half = len(starts[0.0]) // 2
    before = np.asarray(to_device(rows()).observations)[[2, 3, 11, 12, 38, 39]]
    gaps = np.abs(starts[0.5][:half, None] - before).max(-1).min(1)
    assert gaps.max() < 1e-6 and np.abs(starts[0.0][:half, None] - before).max() > 0.1
    np.testing.assert_array_equal(starts[0.5][half:], starts[0.0][half:])


def test_measuring_the_depth_changes_no_bit_of_the_training() -> None:
    learner, data = bind(BASE.program(), KNOWN, S, A), imagination(BASE)
    known = data._replace(frames=keyframes_of(paid(3, 12, 39)))
    state = learner.init(KEY, data)
    without, with_ = (jax.jit(learner.update)(state, d) for d in (data, known))
    jax.tree.map(np.testing.assert_array_equal, without[0].agent, with_[0].agent)
    assert {"reward_met", "reward_depth"} == set(with_[1]) - set(without[1])


def test_the_depth_of_a_reward() -> None:
    """Rollouts of three steps: met at the second, never, past its end, and at once."""
    rewards = jnp.asarray([[0.0, 0.0, 0.0, 2.0], [1.0, 0.5, 0.0, 0.0], [1.0, 0.5, 1.0, 0.0]])
    valid = jnp.ones((3, 4), bool).at[2, 2].set(False)
    trajectory: Any = SimpleNamespace(valid=valid, steps=SimpleNamespace(rewards=rewards))
    found = depths(keyframes_of(paid(3)), trajectory)
    assert float(found["reward_met"]) == 0.5 and float(found["reward_depth"]) == 1.5
    trajectory.valid = jnp.zeros((3, 4), bool)
    assert {float(x) for x in depths(keyframes_of(paid(3)), trajectory).values()} == {0.0}


def test_refused() -> None:
    with pytest.raises(ConfigError, match="rollouts.keyframe_share: found 0.5, expected none"):
        check(Admpo(rollouts=Rollouts(keyframe_share=0.5)))
