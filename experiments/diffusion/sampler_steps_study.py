"""Denoisers, samplers and agents of `sampler_steps`: draw, time, judge, learn from the samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import (
    Denoiser,
    DenoiserTrainingConfig,
    SamplerConfig,
    make_denoiser,
    make_residual_mlp,
    make_temporal_unet,
    sample,
    train_denoiser,
)
from jaxrl_rollouts.experiments.kit.timing import timed
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.synthetic.quality import dynamics_error, sliced_wasserstein
from jaxrl_rollouts.offline.synthetic.synther import fit_layout
from jaxrl_rollouts.offline.synthetic.windows import cut_windows, fit_window_layout
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import stack

from .sampler_steps_cells import Config

NEAR = 1.25  # times the dynamics error of the most steps that are "enough"


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
    """One sampler of one kind; every array is `[seeds]`.

    Attributes:
        seconds: all seeds' draws took.
        distance: sliced Wasserstein distance from real rows.
        next_observation, reward: mean squared errors in the true simulator.
    """

    seconds: float
    distance: np.ndarray
    next_observation: np.ndarray
    reward: np.ndarray


def subjects(config: Config, data: Transitions, source: str) -> dict[str, Subject]:
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
    unet = make_denoiser(make_temporal_unet(config.unet, config.length, cut.channels))
    return {
        "mlp": Subject(mlp, config.mlp_training, rows, config.rows, layout.unpack),
        "unet": Subject(unet, config.unet_training, packed, config.windows, kept),
    }


def fit(
    name: str, subject: Subject, config: Config, key: jax.Array, context: RunContext | None
) -> Any:
    """Averaged weights, `[seeds, ...]`."""
    keys = jax.random.split(key, config.seeds)
    done = train_denoiser(
        subject.denoiser, subject.training, subject.rows, keys, stage=name,
        context=context,
    )  # fmt: skip
    return done.state.average


def measure(
    subject: Subject, params: Any, sampler: SamplerConfig, env: Environment, scale: Transitions,
    key: jax.Array,
) -> tuple[Measured, list[Transitions]]:  # fmt: skip
    """Draw with every seed's weights, in turn timed and judged.

    Args:
        subject: which denoiser.
        params: `[seeds, ...]`.
        sampler: number of steps and churn.
        env: the true simulator.
        scale: data whose standard deviations are the units of errors.
        key: consumed.

    Returns:
        What was measured, and every seed's transitions.
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
    distance, following, reward, samples = [], [], [], []
    for rows in drawn:
        flat = np.asarray(rows).reshape(len(rows), -1)
        distance.append(sliced_wasserstein(real.reshape(len(real), -1), flat))
        samples.append(subject.unpack(rows))
        error = dynamics_error(env, samples[-1], scale, look_key)
        following.append(error.next_observation.mean())
        reward.append(error.reward.mean())
    return Measured(seconds, np.array(distance), np.array(following), np.array(reward)), samples


def learn(
    samples: list[Transitions], env: Environment, config: Config, key: jax.Array, stage: str,
    context: RunContext | None,
) -> np.ndarray:  # fmt: skip
    """Train an agent per seed on its rows alone; what it earns, `[seeds]`.

    Seeds have equally many rows: as many as the one with the fewest (windows stop where an episode
    ends).
    """
    least = min(len(rows.rewards) for rows in samples)
    own = stack([take_rows(rows, np.arange(least)) for rows in samples])
    learner = make_model_free(
        config.agent, env.observation_size, env.action_size, batch_size=config.batch_size,
        updates_per_iteration=config.updates,
    )  # fmt: skip
    train_key, play_key = jax.random.split(key)
    trained = train_learner(
        learner, own, train_key, seeds=len(samples), per_seed=True, iterations=config.iterations,
        evaluate=evaluator(
            learner, env, play_key, config.episodes, discount=config.agent.discount
        ),
        stage=stage, context=context,
    )  # fmt: skip
    return np.asarray(trained.history.last("return"))


def real_samples(subject: Subject, key: jax.Array, seeds: int) -> list[Transitions]:
    """What `measure` would return as samples if a sampler drew from the data themselves."""
    return [subject.unpack(real_rows(subject, own)) for own in jax.random.split(key, seeds)]


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
