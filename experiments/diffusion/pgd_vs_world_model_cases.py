"""What `pgd_vs_world_model` looks at: data, a target policy, models of both kinds, their paths."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import (
    Denoiser,
    DenoiserTrainingConfig,
    Guidance,
    SamplerConfig,
    TemporalUnetConfig,
    make_denoiser,
    make_temporal_unet,
    sample,
    train_denoiser,
)
from jaxrl_rollouts.diffusion.guidance import GuideParams
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.acrobot import EXPERT, pump_gaussian, pump_policy
from jaxrl_rollouts.offline.behaviours.made import MADE
from jaxrl_rollouts.offline.data import Transitions, load, take_rows, to_device
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.evaluation import evaluate_seeds
from jaxrl_rollouts.offline.study.model_based import environment_of, slug
from jaxrl_rollouts.offline.synthetic.paths import paths_of_rollout, paths_of_windows
from jaxrl_rollouts.offline.synthetic.windows import WindowLayout, cut_windows, fit_window_layout
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.dynamics import World, learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import fit_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.rollout import Members, rollout
from jaxrl_rollouts.trees import PyTree

from .budgets import windows_training

SCRIPTED = ("acrobot-broad", "acrobot-narrow")  # of `MADE`, those whose target policy is known
AGENT_ROUND = 1000  # the target policy's updates per iteration of the loop
ENSEMBLE = EnsembleConfig(members=5, elites=5, weight_decay=(2.5e-5,), max_epochs=20)


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
    unet: TemporalUnetConfig = field(default_factory=TemporalUnetConfig)
    training: DenoiserTrainingConfig = field(default_factory=lambda: windows_training(20_000))
    ensemble: EnsembleConfig = field(default_factory=lambda: ENSEMBLE)
    agent: Td3BcConfig = field(default_factory=lambda: Td3BcConfig(alpha=10.0))
    agent_updates: int = 20_000

    def validate(self) -> None:
        at_least_one(self, "agent_updates")
        if self.rows < 0:
            raise ConfigError("rows", self.rows, "at least 0")
        if self.agent_updates % min(AGENT_ROUND, self.agent_updates):
            raise ConfigError("agent_updates", self.agent_updates, f"a multiple of {AGENT_ROUND}")

    @property
    def name(self) -> str:
        return slug(self.data)


class TargetPolicy(NamedTuple):
    """Who the paths should act like.

    Attributes:
        gaussian: `(params, observations) -> (mean, std)`, what guidance takes it for.
        policy: as a rollout takes it, its mean action.
        params: leaves with a leading seed axis.
        returns: mean return per seed in the true environment, `[seeds]`.
    """

    gaussian: Callable[..., tuple[jax.Array, jax.Array]]
    policy: Callable[..., tuple[jax.Array, PyTree]]
    params: PyTree
    returns: np.ndarray


class Case(NamedTuple):
    """A dataset with everything fitted to it; `weights` and `worlds` have a leading seed axis."""

    config: CaseConfig
    env: Environment
    data: Transitions
    target: TargetPolicy
    layout: WindowLayout
    denoiser: Denoiser
    weights: PyTree
    worlds: World
    imagine: Callable[..., Transitions]
    starts: jax.Array  # [W, S], first states of the data's windows


def load_rows(config: CaseConfig, key: jax.Array) -> tuple[Environment, Transitions]:
    """The dataset and its true environment."""
    if config.data in SCRIPTED:
        return ACROBOT, MADE[config.data][1](key, config.rows)
    dataset = load(config.data)
    rows = dataset.transitions
    if 0 < config.rows < len(rows.rewards):
        rows = take_rows(rows, np.arange(config.rows))
        rows.truncations[-1] = not rows.terminations[-1]
    return environment_of(dataset), rows


def train_target(
    config: CaseConfig, env: Environment, data: Transitions, key: jax.Array, seeds: int,
    context: RunContext | None,
) -> TargetPolicy:  # fmt: skip
    """The scripted expert of the acrobot; elsewhere one agent per seed, trained on the data."""
    train_key, play_key = jax.random.split(key)
    if config.data in SCRIPTED:
        params = jax.tree.map(lambda x: jnp.full((seeds,), x), EXPERT)
        gaussian, policy = pump_gaussian, pump_policy
    else:
        per = min(AGENT_ROUND, config.agent_updates)
        learner = make_model_free(
            config.agent, env.observation_size, env.action_size, updates_per_iteration=per
        )
        done = train_learner(
            learner, to_device(data), train_key, seeds=seeds,
            iterations=config.agent_updates // per, stage=f"{config.name}-target", context=context,
        )  # fmt: skip
        gaussian, policy = learner.agent.gaussian, learner.agent.greedy
        params = done.state.agent.actor
    played = evaluate_seeds(env, policy, params, play_key, 10)
    return TargetPolicy(gaussian, policy, params, np.asarray(played.returns.mean(1)))


def prepare(
    config: CaseConfig, horizon: int, seeds: int, key: jax.Array, context: RunContext | None,
    stride: int = 8,
) -> Case:  # fmt: skip
    """Load, and fit the target policy, the diffusion model and the ensemble, seeds side by side.

    Raises:
        ConfigError: the environment is one whose episodes end, or whose state is hidden.
        DataError: every episode is shorter than a window.
    """
    data_key, target_key, weights_key, world_key = jax.random.split(key, 4)
    env, data = load_rows(config, data_key)
    if env.termination is not never:
        raise ConfigError("data", config.data, "an environment whose episodes never terminate")
    target = train_target(config, env, data, target_key, seeds, context)
    windows = cut_windows(data, horizon + 1, stride, source=config.data)
    layout = fit_window_layout(windows)
    denoiser = make_denoiser(make_temporal_unet(config.unet, layout.length, layout.channels))
    done = train_denoiser(
        denoiser, config.training, layout.pack(windows), jax.random.split(weights_key, seeds),
        stage=f"{config.name}-denoiser", context=context,
    )  # fmt: skip
    fitted = fit_worlds(
        config.ensemble, data, world_key, seeds=seeds, targets="change",
        stage=f"{config.name}-world", context=context,
    )  # fmt: skip
    dynamics = learned_dynamics(fitted.model.fitter, fitted.model.elites, termination=never)

    @functools.partial(jax.jit, static_argnames="steps")
    def imagine(
        world: World, actor: PyTree, key: jax.Array, starts: jax.Array, steps: int
    ) -> Transitions:
        members = Members(jnp.arange(fitted.model.elites, dtype=jnp.int32), per="step")
        return paths_of_rollout(
            rollout(
                dynamics.model, world, starts, key, horizon=steps, policy=target.policy,
                policy_params=actor, members=members,
            )
        )  # fmt: skip

    return Case(
        config, env, data, target, layout, denoiser, done.state.average, fitted.worlds, imagine,
        jnp.asarray(windows.observations[:, 0]),
    )  # fmt: skip


def ensemble_paths(case: Case, key: jax.Array, count: int, steps: int) -> list[Transitions]:
    """The target policy rolled in each seed's ensemble from first states of the data's windows."""
    paths = []
    for seed, own_key in enumerate(jax.random.split(key, len(case.target.returns))):
        start_key, roll_key = jax.random.split(own_key)
        starts = case.starts[jax.random.randint(start_key, (count,), 0, len(case.starts))]
        world, actor = jax.tree.map(lambda x, seed=seed: x[seed], (case.worlds, case.target.params))
        paths.append(case.imagine(world, actor, roll_key, starts, steps))
    return jax.tree.map(np.asarray, paths)


def data_paths(case: Case, key: jax.Array, count: int) -> list[Transitions]:
    """Windows of the dataset itself, others for each seed."""
    packed = case.layout.pack(cut_windows(case.data, case.layout.length, 8))
    seeds = len(case.target.returns)
    rows = jax.random.randint(key, (seeds, count), 0, packed.shape[0])
    return [jax.tree.map(np.asarray, paths_of_windows(case.layout, packed[r])) for r in rows]


def make_drawing(
    case: Case, guidance: Guidance | None, sampler: SamplerConfig, count: int
) -> Callable[[jax.Array, Iterable[float]], list[list[Transitions]]]:
    """A sampler of guided windows: `(key, coefficients) -> paths`, per coefficient and seed.

    Every coefficient starts from the same noise, so that what differs is the guidance.
    """
    shape = count, case.layout.length, case.layout.channels

    def one(of_seed: tuple, coefficient: jax.Array) -> jax.Array:
        weights, actor, key = of_seed
        return sample(
            case.denoiser.denoise, weights, key, shape, config=sampler, edm=case.denoiser.config,
            guidance=guidance, guide_params=GuideParams(actor, coefficient),
        )  # fmt: skip

    def draw(key: jax.Array, coefficients: Iterable[float]) -> list[list[Transitions]]:
        keys = jax.random.split(key, len(case.target.returns))
        found = []
        for coefficient in coefficients:
            of_seeds = (case.weights, case.target.params, keys)
            windows = map_seeds(one, of_seeds, jnp.float32(coefficient))
            found.append(
                [jax.tree.map(np.asarray, paths_of_windows(case.layout, w)) for w in windows]
            )
        return found

    return draw
