"""Methods trained between a learned model and the truth, on one environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.environments.pendulum import SwingUp, swing_up_policy
from jaxrl_rollouts.offline.environments.plane import MAX_EPISODE_STEPS, PLANE, optimal_return
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.methods.registry import MethodConfig, Mobile, Mopo, make_method
from jaxrl_rollouts.offline.methods.scheme import (
    OWN_WORLDS,
    ModelBasedConfig,
    imagination,
    make_model_based,
)
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.offline.worlds.blend import blend_worlds, blended_dynamics
from jaxrl_rollouts.offline.worlds.fit import fit_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.statistics import iqm


@dataclass(frozen=True)
class DialConfig:
    """One environment: data, cadence, strength of the penalties.

    Attributes:
        environment: `plane`, `pendulum` or `gymnax/Pendulum-v1`.
        rows: transitions; on the plane of a random policy, on the pendulum of a swing-up policy
            spoilt by `noise` (standard deviation) and by a share `random` of random actions.
        mopo_penalties: lambdas to sweep.
        epochs: iterations of rollouts and updates.
        episodes: per evaluation and seed.
    """

    environment: Literal["plane", "pendulum", "gymnax/Pendulum-v1"] = "plane"
    rows: int = positive(20_000)
    noise: float = 0.5
    random: float = 0.2
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden=(64, 64)))
    rollouts: ModelBasedConfig = field(default_factory=ModelBasedConfig)
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

    def arms(self) -> dict[str, MethodConfig]:
        """Every method and strength by label; the first word is the method's name."""
        mobile = Mobile(self.mobile_penalty, self.mobile_samples)
        return {
            "base": MethodConfig(),
            **{f"mopo {x:g}": MethodConfig(mopo=Mopo(x)) for x in self.mopo_penalties},
            "mobile": MethodConfig(mobile=mobile),
            "ravl": MethodConfig(),
        }


class Dial(NamedTuple):
    """One method over model quality; arrays are `[W, seeds]` or `[points, W, seeds]`.

    Attributes:
        truths: `[W]` weights of the true step.
        curves: metric -> `(updates [points], values [points, W, seeds])`.
    """

    truths: tuple[float, ...]
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def last(self, metric: str) -> np.ndarray:
        """Final values, `[W, seeds]`."""
        return self.curves[metric][1][-1]


class Domain(NamedTuple):
    """An environment ready to be studied.

    Attributes:
        zero, hundred: returns that count as scores 0 and 100.
        scale: what those are, in words.
        value_limit: the most a policy can be worth anywhere.
    """

    env: Environment
    config: DialConfig
    data: Transitions
    zero: float
    hundred: float
    scale: str
    value_limit: float

    def score(self, returns: np.ndarray) -> np.ndarray:
        """Returns on the scale of this environment, in %."""
        return 100.0 * (returns - self.zero) / (self.hundred - self.zero)


def open_domain(config: DialConfig, key: jax.Array) -> Domain:
    """Collect the data and find the ends of the score."""
    data_key, zero_key, hundred_key = jax.random.split(key, 3)
    env = make(config.environment)
    if env is PLANE:
        best = optimal_return(env.observe(env.reset(hundred_key, 20_000)))
        data = plane_random(data_key, config.rows)
        return Domain(
            env, config, data, 0.0, float(best.mean()), "% of the optimal return over "
            f"{MAX_EPISODE_STEPS} steps", 1.0 / (1.0 - config.agent.discount),
        )  # fmt: skip
    spoilt = SwingUp(noise=config.noise, random=config.random)
    data = collect(env, swing_up_policy, spoilt, data_key, steps=config.rows)
    zero = evaluate(env, random_policy(1), None, zero_key, 256).returns.mean()
    hundred = evaluate(env, swing_up_policy, SwingUp(), hundred_key, 256).returns.mean()
    scale = "%: 0 is a random policy, 100 the swing-up policy without noise"
    return Domain(env, config, data, float(zero), float(hundred), scale, 0.0)


def turn_dial(
    domain: Domain,
    truths: Mapping[str, tuple[float, ...]],
    seeds: int,
    key: jax.Array,
    context: RunContext | None,
) -> dict[str, Dial]:
    """Fit world models, then train every method at its model qualities, all vmapped.

    Args:
        domain: where.
        truths: method -> weights of the true step.
        seeds: world models and agents per weight.
        key: consumed.
        context: as for `loop.train`.

    Returns:
        label -> `Dial` ("mopo 2.5" is MOPO with that lambda).
    """
    config, env = domain.config, domain.env
    name = env.name.replace("/", "-")
    fit_key, train_key, evaluation_key = jax.random.split(key, 3)
    fitted = fit_worlds(
        config.ensemble, domain.data, fit_key, seeds=seeds, targets="change",
        stage=f"{name}-world", context=context,
    )  # fmt: skip
    dials = {}
    for label, settings in config.arms().items():
        weights = truths[label.split()[0]]
        if not weights:
            continue
        method = make_method(label.split()[0], config.agent, settings)
        dynamics = blended_dynamics(fitted.dynamics(env, method.disagreement), env)
        learner = make_model_based(
            config.rollouts, method, dynamics, env.observation_size, env.action_size
        )
        data = imagination(method, domain.data, blend_worlds(fitted.worlds, weights))
        trained = train_and_play(
            learner, data, env, (train_key, evaluation_key), episodes=config.episodes,
            discount=config.agent.discount, seeds=len(weights) * seeds, per_seed=OWN_WORLDS,
            iterations=config.epochs, evaluate_every=config.epochs // config.evaluations,
            stage=f"{name}-{label.replace(' ', '-')}", context=context,
        )  # fmt: skip
        dials[label] = _read(trained, weights, domain)
    return dials


def _read(trained: Trained, truths: tuple[float, ...], domain: Domain) -> Dial:
    curves = {}
    for metric in ("return", "discounted_return", "estimated_value", "imagined_uncertainty"):
        iterations, values = trained.history.curve(metric)
        updates = iterations * domain.config.rollouts.updates_per_epoch
        curves[metric] = updates, values.reshape(len(values), len(truths), -1)
    updates, returns = curves["return"]
    return Dial(truths, {**curves, "score": (updates, domain.score(returns))})


def complete(dials: Mapping[str, Dial], truths: tuple[float, ...]) -> dict[str, Dial]:
    """Give the penalised methods base's runs at truth 1, where their penalty is zero.

    There they are base: same program, same numbers (tested). Training them again would only
    draw other seeds.
    """
    base = dials["base"]
    at_one = base.truths.index(1.0)
    made = {}
    for label, dial in dials.items():
        missing = 1.0 not in dial.truths and label != "ravl"
        curves = {
            metric: (x, np.concatenate([y, base.curves[metric][1][:, at_one : at_one + 1]], 1))
            for metric, (x, y) in dial.curves.items()
            if missing and base.curves[metric][1].shape[0] == y.shape[0]
        }
        made[label] = dial._replace(truths=(*dial.truths, 1.0), curves=curves) if missing else dial
    return made


def best_below_one(dials: Mapping[str, Dial], name: str) -> tuple[str, float, np.ndarray]:
    """The label, weight and final scores `[seeds]` of a method's best cell with truth below 1."""
    cells = (
        (label, truth, scores)
        for label, dial in dials.items()
        for truth, scores in zip(dial.truths, dial.last("score"), strict=True)
        if label.split()[0] == name and truth < 1.0
    )
    return max(cells, key=lambda cell: float(iqm(cell[2])))
