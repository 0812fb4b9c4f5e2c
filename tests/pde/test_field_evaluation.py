"""Evaluation of trained emulators: programs are compiled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.pde.baselines import make_low_pass
from jaxrl_rollouts.pde.emulator import FieldShape, persistence
from jaxrl_rollouts.pde.evaluation import Holdout, evaluate
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import Refiner

SEEDS = 2


def waves(phase: float) -> Holdout:
    """Three trajectories of six frames of waves that travel."""
    x = np.arange(8) * 2 * np.pi / 8
    u = np.sin(x + phase + np.arange(3)[:, None, None] + 0.1 * np.arange(6)[:, None])
    fields = Fields(jnp.asarray(u[:, :, None], jnp.float32), jnp.zeros((3, 0)))
    return Holdout(fields, 5, seeds=SEEDS, dt=0.1)


def test_other_trajectories_are_judged_by_the_same_programs(programs: Callable[[], int]) -> None:
    arms = persistence(1)
    first, before = evaluate("first", arms, (), waves(0.0)), programs()
    second = evaluate("second", arms, (), waves(1.0))
    assert programs() == before
    assert (first.rollout != second.rollout).any()


@pytest.mark.slow
def test_single_steps_are_judged_after_each_refinement_as_if_it_were_the_last() -> None:
    config = Refiner(refinements=2)
    net = tiny(4, (1, 2)).make(FieldShape(1, 8))
    emulator = config.make(net, 0.3)
    params = jax.vmap(net.init)(jax.random.split(jax.random.key(3), SEEDS))
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)  # its last layer is zero at first
    whole = evaluate("whole", emulator, params, waves(0.0))
    assert whole.one_step.shape == (SEEDS, 3)
    for count in range(3):
        stopped = replace(config, applied=count).make(net, 0.3)
        alone = evaluate("alone", stopped, params, waves(0.0))
        for name in ("one_step", "first_error"):
            found, last = getattr(whole, name)[:, count], getattr(alone, name)[:, -1]
            np.testing.assert_allclose(found, last, rtol=1e-5)
    low = make_low_pass(emulator, 1)
    kept = (params, jnp.ones((SEEDS, 5)))
    same = evaluate("low", low, kept, waves(0.0))
    np.testing.assert_allclose(same.one_step, whole.one_step, rtol=1e-4)
