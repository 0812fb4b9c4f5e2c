"""What a diffusion model's sampling costs and what it gives, by the number of steps.

A residual MLP learns transitions and a temporal U-Net learns windows of one dataset whose simulator
can be set to any state. Both are sampled at every number of steps, with churn and without, and
judged by the simulator (dynamics error) and as a distribution (sliced Wasserstein distance).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    UnetConfig,
    make_denoiser,
    make_residual_mlp,
    make_unet,
    sample,
    train_denoiser,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiment import RunContext
from jaxrl_rollouts.experiments.speed.timing import timed
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.pgd import PgdConfig
from jaxrl_rollouts.offline.synther import fit_layout
from jaxrl_rollouts.offline.synthetic_quality import dynamics_error, sliced_wasserstein
from jaxrl_rollouts.offline.windows import cut_windows, fit_window_layout

SOURCE = "Karras et al. 2022 (EDM), arXiv 2206.00364, figure 2; the project's goals"
NEAR = 1.25  # times the dynamics error of the most steps that are "enough"
CHURN = SamplerConfig().churn
DEFAULTS: Mapping[str, int] = {"mlp": SamplerConfig().steps, "unet": PgdConfig().sampler.steps}


def denoiser_training(updates: int, batch: int, *, rate: float = 1e-3) -> DenoiserTrainingConfig:
    """Adam for a small budget: a tenth is warm-up, the average goes back a twentieth of it."""
    per = max(updates // 10, 1)
    return DenoiserTrainingConfig(
        updates=updates, batch=batch, rate=rate, betas=(0.9, 0.999), warmup=per,
        average=1.0 - min(0.5, 20.0 / updates), average_every=1, per_iteration=per,
    )  # fmt: skip


@dataclass(frozen=True)
class QualityConfig:
    """Data, networks and samplers.

    Attributes:
        dataset: its environment's observation must determine the state.
        seeds, seed: denoisers trained side by side.
        mlp, mlp_training: the network of transitions.
        unet, unet_training: that of windows.
        length: states of a window.
        steps: numbers of noise levels, ascending; none leaves this part out.
        churns: values of S_churn.
        rows, windows: drawn per seed and sampler.
    """

    dataset: str = "acrobot-broad"
    seeds: int = 4
    seed: int = 0
    mlp: ResidualMlpConfig = field(default_factory=lambda: ResidualMlpConfig(width=128))
    mlp_training: DenoiserTrainingConfig = field(
        default_factory=lambda: denoiser_training(20_000, 256)
    )
    unet: UnetConfig = field(default_factory=UnetConfig)
    unet_training: DenoiserTrainingConfig = field(
        default_factory=lambda: denoiser_training(10_000, 64)
    )
    length: int = 16
    steps: tuple[int, ...] = (16, 32, 64, 128, 256)
    churns: tuple[float, ...] = (CHURN, 0.0)
    rows: int = 2048
    windows: int = 256

    def validate(self) -> None:
        at_least_one(self, "seeds", "rows", "windows")
        if list(self.steps) != sorted(set(self.steps)) or min(self.steps, default=2) < 2:
            raise ConfigError("quality.steps", self.steps, "ascending, from 2")
        if self.steps and not self.churns:
            raise ConfigError("quality.churns", self.churns, "at least one")


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


class Measured(NamedTuple):
    """One sampler of one kind; every array is `[seeds]` but `seconds`, the time of all seeds."""

    seconds: float
    distance: np.ndarray
    next_observation: np.ndarray
    reward: np.ndarray


Found = dict[tuple[str, float, int], Measured]  # (kind, churn, steps)


def subjects(config: QualityConfig, data: Transitions, source: str) -> dict[str, Subject]:
    """The MLP of transitions and the U-Net of windows."""
    layout = fit_layout(data)
    rows = layout.pack(data)
    windows = cut_windows(data, config.length, 4, source=source)
    cut = fit_window_layout(windows)
    packed = cut.pack(windows)

    def kept(rows: jax.Array) -> Transitions:
        made, valid = cut.unpack(rows)
        return take_rows(made, np.flatnonzero(valid))

    mlp = make_denoiser(make_residual_mlp(config.mlp, layout.features))
    unet = make_denoiser(make_unet(config.unet, config.length, cut.channels))
    return {
        "mlp": Subject(mlp, config.mlp_training, rows, config.rows, layout.unpack),
        "unet": Subject(unet, config.unet_training, packed, config.windows, kept),
    }


def fit(
    name: str, subject: Subject, config: QualityConfig, key: jax.Array, context: RunContext | None
) -> Any:
    """Averaged weights, `[seeds, ...]`."""
    keys = jax.random.split(key, config.seeds)
    done = train_denoiser(
        subject.denoiser, subject.training, subject.rows, keys, stage=f"quality-{name}",
        context=context,
    )  # fmt: skip
    return done.state.average


def measure(
    subject: Subject, params: Any, sampler: SamplerConfig, env: Environment, scale: Transitions,
    key: jax.Array,
) -> Measured:  # fmt: skip
    """Draw with every seed's weights, in turn timed and judged.

    Args:
        subject: which denoiser.
        params: `[seeds, ...]`.
        sampler: number of steps and churn.
        env: the true simulator.
        scale: data whose standard deviations are the units of errors.
        key: consumed.
    """
    shape = (subject.samples, *subject.rows.shape[1:])

    def draw(per_seed: tuple[Any, jax.Array], shared: tuple) -> jax.Array:
        del shared
        params, key = per_seed
        return sample(
            subject.denoiser.denoise, params, key, shape, config=sampler,
            edm=subject.denoiser.config,
        )  # fmt: skip

    draw_key, real_key, look_key = jax.random.split(key, 3)
    seeds = jax.tree.leaves(params)[0].shape[0]
    keys = jax.random.split(draw_key, seeds)
    drawn = map_seeds(draw, (params, keys))
    seconds = timed(lambda: map_seeds(draw, (params, keys)))
    real = np.asarray(real_rows(subject, real_key))
    distance, following, reward = [], [], []
    for rows in drawn:
        flat = np.asarray(rows).reshape(len(rows), -1)
        distance.append(sliced_wasserstein(real.reshape(len(real), -1), flat))
        error = dynamics_error(env, subject.unpack(rows), scale, look_key)
        following.append(error.next_observation.mean())
        reward.append(error.reward.mean())
    return Measured(seconds, *(np.array(x) for x in (distance, following, reward)))


def real_rows(subject: Subject, key: jax.Array) -> jax.Array:
    """As many training rows as are sampled, drawn with replacement."""
    index = jax.random.randint(key, (subject.samples,), 0, len(subject.rows))
    return subject.rows[index]


def floor(subject: Subject, key: jax.Array) -> float:
    """Sliced Wasserstein distance of two draws of real rows: what no sampler goes below."""
    one, two = (np.asarray(real_rows(subject, k)) for k in jax.random.split(key))
    return sliced_wasserstein(one.reshape(len(one), -1), two.reshape(len(two), -1))


def enough_steps(steps: tuple[int, ...], errors: np.ndarray) -> int:
    """Fewest steps whose error is within `NEAR` of that of the most.

    Args:
        steps: ascending, `[K]`.
        errors: `[seeds, K]`; seeds are averaged.
    """
    mean = errors.mean(0)
    return next(n for n, e in zip(steps, mean, strict=True) if e <= NEAR * mean[-1])
