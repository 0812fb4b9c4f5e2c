"""From a dataset and a posterior to trained NEUBAY agents, and a look at them in the simulator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from ..environments import Environment
from ..environments.terminations import Termination
from ..evaluation import evaluate_seeds
from ..recurrent.histories import log_histories, remembering
from ..recurrent.sac import RecurrentSac, RecurrentSacState
from ..worlds.dynamics import Dynamics, World, learned_dynamics
from ..worlds.endings import TerminationConfig
from ..worlds.trust import Trust, threshold
from .config import NeubayConfig, Sizes, ring_bytes
from .neubay import Neubay, NeubayData, NeubayState, make_neubay

Evaluate = Callable[[PyTree, int], Mapping[str, Any]]


class Prepared(NamedTuple):
    """An agent's functions and what it is trained on."""

    neubay: Neubay
    data: NeubayData


def check_sizes(transitions: Transitions, worlds: World, env: Environment, source: str) -> None:
    """Dataset, worlds and environment agree on states and actions.

    Raises:
        DataError: they do not; rollouts would start from states of another space.
    """
    state, action = transitions.observations.shape[1], transitions.actions.shape[1]
    for key, found, expected in (
        ("observations", state, env.observation_size), ("actions", action, env.action_size),
    ):  # fmt: skip
        if found != expected:
            where = f"{expected} numbers a row, as {env.name} has them"
            raise DataError(source, key, found, where)
    inputs, outputs = worlds.inputs.mean.shape[-1], worlds.targets.mean.shape[-1]
    if (inputs, outputs) != (state + action, state + 1):
        raise DataError(
            source, "observations, actions", (state, action),
            f"those the worlds were fitted to ({outputs - 1} and {inputs - outputs + 1} numbers)",
            "start states of another space mean nothing to a model",
        )  # fmt: skip


def prepare(
    config: NeubayConfig, transitions: Transitions, fitter: Fitter, worlds: World, trust: Trust,
    env: Environment, termination: Termination | TerminationConfig, *, source: str = "dataset",
) -> Prepared:  # fmt: skip
    """Build the agent's functions and put on the device what all seeds share.

    Args:
        config: agent and rollouts.
        transitions: the dataset, on the host.
        fitter: of the `WorldModel`.
        worlds: leaves `[W, ...]`; seed `k` is trained in world `k % W`.
        trust: of each world, leaves `[W, ...]`; `load_worlds` returns it with its worlds and
            refuses those of another dataset.
        env: for its time limit and sizes.
        termination: the known rule (`terminations.termination_function` refuses unknown ones), or
            the configuration of the classifier in `World.ending`.
        source: the dataset's name, for messages.

    Raises:
        ConfigError: a setting is out of range, the level was not measured, the ring is too small,
            or an iteration takes more gradient steps than a collection brings.
        DataError: dataset, worlds and environment do not fit together.
    """
    check_sizes(transitions, worlds, env, source)
    count, members = jax.tree.leaves(worlds.elites)[0].shape[:2]
    if trust.mean.shape != (count,):
        raise ConfigError("trust", trust.mean.shape, f"one for each of the {count} worlds")
    logged = log_histories(transitions, env.max_episode_steps, source=source)
    sizes = Sizes(env.observation_size, env.action_size, env.max_episode_steps, logged.longest)
    # A collection brings at least its real prefixes, one imagined step and the last look.
    sure = config.rollouts * (float(logged.times.mean()) + 1.0) * config.updates_per_token
    if config.updates_per_iteration > max(sure, 1.0):
        raise ConfigError(
            "updates_per_iteration", config.updates_per_iteration,
            f"at most {int(max(sure, 1.0))}, the gradient steps that {config.rollouts} episodes "
            f"of {source} ask for on average whatever is imagined",
            "raise rollouts or updates_per_token",
        )  # fmt: skip
    dynamics = trusted_dynamics(fitter, members, termination)
    neubay = make_neubay(config, dynamics, sizes)
    worlds = worlds._replace(limit=threshold(trust, config.level))
    return Prepared(neubay, NeubayData(logged, worlds, config.penalty / trust.mean))


@functools.lru_cache(maxsize=32)
def trusted_dynamics(
    fitter: Fitter, members: int, termination: Termination | TerminationConfig
) -> Dynamics:
    """Dynamics that report the spread of the members' means; equal arguments give the same."""
    return learned_dynamics(
        fitter, members, termination=termination, disagreement=spread_of_means, normalised=True
    )


def ring_text(config: NeubayConfig, sizes: Sizes, seeds: int) -> str:
    """What the token rings of all seeds take, for people, before it is taken."""
    room = seeds * ring_bytes(config, sizes)
    return (
        f"Token rings: {config.capacity:,} tokens per seed, {room / 1e6:,.0f} MB for {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}."
    )


def train_neubay(
    prepared: Prepared,
    key: jax.Array,
    *,
    seeds: int,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    stage: str = "agent",
    context: RunContext | None = None,
) -> Trained:
    """Train agents side by side, each in its own world, all on the same dataset.

    Prints what the token rings will take, where the context shows progress.

    Args:
        prepared: of `prepare`.
        key: consumed; seed `i` uses `split(key, seeds)[i]`.
        seeds: how many.
        evaluate, evaluate_every, stage, context: as for `loop.train`; an iteration is
            `updates_per_iteration` gradient steps.

    Returns:
        `Trained` whose state is a `NeubayState` with a leading seed axis.
    """
    neubay, data = prepared
    config = neubay.config
    if context and context.progress:
        print(ring_text(config, neubay.sizes, seeds), flush=True)
    own = jnp.arange(seeds, dtype=jnp.int32) % data.penalty.shape[0]
    room = seeds * ring_bytes(config, neubay.sizes)
    return train(
        # Not kept here: the loop copies it, and rings are large.
        neubay.update, jax.jit(jax.vmap(neubay.init))(jax.random.split(key, seeds), own), data,
        iterations=config.iterations, stage=stage,
        units_per_iteration=config.updates_per_iteration, evaluate=evaluate,
        evaluate_every=evaluate_every, context=context,
        # Checkpoints hold the rings: the larger those are, the rarer.
        save_every_seconds=max(60.0, room / 1e7),
    )  # fmt: skip


@functools.partial(jax.jit, static_argnames="agent")
def start_values(agent: RecurrentSac, states: RecurrentSacState, tokens: jax.Array) -> jax.Array:
    """Value the critics promise (their mean) of first tokens `[B, D]`, per seed: `[seeds]`."""

    def one(state: RecurrentSacState) -> jax.Array:
        fresh = agent.networks.start(tokens.shape[0])
        actions, _ = agent.greedy(state.actor, jax.random.key(0), tokens, fresh)
        # On a tape where every token begins an episode nobody remembers anything.
        begins = jnp.ones(tokens.shape[:1], bool)
        return agent.networks.q(state.critic, tokens, begins, actions).mean()

    return jax.vmap(one)(states)


def neubay_evaluator(neubay: Neubay, env: Environment, key: jax.Array, episodes: int) -> Evaluate:
    """An `evaluate` for `train_neubay`: the mean action, with memory, in the true environment.

    Records, per seed: `return`, `discounted_return`, `length`, and `estimated_value`, what the
    critics promise from the start states, as `training.evaluator` does for other agents.

    Args:
        neubay: whose greedy policy to play.
        env: the true environment.
        key: consumed; start states depend on it and on the iteration.
        episodes: per seed.
    """
    agent, discount = neubay.agent, neubay.config.agent.discount
    seen = env if neubay.config.markov else remembering(env)

    def evaluate(state: NeubayState, iteration: int) -> dict[str, np.ndarray]:
        start_key, play_key = jax.random.split(jax.random.fold_in(key, iteration))
        seeds = state.owed.shape[0]
        fresh = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), agent.networks.start(episodes)
        )
        played = evaluate_seeds(
            seen, agent.greedy, state.agent.actor, play_key, episodes, memory=fresh,
            discount=discount,
        )  # fmt: skip
        starts = seen.observe(seen.reset(start_key, max(episodes, 32)))
        metrics = {
            "return": played.returns.mean(1),
            "discounted_return": played.discounted.mean(1),
            "length": played.lengths.mean(1, dtype=jnp.float32),
            "estimated_value": start_values(agent, state.agent, starts),
        }
        return {name: np.asarray(value) for name, value in metrics.items()}

    return evaluate
