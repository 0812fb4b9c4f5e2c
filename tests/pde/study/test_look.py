"""Evaluation of trained emulators: programs are compiled once."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices
from jaxrl_rollouts.pde.emulator import persistence
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.study.look import evaluate
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData

STUDY = StudyConfig(seeds=2, points=8, steps=5, sampled_steps=5)


def waves(phase: float) -> StudyData:
    """Three trajectories of six frames of waves that travel."""
    x = np.arange(8) * 2 * np.pi / 8
    u = np.sin(x + phase + np.arange(3)[:, None, None] + 0.1 * np.arange(6)[:, None])
    fields = Fields(jnp.asarray(u[:, :, None], jnp.float32), jnp.zeros((3, 0)))
    return StudyData(fields, fields, 0.1, np.ones(3))


def test_other_trajectories_are_judged_by_the_same_programs() -> None:
    devices._mapped.cache_clear()
    arms = [persistence(1)]
    first = evaluate("first", arms, (), STUDY, waves(0.0), None)
    programs = devices._mapped.cache_info().misses
    second = evaluate("second", arms, (), STUDY, waves(1.0), None)
    assert devices._mapped.cache_info().misses == programs == 2
    assert (first.rollout != second.rollout).any()
