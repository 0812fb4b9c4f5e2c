"""What `neubay_speed` times: our collection and learning, and a collector that loops in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.agent import Learner
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.neubay.config import NeubayConfig, Sizes
from jaxrl_rollouts.offline.neubay.neubay import NeubayData, NeubayState, make_neubay
from jaxrl_rollouts.offline.neubay.prepare import trusted_dynamics
from jaxrl_rollouts.offline.recurrent.histories import draw, log_histories, remember, resume, warm
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig, make_memory
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, make_world_model

from ..kit.peer import check_interpreter

STATES, ACTIONS = 11, 3  # hopper's sizes


@dataclass(frozen=True)
class Config:
    """What is timed. An empty `torch_python` leaves torch out.

    Attributes:
        members, hidden: of the ensembles of the collectors, the first pair small, the last one
            the paper's.
        rollouts, limit: episodes continued at a time, and the environment's time limit.
        row_by_row: episodes the collector gets that takes one after the other.
        sizes: members of the ensemble-size table, with the last `hidden`.
        width, critics, tape: of the agent whose gradient steps are timed.
        episode: transitions of an episode on a tape.
    """

    members: tuple[int, ...] = (10, 20, 100)
    hidden: tuple[tuple[int, ...], ...] = ((64, 64), (200,) * 4, (200,) * 4)
    rollouts: int = 100
    limit: int = 200
    row_by_row: int = 3
    sizes: tuple[int, ...] = (5, 20, 100)
    width: int = 256
    layers: int = 2
    critics: int = 10
    tape: int = 2048
    episode: int = 255
    updates: int = 5
    repeats: int = 3
    torch_python: str = ""

    def validate(self) -> None:
        at_least_one(
            self, "rollouts", "limit", "row_by_row", "width", "critics", "updates", "repeats"
        )
        if len(self.members) != len(self.hidden) or not self.members or not self.sizes:
            raise ConfigError(
                "members, hidden", (self.members, self.hidden), "equally many, and some"
            )
        if self.tape % (self.episode + 1):
            raise ConfigError("tape", self.tape, f"a multiple of episode + 1 ({self.episode + 1})")
        check_interpreter("torch_python", self.torch_python, "torch")


class Bench(NamedTuple):
    """One agent and one posterior, neither of them trained: speed does not depend on it."""

    neubay: Learner
    settings: NeubayConfig
    dynamics: Dynamics
    data: NeubayData
    state: NeubayState


def logged_rows(limit: int, episodes: int = 20) -> Transitions:
    """Episodes of full length with hopper's sizes; speed does not depend on what they say."""
    rng, rows = np.random.default_rng(0), limit * episodes
    states = rng.normal(size=(rows, STATES)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, ACTIONS)).astype(np.float32)
    cut = np.arange(1, rows + 1) % limit == 0
    following = (0.9 * states).astype(np.float32)
    return Transitions(states, actions, actions.sum(1), following, np.zeros(rows, bool), cut)


def agent_config(config: Config, kind: str) -> RecurrentSacConfig:
    """Recurrent SAC of the configured size, with this memory."""
    state = max(config.width // 2, 1)
    memory = MemoryConfig(kind, width=config.width, state=state, layers=config.layers)  # type: ignore[arg-type]
    return RecurrentSacConfig(
        memory=memory, head=(config.width,) * 2, critics=config.critics,
        drawn=min(2, config.critics), steps=config.updates,
    )  # fmt: skip


def make_bench(config: Config, members: int, hidden: tuple[int, ...]) -> Bench:
    """A posterior nothing cuts rollouts in, and the agent that is rolled."""
    ensemble = replace(NEUBAY_ENSEMBLE, members=members, elites=members, hidden=hidden)
    rows = logged_rows(config.limit)
    model = make_world_model(ensemble, rows, targets="observations")
    world = jax.jit(lambda key: model.world(model.fitter.init(key)))(jax.random.key(0))
    world = world._replace(limit=jnp.float32(jnp.inf))
    dynamics = trusted_dynamics(model.fitter, members, never)
    settings = NeubayConfig(
        agent=agent_config(config, "lru"), rollouts=config.rollouts, tape=config.tape,
        updates_per_iteration=config.updates,
        horizon=config.limit, capacity=max(config.rollouts * (config.limit + 1), config.tape),
    )  # fmt: skip
    neubay = make_neubay(settings, dynamics, Sizes(STATES, ACTIONS, config.limit, config.limit))
    data = NeubayData(log_histories(rows, config.limit), world, jnp.float32(0.0))
    state = jax.jit(neubay.init)(jax.random.key(1), data)
    return Bench(neubay, settings, dynamics, data, state)


def compiled_collector(bench: Bench) -> Callable[[jax.Array], Any]:
    """`key -> Collected`, one compiled program."""
    program = jax.jit(bench.neubay.imagine)
    return lambda key: program(bench.state, key, bench.data)


def looping_collector(bench: Bench, rollouts: int) -> Callable[[jax.Array], int]:
    """`key -> imagined transitions`, as one would write it: a Python loop over steps.

    Actor and ensemble are compiled each; endings and episodes are kept in numpy, as in the
    published code. All rows are stepped until the last has ended.
    """
    agent, world, limit = bench.neubay.agent, bench.data.world, bench.settings.horizon
    actor = bench.state.agent.actor
    memory = make_memory(bench.settings.agent.memory, STATES + ACTIONS + 1)
    shown = remember(bench.dynamics.model)
    begin = jax.jit(lambda key: draw(bench.data.logged, key, rollouts, limit))
    see = jax.jit(lambda drawn: warm(memory, actor.memory, drawn.head, drawn.lengths))
    act = jax.jit(lambda key, seen, carry: agent.policy(actor, key, seen, carry))
    member = jnp.arange(rollouts, dtype=jnp.int32) % bench.dynamics.members
    advance = jax.jit(lambda key, state, action: shown.step(world, key, state, action, member))
    observe = jax.jit(shown.observe)

    def collect(key: jax.Array) -> int:
        draw_key, key = jax.random.split(key)
        drawn = begin(draw_key)
        carry, state = see(drawn), resume(drawn, ACTIONS)
        times, alive = np.asarray(drawn.times), ~np.asarray(drawn.finished)
        episodes: list[list] = [[] for _ in range(rollouts)]
        taken = 0
        while alive.any():
            act_key, step_key, key = jax.random.split(key, 3)
            seen = observe(state)
            action, carry = act(act_key, seen, carry)
            state, out = advance(step_key, state, action)
            row = [np.asarray(x) for x in (seen, action, *out)]
            times = times + 1
            cut = (times >= limit) | (row[5] > float(world.limit)) | row[4]
            for i in np.flatnonzero(alive):
                episodes[i].append([x[i] for x in row])
            taken += int(alive.sum())
            alive = alive & ~(row[3] | cut)
        for i, steps in enumerate(episodes):
            head = np.asarray(drawn.head.observations[i, : int(drawn.lengths[i])])
            if steps:
                np.concatenate([head, np.stack([step[0] for step in steps])])
        return taken

    return collect
