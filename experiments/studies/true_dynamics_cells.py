"""Dynamics between a learned model and the truth, and methods trained in them on the plane.

At `model_quality` 0 the learned model is rolled, at 1 the simulator, and in between every next
state is the weighted mean of the two. A penalty on the model's error shrinks with it by `1 -
model_quality`. The number is a parameter, not a constant of the program: runs of different quality
share one compiled program and can be vmapped like seeds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import fraction, positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.environments.base import Environment, true_model
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.mobile import Mobile
from jaxrl_rollouts.offline.methods.model_based import ModelBased, Rollouts, bind
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.ravl import Ravl
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples
from jaxrl_rollouts.offline.worlds.fit import fit_world_models
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.rollouts import Model, StepResult
from jaxrl_rollouts.trees import PyTree

from .plane import OWN_WORLDS, imagination, plane_evaluator


class Blend(NamedTuple):
    """Parameters of `blended_dynamics`.

    Attributes:
        world: parameters of the learned dynamics.
        model_quality: scalar in [0, 1], weight of the true next state.
    """

    world: PyTree
    model_quality: jax.Array


def blend_worlds(worlds: PyTree, truths: tuple[float, ...]) -> Blend:
    """Every world (leaves `[K, ...]`) at every model quality: a `Blend` with axis `[W * K]`.

    Quality varies slowest: reshape results to `[W, K]`.
    """
    if not truths or not all(0.0 <= w <= 1.0 for w in truths):
        raise ConfigError("truths", truths, "at least one, each in [0, 1]")
    count = jax.tree.leaves(worlds)[0].shape[0]

    def tile(leaf: jax.Array) -> jax.Array:
        return jnp.tile(leaf, (len(truths),) + (1,) * (leaf.ndim - 1))

    return Blend(jax.tree.map(tile, worlds), jnp.repeat(jnp.asarray(truths, jnp.float32), count))


def _mix(model_quality: jax.Array, real: jax.Array, learned: jax.Array) -> jax.Array:
    # A learned model may overflow far from its data; at truth 1 it has no say (0 * inf is NaN).
    return jnp.where(
        model_quality >= 1.0, real, model_quality * real + (1.0 - model_quality) * learned
    )


@functools.lru_cache(maxsize=32)
def blended_dynamics(learned: Dynamics, env: Environment) -> Dynamics:
    """Dynamics whose parameters are a `Blend`. Equal arguments give the same functions.

    The reward and the termination are the environment's known functions of the blended transition,
    so that the next state is all there is to get wrong. `uncertainty` is that of the learned model
    times `1 - model_quality`.
    """
    reward, termination = env.reward, env.termination
    if reward is None or termination is None:
        raise ConfigError("environment", env.name, "one with known reward and termination")
    model_quality = true_model(env)

    def step(
        params: Blend, key: jax.Array, observations: jax.Array, actions: jax.Array, member: PyTree
    ) -> tuple[jax.Array, StepResult]:
        real_key, learned_key = jax.random.split(key)
        real, _ = model_quality.step(None, real_key, observations, actions, None)
        guess, out = learned.model.step(params.world, learned_key, observations, actions, member)
        following = _mix(params.model_quality, real, guess)
        return following, out._replace(
            reward=reward(observations, actions, following),
            terminated=termination(observations, actions, following),
            uncertainty=_mix(
                params.model_quality, jnp.zeros_like(out.uncertainty), out.uncertainty
            ),
        )

    def sample_elites(
        params: Blend, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> EliteSamples:
        real_key, learned_key = jax.random.split(key)
        real, _ = model_quality.step(None, real_key, observations, actions, None)
        imagined = learned.sample_elites(params.world, learned_key, observations, actions)
        following = _mix(params.model_quality, real, imagined.next_observations)

        def known(function: Any) -> jax.Array:
            return jax.vmap(function, in_axes=(None, None, 0))(observations, actions, following)

        return EliteSamples(known(reward), following, known(termination))

    return Dynamics(Model(step), sample_elites, learned.members, learned.measured)


@dataclass(frozen=True)
class Config:
    """Model qualities, data, cadence, strength of the penalties.

    Attributes:
        seeds, seed: runs side by side, and the random seed.
        truths: weights of the true step at which every method is trained; must hold 0 and 1.
        ravl_truths: those at which RAVL is (it costs five times as much).
        rows: transitions of a random policy.
        ensemble: the world model.
        agent: the actor-critic.
        rollouts: lengths and numbers of model rollouts, and gradient steps between them.
        batch_size: rows of a gradient step.
        real_ratio: share of a batch that comes from the data.
        mopo_penalties: lambdas to sweep.
        mobile_penalty, mobile_samples: MOBILE's beta, and next states per elite and row.
        epochs: iterations of rollouts and updates.
        evaluations: spread evenly over the training.
        starts: start states of an evaluation.
    """

    seeds: int = positive(5)
    seed: int = 0
    truths: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    ravl_truths: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    rows: int = positive(20_000)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden_dims=(64, 64)))
    rollouts: Rollouts = Rollouts()
    batch_size: int = positive(256)
    real_ratio: float = fraction(0.05)
    mopo_penalties: tuple[float, ...] = (0.5, 1.0, 2.5, 5.0)
    mobile_penalty: float = 1.0
    mobile_samples: int = 10
    epochs: int = positive(100)
    evaluations: int = positive(10)
    starts: int = positive(32)

    def validate(self) -> None:
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")
        if not self.mopo_penalties or min(self.mopo_penalties) <= 0:
            raise ConfigError("mopo_penalties", self.mopo_penalties, "at least one, all positive")
        for name in ("truths", "ravl_truths"):
            weights = getattr(self, name)
            if weights != (0.0, *sorted({*weights} - {0.0, 1.0}), 1.0):
                raise ConfigError(name, weights, "ascending weights from 0 to 1")

    def arms(self) -> dict[str, tuple[ModelBased, tuple[float, ...]]]:
        """Every method by label ("mopo 2.5" is MOPO with that lambda), and its weights.

        At weight 1 a penalty is zero and base stands in.
        """
        names = ("agent", "rollouts", "batch_size", "real_ratio")
        same: dict[str, Any] = {name: getattr(self, name) for name in names}
        # One agent for all: MOBILE's penalty is zero where the model is true, and it is base there.
        mobile = {"penalty": self.mobile_penalty, "num_samples": self.mobile_samples}
        ravl: Any = same | {"agent": replace(self.agent, num_critics=10, eta=1.0)}
        below = self.truths[:-1]
        return {
            "base": (Base(**same), self.truths),
            **{f"mopo {x:g}": (Mopo(**same, penalty=x), below) for x in self.mopo_penalties},
            "mobile": (Mobile(**same, **mobile, sample_noise="common"), below),
            "ravl": (Ravl(**ravl), self.ravl_truths),
        }


def turn_dial(config: Config, context: RunContext | None) -> Grid:
    """Fit world models, then train every method at its weights of the true step, all vmapped.

    Returns:
        Cells by label and weight w; all that was recorded is `[seeds]`.
    """
    keys = jax.random.split(jax.random.key(config.seed), 4)
    seeds, arms = config.seeds, config.arms()
    rows = collect(PLANE, random_policy(2), None, keys[0], steps=config.rows)
    fitted = fit_world_models(
        config.ensemble, rows, keys[1], seeds=seeds, stage="plane-world", context=context
    )

    def train(arm: str, stage: str) -> Cell:
        method, truths = arms[arm]
        asked, discount = method.uncertainty(), config.agent.discount
        dynamics = blended_dynamics(fitted.dynamics(PLANE, asked.of if asked else None), PLANE)
        learner = bind(method.program(), dynamics, 2, 2)
        trained = train_learner(
            learner,
            imagination(method, rows, blend_worlds(fitted.worlds, truths)),
            keys[2],
            evaluate=plane_evaluator(learner, keys[3], config.starts, discount),
            seeds=len(truths) * seeds,
            per_seed=OWN_WORLDS,
            iterations=config.epochs,
            evaluate_every=config.epochs // config.evaluations,
            stage=stage,
            context=context,
        )
        rate = bootstrap_rate(config.agent)
        return Cell.of(trained, per_iteration=config.rollouts.every, rate=rate)

    axes = {"method": list(arms)}
    trained = run_grid(axes, train, context, seeds=seeds, stage="plane", clear=False)
    cells = {
        (arm, w): part(cell, slice(at * seeds, (at + 1) * seeds))
        for arm, cell in trained.items()
        for at, w in enumerate(arms[arm][1])
    }
    return complete(Grid(("method", "w"), cells))


def part(cell: Cell, seeds: slice) -> Cell:
    """Some seeds of a cell."""
    if cell.history is None:  # it diverged
        return cell
    history = History()
    for iteration, metrics in cell.history.records:
        history.append(iteration, {name: values[seeds] for name, values in metrics.items()})
    return replace(cell, history=history)


def complete(grid: Grid) -> Grid:
    """Give the penalised methods base's cell at w = 1, where their penalty is zero.

    There they are base: same program, same numbers (tested). Training them again would only
    draw other seeds.
    """
    at_one = {(arm, 1.0): grid["base", 1.0] for arm, _ in grid if arm != "ravl"}
    return Grid(grid.axes, {**grid.cells, **at_one})
