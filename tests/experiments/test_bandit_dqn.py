"""The recurrent agent: its loss, its two learning rates, its cadence, and that it explores."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.studies.bandit_dqn import (
    DqnConfig,
    DqnState,
    buffer_size,
    dueling,
    make_recurrent_dqn,
    make_recurrent_q,
)
from jaxrl_rollouts.experiments.studies.bandit_task import Arms, bandit_task
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.tapes import Tape
from jaxrl_rollouts.offline.recurrent.timesteps import Timestep

L, TASK = 12, bandit_task(2)
CONFIG = DqnConfig(
    memory=MemoryConfig("gru", width=8, layers=1),
    head_dims=(8,),
    discount=0.9,
    tau=0.3,
    memory_lr=1e-3,
    head_lr=1e-2,
    max_grad_norm=None,
    reward_shift=0.25,
    steps=200,
    epsilon_share=0.5,
    episodes=4,
    utd_ratio=0.025,
    tape_length=210,
    capacity=900,
)
# Arm 1 pays always or never; trying it once tells.
WORLD = Arms(
    jnp.array([[0.5, 0.0], [0.5, 1.0]]),
    jnp.full((2, 2), 0.05),
    jnp.array([0.0, 0.5]),
    jnp.float32(0.0),
)


def some_tape(seed: int = 0) -> Tape:
    rng = np.random.default_rng(seed)
    starts = np.isin(np.arange(L), [0, 5, 9])
    timesteps = Timestep(
        rng.normal(size=(L, 4)).astype(np.float32),
        rng.integers(0, 2, L).astype(np.int32),
        3 * rng.normal(size=L).astype(np.float32),
        rng.random(L) < 0.3,
        np.zeros(L, bool),
        rng.random(L) < 0.5,
    )
    return jax.tree.map(jnp.asarray, Tape(timesteps, starts, np.append(~starts[1:], False)))


@functools.cache
def updated(config: DqnConfig = CONFIG) -> tuple[DqnState, DqnState, dict]:
    """A state, the next one, and its metrics."""
    learner = make_recurrent_dqn(config, TASK)
    state = jax.jit(learner.init)(jax.random.key(0), WORLD).agent
    other = jax.jit(learner.agent.init)(jax.random.key(7))  # a target of its own
    state = state._replace(target=other.params)
    return state, *jax.jit(learner.agent.update)(state, jax.random.key(0), some_tape())


def gradient_of(state: DqnState, part: str) -> Any:
    """Adam's first moment after one step is a tenth of the gradient."""
    adam = state.moments.inner_states[part].inner_state[1][0]
    return jax.tree.map(lambda m: 10.0 * m, getattr(adam.mu, part))


def explicit_loss(params: Any, target: Any, tape: Tape, config: DqnConfig) -> jax.Array:
    """Double Q-learning with Huber loss or squared errors, timestep by timestep."""
    network = make_recurrent_q(config.memory, config.head_dims, 4, 2)
    values = network.tape(params, tape.timesteps.observations, tape.starts)
    slow = network.tape(target, tape.timesteps.observations, tape.starts)
    starts, timesteps = np.asarray(tape.starts), jax.tree.map(np.asarray, tape.timesteps)
    losses = []
    for t in range(L - 1):
        if starts[t + 1]:
            continue  # the final observation of an episode
        follows = 0.0 if timesteps.terminations[t] else slow[t + 1, jnp.argmax(values[t + 1])]
        wanted = timesteps.rewards[t] - config.reward_shift + config.discount * follows
        gap = values[t, int(timesteps.actions[t])] - jax.lax.stop_gradient(wanted)
        loss = 0.5 * gap**2
        if (delta := config.huber) is not None:
            loss = jnp.where(jnp.abs(gap) < delta, loss, delta * (jnp.abs(gap) - delta / 2))
        losses.append(loss)
    return jnp.mean(jnp.stack(losses))


@pytest.mark.parametrize("huber", [1.0, 2.5, None])
def test_loss_and_gradient(huber: float | None) -> None:
    config = replace(CONFIG, huber=huber)
    state, after, metrics = updated(config)
    tape = some_tape()
    want, gradient = jax.jit(
        jax.value_and_grad(lambda p: explicit_loss(p, state.target, tape, config))
    )(state.params)
    np.testing.assert_allclose(metrics["loss"], want, rtol=1e-5)
    for part in ("memory", "head"):
        jax.tree.map(
            lambda m, x: np.testing.assert_allclose(m, x, rtol=2e-3, atol=1e-6),
            gradient_of(after, part),
            getattr(gradient, part),
        )


def test_memory_and_head_have_their_own_rates_and_the_target_follows() -> None:
    state, after, _ = updated()
    for new, old, rate in zip(after.params, state.params, (1e-3, 1e-2), strict=True):
        # Adam's first step is the rate wherever there is a gradient at all.
        steps = [
            np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (new, old)), strict=True)
        ]
        np.testing.assert_allclose(max(steps), rate, rtol=0.02)
    want = jax.tree.map(lambda new, old: 0.3 * new + 0.7 * old, after.params, state.target)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), after.target, want
    )


def test_gradients_are_clipped_each_by_itself() -> None:
    _, after, _ = updated(replace(CONFIG, max_grad_norm=1e-3))
    for part in ("memory", "head"):
        leaves = jax.tree.leaves(gradient_of(after, part))
        norm = np.sqrt(sum(np.square(m).sum() for m in leaves))
        np.testing.assert_allclose(norm, 1e-3, rtol=1e-3)


def test_dueling_and_the_two_ways_to_ask() -> None:
    q = dueling(jnp.array([[2.0]]), jnp.array([[1.0, 4.0, 1.0]]))
    np.testing.assert_allclose(q, [[1.0, 4.0, 1.0]])
    network = make_recurrent_q(CONFIG.memory, (8,), 4, 2)
    params, tape = jax.jit(network.init)(jax.random.key(0)), some_tape()
    whole = jax.jit(network.tape)(params, tape.timesteps.observations, tape.starts)
    assert np.abs(whole).max() < 0.5  # the last layers start small
    now, carry = jax.jit(network.now), network.start(1)
    for t in range(5):
        values, carry = now(params, tape.timesteps.observations[t : t + 1], carry)
        np.testing.assert_allclose(values[0], whole[t], atol=1e-5)


def test_an_iteration_rolls_stores_and_learns() -> None:
    learner, keys = make_recurrent_dqn(CONFIG, TASK), jax.random.split(jax.random.key(3), 2)
    assert learner.per_iteration == 10  # 0.025 for each of 4 * 100 transitions
    trained = train_loop(learner.update, learner.init, keys, WORLD, iterations=3, stage="a")
    buffer = trained.state.buffer
    # Eight episodes of 101 timesteps fit into 900; the third four have pushed out the first.
    np.testing.assert_array_equal(buffer.count, [8, 8])
    np.testing.assert_array_equal(buffer.used, [808, 808])
    np.testing.assert_array_equal(trained.state.step, [30, 30])
    assert set(np.unique(np.asarray(buffer.lengths))) <= {0, 101}
    epsilon = trained.history.curve("epsilon")[1]
    np.testing.assert_allclose(epsilon[:, 0], [1.0, 0.91, 0.82], rtol=1e-5)
    np.testing.assert_allclose(trained.history.curve("imagined_length")[1], 100.0)
    rows = jax.tree.map(lambda x: np.asarray(x[0]), buffer.timesteps)
    # Row i is member i % 2: its arm 1 always pays the same.
    for episode in range(4, 12):
        at = int(buffer.begins[0, episode]) + np.arange(101)
        pulled = rows.actions[at[:-1] % 900] == 1
        rewarded = rows.observations[at[1:] % 900, 3][pulled]
        np.testing.assert_allclose(rewarded, WORLD.mean[episode % 2, 1], atol=0.4)
        assert 20 < pulled.sum() < 80  # epsilon was still near one
    assert not rows.real.any()


def test_sizes_of_the_ring() -> None:
    assert buffer_size(CONFIG, 100) == (900, 35)
    with pytest.raises(ConfigError, match="capacity: found 200"):
        make_recurrent_dqn(replace(CONFIG, capacity=200), TASK).init(jax.random.key(0), WORLD)
