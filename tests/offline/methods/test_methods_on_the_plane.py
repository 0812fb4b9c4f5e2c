"""COMBO's and MOReL's values on the plane, whose dynamics and returns are known exactly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import coefficients
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments import true_model
from jaxrl_rollouts.offline.environments.plane import PLANE, reward
from jaxrl_rollouts.offline.methods import model_based
from jaxrl_rollouts.offline.methods.combo import Combo
from jaxrl_rollouts.offline.methods.model_based import (
    Imagination,
    ModelBased,
    ModelBasedState,
    Rollouts,
    bind,
)
from jaxrl_rollouts.offline.methods.morel import Morel
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, Rolled, WorldModelParams
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.rollouts import Model, rollout, step_result

KEY, RNG = jax.random.key(3), np.random.default_rng(0)
SIZES = (2, 2)


def small_steps(count: int, largest: float) -> Transitions:
    """Single steps with actions in `[-largest, largest]^2` from states in `[-2, 2]^2`."""
    s, a = RNG.uniform(-2, 2, (count, 2)), RNG.uniform(-largest, largest, (count, 2))
    s, a, no = s.astype(np.float32), a.astype(np.float32), np.zeros(count, bool)
    return to_device(Transitions(s, a, np.asarray(reward(s, a, s + a)), s + a, no, ~no))


def data_of(method: ModelBased, rows: Transitions, world: Any) -> Imagination:
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}
    return Imagination(rows, world, own, jnp.ones(()))


def test_combos_values_of_actions_outside_the_data_are_below_the_true_ones() -> None:
    """Without its penalty they are above what any policy can earn, `1 / (1 - gamma)`.

    The model is the simulator, so the error is that of the edge of reach alone. The true value of
    an action is the return of the trained policy after it, measured in the simulator.
    """
    gamma, steps = 0.99, 400
    nets: dict[str, Any] = {"hidden_dims": (32,), "actor_lr": 3e-3, "critic_lr": 3e-3}
    agent = SacConfig(**nets, discount=gamma, tau=0.05, num_critics=2, backup_entropy=False)
    size = Rollouts(length=1, batch_size=200, retain_epochs=2, every=100)
    method = Combo(agent=agent, num_actions=2, rollouts=size, batch_size=32)
    rows = small_steps(2000, 0.3)
    learner = bind(method.program(), true_dynamics(PLANE), *SIZES)

    def trained(weight: jax.Array) -> Any:
        data = data_of(method, rows, ())
        data = data._replace(coefficients={**data.coefficients, "weight": weight})
        begun = learner.init(KEY, data)
        return jax.lax.scan(lambda s, _: learner.update(s, data), begun, None, length=16)[0]

    seen = jnp.asarray(RNG.uniform(-2, 2, (128, 2)), jnp.float32)
    tried = RNG.uniform(0.5, 1.0, (128, 2)) * RNG.choice([-1, 1], (128, 2))
    acted = jnp.asarray(tried, jnp.float32)

    def values(weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        state, after = trained(weight).agent, seen + acted
        played = rollout(
            true_model(PLANE),
            None,
            after,
            KEY,
            horizon=steps,
            policy=learner.agent.greedy,
            policy_params=state.actor,
            record=lambda step: step.rewards,
        ).steps
        truth = reward(seen, acted, after) + gamma * (gamma ** jnp.arange(steps) @ played)
        return learner.agent.q(state.critic, seen, acted).mean(0), truth

    found, truth = (np.asarray(x) for x in jax.jit(jax.vmap(values))(jnp.array([0.0, 1.0])))
    assert (found[0] > 1 / (1 - gamma)).all()
    assert (found[1:] < truth[1:]).all()
    assert (truth >= 0).all() and (truth <= 1 / (1 - gamma)).all()


RADIUS, HALT, LENGTH = 3.0, -7.0, 8


def outside(world: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
    """The first member is right; another differs from it by `|s| - RADIUS` outside the disc."""
    apart = jnp.maximum(jnp.linalg.norm(s, axis=-1) - RADIUS, 0.0)
    mean = jnp.stack([s + a, s + a + apart[:, None] * jnp.array([0.6, -0.8])])
    unsure = Morel().uncertainty().of(mean, jnp.ones_like(mean))
    return mean[0], step_result(len(s), reward=reward(s, a, mean[0]), uncertainty=unsure)


def east(actor: Any, key: Any, s: Any, memory: Any) -> tuple:
    return jnp.broadcast_to(jnp.array([1.0, 0.0]), s.shape), memory


@pytest.mark.parametrize("limit", [0.0, 1.5, np.inf])
def test_an_agent_that_leaves_morels_disc_gets_one_halt(limit: float) -> None:
    """It walks east from known states: the step of the halt follows from the circle."""
    size = Rollouts(length=LENGTH, batch_size=64, retain_epochs=1, every=1)
    method = Morel(agent=SacConfig(hidden_dims=(8,)), halt=HALT, rollouts=size)
    agent = method.agent.make(*SIZES)._replace(policy=east)
    none: Any = None
    world = WorldModelParams((), none, none, uncertainty_threshold=jnp.float32(limit))
    dynamics = Dynamics(Model(outside), none, 2)
    data = data_of(method, small_steps(500, 1.0), world)
    state = ModelBasedState(agent.init(KEY), (), none, KEY)
    taken = model_based.imagine(method, dynamics, agent, state, KEY, data)
    found, valid = method.rows(taken, Rolled(dynamics, world, jnp.ones(())))
    starts = np.asarray(taken.steps.observations[0], np.float64)
    # The first time at which |s_0 + (t, 0)| is above RADIUS + limit.
    leaves = np.sqrt((RADIUS + limit) ** 2 - starts[:, 1] ** 2) - starts[:, 0]
    first = np.floor(leaves) + 1
    shape = (LENGTH, len(starts))
    halted = np.asarray(found.terminations).reshape(shape)
    rewards, valid = (np.asarray(x).reshape(shape) for x in (found.rewards, valid))
    time = np.arange(LENGTH)[:, None]
    np.testing.assert_array_equal(halted & valid, time == first)
    np.testing.assert_array_equal(valid, time <= first)
    np.testing.assert_array_equal((rewards == HALT) & valid, time == first)
    known = valid & ~halted
    after = np.asarray(found.next_observations).reshape(*shape, 2)
    bell = np.exp(-((after - 7.0) ** 2).sum(-1) / 18)
    np.testing.assert_allclose(rewards[known], bell[known], rtol=1e-4)
    assert (first < LENGTH).all() == (limit < np.inf) and known.any()
