"""Denoisers, samplers and agents of `sampler_steps`: draw, time, judge, learn from the samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import (
    Denoiser,
    DenoiserTrainingConfig,
    ResidualMlpConfig,
    SamplerConfig,
    TemporalUnetConfig,
    make_denoiser,
    make_residual_mlp,
    make_temporal_unet,
    sample,
    small_training,
    train_denoiser,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.grid import Cell, Grid, run_grid
from jaxrl_rollouts.experiments.kit.timing import timed
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.study.model_based import Setting
from jaxrl_rollouts.offline.synthetic.quality import dynamics_error, sliced_wasserstein
from jaxrl_rollouts.offline.synthetic.synther import fit_layout
from jaxrl_rollouts.offline.synthetic.windows import cut_windows, fit_window_layout
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import stack

Context = RunContext | None
CHURN = SamplerConfig().churn


@dataclass(frozen=True)
class Config:
    """Data, networks and samplers.

    Attributes:
        dataset: its environment's observation must determine the state.
        seeds, seed: denoisers trained side by side.
        mlp, mlp_training: the network of transitions.
        unet, unet_training: that of windows.
        length: states of a window.
        steps: numbers of noise levels, ascending.
        churns: values of S_churn.
        rows, windows: drawn per seed and sampler.
        agent: TD3+BC, trained on what was drawn with the first churn and nothing else.
        iterations, updates, batch_size: of its training; updates are those of an iteration.
        episodes: it is played per seed.
    """

    dataset: str = "acrobot-broad"
    seeds: int = 4
    seed: int = 0
    mlp: ResidualMlpConfig = ResidualMlpConfig(width=128)
    mlp_training: DenoiserTrainingConfig = small_training(20_000, 256)
    unet: TemporalUnetConfig = TemporalUnetConfig()
    unet_training: DenoiserTrainingConfig = small_training(10_000, 64)
    length: int = 16
    steps: tuple[int, ...] = (16, 32, 64, 128, 256)
    churns: tuple[float, ...] = (CHURN, 0.0)
    rows: int = 4096
    windows: int = 256
    agent: Td3BcConfig = Td3BcConfig(hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3)
    iterations: int = 5
    updates: int = 1000
    batch_size: int = 256
    episodes: int = 10

    def validate(self) -> None:
        at_least_one(
            self, "seeds", "rows", "windows", "iterations", "updates", "batch_size", "episodes"
        )
        if list(self.steps) != sorted(set(self.steps)) or min(self.steps, default=0) < 2:
            raise ConfigError("steps", self.steps, "at least one, ascending, from 2")
        if not self.churns:
            raise ConfigError("churns", self.churns, "at least one")


class Subject(NamedTuple):
    """One kind of denoiser with its data.

    Attributes:
        denoiser, training: functions and optimisation.
        rows: `[N, ...]` standardised training rows.
        samples: drawn per seed.
        unpack: rows to transitions.
    """

    denoiser: Denoiser
    training: DenoiserTrainingConfig
    rows: jax.Array
    samples: int
    unpack: Callable[[jax.Array], Transitions]


def subjects(config: Config, data: Transitions, source: str) -> dict[str, Subject]:
    """The MLP of transitions and the U-Net of windows."""
    layout = fit_layout(data)
    cut = cut_windows(data, config.length, 4, source=source)
    windows = fit_window_layout(cut)

    def valid(rows: jax.Array) -> Transitions:
        transitions, whole = windows.unpack(rows)
        return take_rows(transitions, np.flatnonzero(whole))

    mlp = make_denoiser(make_residual_mlp(config.mlp, layout.features))
    unet = make_denoiser(make_temporal_unet(config.unet, config.length, windows.channels))
    return {
        "mlp": Subject(mlp, config.mlp_training, layout.pack(data), config.rows, layout.unpack),
        "unet": Subject(unet, config.unet_training, windows.pack(cut), config.windows, valid),
    }


def measure(
    subject: Subject,
    params: Any,
    sampler: SamplerConfig,
    env: Environment,
    scale: Transitions,
    key: jax.Array,
) -> tuple[dict[str, Any], list[Transitions]]:
    """Draw with every seed's weights, in turn timed and judged.

    Args:
        subject: which denoiser.
        params: `[seeds, ...]`.
        sampler: number of steps and churn.
        env: the true simulator.
        scale: data whose standard deviations are the units of errors.
        key: consumed.

    Returns:
        What was measured: `seconds` of all seeds' draws and, each `[seeds]`, `distance` (sliced
        Wasserstein, from real rows), `next_observation` and `reward` (mean squared errors in the
        simulator); and every seed's transitions.
    """
    shape, denoiser = (subject.samples, *subject.rows.shape[1:]), subject.denoiser

    def draw(per_seed: tuple[Any, jax.Array], shared: tuple) -> jax.Array:
        return sample(denoiser.denoise, *per_seed, shape, config=sampler, edm=denoiser.config)

    draw_key, real_key, look_key = jax.random.split(key, 3)
    per_seed = params, jax.random.split(draw_key, len(jax.tree.leaves(params)[0]))
    drawn = map_seeds(draw, per_seed)
    seconds = timed(lambda: map_seeds(draw, per_seed))
    samples = [subject.unpack(rows) for rows in drawn]
    real = real_rows(subject, real_key)
    errors = [dynamics_error(env, rows, scale, look_key) for rows in samples]
    measured = {
        "seconds": seconds,
        "distance": np.array([distance(real, rows) for rows in drawn]),
        "next_observation": np.array([error.next_observation.mean() for error in errors]),
        "reward": np.array([error.reward.mean() for error in errors]),
    }
    return measured, samples


def measure_net(
    net: str, subject: Subject, config: Config, setting: Setting, key: jax.Array, context: Context
) -> tuple[Grid, Cell]:
    """Train a network and sample it at every churn and number of steps, as a grid.

    Agents learn from samples of the first churn. Beside the grid: what real rows in the place of
    samples give, the `distance` that no sampler goes below and agents' `return`.
    """
    env, data = setting.env, setting.dataset.transitions
    # The same for every sampler: what differs between them is the number of steps.
    fit_key, look_key, learn_key, real_key = jax.random.split(key, 4)
    keys = jax.random.split(fit_key, config.seeds)
    denoiser, training, rows = subject[:3]
    trained = train_denoiser(denoiser, training, rows, keys, stage=net, context=context)

    def cell(churn: float, steps: int, *, stage: str) -> Cell:
        def measured() -> dict[str, Any]:
            sampler = SamplerConfig(steps, churn=churn)
            numbers, samples = measure(subject, trained.state.average, sampler, env, data, look_key)
            if churn == config.churns[0]:
                numbers["return"] = learn(samples, env, config, learn_key, stage, context)
            return numbers

        return Cell(measure=measured)

    samples = real_samples(subject, real_key, config.seeds)
    earned = learn(samples, env, config, learn_key, f"{net}-real", context)
    axes = {"S_churn": config.churns, "steps": config.steps}
    grid = run_grid(axes, cell, context, seeds=config.seeds, stage=net, clear=False)
    return grid, Cell(extra={"distance": floor(subject, look_key), "return": earned})


def learn(
    samples: list[Transitions],
    env: Environment,
    config: Config,
    key: jax.Array,
    stage: str,
    context: Context,
) -> np.ndarray:
    """Train an agent per seed on its rows alone; what it earns, `[seeds]`.

    Seeds have equally many rows: as many as the one with the fewest (windows stop where an episode
    ends).
    """
    least = min(len(rows.rewards) for rows in samples)
    data = stack([take_rows(rows, np.arange(least)) for rows in samples])
    sizes = {"batch_size": config.batch_size, "updates_per_iteration": config.updates}
    learner = make_model_free(config.agent, env.observation_size, env.action_size, **sizes)
    play = {"episodes": config.episodes, "discount": config.agent.discount}
    budget = {"seeds": len(samples), "per_seed": True, "iterations": config.iterations}
    keys = tuple(jax.random.split(key))
    trained = train_and_play(
        learner, data, env, keys, **play, **budget, stage=stage, context=context
    )
    return trained.history.last("return")


def real_samples(subject: Subject, key: jax.Array, seeds: int) -> list[Transitions]:
    """What `measure` would return as samples if a sampler drew from the data themselves."""
    return [subject.unpack(real_rows(subject, k)) for k in jax.random.split(key, seeds)]


def real_rows(subject: Subject, key: jax.Array) -> jax.Array:
    """As many training rows as are sampled, drawn with replacement."""
    index = jax.random.randint(key, (subject.samples,), 0, len(subject.rows))
    return subject.rows[index]


def distance(real: jax.Array, rows: jax.Array) -> float:
    """Sliced Wasserstein distance of `[N, ...]` rows."""
    return sliced_wasserstein(*(np.asarray(x).reshape(len(x), -1) for x in (real, rows)))


def floor(subject: Subject, key: jax.Array) -> float:
    """The distance of two draws of real rows: what no sampler goes below."""
    return distance(*(real_rows(subject, k) for k in jax.random.split(key)))
