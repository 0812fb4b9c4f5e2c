"""What `pgd_vs_world_model` looks at: data, a target policy, models of both kinds, their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    GuidanceConfig,
    SamplerConfig,
    small_training,
)
from jaxrl_rollouts.diffusion import TemporalUnetConfig as Unet
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.acrobot import EXPERT, pump_gaussian, pump_policy
from jaxrl_rollouts.offline.behaviours.made import MADE
from jaxrl_rollouts.offline.data import Transitions, load, take_rows, to_device
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.evaluation import evaluate_seeds
from jaxrl_rollouts.offline.study.setting import environment_of, hold_data
from jaxrl_rollouts.offline.study.source import slug
from jaxrl_rollouts.offline.synthetic import paths
from jaxrl_rollouts.offline.synthetic.paths import PathQuality, paths_of_windows
from jaxrl_rollouts.offline.synthetic.pgd import guided_windows
from jaxrl_rollouts.offline.synthetic.windows import WindowModel, cut_windows, fit_window_models
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.dynamics import World, learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import fit_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree, unstack

RULES: Mapping[str, GuidanceConfig] = {
    "published": GuidanceConfig(),
    "published, noised": GuidanceConfig(reference="noised"),
    "calibrated": GuidanceConfig(rule="calibrated"),
    "calibrated, joint": GuidanceConfig(rule="calibrated", spread="joint"),
}
SCRIPTED = ("acrobot-broad", "acrobot-narrow")  # of `MADE`, those whose target policy is known
AGENT_ROUND = 1000  # the target policy's updates per iteration of the loop
STRIDE = 8  # rows between two windows of the data
ENSEMBLE = EnsembleConfig(members=5, elites=5, weight_decay=(2.5e-5,), max_epochs=20)


def windows_training(updates: int, *, batch: int = 64) -> DenoiserTrainingConfig:
    """As for a small budget, averaged over more updates."""
    small = small_training(updates, batch)
    return replace(small, average=0.999, per_iteration=min(500, updates))


@dataclass(frozen=True)
class CaseConfig:
    """One dataset, and the budget of what is fitted to it.

    Attributes:
        data: `acrobot-broad` or `acrobot-narrow` (made on the spot), or a dataset's name or file.
        rows: how many of it; 0 takes a file whole.
        unet, training: of the diffusion model.
        ensemble: of the autoregressive one; its epochs are the budget.
        agent, agent_updates: the target policy, trained on the same data with little imitation;
            for the acrobot it is the scripted expert.
    """

    data: str = "acrobot-broad"
    rows: int = 80_000
    unet: Unet = Unet()
    training: DenoiserTrainingConfig = windows_training(20_000)
    ensemble: EnsembleConfig = ENSEMBLE
    agent: Td3BcConfig = Td3BcConfig(alpha=10.0)
    agent_updates: int = positive(20_000)

    def validate(self) -> None:
        if self.rows < 0:
            raise ConfigError("rows", self.rows, "at least 0")
        if self.agent_updates % min(AGENT_ROUND, self.agent_updates):
            raise ConfigError("agent_updates", self.agent_updates, f"a multiple of {AGENT_ROUND}")


@dataclass(frozen=True)
class Config:
    """Datasets, coefficients and lengths.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        broad, narrow, mujoco: the cases; None leaves one out.
        horizon: transitions per window of the diffusion model.
        long_horizon: how far the ensemble is rolled, to see where it loses what it had.
        windows: paths per seed and source.
        steps: of the sampler; also of every rule's sweep.
        many_steps: of a second sweep of the published rule; 0 for none.
        published, calibrated, joint: coefficients of those rules at `steps` (`joint` may be empty).
        published_many: coefficients at `many_steps`.
        noised: those at which the gradient is also taken at the noised sample.
        reference: the coefficient claims are about; one of `published`.
    """

    seeds: int = positive(4)
    seed: int = 0
    broad: CaseConfig | None = CaseConfig()
    narrow: CaseConfig | None = CaseConfig("acrobot-narrow", rows=20_000)
    mujoco: CaseConfig | None = CaseConfig("halfcheetah-medium", rows=0)
    horizon: int = positive(32)
    long_horizon: int = 128
    windows: int = positive(256)
    steps: int = positive(32)
    many_steps: int = 128
    published: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    published_many: tuple[float, ...] = (0.25, 0.5, 1.0, 4.0)
    calibrated: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    joint: tuple[float, ...] = ()
    noised: tuple[float, ...] = (1.0,)
    reference: float = 2.0

    def validate(self) -> None:
        if not self.cases():
            raise ConfigError("broad, narrow, mujoco", None, "at least one case")
        if self.long_horizon < self.horizon:
            expected = f"at least the horizon ({self.horizon})"
            raise ConfigError("long_horizon", self.long_horizon, expected)
        if self.reference not in self.published:
            raise ConfigError("reference", self.reference, f"one of published {self.published}")
        for name in ("published", "published_many", "calibrated", "joint", "noised"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)) or (values and values[0] <= 0):
                raise ConfigError(name, values, "ascending, above 0")

    def cases(self) -> Mapping[str, CaseConfig]:
        """Those that are there, by their names."""
        every = {"broad": self.broad, "narrow": self.narrow, "mujoco": self.mujoco}
        return {name: case for name, case in every.items() if case is not None}

    def sweeps(self) -> list[tuple[str, int, tuple[float, ...]]]:
        """Rule, sampler steps and coefficients; 0 is unguided diffusion."""
        sweeps = [
            ("published", self.steps, (0.0, *self.published)),
            ("published, noised", self.steps, self.noised),
            ("calibrated", self.steps, self.calibrated),
            ("calibrated, joint", self.steps, self.joint),
            ("published", self.many_steps, (0.0, *self.published_many)),
        ]
        return [sweep for sweep in sweeps if sweep[1] and sweep[2]]


class TargetPolicy(NamedTuple):
    """Who the paths should act like."""

    gaussian: Callable  # (params, observations) -> (mean, std), what guidance takes it for
    policy: Callable  # as a rollout takes it, its mean action
    params: PyTree  # with a leading seed axis
    returns: np.ndarray  # [seeds], means in the true environment


class Case(NamedTuple):
    """A dataset with everything fitted to it; `model` and `worlds` are every seed's."""

    config: CaseConfig
    env: Environment
    data: Transitions
    target: TargetPolicy
    model: WindowModel
    worlds: World
    imagine: Callable[..., Transitions]
    starts: jax.Array  # [W, S], first states of the data's windows


class Source(NamedTuple):
    """Where paths come from."""

    rule: str  # `data`, `ensemble`, `unguided`, or the name of a rule of guidance
    steps: int = 0  # of the sampler; 0 where nothing is sampled
    coefficient: float = 0.0  # of the guidance


def load_rows(
    config: CaseConfig, key: jax.Array, context: RunContext | None = None
) -> tuple[Environment, Transitions]:
    """The true environment and the dataset's rows; `DataError` where the run began with others."""
    if config.data in SCRIPTED:
        return ACROBOT, MADE[config.data][1](key, config.rows)
    dataset = load(config.data)
    hold_data(dataset, context)
    rows = dataset.with_successors
    if 0 < config.rows < len(rows.rewards):
        rows = take_rows(rows, np.arange(config.rows))
        rows.truncations[-1] = not rows.terminations[-1]
    return environment_of(dataset), rows


def train_target(
    config: CaseConfig,
    env: Environment,
    data: Transitions,
    key: jax.Array,
    seeds: int,
    context: RunContext | None,
) -> TargetPolicy:
    """The scripted expert of the acrobot; elsewhere one agent per seed, trained on the data."""
    train_key, play_key = jax.random.split(key)
    if config.data in SCRIPTED:
        params = jax.tree.map(lambda x: jnp.full((seeds,), x), EXPERT)
        gaussian, policy = pump_gaussian, pump_policy
    else:
        per, sizes = min(AGENT_ROUND, config.agent_updates), (env.observation_size, env.action_size)
        learner = make_model_free(config.agent, *sizes, updates_per_iteration=per)
        run = {"stage": f"{slug(config.data)}-target", "context": context, "seeds": seeds}
        run["iterations"] = config.agent_updates // per
        trained = train_learner(learner, to_device(data), train_key, **run)
        gaussian, policy = learner.agent.gaussian, learner.agent.greedy
        params = trained.state.agent.actor
        assert gaussian is not None  # TD3+BC has one
    played = evaluate_seeds(env, policy, params, play_key, 10)
    return TargetPolicy(gaussian, policy, params, np.asarray(played.returns.mean(1)))


def prepare(
    config: CaseConfig, horizon: int, seeds: int, key: jax.Array, context: RunContext | None
) -> Case:
    """Load, and fit the target policy, the diffusion model and the ensemble, seeds side by side.

    Raises:
        ConfigError: the environment is one whose episodes end, or whose state is hidden.
        DataError: every episode is shorter than a window.
    """
    data_key, target_key, windows_key, world_key = jax.random.split(key, 4)
    env, data = load_rows(config, data_key, context)
    if env.termination is not never:
        raise ConfigError("data", config.data, "an environment whose episodes never terminate")
    target = train_target(config, env, data, target_key, seeds, context)
    windows = cut_windows(data, horizon + 1, STRIDE, source=config.data)
    keys = jax.random.split(windows_key, seeds)
    run = {"stage": f"{slug(config.data)}-denoiser", "context": context}
    model = fit_window_models(windows, config.unet, config.training, keys, **run)
    run = {"stage": f"{slug(config.data)}-world", "context": context}
    fitted = fit_worlds(config.ensemble, data, world_key, seeds=seeds, **run)
    elites = fitted.model.elites
    dynamics = learned_dynamics(fitted.model.fitter, elites, termination=never)
    imagine = paths.imagine_paths(dynamics.model, elites, target.policy)
    starts = jnp.asarray(windows.observations[:, 0])
    return Case(config, env, data, target, model, fitted.worlds, imagine, starts)


def ensemble_paths(case: Case, key: jax.Array, count: int, steps: int) -> list[Transitions]:
    """The target policy rolled in each seed's ensemble from first states of the data's windows."""
    rolled, keys = [], jax.random.split(key, len(case.target.returns))
    seeds = zip(unstack(case.worlds), unstack(case.target.params), keys, strict=True)
    for world, actor, seed_key in seeds:
        start_key, roll_key = jax.random.split(seed_key)
        starts = case.starts[jax.random.randint(start_key, (count,), 0, len(case.starts))]
        rolled.append(case.imagine(world, actor, roll_key, starts, steps))
    return jax.tree.map(np.asarray, rolled)


def data_paths(case: Case, key: jax.Array, count: int) -> list[Transitions]:
    """Windows of the dataset itself, others for each seed."""
    layout = case.model.layout
    packed = layout.pack(cut_windows(case.data, layout.length, STRIDE))
    rows = jax.random.randint(key, (len(case.target.returns), count), 0, packed.shape[0])
    return [jax.tree.map(np.asarray, paths_of_windows(layout, packed[r])) for r in rows]


def measure_sources(case: Case, config: Config, key: jax.Array) -> dict[Source, PathQuality]:
    """Draw from every source and measure its paths, every seed's under the seed's own policy."""
    data_key, roll_key, draw_key, key = jax.random.split(key, 4)
    count, target, layout = config.windows, case.target, case.model.layout

    def measure(imagined: list[Transitions]) -> PathQuality:
        policy = target.gaussian, target.params
        return paths.path_quality_of_seeds(case.env, imagined, case.data, *policy, key)

    measured = {Source("data"): measure(data_paths(case, data_key, count))}
    rolled = ensemble_paths(case, roll_key, count, config.long_horizon)
    measured[Source("ensemble")] = measure(rolled)
    keys = jax.random.split(draw_key, len(target.returns))
    policies = case.model, target.gaussian, target.params, keys, count
    for rule, steps, coefficients in config.sweeps():
        settings = {"guidance": RULES[rule], "sampler": SamplerConfig(steps)}
        swept = guided_windows(*policies, coefficients, **settings)
        for coefficient, windows in zip(coefficients, swept, strict=True):
            source = Source(rule, steps, coefficient) if coefficient else Source("unguided", steps)
            measured[source] = measure([paths_of_windows(layout, own) for own in windows])
    return measured
