"""SynthER (Lu et al. 2023, arXiv:2303.06614): transitions out of a diffusion model.

A row of the model is observation, action, reward, next observation and, where the dataset has any,
termination. Five differences from the public code: batches of 256 rows, which are 1,024 there for
800,000 rows and more; first weights, which are torch's there (`initial`); actions are clipped to
[-1, 1] on the way out, the terminal column exists only where there is something to learn, and a
column that never varies comes back as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import (
    Denoiser,
    DenoiserTrainingConfig,
    DistilConfig,
    DistillationBatch,
    EdmConfig,
    Flow,
    JumpConfig,
    ResidualMlp,
    SamplerConfig,
    check_finite,
    distil,
    draw_samples,
    flow_of_denoiser,
    make_denoiser,
    make_denoiser_training,
    make_flow,
    make_residual_mlp,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree, unstack

from ..data import Transitions, sample_batch


@dataclass(frozen=True)
class SyntherConfig:
    """Network, optimisation and sampler; defaults are those of the paper's offline setting
    but for what the module names.

    Attributes:
        network: the denoiser, a residual MLP.
        training: settings of its training.
        sampler: settings of its sampler.
        edm: noise levels and how they are weighted.
        student: student of the denoiser; where there is one it draws the transitions, in a few
            jumps.
    """

    network: ResidualMlp = field(default_factory=ResidualMlp)
    training: DenoiserTrainingConfig = field(default_factory=DenoiserTrainingConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    edm: EdmConfig = field(default_factory=EdmConfig)
    student: DistilConfig | None = None

    @property
    def drawn_by(self) -> SamplerConfig | JumpConfig:
        """The sampler of the denoiser, or of its student."""
        return self.sampler if self.student is None else self.student.jumps


class RowLayout(NamedTuple):
    """How transitions become rows `[N, F]` of unit variance and back; see `fit_layout`.

    Attributes:
        scaler: scaler of all columns; the terminal one stays 0 or 1.
        observation_size, action_size: S and A.
        terminals: whether there is a terminal column, the last.
    """

    scaler: Scaler
    observation_size: int
    action_size: int
    terminals: bool

    @property
    def features(self) -> int:
        """`F`: 2 S + A + 1, and one with terminals."""
        return 2 * self.observation_size + self.action_size + 1 + self.terminals

    def pack(self, transitions: Transitions) -> jax.Array:
        """Standardised rows, `[N, F]` float32."""
        return self.scaler.normalise(_columns(transitions, self.terminals))

    def unpack(self, rows: jax.Array) -> Transitions:
        """Transitions in data units; actions clipped, terminal above one half, none truncated."""
        rows = self.scaler.denormalise(rows)
        s, a = self.observation_size, self.action_size
        ended = rows[:, -1] > 0.5 if self.terminals else jnp.zeros(rows.shape[:1], bool)
        return Transitions(
            rows[:, :s],
            jnp.clip(rows[:, s : s + a], -1.0, 1.0),
            rows[:, s + a],
            rows[:, s + a + 1 : 2 * s + a + 1],
            ended,
            jnp.zeros_like(ended),
        )


def _columns(transitions: Transitions, terminals: bool) -> jax.Array:
    t = transitions
    parts = [t.observations, t.actions, jnp.asarray(t.rewards)[:, None], t.next_observations]
    parts += [jnp.asarray(t.terminations)[:, None]] if terminals else []
    return jnp.concatenate([jnp.asarray(part, jnp.float32) for part in parts], 1)


def fit_layout(transitions: Transitions) -> RowLayout:
    """The layout of a dataset. Without a single termination there is no terminal column."""
    terminals = bool(np.asarray(transitions.terminations).any())
    scaler = fit_scaler(_columns(transitions, terminals))
    if terminals:  # rare ends would stand tens of deviations away
        scaler = Scaler(scaler.mean.at[-1].set(0.0), scaler.std.at[-1].set(1.0))
    sizes = transitions.observations.shape[1], transitions.actions.shape[1]
    return RowLayout(scaler, *sizes, terminals)


def generate(
    denoiser: Denoiser | Flow,
    params: PyTree,
    key: jax.Array,
    layout: RowLayout,
    count: int,
    *,
    config: SamplerConfig | JumpConfig | None = None,
    batch: int = 10_000,
) -> Transitions:
    """Draw `count` transitions, `batch` at a time, as one program.

    Args:
        denoiser: its functions, or those of a flow.
        params: the averaged weights.
        key: consumed.
        layout: layout of the data it was fitted to.
        count: number of rows; sampled in whole batches and truncated.
        config: settings of the sampler.
        batch: rows side by side; bounds the memory.

    Returns:
        `[count, ...]` rows on the device.

    Raises:
        ConfigError: `count` or `batch` below 1.
        DivergenceError: a row is not finite.
    """
    if count < 1 or batch < 1:
        raise ConfigError("count, batch", (count, batch), "both at least 1")
    batch = min(batch, count)
    shape = -(-count // batch), batch, layout.features
    rows = draw_rows(denoiser, params, key, shape, config or SamplerConfig())[:count]
    return layout.unpack(check_finite(rows, "generated rows"))


@partial(jax.jit, static_argnames=("denoiser", "shape", "config"))
def draw_rows(
    denoiser: Denoiser | Flow,
    params: PyTree,
    key: jax.Array,
    shape: tuple[int, int, int],
    config: SamplerConfig | JumpConfig,
) -> jax.Array:
    """Standardised rows `[n B, F]`, drawn B at a time; `shape` is `(n, B, F)`."""

    def once(key: jax.Array) -> jax.Array:
        return draw_samples(denoiser, params, key, shape[1:], config=config)

    rows = jax.lax.map(once, jax.random.split(key, shape[0]))
    return rows.reshape(-1, shape[2])


def upsample(
    rows: Transitions,
    config: SyntherConfig,
    key: jax.Array,
    count: int,
    *,
    batch: int = 10_000,
    stage: str = "denoiser",
    context: RunContext | None = None,
) -> Transitions:
    """Fit a diffusion model to rows, and its student where there is one, and draw from it.

    Returns:
        `[count, ...]` rows on the host.
    """
    check(config.sampler)
    fit_key, draw_key = jax.random.split(key)
    layout = fit_layout(rows)
    packed, network = layout.pack(rows), partial(make_residual_mlp, config.network, layout.features)
    model: Any = make_denoiser(network(), config.edm)
    training = make_denoiser_training(model, config.training)
    budget = {
        "iterations": training.iterations,
        "units_per_iteration": config.training.per_iteration,
    }
    run: dict[str, Any] = {"stage": stage, "context": context, "about": config}
    one = jax.random.split(fit_key, 1)
    params = train_loop(training.update, training.init, one, packed, **budget, **run).state.average
    if config.student is not None:
        check(config.student)
        model = make_flow(network(interval=True), config.student.flow, flow_of_denoiser(model))
        one = jax.random.split(jax.random.fold_in(fit_key, 1), 1)
        run = {"stage": f"{stage}-student", "context": context}
        lesson = DistillationBatch(packed, params)
        params = distil(model, config.student.training, lesson, one, **run).state.average
    (key,), (weights,) = jax.random.split(draw_key, 1), unstack(params)
    made = generate(model, weights, key, layout, count, config=config.drawn_by, batch=batch)
    return jax.tree.map(np.asarray, made)


class MixedData(NamedTuple):
    """Real and synthetic transitions; hand it to `make_model_free(..., draw=mixing(share))`."""

    real: Transitions
    synthetic: Transitions

    @property
    def observations(self) -> Any:
        """The real ones: agents normalise by their statistics."""
        return self.real.observations


@functools.lru_cache(maxsize=32)
def mixing(real_ratio: float) -> Callable[[MixedData, jax.Array, int], Transitions]:
    """A batch sampler `(data, key, rows) -> batch` with a fixed number of real rows.

    Args:
        real_ratio: 0 trains on synthetic rows only, 1 on real ones, 0.5 is the paper's online
            setting, 1 / 16 policy-guided diffusion's. Rounded to whole rows; real ones first.
    """

    def draw(data: MixedData, key: jax.Array, rows: int) -> Transitions:
        sources = (partial(sample_batch, own) for own in data)
        return mixed_rows(key, rows, real_ratio, *sources)

    return draw


def mixed_rows(
    key: jax.Array, rows: int, real_ratio: float, real: Callable, synthetic: Callable
) -> Transitions:
    """A batch of `rows` rows, a share of them real; those first.

    Args:
        real, synthetic: `(key, rows) -> batch`.
    """
    real_key, synthetic_key = jax.random.split(key)
    count = round(rows * real_ratio)
    parts = [real(real_key, count)] if count else []
    if count < rows:
        parts.append(synthetic(synthetic_key, rows - count))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
