"""The shape of every agent and every learner, normalised observations, many updates as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree


class Scaled(NamedTuple):
    """A network's parameters with the statistics of its observations.

    Policies and critics take raw observations and normalise them with these.
    """

    net: PyTree
    scaler: Scaler


def no_memory(batch: int) -> PyTree:
    """The start of an agent that sees the present only."""
    del batch
    return ()


class Agent(NamedTuple):
    """Functions of one agent. Its state has at least the fields `actor` and, with `q`, `critic`.

    Attributes:
        init: `(key, scaler=None) -> state`; the scaler is that of the observations.
        update: `(state, key, batch, ...) -> (state, metrics)`, one gradient step. Where `period`
            is above 1 it takes `actor=False` (static) for steps in which neither the policy nor the
            target networks move.
        policy: `(actor, key, observation [B, S], memory) -> (action [B, A], memory)`, as trained.
        greedy: the same signature, its mean.
        q: `(critic, observations [B, S], actions [B, A]) -> [N, B]`, every critic; of agents with a
            memory, at the beginning of an episode. None where there is no critic.
        memory: `batch -> memory` of episodes that begin, leaves `[batch, ...]`.
        sample: `(actor, key, observations) -> (actions [B, A], log-densities [B])`; None where the
            policy has no density.
        gaussian: `(actor, observations [..., S]) -> (mean, std)`, the normal density over actions
            that guidance takes the policy for; both broadcast to `[..., A]`. None: it has none.
        normalise: whether `init` wants the scaler of the data.
        period: the actor moves in every so many updates.
        nets: what the functions are bound to: for methods that compose steps of their own.
    """

    init: Callable[..., Any]
    update: Callable[..., tuple[Any, dict[str, jax.Array]]]
    policy: Callable[..., tuple[jax.Array, PyTree]]
    greedy: Callable[..., tuple[jax.Array, PyTree]]
    q: Any
    memory: Callable[[int], PyTree] = no_memory
    sample: Callable[..., tuple[jax.Array, jax.Array]] | None = None
    gaussian: Callable[..., tuple[jax.Array, jax.Array]] | None = None
    normalise: bool = False
    period: int = 1
    nets: Any = None


class Learner(NamedTuple):
    """What a trainer needs of a method: functions of one seed.

    Attributes:
        agent: what acts; its state is the field `agent` of the learner's.
        init: `(key, data) -> state`.
        update: one iteration, `(state, data) -> (state, metrics)`.
        updates: gradient steps in one iteration.
        imagine: what of the data it makes up, `(state, key, data) -> Trajectory` or the method's
            own record; None where it learns from the data alone.
    """

    agent: Agent
    init: Callable[[jax.Array, PyTree], Any]
    update: Callable[[Any, PyTree], tuple[Any, dict[str, jax.Array]]]
    updates: int
    imagine: Callable[[Any, jax.Array, PyTree], Any] | None = None


class AgentConfig(Protocol):
    """Settings of an agent: a frozen dataclass that builds it."""

    @property
    def discount(self) -> float:
        """Gamma: the weight of a reward one step later."""
        ...

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        """Build the agent; equal arguments give the same functions.

        Args:
            observation_size, action_size: of the environment.
            steps: gradient steps of the training, for rates that fall over it; None only acts.
        """
        ...


def first_state(agent: Agent, key: jax.Array, observations: jax.Array | Scaler) -> Any:
    """An agent's state before it has learned anything, normalising as it wants to.

    Args:
        agent: whose.
        key: consumed.
        observations: `[N, S]` of the data, or their `fit_scaler`.
    """
    if agent.normalise:
        return agent.init(key, observation_scaler(observations))
    return agent.init(key)


def observation_scaler(observations: jax.Array | Scaler) -> Scaler:
    """Of `[N, S]` rows, or of their `fit_scaler`, with TD3+BC's 1e-3 added to the deviation."""
    given = isinstance(observations, Scaler)
    scaler = observations if given else fit_scaler(observations)
    return Scaler(scaler.mean, scaler.std + 1e-3)


def step_keys(key: jax.Array, updates: int) -> jax.Array:
    """Keys `[updates, 2]` of the batch and of the update of every gradient step of `learn`."""
    return jax.vmap(jax.random.split)(jax.random.split(key, updates))


def learn(
    agent: Agent,
    state: Any,
    key: jax.Array,
    draw: Callable[[jax.Array], Any],
    updates: int,
    drawn: Any = None,
) -> tuple[Any, dict[str, jax.Array]]:
    """`updates` gradient steps as one scan.

    Args:
        agent: whose.
        state: of it.
        key: consumed.
        draw: `key -> batch`, called for every step.
        updates: a multiple of the agent's period.
        drawn: the batches, leaves `[updates, ...]`, where they were drawn before.

    Returns:
        The state, and metrics averaged over the steps that moved the actor.
    """
    period = agent.period
    steps = jax.tree.map(
        lambda x: x.reshape(updates // period, period, *x.shape[1:]),
        (step_keys(key, updates), drawn),
    )

    def group(carry: Any, steps: Any) -> tuple[Any, dict[str, jax.Array]]:
        metrics: dict[str, jax.Array] = {}
        for index in range(period):
            (batch_key, update_key), ready = jax.tree.map(lambda x, i=index: x[i], steps)
            batch = draw(batch_key) if ready is None else ready
            # A static choice: a condition inside the scan would become both under `vmap`.
            settings = {} if period == 1 else {"actor": index == period - 1}
            carry, metrics = agent.update(carry, update_key, batch, **settings)
        return carry, metrics

    state, metrics = jax.lax.scan(group, state, steps)
    return state, jax.tree.map(lambda x: x.mean(), metrics)
