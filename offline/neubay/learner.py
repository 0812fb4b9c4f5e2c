"""NEUBAY: a history-dependent agent in long rollouts of a posterior over world models.

Ni et al. 2025, arXiv 2512.04341, and its public code. Logged episodes are continued from
random moments, each in one fixed member of the ensemble, until a known termination, until the
members disagree more than they do on the data, or to the environment's time limit; no fixed horizon
and no penalty. Logged prefix and imagined rest go into the tape buffer together, and recurrent SAC
learns from tapes of it, real and imagined timesteps weighted apart.

The paper takes 0.05 gradient steps per new timestep, some thousands after each collection. Compiled
programs have a fixed number, so an iteration takes `per_iteration` of them and the rest is
carried as the `update_budget`: a collection is made whenever the budget is below one iteration. The
ratio of steps to timesteps is the paper's, and all seeds are evaluated at the same step. Where
seeds share a device a collection lasts until the last of them is done: a mapped loop runs on while
any row of it does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Members, Model, Step, Trajectory, rollout, where_rows
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Learner, gradient_steps
from ..recurrent import tapes
from ..recurrent.histories import Drawn, LoggedHistories, burn_in, draw, remember, resume
from ..recurrent.memory import Memory, make_memory
from ..recurrent.sac import RecurrentSacState, make_recurrent_sac
from ..recurrent.tapes import TapeBuffer
from ..recurrent.timesteps import Timestep, from_trajectory, join, timestep_shapes
from ..worlds.dynamics import Dynamics, WorldModelParams
from .rollout_stats import RolloutStats, measure_rollouts, no_rollouts

if TYPE_CHECKING:
    from ..methods.neubay import Neubay


class Sizes(NamedTuple):
    """What is static about a dataset and its environment.

    Attributes:
        state, action: `S`, `A`.
        max_episode_steps: the environment's time limit `T`.
        longest: most transitions before a moment (`LoggedHistories.longest`), at most `T`.
    """

    state: int
    action: int
    max_episode_steps: int
    longest: int


def observation_size(method: Neubay, sizes: Sizes) -> int:
    """Numbers the agent observes: state, last action and last reward, or the state only."""
    return sizes.state if method.markov else sizes.state + sizes.action + 1


def episode_room(method: Neubay, sizes: Sizes) -> int:
    """Most timesteps of a stored episode, its final observation included."""
    limit = sizes.max_episode_steps
    imagined = min(method.rollouts.length or limit, limit)
    return min(sizes.longest + imagined, limit) + 1


def timestep(method: Neubay, sizes: Sizes) -> Timestep:
    """The shapes of one timestep of the buffer."""
    action = jax.ShapeDtypeStruct((sizes.action,), jnp.float32)
    return timestep_shapes(observation_size(method, sizes), action)


def buffer_episodes(method: Neubay) -> int:
    """Episodes the buffer has room for; each takes eight bytes."""
    return max(method.rollouts.batch_size, method.buffer_size // 16)


def buffer_bytes(method: Neubay, sizes: Sizes) -> int:
    """Bytes the buffer of one seed takes."""
    return tapes.bytes_of(timestep(method, sizes), method.buffer_size, buffer_episodes(method))


def buffer_text(method: Neubay, sizes: Sizes, seeds: int) -> str:
    """The memory of the buffers of all seeds, as one line."""
    room = seeds * buffer_bytes(method, sizes)
    return (
        f"Tape buffers: {method.buffer_size:,} timesteps per seed, {room / 1e6:,.0f} MB for "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}."
    )


def seconds_between_saves(method: Neubay, sizes: Sizes, seeds: int) -> float:
    """Seconds between checkpoints: they hold the buffers, so larger ones are written less often."""
    return max(60.0, seeds * buffer_bytes(method, sizes) / 1e7)


class NeubayData(NamedTuple):
    """What one seed learns from; see `posterior.neubay_data`.

    Attributes:
        logged: the dataset, cut at the time limit.
        world: with its `limit`.
        penalty: reward penalty per unit of spread.
    """

    logged: LoggedHistories
    world: WorldModelParams
    penalty: jax.Array


# What `train` calls `per_seed`: every seed in a world of its own, on the same episodes.
OWN_WORLDS = NeubayData._make((False, True, True))


class NeubayState(NamedTuple):
    """State of one seed.

    Attributes:
        agent: the agent that is trained.
        buffer: real and imagined timesteps.
        update_budget: float32, gradient steps that the timesteps so far still allow.
        rollout_stats: statistics of the last collection's rollouts.
        key: for all that is sampled from here on.
    """

    agent: RecurrentSacState
    buffer: TapeBuffer
    update_budget: jax.Array
    rollout_stats: RolloutStats
    key: jax.Array


class Collected(NamedTuple):
    """Episodes of one collection: timesteps `[K, L, ...]`, of which `lengths` `[K]` count."""

    timesteps: Timestep
    lengths: jax.Array
    rollout_stats: RolloutStats


class NeubayParts(NamedTuple):
    """What the functions of this module are bound to.

    Attributes:
        method: its settings; quantile and penalty are the data's.
        sizes: sizes of dataset and environment.
        agent: the recurrent actor-critic, on observations with last action and reward.
        memory: memory of its actor.
        model: the dynamics with last action, last reward and time in their state.
        members: members of the ensemble.
    """

    method: Neubay
    sizes: Sizes
    agent: Agent
    memory: Memory
    model: Model
    members: int


def check_room(method: Neubay, sizes: Sizes) -> None:
    """Check that whole episodes fit into the buffer and onto a tape.

    Raises:
        ConfigError: `buffer_size` or `batch_size` is too small for them.
    """
    room, count = episode_room(method, sizes), method.rollouts.batch_size
    if method.buffer_size < (needed := count * room):
        expected = f"at least {needed} timesteps, for {count} episodes of up to {room} at a time"
        raise ConfigError("buffer_size", method.buffer_size, expected)
    if method.batch_size < room and method.weighting != "transition":
        raise ConfigError(
            "batch_size",
            method.batch_size,
            f"at least the {room} timesteps of an episode",
            "tapes begin where episodes do: what lies beyond would never be learned from",
        )


def make_neubay(method: Neubay, dynamics: Dynamics, sizes: Sizes) -> Learner:
    """Build the learner, whose data are `NeubayData`; `imagine` is `collect`.

    Settings that differ in quantile, penalty and world models share its functions.
    """
    check(method)
    assert dynamics.measured, "rollouts stop at a disagreement"
    if dynamics.members < 2:
        expected = "at least 2: rollouts end where members disagree"
        raise ConfigError("world.elites", dynamics.members, expected)
    check_room(method, sizes)
    return _bind(method.program(), dynamics, sizes, *method.schedule)


@functools.lru_cache(maxsize=32)
def _bind(
    method: Neubay, dynamics: Dynamics, sizes: Sizes, iterations: int, updates: int
) -> Learner:
    shown = observation_size(method, sizes)
    whole = remember(dynamics.model, sizes.max_episode_steps)
    model = Model(whole.step, lambda state: whole.observe(state)[:, :shown])
    agent = make_recurrent_sac(method.agent, shown, sizes.action, iterations * updates)
    memory = make_memory(method.agent.memory, shown)
    parts = NeubayParts(method, sizes, agent, memory, model, dynamics.members)
    step = functools.partial(update, parts, updates)
    return Learner(
        agent, functools.partial(init, parts), step, updates, functools.partial(collect, parts)
    )


def init(parts: NeubayParts, key: jax.Array, data: NeubayData) -> NeubayState:
    """A fresh agent, an empty buffer, no budget."""
    del data
    method = parts.method
    agent_key, key = jax.random.split(key)
    buffer = tapes.create(
        timestep(method, parts.sizes),
        method.buffer_size,
        buffer_episodes(method),
        tape_length=method.batch_size,
    )
    return NeubayState(parts.agent.init(agent_key), buffer, jnp.float32(0.0), no_rollouts(), key)


def _only_needed(step: Step) -> Step:
    """Next observations are the following rows' observations: they need not be kept twice."""
    return step._replace(next_observations=(), members=())


def shown_of(parts: NeubayParts, timesteps: Timestep) -> Timestep:
    """Timesteps as the agent sees them: a Markov agent sees the state only."""
    shown = observation_size(parts.method, parts.sizes)
    return timesteps._replace(observations=timesteps.observations[..., :shown])


def continue_histories(
    parts: NeubayParts, actor: PyTree, key: jax.Array, moments: Drawn, world: WorldModelParams
) -> Trajectory:
    """Imagine what follows each moment; rows that were finished have no valid step.

    Section 3: one fixed member per rollout, until a termination, the threshold or the time limit.
    """
    size, max_episode_steps = parts.method.rollouts, parts.sizes.max_episode_steps
    start = resume(moments, parts.sizes.action)
    # A finished row is cut after one step, which is dropped below.
    late = jnp.full_like(start.time, max_episode_steps)
    start = start._replace(time=jnp.where(moments.finished, late, start.time))
    prefix = shown_of(parts, moments.head)
    rolled = rollout(
        parts.model,
        world,
        start,
        key,
        horizon=min(size.length or max_episode_steps, max_episode_steps),
        policy=parts.agent.policy,
        policy_params=actor,
        memory=burn_in(parts.memory, actor.memory, prefix, moments.lengths),
        members=Members(
            jnp.arange(parts.members, dtype=jnp.int32), per="trajectory", shuffle=False
        ),
        threshold=world.uncertainty_threshold,
        early_exit=size.early_exit,
        record=_only_needed,
    )
    valid = rolled.valid & ~moments.finished

    def keep(x: jax.Array) -> jax.Array:
        return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - 2)), x, 0).astype(x.dtype)

    return rolled._replace(steps=jax.tree.map(keep, rolled.steps), valid=valid)


def collect(parts: NeubayParts, state: NeubayState, key: jax.Array, data: NeubayData) -> Collected:
    """One collection: logged prefixes and what the policy imagines after them."""
    assert data.world.uncertainty_threshold is not None
    method, sizes = parts.method, parts.sizes
    draw_key, roll_key = jax.random.split(key)
    moments = draw(data.logged, draw_key, method.rollouts.batch_size, sizes.longest)
    rolled = continue_histories(parts, state.agent.actor, roll_key, moments, data.world)
    steps = rolled.steps
    # Observations keep the reward as imagined; the penalty is in the learned one only.
    learned = steps._replace(rewards=steps.rewards - data.penalty * steps.uncertainties)
    shown = observation_size(method, sizes)
    last = where_rows(moments.finished, moments.now[:, :shown], parts.model.observe(rolled.state))
    tail, lengths = from_trajectory(rolled._replace(steps=learned), last)
    timesteps, lengths = join(shown_of(parts, moments.head), moments.lengths, tail, lengths)
    # A prefix and what follows it are at most as long as an episode may be.
    room = episode_room(method, sizes)
    timesteps = jax.tree.map(lambda x: x[:, :room], timesteps)
    stats = measure_rollouts(rolled, moments, lengths, data.world.uncertainty_threshold)
    return Collected(timesteps, lengths, stats)


def collect_if_due(
    parts: NeubayParts, state: NeubayState, key: jax.Array, data: NeubayData, due: jax.Array
) -> Collected:
    """A collection where one is due, else no episode; a loop, since a condition that is
    mapped over seeds would be computed whether it holds or not."""
    like = jax.eval_shape(functools.partial(collect, parts), state, key, data)
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)

    def once(carry: tuple) -> tuple[jax.Array, jax.Array, Collected]:
        # The key is carried, and another one afterwards: of a body that depends on nothing
        # that changes XLA takes everything out of the loop, and computes it always.
        _, key, _ = carry
        return jnp.bool_(False), jax.random.fold_in(key, 1), collect(parts, state, key, data)

    begin = (due, key, empty._replace(rollout_stats=state.rollout_stats))
    return jax.lax.while_loop(lambda carry: carry[0], once, begin)[2]


def update(
    parts: NeubayParts, updates: int, state: NeubayState, data: NeubayData
) -> tuple[NeubayState, dict[str, jax.Array]]:
    """One iteration: a collection if one is due, then `updates` gradient steps on tapes."""
    method = parts.method
    collect_key, learn_key, key = jax.random.split(state.key, 3)
    due = state.update_budget < updates
    collected = collect_if_due(parts, state, collect_key, data, due)
    buffer = tapes.add(state.buffer, collected.timesteps, collected.lengths)
    brought = method.utd_ratio * collected.lengths.sum()
    update_budget = state.update_budget + brought - updates

    def learn(carry: RecurrentSacState, key: jax.Array) -> tuple:
        tape_key, update_key = jax.random.split(key)
        tape = tapes.sample(buffer, tape_key, method.batch_size, weighting=method.weighting)
        return parts.agent.update(carry, update_key, tape)

    keys = jax.random.split(learn_key, updates)
    agent, metrics = gradient_steps(learn, state.agent, keys, parts.agent.period)
    metrics |= collected.rollout_stats._asdict()
    metrics["update_budget"] = update_budget
    metrics["buffer_timesteps"] = buffer.used.astype(jnp.float32)
    return NeubayState(agent, buffer, update_budget, collected.rollout_stats, key), metrics
