"""NEUBAY: a history-dependent agent in long rollouts of a posterior over world models.

Ni et al. 2025, arXiv 2512.04341, and its public code. Logged episodes are continued from
random moments, each in one fixed member of the ensemble, until a known ending, until the members
disagree more than they do on the data, or to the environment's time limit; no fixed horizon and no
penalty. Logged beginning and imagined end go into the token ring together, and recurrent SAC learns
from tapes cut from it, real and imagined tokens weighted apart.

The paper takes 0.05 gradient steps per new token, some thousands after each collection. Compiled
programs want a fixed number, so an iteration takes `updates_per_iteration` of them and what is
still owed is carried: a collection is made whenever less than one iteration is owed. The ratio of
steps to tokens is the paper's, and all seeds stand at the same step when they are looked at.
Where seeds share a device a collection lasts until the last of them is done: a mapped loop runs on
while any row of it does.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Members, Model, Step, Trajectory, rollout, where_rows
from jaxrl_rollouts.trees import PyTree

from ..agent import Agent, Learner
from ..recurrent import tapes
from ..recurrent.histories import Drawn, LoggedHistories, draw, remember, resume, warm
from ..recurrent.memory import Memory, make_memory
from ..recurrent.sac import RecurrentSacState, make_recurrent_sac
from ..recurrent.tapes import Tapes
from ..recurrent.tokens import Token, from_trajectory, join
from ..worlds.dynamics import Dynamics, World
from .config import NeubayConfig, Sizes, episode_room, ring_entries, token, token_size
from .looks import Looks, look_at, nothing_seen


class NeubayData(NamedTuple):
    """What one seed learns from; see `prepare`.

    Attributes:
        logged: the dataset, cut at the time limit.
        world: with its `limit`.
        penalty: reward taken per unit of spread.
    """

    logged: LoggedHistories
    world: World
    penalty: jax.Array


# What `train` calls `per_seed`: every seed in a world of its own, on the same episodes.
OWN_WORLDS = NeubayData._make((False, True, True))


class NeubayState(NamedTuple):
    """State of one seed.

    Attributes:
        agent: what learns.
        ring: real and imagined tokens.
        owed: float32, gradient steps that the tokens so far still ask for.
        looks: what the last collection was like.
        key: for all that is drawn from here on.
    """

    agent: RecurrentSacState
    ring: Tapes
    owed: jax.Array
    looks: Looks
    key: jax.Array


class Collected(NamedTuple):
    """Episodes of one collection: tokens `[K, L, ...]`, of which `lengths` `[K]` count."""

    tokens: Token
    lengths: jax.Array
    looks: Looks


class NeubayParts(NamedTuple):
    """What the functions of this module are bound to.

    Attributes:
        config, sizes: as given; `level` and `penalty` are the data's.
        agent: the recurrent actor-critic; its observations are tokens.
        memory: of its actor.
        model: the dynamics with what an agent remembers in their state.
        members: of the ensemble.
    """

    config: NeubayConfig
    sizes: Sizes
    agent: Agent
    memory: Memory
    model: Model
    members: int


def make_neubay(config: NeubayConfig, dynamics: Dynamics, sizes: Sizes) -> Learner:
    """A learner whose data are `NeubayData`; configurations that differ in `level` and `penalty`
    share its functions. `imagine` is `collect`.

    Args:
        config: agent and cadence.
        dynamics: of `learned_dynamics(..., disagreement=spread_of_means, normalised=True)`.
        sizes: of dataset and environment.

    Raises:
        ConfigError: a setting is out of range, the dynamics measure no disagreement, a tape or
            the episodes of a collection do not fit into the ring, or an episode not on a tape.
    """
    check(config)
    if not dynamics.measured:
        raise ConfigError(
            "dynamics",
            "no measure of disagreement",
            "one, at which rollouts stop",
            "build them with learned_dynamics(..., disagreement=spread_of_means)",
        )
    room = episode_room(config, sizes)
    needed = config.rollouts * room
    if config.capacity < needed:
        what = f"{config.rollouts} episodes of up to {room} at a time"
        raise ConfigError("capacity", config.capacity, f"at least {needed} tokens, for {what}")
    if config.tape < room and config.weighting != "transition":
        raise ConfigError(
            "tape",
            config.tape,
            f"at least the {room} tokens of an episode",
            "tapes begin where episodes do: what lies beyond would never be learned from",
        )
    return _bind(replace(config, level=1.0, penalty=0.0), dynamics, sizes)


@functools.lru_cache(maxsize=32)
def _bind(config: NeubayConfig, dynamics: Dynamics, sizes: Sizes) -> Learner:
    shown = token_size(config, sizes)
    whole = remember(dynamics.model, sizes.limit)
    model = Model(whole.step, lambda state: whole.observe(state)[:, :shown])
    agent = make_recurrent_sac(config.agent, shown, sizes.action)
    parts = NeubayParts(
        config, sizes, agent, make_memory(config.agent.memory, shown), model, dynamics.members
    )
    functions: Any = (init, update, collect)
    begin, step, roll = (functools.partial(f, parts) for f in functions)
    return Learner(agent, begin, step, config.updates_per_iteration, roll)


def init(parts: NeubayParts, key: jax.Array, data: NeubayData) -> NeubayState:
    """A fresh agent, an empty ring, nothing owed."""
    del data
    config = parts.config
    agent_key, key = jax.random.split(key)
    ring = tapes.create(
        token(config, parts.sizes), config.capacity, ring_entries(config), tape=config.tape
    )
    return NeubayState(parts.agent.init(agent_key), ring, jnp.float32(0.0), nothing_seen(), key)


def _only_needed(step: Step) -> Step:
    """Next observations are the following rows' observations: they need not be kept twice."""
    return step._replace(next_observations=(), members=())


def shown_of(parts: NeubayParts, tokens: Token) -> Token:
    """Tokens as the agent sees them: a Markov agent sees the state only."""
    shown = token_size(parts.config, parts.sizes)
    return tokens._replace(observations=tokens.observations[..., :shown])


def go_on(
    parts: NeubayParts, actor: PyTree, key: jax.Array, moments: Drawn, world: World
) -> Trajectory:
    """Imagine what follows each moment; rows that were finished have no valid step.

    Section 3: one fixed member per rollout, until an ending, the threshold or the time limit.
    """
    config, limit = parts.config, parts.sizes.limit
    start = resume(moments, parts.sizes.action)
    # A finished row is cut after one step, which nobody keeps.
    late = jnp.full_like(start.time, limit)
    start = start._replace(time=jnp.where(moments.finished, late, start.time))
    rolled = rollout(
        parts.model,
        world,
        start,
        key,
        horizon=min(config.horizon or limit, limit),
        policy=parts.agent.policy,
        policy_params=actor,
        memory=warm(parts.memory, actor.memory, shown_of(parts, moments.head), moments.lengths),
        members=Members(
            jnp.arange(parts.members, dtype=jnp.int32), per="trajectory", shuffle=False
        ),
        threshold=world.limit,
        early_exit=config.early_exit,
        record=_only_needed,
    )
    valid = rolled.valid & ~moments.finished

    def keep(x: jax.Array) -> jax.Array:
        return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - 2)), x, 0).astype(x.dtype)

    return rolled._replace(steps=jax.tree.map(keep, rolled.steps), valid=valid)


def collect(parts: NeubayParts, state: NeubayState, key: jax.Array, data: NeubayData) -> Collected:
    """One collection: logged beginnings and what the policy imagines after them."""
    assert data.world.limit is not None
    config, sizes = parts.config, parts.sizes
    draw_key, roll_key = jax.random.split(key)
    moments = draw(data.logged, draw_key, config.rollouts, sizes.longest)
    rolled = go_on(parts, state.agent.actor, roll_key, moments, data.world)
    steps = rolled.steps
    # What is seen stays as imagined; the penalty is in what is learned from only.
    learned = steps._replace(rewards=steps.rewards - data.penalty * steps.uncertainties)
    shown = token_size(config, sizes)
    last = where_rows(moments.finished, moments.now[:, :shown], parts.model.observe(rolled.state))
    tail, lengths = from_trajectory(rolled._replace(steps=learned), last)
    tokens, lengths = join(shown_of(parts, moments.head), moments.lengths, tail, lengths)
    # A prefix and what follows it are at most as long as an episode may be.
    room = episode_room(config, sizes)
    tokens = jax.tree.map(lambda x: x[:, :room], tokens)
    return Collected(tokens, lengths, look_at(rolled, moments, lengths, data.world.limit))


def collect_if_due(
    parts: NeubayParts, state: NeubayState, key: jax.Array, data: NeubayData
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

    due = state.owed < parts.config.updates_per_iteration
    begin = (due, key, empty._replace(looks=state.looks))
    return jax.lax.while_loop(lambda carry: carry[0], once, begin)[2]


def update(
    parts: NeubayParts, state: NeubayState, data: NeubayData
) -> tuple[NeubayState, dict[str, jax.Array]]:
    """One iteration: a collection if one is due, then gradient steps on tapes of the ring."""
    config = parts.config
    collect_key, learn_key, key = jax.random.split(state.key, 3)
    collected = collect_if_due(parts, state, collect_key, data)
    ring = tapes.add(state.ring, collected.tokens, collected.lengths)
    brought = config.utd_ratio * collected.lengths.sum()
    owed = state.owed + brought - config.updates_per_iteration

    def learn(
        carry: RecurrentSacState, key: jax.Array
    ) -> tuple[RecurrentSacState, dict[str, jax.Array]]:
        tape_key, update_key = jax.random.split(key)
        tape = tapes.sample(ring, tape_key, config.tape, weighting=config.weighting)
        return parts.agent.update(carry, update_key, tape)

    keys = jax.random.split(learn_key, config.updates_per_iteration)
    agent, metrics = jax.lax.scan(learn, state.agent, keys)
    metrics = jax.tree.map(lambda x: x.mean(), metrics) | collected.looks._asdict()
    metrics |= {"owed": owed, "ring_tokens": ring.used.astype(jnp.float32)}
    return NeubayState(agent, ring, owed, collected.looks, key), metrics
