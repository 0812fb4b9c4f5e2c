"""Methods trained between a learned model and the truth, on one environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import fraction, positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.environments.pendulum import SwingUp, swing_up_policy
from jaxrl_rollouts.offline.environments.plane import MAX_EPISODE_STEPS, PLANE
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.mobile import Mobile
from jaxrl_rollouts.offline.methods.model_based import ModelBased, Rollouts, bind
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.ravl import Ravl
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.offline.worlds.fit import fit_world_models
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History

from .blend import blend_worlds, blended_dynamics
from .plane import OWN_WORLDS, imagination, optimal_return


@dataclass(frozen=True)
class DialConfig:
    """One environment: data, cadence, strength of the penalties.

    Attributes:
        environment: `plane`, `pendulum` or `gymnax/Pendulum-v1`.
        rows: transitions; on the plane of a random policy, on the pendulum of a swing-up policy
            spoilt by `noise` (standard deviation) and by a share `random` of random actions.
        noise: standard deviation of what spoils the data's actions, on the pendulum.
        random: share of actions that are random, on the pendulum.
        ensemble: the world model.
        agent: the actor-critic.
        rollouts: lengths and numbers of model rollouts, and gradient steps between them.
        batch_size: rows of a gradient step.
        real_ratio: of a batch that comes from the data.
        mopo_penalties: lambdas to sweep.
        mobile_penalty, mobile_samples: MOBILE's beta, and next states per elite and row.
        epochs: iterations of rollouts and updates.
        evaluations: spread evenly over the training.
        episodes: per evaluation and seed.
    """

    environment: Literal["plane", "pendulum", "gymnax/Pendulum-v1"] = "plane"
    rows: int = positive(20_000)
    noise: float = 0.5
    random: float = 0.2
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
    episodes: int = positive(32)

    def validate(self) -> None:
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")
        if not self.mopo_penalties or min(self.mopo_penalties) <= 0:
            raise ConfigError("mopo_penalties", self.mopo_penalties, "at least one, all positive")

    def arms(self) -> dict[str, ModelBased]:
        """Every method and strength by label ("mopo 2.5" is MOPO with that lambda)."""
        names = ("agent", "rollouts", "batch_size", "real_ratio")
        same: dict[str, Any] = {name: getattr(self, name) for name in names}
        # One agent for all: MOBILE's penalty is zero where the model is true, and it is base there.
        mobile = {"penalty": self.mobile_penalty, "num_samples": self.mobile_samples}
        ravl: Any = same | {"agent": replace(self.agent, num_critics=10, eta=1.0)}
        return {
            "base": Base(**same),
            **{f"mopo {x:g}": Mopo(**same, penalty=x) for x in self.mopo_penalties},
            "mobile": Mobile(**same, **mobile, sample_noise="common"),
            "ravl": Ravl(**ravl),
        }


def method_of(arm: str) -> str:
    """The method that a label begins with."""
    return arm.split()[0]


@dataclass(frozen=True)
class Config:
    """Model qualities and environments.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        truths: weights of the true step at which every method is trained; must hold 0 and 1.
        ravl_truths: those at which RAVL is (it costs five times as much).
        plane, standard: the two environments; None leaves the second out.
    """

    seeds: int = positive(5)
    seed: int = 0
    truths: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    ravl_truths: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    plane: DialConfig = field(default_factory=DialConfig)
    standard: DialConfig | None = field(
        default_factory=lambda: DialConfig(environment="gymnax/Pendulum-v1")
    )

    def validate(self) -> None:
        for name in ("truths", "ravl_truths"):
            weights = getattr(self, name)
            if weights != (0.0, *sorted({*weights} - {0.0, 1.0}), 1.0):
                raise ConfigError(name, weights, "ascending weights from 0 to 1")

    def of_method(self) -> Mapping[str, tuple[float, ...]]:
        """Weights at which each method is trained; at 1 a penalty is zero and base stands in."""
        below = tuple(w for w in self.truths if w < 1.0)
        return {"base": self.truths, "mopo": below, "mobile": below, "ravl": self.ravl_truths}


class Domain(NamedTuple):
    """An environment ready to be studied.

    Attributes:
        zero, hundred: returns that count as scores 0 and 100.
        scale: what those are, in words.
        value_limit: the most a policy can be worth anywhere.
        edge: whether rollouts leave what the data cover; without, it is a control.
    """

    env: Environment
    config: DialConfig
    data: Transitions
    zero: float
    hundred: float
    scale: str
    value_limit: float
    edge: bool

    def score(self, returns: np.ndarray) -> np.ndarray:
        """Returns on the scale of this environment, in %."""
        return 100.0 * (returns - self.zero) / (self.hundred - self.zero)


def open_domain(config: DialConfig, key: jax.Array) -> Domain:
    """Collect the data and find the ends of the score."""
    data_key, zero_key, hundred_key = jax.random.split(key, 3)
    env = make(config.environment)
    if env is PLANE:
        best = optimal_return(env.observe(env.reset(hundred_key, 20_000))).mean()
        data = collect(env, random_policy(env.action_size), None, data_key, steps=config.rows)
        limit = 1.0 / (1.0 - config.agent.discount)
        scale = f"% of the optimal return over {MAX_EPISODE_STEPS} steps"
        return Domain(env, config, data, 0.0, float(best), scale, limit, edge=True)
    spoilt = SwingUp(noise=config.noise, random=config.random)
    data = collect(env, swing_up_policy, spoilt, data_key, steps=config.rows)
    zero = evaluate(env, random_policy(1), None, zero_key, 256).returns.mean()
    hundred = evaluate(env, swing_up_policy, SwingUp(), hundred_key, 256).returns.mean()
    scale = "%: 0 is a random policy, 100 the swing-up policy without noise"
    return Domain(env, config, data, float(zero), float(hundred), scale, 0.0, edge=False)


def turn_dial(whole: Config, domain: Domain, key: jax.Array, context: RunContext | None) -> Grid:
    """Fit world models, then train every method at its weights of the true step, all vmapped.

    Returns:
        Cells by label and weight w; `score` and all that was recorded are `[seeds]`.
    """
    config, env, seeds, weights = domain.config, domain.env, whole.seeds, whole.of_method()
    place = env.name.replace("/", "-")
    fit_key, train_key, evaluation_key = jax.random.split(key, 3)
    fitted = fit_world_models(
        config.ensemble, domain.data, fit_key, seeds=seeds, stage=f"{place}-world", context=context
    )
    arms = {arm: settings for arm, settings in config.arms().items() if weights[method_of(arm)]}

    def train(arm: str, stage: str) -> Cell:
        method, truths = arms[arm], weights[method_of(arm)]
        asked = method.uncertainty()
        dynamics = blended_dynamics(fitted.dynamics(env, asked.of if asked else None), env)
        sizes = env.observation_size, env.action_size
        learner, discount = bind(method.program(), dynamics, *sizes), config.agent.discount
        trained = train_learner(
            learner,
            imagination(method, domain.data, blend_worlds(fitted.worlds, truths)),
            train_key,
            evaluate=evaluator(learner, env, evaluation_key, config.episodes, discount=discount),
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
    trained = run_grid(axes, train, context, seeds=seeds, stage=place, clear=False)
    cells = {
        (arm, w): part(domain, cell, slice(at * seeds, (at + 1) * seeds))
        for arm, cell in trained.items()
        for at, w in enumerate(weights[method_of(arm)])
    }
    return complete(Grid(("method", "w"), cells))


def part(domain: Domain, cell: Cell, seeds: slice) -> Cell:
    """Some seeds of a cell, with their `score` in this domain."""
    if cell.history is None:  # it diverged
        return cell
    history = History()
    for iteration, metrics in cell.history.records:
        chosen = {name: values[seeds] for name, values in metrics.items()}
        if "return" in chosen:
            chosen["score"] = domain.score(chosen["return"])
        history.append(iteration, chosen)
    return replace(cell, history=history)


def complete(grid: Grid) -> Grid:
    """Give the penalised methods base's cell at w = 1, where their penalty is zero.

    There they are base: same program, same numbers (tested). Training them again would only
    draw other seeds.
    """
    at_one = {(arm, 1.0): grid["base", 1.0] for arm, _ in grid if arm != "ravl"}
    return Grid(grid.axes, {**grid.cells, **at_one})
