"""Sampling a flow in a few jumps, guided at each of them.

From time t to s: `x_s = x_t - (t - s) u(x_t, t, s)`, the deterministic map of MeanFlow and of
consistency models; or to the data at once and back, `x_s = (1 - s) x^ + s e` with some fresh noise
in e (UCGM's rho, multistep consistency sampling). A velocity model takes steps of Euler's or Heun's
method in the same times, which is what a few jumps have to beat.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from .. import draws
from ..configs import check, fraction, positive
from ..errors import ConfigError
from ..trees import PyTree
from .edm import Denoiser
from .flow import Flow, denoiser_of_flow, flow_of_denoiser, noise_of
from .sampler import Guidance, SamplerConfig, sample


@dataclass(frozen=True)
class JumpConfig:
    """Sampling of a flow, from noise to data.

    Attributes:
        num_steps: number of jumps. A `consistency` flow of S segments was trained for S.
        method: `jump` by average velocities; `euler` or `heun` by velocities (Heun's calls the
            network `2 N - 1` times).
        renoise: share of fresh noise after a jump; 0 is deterministic, 1 forgets the old. Above 0
            every jump goes to the data first. Of `jump`.
        times: where jumps begin, descending from at most 1, as many as jumps; None for even ones.
    """

    num_steps: int = positive(4)
    method: Literal["jump", "euler", "heun"] = "jump"
    renoise: float = fraction(0.0)
    times: tuple[float, ...] | None = None

    def validate(self) -> None:
        if self.renoise and self.method != "jump":
            raise ConfigError("renoise", self.renoise, f"0 for {self.method}, which has no jumps")
        if self.times is not None:
            ends = (*self.times, 0.0)
            falls = all(a > b for a, b in zip(ends, ends[1:], strict=False))
            if len(self.times) != self.num_steps or not falls or self.times[0] > 1:
                expected = f"{self.num_steps} times, descending, from at most 1 and above 0"
                raise ConfigError("times", self.times, expected)

    @property
    def calls(self) -> int:
        """Network calls per sample, without guidance."""
        return 2 * self.num_steps - 1 if self.method == "heun" else self.num_steps

    @property
    def grid(self) -> tuple[float, ...]:
        """`jumps + 1` times, the last of them 0."""
        even = tuple(1.0 - i / self.num_steps for i in range(self.num_steps))
        return (*(self.times or even), 0.0)


@functools.partial(jax.jit, static_argnames=("flow", "shape", "config", "guidance"))
def sample_jumps(
    flow: Flow,
    params: PyTree,
    key: jax.Array,
    shape: tuple[int, ...],
    *,
    config: JumpConfig | None = None,
    guidance: Guidance | None = None,
    guide_params: PyTree = None,
) -> jax.Array:
    """Draw samples, side by side. Compiled once for the same functions, settings and shapes.

    Args:
        flow: its functions.
        params: its averaged weights.
        key: consumed; jump `i` uses `fold_in(key, i)`.
        shape: `(B, ...)`.
        config: jumps and noise.
        guidance: its `correct` gives the clean row of every jump, `x_t - t u(x_t, t, s)`.
        guide_params: handed to it.

    Returns:
        `[B, ...]` float32, standardised as the training data were.

    Raises:
        ConfigError: a setting is out of range, or the guidance pushes samples, by a length that
            does not shrink with the noise: in a few jumps nothing undoes it.
    """
    config, guidance = config or JumpConfig(), guidance or Guidance()
    check(config)
    if guidance.push is not None:
        raise ConfigError("guidance", "a push", "one that corrects", 'take rule="calibrated"')
    start_key, key = jax.random.split(key)
    edm = flow.config.edm

    average = functools.partial(flow.average, params)

    def guided(x: jax.Array, t: jax.Array, s: jax.Array) -> jax.Array:
        """The average velocity whose clean row is the corrected one."""
        if guidance.correct is None:
            return average(x, t, s)
        sigma = noise_of(t, edm)

        def own(y: jax.Array, _: jax.Array) -> jax.Array:
            x = y / (1.0 + sigma)
            return x - t * average(x, t, s)

        return (x - guidance.correct(guide_params, x * (1.0 + sigma), sigma, own)) / t

    def renoised(x: jax.Array, t: jax.Array, s: jax.Array, key: jax.Array) -> jax.Array:
        clean = x - t * guided(x, t, jnp.zeros_like(t))
        old = (x - (1.0 - t) * clean) / t
        keep, fresh = math.sqrt(1.0 - config.renoise), math.sqrt(config.renoise)
        return (1.0 - s) * clean + s * (keep * old + fresh * draws.normal(key, x.shape))

    def advance(x: jax.Array, step: tuple) -> tuple[jax.Array, None]:
        index, t, s = step
        if config.renoise:
            return renoised(x, t, s, jax.random.fold_in(key, index)), None
        slope = guided(x, t, s if config.method == "jump" else t)
        there = x - (t - s) * slope
        if config.method == "heun":
            there = x - (t - s) * 0.5 * (slope + guided(there, s, s))
        return there, None

    grid = jnp.asarray(config.grid, jnp.float32)
    x = config.grid[0] * draws.normal(start_key, shape)
    steps: tuple[Any, ...] = (jnp.arange(config.num_steps, dtype=jnp.int32), grid[:-1], grid[1:])
    x, _ = jax.lax.scan(advance, x, jax.tree.map(lambda column: column[:-1], steps))
    # To the data it is one call with every method: Heun's second would be at no noise.
    _, t, s = jax.tree.map(lambda column: column[-1], steps)
    return x - t * guided(x, t, s if config.method == "jump" else t)


def draw_samples(
    model: Denoiser | Flow,
    params: PyTree,
    key: jax.Array,
    shape: tuple[int, ...],
    *,
    config: SamplerConfig | JumpConfig,
    guidance: Guidance | None = None,
    guide_params: PyTree = None,
) -> jax.Array:
    """`sample` or `sample_jumps`, as the `config` says, of either kind of model.

    Raises:
        ConfigError: a setting is out of range, or jumps are set for a denoiser, which only a
            student has.
    """
    guided: dict[str, Any] = {"guidance": guidance, "guide_params": guide_params}
    if isinstance(config, SamplerConfig):
        model = denoiser_of_flow(model) if isinstance(model, Flow) else model
        settings: dict[str, Any] = {"config": config, "edm": model.config}
        return sample(model.denoise, params, key, shape, **settings, **guided)
    if isinstance(model, Denoiser):
        if config.method == "jump":
            raise ConfigError("method", "jump", "euler or heun for a denoiser", "or distil it")
        model = flow_of_denoiser(model)
    return sample_jumps(model, params, key, shape, config=config, **guided)
