"""Dynamics between a learned model and the truth: one number says how good the model is.

At `model_quality` 0 the learned model is rolled, at 1 the simulator, and in between every next
state is the weighted mean of the two. A penalty on the model's error shrinks with it by `1 -
model_quality`. The number is a parameter, not a constant of the program: runs of different quality
share one compiled program and can be vmapped like seeds.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.environments.base import Environment, true_model
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples
from jaxrl_rollouts.rollouts import Model, StepResult
from jaxrl_rollouts.trees import PyTree


class Blend(NamedTuple):
    """Parameters of `blended_dynamics`.

    Attributes:
        world: parameters of the learned dynamics.
        model_quality: scalar in [0, 1], weight of the true next state.
    """

    world: PyTree
    model_quality: jax.Array


def blend_worlds(worlds: PyTree, truths: tuple[float, ...]) -> Blend:
    """Every world (leaves `[K, ...]`) at every model quality: a `Blend` with axis `[W * K]`.

    Quality varies slowest: reshape results to `[W, K]`.
    """
    if not truths or not all(0.0 <= w <= 1.0 for w in truths):
        raise ConfigError("truths", truths, "at least one, each in [0, 1]")
    count = jax.tree.leaves(worlds)[0].shape[0]

    def tile(leaf: jax.Array) -> jax.Array:
        return jnp.tile(leaf, (len(truths),) + (1,) * (leaf.ndim - 1))

    return Blend(jax.tree.map(tile, worlds), jnp.repeat(jnp.asarray(truths, jnp.float32), count))


def _mix(model_quality: jax.Array, real: jax.Array, learned: jax.Array) -> jax.Array:
    # A learned model may overflow far from its data; at truth 1 it has no say (0 * inf is NaN).
    return jnp.where(
        model_quality >= 1.0, real, model_quality * real + (1.0 - model_quality) * learned
    )


@functools.lru_cache(maxsize=32)
def blended_dynamics(learned: Dynamics, env: Environment) -> Dynamics:
    """Dynamics whose parameters are a `Blend`. Equal arguments give the same functions.

    The reward and the termination are the environment's known functions of the blended transition,
    so that the next state is all there is to get wrong. `uncertainty` is that of the learned model
    times `1 - model_quality`.
    """
    reward, termination = env.reward, env.termination
    if reward is None or termination is None:
        raise ConfigError("environment", env.name, "one with known reward and termination")
    model_quality = true_model(env)

    def step(
        params: Blend, key: jax.Array, observations: jax.Array, actions: jax.Array, member: PyTree
    ) -> tuple[jax.Array, StepResult]:
        real_key, learned_key = jax.random.split(key)
        real, _ = model_quality.step(None, real_key, observations, actions, None)
        guess, out = learned.model.step(params.world, learned_key, observations, actions, member)
        following = _mix(params.model_quality, real, guess)
        return following, out._replace(
            reward=reward(observations, actions, following),
            terminated=termination(observations, actions, following),
            uncertainty=_mix(
                params.model_quality, jnp.zeros_like(out.uncertainty), out.uncertainty
            ),
        )

    def sample_elites(
        params: Blend, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> EliteSamples:
        real_key, learned_key = jax.random.split(key)
        real, _ = model_quality.step(None, real_key, observations, actions, None)
        imagined = learned.sample_elites(params.world, learned_key, observations, actions)
        following = _mix(params.model_quality, real, imagined.next_observations)

        def known(function: Any) -> jax.Array:
            return jax.vmap(function, in_axes=(None, None, 0))(observations, actions, following)

        return EliteSamples(known(reward), following, known(termination))

    return Dynamics(Model(step), sample_elites, learned.members, learned.measured)
