"""What NEUBAY collects, against a plain reconstruction in dynamics whose answers are known."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_neubay import CONFIG, LENGTHS, LIMIT, MEMBERS, A, K, S, data, made

from jaxrl_rollouts.offline.neubay.learner import Collected
from jaxrl_rollouts.offline.recurrent.actor_critic import make_actor_critic
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig

compiled = functools.cache(jax.jit)


@functools.cache
def collected(limit: float = 0.0, penalty: float = 0.0, **changes: Any) -> Collected:
    neubay, state = made(**changes)
    found = compiled(neubay.imagine)(state, jax.random.key(5), data(limit, penalty))
    return jax.tree.map(np.asarray, found)


def rebuild(row: int, found: Collected, limit: float, penalty: float = 0.0) -> dict[str, Any]:
    """One stored episode in plain Python, given where it began and what was done."""
    timesteps = jax.tree.map(lambda x: x[row], found.timesteps)
    e, done = int(timesteps.observations[0, 0]), int(timesteps.real.sum())
    out: dict[str, list] = {name: [] for name in timesteps._fields}
    state, acted, rewarded, time = [float(e), 0.0], 0.0, 0.0, 0
    imagines = done < LENGTHS[e]
    while True:
        real, over, cut = time < done, False, False
        out["observations"].append([*state, acted, rewarded])
        if not real and (not imagines or (out["terminations"] and out["terminations"][-1])):
            break
        if not real and out["truncations"] and out["truncations"][-1]:
            break
        acted = (10.0 * e + time) / 50 if real else float(timesteps.actions[time, 0])
        lost = 0.0 if real else max(time - 4.5 + e, 0.0)
        if real:
            rewarded = acted / 10
            over, cut = (e == 0, e != 0) if time + 1 == LENGTHS[e] else (False, False)
        else:
            rewarded = acted + 10.0 * (1 + row % MEMBERS)
            over = e == 1 and time + 1 == 4
            cut = not over and (lost > limit or time + 1 == LIMIT)
        state, time = [float(e), state[1] + 1.0], time + 1
        values = (acted, rewarded - penalty * lost, over, cut, real)
        for name, value in zip(timesteps._fields[1:], values, strict=True):
            out[name].append(value)
    for name in timesteps._fields[1:]:  # the final observation: nothing was done there
        out[name].append(0.0 if name in ("actions", "rewards") else False)
    return out


@pytest.mark.parametrize(("limit", "penalty"), [(0.0, 0.0), (np.inf, 0.0), (1.0, 2.0)])
def test_what_is_stored(limit: float, penalty: float) -> None:
    """Prefix, imagined rest, the violating step, endings as they are, a final observation."""
    found = collected(limit, penalty)
    assert found.timesteps.rewards.shape == (K, LIMIT + 1)
    kinds = set()
    for row in range(K):
        n, want = int(found.lengths[row]), rebuild(row, found, limit, penalty)
        assert n == len(want["rewards"])
        for name, values in want.items():
            got = getattr(found.timesteps, name)[row]
            expected = np.array(values, np.float32).reshape(n, *got.shape[1:])
            np.testing.assert_allclose(got[:n], expected, rtol=1e-5, atol=1e-6, err_msg=name)
            assert not got[n:].any(), "nothing lies behind the final observation"
        kinds.add((want["real"][-2], want["terminations"][-2], want["truncations"][-2]))
    # Imagined endings of both kinds, and histories from whose end nothing was imagined.
    assert {(False, True, False), (False, False, True), (True, False, True)} <= kinds
    assert not (found.timesteps.terminations & found.timesteps.truncations).any()


def test_the_violating_step_is_kept_and_only_it() -> None:
    found = collected(0.0)
    state, real = found.timesteps.observations[..., :2], found.timesteps.real
    lost = np.maximum(state[..., 1] - 4.5 + state[..., 0], 0) > 0
    for row in range(K):
        n = int(found.lengths[row])
        beyond = np.flatnonzero(lost[row, : n - 1] & ~real[row, : n - 1])
        assert len(beyond) == 0 or list(beyond) == [n - 2]
        if len(beyond) and not found.timesteps.terminations[row, n - 2]:
            assert found.timesteps.truncations[row, n - 2]


def test_a_penalty_changes_imagined_rewards_only() -> None:
    plain, strict = collected(1.0, 0.0), collected(1.0, 2.0)
    for name in plain.timesteps._fields:
        if name != "rewards":
            np.testing.assert_array_equal(
                getattr(plain.timesteps, name), getattr(strict.timesteps, name), err_msg=name
            )
    state = plain.timesteps.observations
    imagined = ~plain.timesteps.real & (np.arange(LIMIT + 1) < plain.lengths[:, None] - 1)
    lost = np.where(imagined, np.maximum(state[..., 1] - 4.5 + state[..., 0], 0), 0)
    gap = plain.timesteps.rewards - strict.timesteps.rewards
    np.testing.assert_allclose(gap, 2.0 * lost, atol=1e-5)
    assert (gap[imagined] > 0).any()


def test_looks_say_how_long_and_why() -> None:
    found = collected(0.0)
    real, n = found.timesteps.real.sum(1), found.lengths
    e = found.timesteps.observations[:, 0, 0].astype(int)
    going = real < np.array(LENGTHS)[e]
    steps = (n - 1 - real)[going]
    stats = found.rollout_stats
    quartiles = (stats.horizon_low, stats.horizon_median, stats.horizon_high)
    np.testing.assert_allclose(quartiles, np.quantile(steps, [0.25, 0.5, 0.75]), rtol=1e-6)
    assert stats.horizon_longest == steps.max() and stats.timesteps == n.sum()
    last = found.timesteps.terminations[np.arange(K), n - 2][going]
    np.testing.assert_allclose(stats.ended_termination, last.mean(), rtol=1e-6)
    total = stats.ended_threshold + stats.ended_termination + stats.ended_limit
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)
    assert stats.ended_threshold > 0 and collected(np.inf).rollout_stats.ended_threshold == 0
    np.testing.assert_allclose(stats.imagined_share, steps.sum() / n.sum(), rtol=1e-6)


def test_the_actor_goes_on_with_what_it_saw_before() -> None:
    """Actions are those of the whole tape seen from its beginning, not of a fresh memory."""
    found, actor = collected(np.inf), made()[1].agent.actor
    agent = CONFIG.agent
    nets = make_actor_critic(agent.memory, agent.head_dims, agent.num_critics, S + A + 1, A)
    starts = jnp.arange(LIMIT + 1) == 0
    heads = jax.jit(nets.heads)
    forgot = 0.0
    for row in range(K):
        n, real = int(found.lengths[row]), int(found.timesteps.real[row].sum())
        seen, acted = found.timesteps.observations[row], found.timesteps.actions[row, real : n - 1]
        mean, _ = heads(actor, seen, starts)
        np.testing.assert_allclose(acted, np.tanh(mean[real : n - 1]), atol=0.03)
        if real > 1 and len(acted):
            fresh, _ = heads(actor, np.roll(seen, -real, 0), starts)
            forgot = max(forgot, float(np.abs(acted[0] - np.tanh(fresh[0])).max()))
    assert forgot > 0.06, "the check above would have passed for an actor without a memory"


def test_a_fixed_horizon_and_the_markov_agent() -> None:
    two = collected(np.inf, rollouts=replace(CONFIG.rollouts, length=2))
    assert two.rollout_stats.horizon_longest == 2 and two.timesteps.rewards.shape == (K, 8)
    memory = MemoryConfig("none", width=8)
    blind = collected(np.inf, agent=replace(CONFIG.agent, memory=memory))
    assert blind.timesteps.observations.shape[-1] == S, "without a memory it sees the state only"
    whole = collected(np.inf)
    np.testing.assert_array_equal(
        blind.timesteps.observations, whole.timesteps.observations[..., :S]
    )
    np.testing.assert_array_equal(blind.lengths, whole.lengths)
