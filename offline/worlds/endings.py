"""A learned termination: the logit that a transition ends its episode.

For environments whose rule is unknown. Terminations are rare, so half of every batch is
drawn from the terminating rows, and the logit is shifted back to the dataset's share of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl_rollouts.configs import check, positive, step_size
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.finite import OnDivergence, marked_rows
from jaxrl_rollouts.loop import Trained, train_loop
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import Scaler, fit_scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions

Worlds = TypeVar("Worlds", bound=Any)  # a NamedTuple with a field `ending`


@dataclass(frozen=True)
class TerminationConfig:
    """A small classifier of `[observation, action, next_observation]`.

    Attributes:
        hidden_dims: widths of its layers.
        lr: learning rate of Adam.
        batch_size: rows in a gradient step.
        steps: gradient steps in all.
        per_iteration: gradient steps between two records in the log.
    """

    hidden_dims: tuple[int, ...] = positive((64, 64))
    lr: float = step_size(1e-3)
    batch_size: int = positive(256)
    steps: int = positive(3000)
    per_iteration: int = positive(500)


class Ending(NamedTuple):
    """A fitted classifier: part of a `WorldModelParams`.

    Attributes:
        params: parameters of the network.
        inputs: scaler of `[observation, action, next_observation]`.
        shift: logarithm of the share of rows that terminate in the dataset; minus infinity where
            none was seen, infinity where all do.
    """

    params: PyTree
    inputs: Scaler
    shift: jax.Array


class EndingData(NamedTuple):
    """Scaled rows `[n, 2 S + A]` and the indices of those that terminate, `[m]`."""

    inputs: jax.Array
    terminating: jax.Array


class EndingState(NamedTuple):
    params: PyTree
    opt_state: Any
    key: jax.Array


@functools.lru_cache(maxsize=32)
def _functions(config: TerminationConfig, inputs: int) -> tuple[Callable, Callable, Callable]:
    """`init(key, data)`, `update(state, data)` and `logit(params, rows)`."""
    check(config)
    network = from_linen(
        MLP(config.hidden_dims, (1,)), jax.ShapeDtypeStruct((1, inputs), jnp.float32)
    )
    optimiser = optax.adam(config.lr)

    def logit(params: PyTree, rows: jax.Array) -> jax.Array:
        return network.apply(params, rows)[..., 0]

    def init(key: jax.Array, data: EndingData | None = None) -> EndingState:
        del data
        init_key, key = jax.random.split(key)
        params = network.init(init_key)
        return EndingState(params, optimiser.init(params), key)

    def update(state: EndingState, data: EndingData) -> tuple[EndingState, dict[str, jax.Array]]:
        learn_key, key = jax.random.split(state.key)
        half = max(config.batch_size // 2, 1)
        ends = jnp.zeros(data.inputs.shape[0]).at[data.terminating].set(1.0)

        def learn(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            any_key, end_key = jax.random.split(key)
            any_row = jax.random.randint(any_key, (half,), 0, data.inputs.shape[0])
            end_row = jax.random.choice(end_key, data.terminating, (half,))
            # Rows that happen to end among the first half would count twice.
            rows = jnp.concatenate([any_row, end_row])
            weight = jnp.concatenate([1.0 - ends[any_row], jnp.ones(half)])

            def loss(params: PyTree) -> jax.Array:
                each = optax.sigmoid_binary_cross_entropy(
                    logit(params, data.inputs[rows]), ends[rows]
                )
                return (weight * each).sum() / weight.sum()

            value, gradient = jax.value_and_grad(loss)(carry[0])
            step, opt_state = optimiser.update(gradient, carry[1], carry[0])
            return (optax.apply_updates(carry[0], step), opt_state), value

        keys = jax.random.split(learn_key, config.per_iteration)
        carry, losses = jax.lax.scan(learn, (state.params, state.opt_state), keys)
        return EndingState(*carry, key), {"loss": losses.mean()}

    return init, update, logit


def ended(
    termination: Callable[..., jax.Array] | TerminationConfig,
    ending: Ending | None,
    *transition: jax.Array,
) -> jax.Array:
    """Whether observations, actions and next ones end an episode, `[...]` bool: by a known rule, or
    where the classifier finds it more likely than not."""
    if not isinstance(termination, TerminationConfig):
        return termination(*transition)
    if ending is None:
        raise ConfigError("world.ending", None, "a classifier fitted by fit_endings")
    return log_odds(termination, ending, _rows(*transition)) > 0


def log_odds(config: TerminationConfig, ending: Ending, rows: jax.Array) -> jax.Array:
    """Of a termination, `[...]`; rows `[..., 2 S + A]` hold observation, action, next one."""
    _, _, logit = _functions(config, rows.shape[-1])
    return logit(ending.params, ending.inputs.normalise(rows)) + ending.shift


def blank_ending(config: TerminationConfig, inputs: int, key: jax.Array) -> Ending:
    """One that has learned nothing, of `[observation, action, next_observation]` with `inputs`
    entries: the structure that a saved one is read into."""
    init, _, _ = _functions(config, inputs)
    return Ending(init(key).params, identity_scaler(inputs), jnp.zeros(()))


def fit_endings(
    config: TerminationConfig,
    transitions: Transitions,
    key: jax.Array,
    *,
    seeds: int = 1,
    stage: str = "termination",
    context: RunContext | None = None,
    on_divergence: OnDivergence = "raise",
) -> tuple[Ending, Trained | None]:
    """Fit `seeds` classifiers to one dataset, side by side.

    Args:
        stage, context, on_divergence: as for `train_loop`.

    Returns:
        An `Ending` with a leading seed axis, and the training (None for a dataset without any
        termination, whose classifier never ends an episode).
    """
    columns = (transitions.observations, transitions.actions, transitions.next_observations)
    rows = _rows(*(jnp.asarray(column) for column in columns))
    scaler = fit_scaler(rows)
    terminating = np.flatnonzero(np.asarray(transitions.terminations))
    count, total = len(terminating), len(rows)
    init, update, _ = _functions(config, rows.shape[-1])
    keys = jax.random.split(key, seeds)
    if count:
        data = EndingData(scaler.normalise(rows), jnp.asarray(terminating, jnp.int32))
        trained = train_loop(
            update,
            init,
            keys,
            data,
            iterations=-(-config.steps // config.per_iteration),
            units_per_iteration=config.per_iteration,
            stage=stage,
            context=context,
            about=config,
            on_divergence=on_divergence,
        )
        params = trained.state.params
    else:
        trained, params = None, jax.jit(jax.vmap(init))(keys).params
    # Of the rows of a batch a half ends and a half, less the share that ends, does not; so the
    # odds that are learned lack that share, and no more.
    shift = np.log(count / total) if 0 < count < total else (-np.inf, np.inf)[count > 0]

    def repeat(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf, jnp.float32)
        return jnp.broadcast_to(leaf, (seeds, *leaf.shape))

    return Ending(params, jax.tree.map(repeat, scaler), repeat(shift)), trained


def with_endings(worlds: Worlds, *fit: Any, **run: Any) -> Worlds:
    """World models `[seeds, ...]` with their classifiers; further arguments as for `fit_endings`.

    A world whose classifier diverged is NaN as a whole: odds of NaN would end no episode.
    """
    endings, trained = fit_endings(*fit, **run)
    worlds = worlds._replace(ending=endings)
    if trained is None or not trained.diverged:
        return worlds
    seeds = len(endings.shift)
    return marked_rows(worlds, np.isin(np.arange(seeds), list(trained.diverged)))


def _rows(*columns: jax.Array) -> jax.Array:
    return jnp.concatenate(columns, -1)
