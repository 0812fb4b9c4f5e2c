"""NEUBAY in dynamics whose answers are known: what its tests share."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.method import Learner
from jaxrl_rollouts.offline.methods.neubay import HistoryRollouts, Neubay
from jaxrl_rollouts.offline.neubay.learner import NeubayData, NeubayState, Sizes, make_neubay
from jaxrl_rollouts.offline.recurrent.histories import log_histories
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, WorldModelParams
from jaxrl_rollouts.rollouts import Model, step_result
from jaxrl_rollouts.scaler import identity_scaler

S, A, LIMIT, MEMBERS, K = 2, 1, 7, 3, 24
LENGTHS = (4, 2, 5)  # the first ends by itself, the second is cut, the third stops in the middle
CONFIG = Neubay(
    agent=RecurrentSacConfig(
        memory=MemoryConfig("lru", width=8, state=4, layers=1),
        head_dims=(8,),
        num_critics=3,
        discount=0.9,
        memory_lr=1e-3,
        head_lr=1e-3,
        real_weight=0.3,
    ),
    rollouts=HistoryRollouts(K, early_exit=2),
    steps=12,
    utd_ratio=0.05,
    per_iteration=2,
    batch_size=32,
    buffer_size=2000,
)


def dataset() -> Transitions:
    """State `[episode, time]`, action `(10 * episode + time) / 50`, reward a tenth of it."""
    rows = [(e, t, t == n - 1) for e, n in enumerate(LENGTHS) for t in range(n)]
    e, t, last = map(np.array, zip(*rows, strict=True))
    s = np.stack([e, t], 1).astype(np.float32)
    a = ((10.0 * e + t) / 50).astype(np.float32)
    following = s + np.array([0, 1], np.float32)
    return Transitions(s, a[:, None], a / 10, following, last & (e == 0), last & (e == 1))


def step(
    world: WorldModelParams, key: Any, state: jax.Array, action: jax.Array, member: jax.Array
) -> tuple:
    """Time goes on; reward tells action and member; episode 1 ends at time 4 of itself.

    The members disagree by `time - 4.5 + episode`, or nothing: beyond 0 from time 5 on in episode
    0, from 4 on in 1, from 3 on in 2.
    """
    following = state + jnp.array([0.0, 1.0])
    reward = action[:, 0] + 10.0 * (1.0 + member) + world.elites[0]
    over = (state[:, 0] == 1) & (following[:, 1] == 4)
    lost = jnp.maximum(state[:, 1] - 4.5 + state[:, 0], 0.0)
    return following, step_result(len(state), reward=reward, terminated=over, uncertainty=lost)


DYNAMICS = Dynamics(Model(step), lambda *_: None, MEMBERS)  # type: ignore[arg-type]
SIZES = Sizes(S, A, LIMIT, max(LENGTHS))


def data(limit: float = 0.0, penalty: float = 0.0, offset: float = 0.0) -> NeubayData:
    """A world all of whose rewards are shifted by the offset."""
    scaler = identity_scaler(S + A)
    world = WorldModelParams(jnp.array([offset]), scaler, scaler, None, jnp.float32(limit))
    return NeubayData(log_histories(dataset(), LIMIT), world, jnp.float32(penalty))


@functools.cache
def made(**changes: Any) -> tuple[Learner, NeubayState]:
    """The learner, and a state whose actor's actions hardly vary and depend on what was before."""
    neubay = make_neubay(replace(CONFIG, **changes), DYNAMICS, SIZES)
    state = jax.jit(neubay.init)(jax.random.key(0), data())
    actor = state.agent.actor
    head = dict(actor.head)
    head["Dense_1"] = jax.tree.map(lambda x: 3.0 * x, head["Dense_1"])
    head["Dense_2"] = jax.tree.map(lambda x: x - 100.0, head["Dense_2"])
    return neubay, state._replace(agent=state.agent._replace(actor=actor._replace(head=head)))


def keys(seeds: int) -> jax.Array:
    return jax.random.split(jax.random.key(3), seeds)
