"""The simulator in the place of a learned model."""

from __future__ import annotations

import functools

import jax

from jaxrl_rollouts.trees import PyTree

from ..environments.base import Environment, true_model
from .dynamics import Dynamics, EliteSamples


@functools.lru_cache(maxsize=32)
def true_dynamics(env: Environment, *, clipped: bool = False) -> Dynamics:
    """The simulator in the place of a learned model: one member, no uncertainty, `params` unused.

    Args:
        env: the simulator.
        clipped: see `true_model`.

    Raises:
        ConfigError: the observation of `env` does not determine its state.
    """
    model = true_model(env, clipped=clipped)

    def sample_elites(
        params: PyTree, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> EliteSamples:
        following, out = model.step(params, key, observations, actions, None)
        return EliteSamples(out.reward[None], following[None], out.terminated[None])

    return Dynamics(model, sample_elites, 1)
