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
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollout import Members, Model, Step, Trajectory, rollout, where_rows
from jaxrl_rollouts.trees import PyTree

from ..recurrent import tapes
from ..recurrent.histories import Drawn, LoggedHistories, draw, remember, resume, warm
from ..recurrent.memory import make_memory
from ..recurrent.sac import RecurrentSac, RecurrentSacState, make_recurrent_sac
from ..recurrent.tapes import Tapes
from ..recurrent.tokens import Token, from_trajectory, join
from ..worlds.dynamics import Dynamics, World
from .config import NeubayConfig, Sizes, episode_room, ring_entries, token, token_size
from .looks import Looks, look_at, nothing_seen


class NeubayData(NamedTuple):
    """What seeds share; see `neubay_training.prepare`.

    Attributes:
        logged: the dataset, cut at the time limit.
        worlds: leaves `[W, ...]`, with the `limit` of each; seed `k` is trained in world `k % W`.
        penalty: `[W]`, reward taken per unit of spread.
    """

    logged: LoggedHistories
    worlds: World
    penalty: jax.Array


class NeubayState(NamedTuple):
    """State of one seed.

    Attributes:
        agent: what learns.
        ring: real and imagined tokens.
        world: int32, which of the worlds is its own.
        owed: float32, gradient steps that the tokens so far still ask for.
        looks: what the last collection was like.
        key: for all that is drawn from here on.
    """

    agent: RecurrentSacState
    ring: Tapes
    world: jax.Array
    owed: jax.Array
    looks: Looks
    key: jax.Array


class Collected(NamedTuple):
    """Episodes of one collection: tokens `[K, L, ...]`, of which `lengths` `[K]` count."""

    tokens: Token
    lengths: jax.Array
    looks: Looks


class Neubay(NamedTuple):
    """Functions of one configuration; see `make_neubay`.

    Attributes:
        agent: the recurrent actor-critic's functions; observations are tokens'.
        init: `(key, world int32) -> NeubayState`.
        update: one iteration, `(state, data) -> (state, metrics)`.
        collect: `(actor, key, data, world int32) -> Collected`, one collection.
        config, sizes: as given; `level` and `penalty` are the data's.
    """

    agent: RecurrentSac
    init: Callable[[jax.Array, jax.Array], NeubayState]
    update: Callable[[NeubayState, NeubayData], tuple[NeubayState, dict[str, jax.Array]]]
    collect: Callable[..., Collected]
    config: NeubayConfig
    sizes: Sizes


def make_neubay(config: NeubayConfig, dynamics: Dynamics, sizes: Sizes) -> Neubay:
    """Build the functions. Configurations that differ in `level` and `penalty` share them.

    Args:
        config: agent and cadence.
        dynamics: of `learned_dynamics(..., disagreement=spread_of_means, normalised=True)`.
        sizes: of dataset and environment.

    Raises:
        ConfigError: a setting is out of range, the dynamics measure no disagreement, a tape or
            the episodes of a collection do not fit into the ring, or an episode not on a tape.
    """
    config.validate()
    if not dynamics.measured:
        raise ConfigError(
            "dynamics", "no measure of disagreement", "one, at which rollouts stop",
            "build them with learned_dynamics(..., disagreement=spread_of_means)",
        )  # fmt: skip
    needed = config.rollouts * episode_room(config, sizes)
    if config.capacity < needed:
        what = f"{config.rollouts} episodes of up to {episode_room(config, sizes)} at a time"
        raise ConfigError("capacity", config.capacity, f"at least {needed} tokens, for {what}")
    if config.tape < episode_room(config, sizes):
        raise ConfigError(
            "tape", config.tape, f"at least the {episode_room(config, sizes)} tokens of an episode",
            "tapes begin where episodes do: what lies beyond would never be learned from",
        )  # fmt: skip
    return _make(replace(config, level=1.0, penalty=0.0), dynamics, sizes)


def _only_needed(step: Step) -> Step:
    """Next observations are the following rows' observations: they need not be kept twice."""
    return step._replace(next_observations=(), members=())


@functools.lru_cache(maxsize=32)
def _make(config: NeubayConfig, dynamics: Dynamics, sizes: Sizes) -> Neubay:
    shown = token_size(config, sizes)
    agent = make_recurrent_sac(config.agent, shown, sizes.action)
    memory = make_memory(config.agent.memory, shown)
    room, updates = episode_room(config, sizes), config.updates_per_iteration
    members = Members(
        jnp.arange(dynamics.members, dtype=jnp.int32), per="trajectory", shuffle=False
    )
    whole = remember(dynamics.model, sizes.limit)
    model = Model(whole.step, lambda state: whole.observe(state)[:, :shown])

    def init(key: jax.Array, world: jax.Array) -> NeubayState:
        agent_key, key = jax.random.split(key)
        ring = tapes.create(
            token(config, sizes), config.capacity, ring_entries(config), tape=config.tape
        )
        return NeubayState(
            agent.init(agent_key), ring, jnp.asarray(world, jnp.int32), jnp.float32(0.0),
            nothing_seen(), key,
        )  # fmt: skip

    def own(tree: PyTree, world: jax.Array) -> PyTree:
        """One world's part; where there is one world only no seed gets a copy of it."""
        single = jax.tree.leaves(tree)[0].shape[0] == 1
        return jax.tree.map(lambda x: x[0] if single else x[world], tree)

    def go_on(actor: PyTree, key: jax.Array, drawn: Drawn, world: World) -> Trajectory:
        """Imagine what follows each moment; rows that were finished have no valid step."""
        start = resume(drawn, sizes.action)
        # A finished row is cut after one step, which nobody keeps.
        late = jnp.full_like(start.time, sizes.limit)
        start = start._replace(time=jnp.where(drawn.finished, late, start.time))
        carry = warm(
            memory, actor.memory,
            drawn.head._replace(observations=drawn.head.observations[..., :shown]), drawn.lengths,
        )  # fmt: skip
        rolled = rollout(
            model, world, start, key, horizon=min(config.horizon or sizes.limit, sizes.limit),
            policy=agent.policy, policy_params=actor, memory=carry, members=members,
            threshold=world.limit, early_exit=config.early_exit, record=_only_needed,
        )  # fmt: skip
        valid = rolled.valid & ~drawn.finished

        def keep(x: jax.Array) -> jax.Array:
            return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - 2)), x, 0).astype(x.dtype)

        return rolled._replace(steps=jax.tree.map(keep, rolled.steps), valid=valid)

    def collect(actor: PyTree, key: jax.Array, data: NeubayData, world: jax.Array) -> Collected:
        draw_key, roll_key = jax.random.split(key)
        drawn = draw(data.logged, draw_key, config.rollouts, sizes.longest)
        mine, penalty = own((data.worlds, data.penalty), world)
        rolled = go_on(actor, roll_key, drawn, mine)
        steps = rolled.steps
        # What is seen stays as imagined; the penalty is in what is learned from only.
        learned = steps._replace(rewards=steps.rewards - penalty * steps.uncertainties)
        last = where_rows(drawn.finished, drawn.now[:, :shown], model.observe(rolled.state))
        tail, lengths = from_trajectory(rolled._replace(steps=learned), last)
        head = drawn.head._replace(observations=drawn.head.observations[..., :shown])
        tokens, lengths = join(head, drawn.lengths, tail, lengths)
        # A prefix and what follows it are at most as long as an episode may be.
        tokens = jax.tree.map(lambda x: x[:, :room], tokens)
        return Collected(tokens, lengths, look_at(rolled, drawn, lengths, mine.limit))

    def collect_if(state: NeubayState, key: jax.Array, data: NeubayData) -> Collected:
        """A collection where one is due, else no episode; a loop, since a condition that is
        mapped over seeds would be computed whether it holds or not."""
        like = jax.eval_shape(collect, state.agent.actor, key, data, state.world)
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        due = state.owed < updates

        def once(carry: tuple) -> tuple[jax.Array, jax.Array, Collected]:
            # The key is carried, and another one afterwards: of a body that depends on nothing
            # that changes XLA takes everything out of the loop, and computes it always.
            _, key, _ = carry
            found = collect(state.agent.actor, key, data, state.world)
            return jnp.bool_(False), jax.random.fold_in(key, 1), found

        begin = (due, key, empty._replace(looks=state.looks))
        return jax.lax.while_loop(lambda carry: carry[0], once, begin)[2]

    def update(state: NeubayState, data: NeubayData) -> tuple[NeubayState, dict[str, jax.Array]]:
        collect_key, learn_key, key = jax.random.split(state.key, 3)
        found = collect_if(state, collect_key, data)
        ring = tapes.add(state.ring, found.tokens, found.lengths)
        owed = state.owed + config.updates_per_token * found.lengths.sum() - updates

        def one(
            carry: RecurrentSacState, key: jax.Array
        ) -> tuple[RecurrentSacState, dict[str, jax.Array]]:
            tape_key, update_key = jax.random.split(key)
            tape = tapes.sample(ring, tape_key, config.tape, weighting=config.weighting)
            return agent.update(carry, update_key, tape)

        keys = jax.random.split(learn_key, updates)
        learned, metrics = jax.lax.scan(one, state.agent, keys)
        metrics = jax.tree.map(lambda x: x.mean(), metrics) | found.looks._asdict()
        metrics |= {"owed": owed, "ring_tokens": ring.used.astype(jnp.float32)}
        return NeubayState(learned, ring, state.world, owed, found.looks, key), metrics

    return Neubay(agent, init, update, collect, config, sizes)
