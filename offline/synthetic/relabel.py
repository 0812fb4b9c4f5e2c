"""Successors of synthetic states and actions, relabelled by a dynamics model.

A diffusion model of whole rows spends its network on everything at once, and critics are misled by
what it gets wrong: rewards and, above all, next observations. A model of one step, fitted to the
same rows, makes fewer errors there. So the states and actions stay as they were sampled, and
rewards, next observations and endings are that model's.

found = relabel(fit_relabeller(dataset.transitions, RelabelConfig("ensemble"), key), paths, key)

Paths are `[B, T, ...]`, single transitions have T = 1. From its first state a path is rolled along
its sampled actions, so that it stays one trajectory whose every state is where the one before led.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check, fraction
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import DivergenceError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.rollouts import Members, Model, rollout
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions, to_device
from ..environments.terminations import never
from ..worlds.dynamics import Termination, WorldModelParams, learned_dynamics, predict
from ..worlds.endings import TerminationConfig, fit_endings
from ..worlds.fit import fit_model, make_inverse_model, make_world_model
from ..worlds.open_loop import replay
from ..worlds.thresholds import uncertainty_stats

By = Literal["ensemble", "model", "inverse"]
Beyond = Literal["keep", "drop", "weigh"]
BATCH = 4096  # paths side by side
# One variance for each output: by least squares the means of such networks have two thirds of the
# error they have with a variance for every row (0.043 and 0.064 of the variance of HalfCheetah's
# mixed data).
NETWORKS = EnsembleConfig(
    members=5,
    elites=4,
    hidden_dims=(128, 128, 128),
    variance="output",
    weight_decay=(2.5e-5,),
    max_epochs=20,
)


@dataclass(frozen=True)
class RelabelConfig:
    """The model of what follows a sampled state and action.

    Attributes:
        relabel_with: `ensemble` and `model` give next observations, rewards and endings: a member
            drawn anew at every step, or the mean of a single network. `inverse` keeps the states
            and gives the action behind each change of them, the mean of an ensemble.
        networks: its networks; `model` has one of them.
        noise: sample from a member's normal (`ensemble`); False takes its mean.
        ending: classifier of terminations, for data that have some and environments whose rule
            is not known.
        beyond_threshold: steps on which members disagree more than on the `uncertainty_quantile`
            of the data: `keep` them; `drop` them, and what follows them in a path; or `weigh` a
            path down by its worst step, as often as the threshold is smaller than the disagreement:
            paths are drawn again with such weights. A single network never disagrees.
        uncertainty_quantile: see there; 1 is the largest disagreement on the data.
        termination: the `known` rule of the environment, if there is one, or always `learned`.
    """

    relabel_with: By = "ensemble"
    networks: EnsembleConfig = NETWORKS
    noise: bool = True
    ending: TerminationConfig = TerminationConfig()
    beyond_threshold: Beyond = "keep"
    uncertainty_quantile: float = fraction(0.99)
    termination: Literal["known", "learned"] = "known"


class Relabelled(NamedTuple):
    """Paths relabelled.

    Attributes:
        paths: `[B, T, ...]`.
        valid: `[B, T]` bool: up to the step at which the model ends an episode.
        disagreement: `[B, T]`, the members' `spread_of_means` in units of their targets.
    """

    paths: Transitions
    valid: jax.Array
    disagreement: jax.Array


class Relabeller(NamedTuple):
    """Relabels paths; see `fit_relabeller`.

    Attributes:
        relabel: `(params, key, paths) -> Relabelled`, compiled; equal settings give the same
            function.
        params: handed to it.
        uncertainty_threshold: `[]`, the disagreement beyond which a step is unknown.
        beyond_threshold: treatment of such steps.
        batch: paths side by side at most.
    """

    relabel: Callable[[PyTree, jax.Array, Transitions], Relabelled]
    params: PyTree
    uncertainty_threshold: jax.Array
    beyond_threshold: Beyond = "keep"
    batch: int = BATCH

    @property
    def data(self) -> tuple[PyTree, jax.Array]:
        """`params` and `uncertainty_threshold`: what a compiled learner is given as data."""
        return self.params, self.uncertainty_threshold


@functools.lru_cache(maxsize=32)
def along(model: Model, members: int) -> Callable[..., Relabelled]:
    """`Relabeller.relabel` of a model of transitions: rolled along the actions of the paths."""

    @jax.jit
    def run(params: PyTree, key: jax.Array, paths: Transitions) -> Relabelled:
        actions = jnp.swapaxes(jnp.asarray(paths.actions), 0, 1)
        played = rollout(
            model,
            params,
            jnp.asarray(paths.observations)[:, 0],
            key,
            horizon=len(actions),
            policy=replay,
            policy_params=actions,
            memory=jnp.zeros(actions.shape[1:2], jnp.int32),
            members=Members(jnp.arange(members, dtype=jnp.int32), per="step"),
            stop_at_termination=False,
        )
        s = played.steps
        found = jax.tree.map(
            lambda x: jnp.swapaxes(x, 0, 1),
            Transitions(
                s.observations,
                s.actions,
                s.rewards,
                s.next_observations,
                s.terminations,
                s.truncations,
            ),
        )
        # To the bit where the step before led: compiled twice, they may differ by a rounding.
        followed = found.observations[:, :1], found.next_observations[:, :-1]
        found = found._replace(observations=jnp.concatenate(followed, 1))
        before = jnp.cumsum(found.terminations, 1) - found.terminations
        spread = jnp.swapaxes(played.steps.uncertainties, 0, 1)
        return Relabelled(found, before == 0, spread)

    return run


@functools.lru_cache(maxsize=32)
def behind(fitter: Fitter) -> Callable[..., Relabelled]:
    """`Relabeller.relabel` of an inverse model: the actions behind the changes."""

    @jax.jit
    def run(world: WorldModelParams, key: jax.Array, paths: Transitions) -> Relabelled:
        del key
        every = predict(fitter, world, *_rows(paths))
        spread = spread_of_means(every.mean / world.targets.std, every.std / world.targets.std)
        actions = jnp.clip(every.mean.mean(0), -1.0, 1.0).reshape(paths.actions.shape)
        shape = paths.rewards.shape
        found = jax.tree.map(jnp.asarray, paths)._replace(actions=actions)
        return Relabelled(found, jnp.ones(shape, bool), spread.reshape(shape))

    return run


def _rows(paths: Transitions) -> tuple[jax.Array, jax.Array]:
    """Observations and next observations of all steps, `[B T, S]` each."""
    both = (paths.observations, paths.next_observations)
    return tuple(jnp.asarray(x).reshape(-1, x.shape[-1]) for x in both)  # type: ignore[return-value]


def fit_relabeller(
    rows: Transitions,
    config: RelabelConfig,
    key: jax.Array,
    *,
    termination: Termination | None = None,
    stage: str = "relabel",
    context: RunContext | None = None,
) -> Relabeller:
    """Fit the model of a configuration to the rows of a dataset.

    Args:
        rows: training rows of the diffusion model, on the host.
        config: the model, and the treatment of steps beyond its threshold.
        key: consumed.
        termination: the environment's rule; None learns one where the rows have terminations.
        stage, context: as for `train_loop`.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    networks = config.networks
    if config.relabel_with == "model":
        networks = replace(networks, members=1, elites=1)
    fit_key, end_key = jax.random.split(key)
    inverse = config.relabel_with == "inverse"
    model = (make_inverse_model if inverse else make_world_model)(networks, rows)
    world = fit_model(model, networks, fit_key, stage=stage, context=context).world()
    asked = to_device(rows)
    if inverse:
        # The second input of `predict`, whatever it is called.
        asked = asked._replace(actions=asked.next_observations)
        step = behind(model.fitter)
    else:
        rule: Termination | TerminationConfig | None = termination
        if rule is None and not np.asarray(rows.terminations).any():
            rule = never
        if rule is None:
            run = {"stage": f"{stage}-ending", "context": context}
            endings, _ = fit_endings(config.ending, rows, end_key, **run)
            rule, world = (
                config.ending,
                world._replace(ending=jax.tree.map(lambda x: x[0], endings)),
            )
        dynamics = learned_dynamics(
            model.fitter,
            networks.elites,
            termination=rule,
            disagreement=spread_of_means if networks.elites > 1 else None,
            normalised=True,
            noise="own" if config.noise and config.relabel_with == "ensemble" else "none",
        )
        step = along(dynamics.model, networks.elites)
    threshold = jnp.float32(math.inf)
    if networks.elites > 1:
        levels = (config.uncertainty_quantile,)
        threshold = uncertainty_stats(model.fitter, world, asked, levels).quantiles[0]
    return Relabeller(step, world, threshold, config.beyond_threshold)


def relabel(relabeller: Relabeller, paths: Transitions, key: jax.Array) -> Relabelled:
    """Relabel many paths, `relabeller.batch` at a time.

    Args:
        relabeller: result of `fit_relabeller`.
        paths: `[B, T, ...]`; of single transitions `[B, 1, ...]`.
        key: consumed.

    Returns:
        On the host, path by path as they were.
    """
    count = len(paths.rewards)
    size = min(relabeller.batch, count)
    found = []
    for index, begin in enumerate(range(0, count, size)):
        # The last piece is as long as the others, so that nothing compiles anew.
        chosen = np.arange(begin, begin + size).clip(max=count - 1)
        some = jax.tree.map(lambda x: x[chosen], paths)  # noqa: B023
        piece = relabeller.relabel(relabeller.params, jax.random.fold_in(key, index), some)
        found.append(jax.tree.map(np.asarray, piece))
    return jax.tree.map(lambda *pieces: np.concatenate(pieces)[:count], *found)


def settle(
    beyond_threshold: Beyond,
    threshold: jax.Array,
    found: Relabelled,
    valid: jax.Array,
    key: jax.Array,
) -> tuple[Transitions, jax.Array]:
    """Paths `[B, T, ...]` and which of their steps count, once unknown ones are dealt with.

    Pure. A path's last step that counts is truncated, unless it ends the episode. What is not
    finite counts as unknown, whatever is done about the rest.

    Args:
        beyond_threshold: treatment of steps whose disagreement exceeds the threshold.
        threshold: `[]`.
        found: that of a `Relabeller`.
        valid: `[B, T]` bool: steps that counted before.
        key: consumed, by drawing paths again (`weigh`).
    """
    paths = found.paths
    finite = jnp.isfinite(paths.next_observations).all(-1) & jnp.isfinite(paths.rewards)
    valid = jnp.asarray(valid) & found.valid & (jnp.cumsum(~finite, 1) == 0)
    excess = jnp.asarray(found.disagreement) / threshold
    if beyond_threshold == "drop":
        valid &= jnp.cumsum(excess > 1.0, 1) == 0
    elif beyond_threshold == "weigh":
        worst = jnp.where(valid, excess, 0.0).max(1)
        weights = 1.0 / jnp.maximum(worst, 1.0)
        count = len(weights)
        chosen = jax.random.choice(key, count, (count,), p=weights / weights.sum())
        paths, valid = jax.tree.map(lambda x: jnp.asarray(x)[chosen], (paths, valid))
    following = jnp.concatenate([valid[:, 1:], jnp.zeros_like(valid[:, :1])], 1)
    cut = valid & ~following & ~jnp.asarray(paths.terminations)
    return paths._replace(truncations=cut), valid


def relabelled(
    relabeller: Relabeller, paths: Transitions, valid: np.ndarray, key: jax.Array
) -> Transitions:
    """Paths relabelled and settled: the steps that count, path by path, `[N, ...]` on the host.

    Args:
        relabeller, paths: as for `relabel`.
        valid: `[B, T]` bool: steps that counted before.
        key: consumed.

    Raises:
        DivergenceError: no step counts.
    """
    relabel_key, draw_key = jax.random.split(key)
    found = relabel(relabeller, paths, relabel_key)
    rules = relabeller.beyond_threshold, relabeller.uncertainty_threshold
    settled, counts = jax.tree.map(np.asarray, settle(*rules, found, jnp.asarray(valid), draw_key))
    if not counts.any():
        raise DivergenceError(
            f"relabelling: found none of {counts.size} steps below the threshold, expected some; "
            "it has diverged, or uncertainty_quantile is too low"
        )
    return jax.tree.map(lambda x: x[counts], settled)


def relabelled_rows(relabeller: Relabeller, rows: Transitions, key: jax.Array) -> Transitions:
    """`relabelled` of single transitions `[N, ...]`: each is an episode that was cut at once."""
    paths = jax.tree.map(lambda x: np.asarray(x)[:, None], rows)
    return relabelled(relabeller, paths, np.ones((len(rows.rewards), 1), bool), key)
