"""What model-free agents share: their functions' shape, normalised observations, many updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree


class Scaled(NamedTuple):
    """A network's parameters with the statistics of its observations.

    Whoever holds these can act on raw observations; nobody has to remember to normalise.
    """

    net: PyTree
    scaler: Scaler


class Agent(NamedTuple):
    """Functions of one agent. Its state has at least the fields `actor` and `critic`.

    Attributes:
        init: `(key, scaler=None) -> state`; the scaler is that of the observations.
        update: `(state, key, batch, *, actor=True) -> (state, metrics)`, one gradient step. With
            `actor=False` (static) neither the policy nor the target networks move.
        policy: `(actor, key, observation, memory) -> (action, memory)`, as trained.
        greedy: the same signature, its mean.
        q: `(critic, observations [B, S], actions [B, A]) -> [N, B]`.
        gaussian: `(actor, observations [..., S]) -> (mean, std)`, the normal density over actions
            that guidance takes the policy for; both broadcast to `[..., A]`.
        period: the actor moves in every so many updates.
    """

    init: Callable[..., Any]
    update: Callable[..., tuple[Any, dict[str, jax.Array]]]
    policy: Callable[..., tuple[jax.Array, PyTree]]
    greedy: Callable[..., tuple[jax.Array, PyTree]]
    q: Callable[[PyTree, jax.Array, jax.Array], jax.Array]
    gaussian: Callable[[PyTree, jax.Array], tuple[jax.Array, jax.Array]]
    period: int = 1


def observation_scaler(observations: jax.Array) -> Scaler:
    """Of `[N, S]` rows, with TD3+BC's 1e-3 added to the standard deviation."""
    scaler = fit_scaler(observations)
    return Scaler(scaler.mean, scaler.std + 1e-3)


def learn(
    agent: Any, state: Any, key: jax.Array, draw: Callable[[jax.Array], Any], updates: int
) -> tuple[Any, dict[str, jax.Array]]:
    """`updates` gradient steps as one scan.

    Args:
        agent: an `Agent`, or `sac.Sac`.
        state: of it.
        key: consumed.
        draw: `key -> batch`, called for every step.
        updates: a multiple of the agent's period.

    Returns:
        The state, and metrics averaged over the steps that moved the actor.
    """
    period = getattr(agent, "period", 1)
    keys = jax.random.split(key, updates).reshape(updates // period, period)

    def group(carry: Any, keys: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        metrics: dict[str, jax.Array] = {}
        for index in range(period):
            batch_key, update_key = jax.random.split(keys[index])
            # A static choice: a condition inside the scan would become both under `vmap`.
            settings = {} if period == 1 else {"actor": index == period - 1}
            carry, metrics = agent.update(carry, update_key, draw(batch_key), **settings)
        return carry, metrics

    state, metrics = jax.lax.scan(group, state, keys)
    return state, jax.tree.map(lambda x: x.mean(), metrics)
