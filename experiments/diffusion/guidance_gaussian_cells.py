"""What `guidance_gaussian` samples: normal data with their exact denoiser, and normal policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion import GuidanceConfig, SamplerConfig, Target, make_guidance, sample
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.grid import Cell

RULES: Mapping[str, GuidanceConfig] = {
    "published": GuidanceConfig(),
    "published, plain gradient": GuidanceConfig(normalise="none"),
    "calibrated": GuidanceConfig(rule="calibrated"),
    "calibrated, joint": GuidanceConfig(rule="calibrated", spread="joint"),
}
ACTIONS = 16  # entries of one trajectory that share the published rule's unit gradient
BEHAVIOUR, POLICY = (0.8, 0.6), (-1.0, 0.5)  # slope of the action over the state, and spread


@dataclass(frozen=True)
class Config:
    """Coefficients by numbers of steps.

    Attributes:
        seeds, seed: repetitions with other noise.
        samples: actions drawn per seed and cell.
        coefficients: lambda, above 0.
        steps: numbers of sampler steps, ascending.
        churn: S_churn; 0 draws deterministically from the first noise, the most accurate here.
    """

    seeds: int = 5
    seed: int = 0
    samples: int = 20_000
    coefficients: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    steps: tuple[int, ...] = (32, 64, 128, 256)
    churn: float = 0.0

    def validate(self) -> None:
        at_least_one(self, "seeds")
        if self.samples < ACTIONS:
            raise ConfigError("samples", self.samples, f"at least {ACTIONS}")
        for name, least in (("coefficients", 1e-9), ("steps", 2)):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < least:
                raise ConfigError(name, values, f"ascending, from {least:g}")


class Setting(NamedTuple):
    """A normal policy, normal data, the shape of a row, and what of the rows is measured."""

    target: Target
    denoise: Callable[..., jax.Array]
    shape: tuple[int, ...]
    moments: Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def alone() -> Setting:
    """`ACTIONS` unrelated standard normal actions, each pulled to N(1, 1); mean and spread."""

    def log_density(params: Any, rows: jax.Array) -> jax.Array:
        return -0.5 * jnp.square(rows - 1.0).sum(-1)

    target = Target(log_density, (0, ACTIONS), lambda params, rows: jnp.ones_like(rows))
    denoise = gaussian_denoise(jnp.zeros(ACTIONS), jnp.eye(ACTIONS))
    return Setting(target, denoise, (ACTIONS,), lambda rows: (rows.mean(), rows.std()))


def given_state() -> Setting:
    """A standard normal state and one action, by `BEHAVIOUR`; slope over the state and spread."""
    (k, s), (m, p) = BEHAVIOUR, POLICY

    def log_density(params: Any, rows: jax.Array) -> jax.Array:
        return -0.5 * jnp.square((rows[..., 1] - m * rows[..., 0]) / p)

    def precision(params: Any, rows: jax.Array) -> jax.Array:
        return jnp.full_like(rows[..., 1:], 1.0 / p**2)

    def regression(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        state, action = rows[:, 0], rows[:, 1]
        slope = (state * action).mean() / jnp.square(state).mean()
        return slope, (action - slope * state).std()

    denoise = gaussian_denoise(jnp.zeros(2), jnp.array([[1.0, k], [k, k**2 + s**2]]))
    return Setting(Target(log_density, (1, 2), precision), denoise, (2,), regression)


def closed_form(coefficient: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of `alone`'s product: N(0, 1) data and the policy N(1, 1)."""
    return coefficient / (1.0 + coefficient), 1.0 / np.sqrt(1.0 + coefficient)


def closed_form_given_state(coefficient: Any) -> tuple[Any, Any]:
    """Slope over the state and spread around it, for `BEHAVIOUR` and `POLICY`."""
    (k, s), (m, p) = BEHAVIOUR, POLICY
    precision = 1.0 / s**2 + coefficient / p**2
    return (k / s**2 + coefficient * m / p**2) / precision, 1.0 / np.sqrt(precision)


SETTINGS: Mapping[str, Callable[[], Setting]] = {"alone": alone, "given state": given_state}


@partial(jax.jit, static_argnames=("setting", "rule", "config", "steps"))
def measure(setting: str, rule: str, config: Config, steps: int) -> jax.Array:
    """`[seeds, coefficients, 2]`: mean and spread, or slope and spread."""
    with jax.ensure_compile_time_eval():  # the data's constants stay constants
        target, denoise, shape, moments = SETTINGS[setting]()
    guidance = make_guidance(target, RULES[rule])
    shape = (config.samples // ACTIONS if setting == "alone" else config.samples, *shape)
    sampler = SamplerConfig(steps, churn=config.churn)

    def one(key: jax.Array, coefficient: jax.Array) -> jax.Array:
        guide = {"guidance": guidance, "guide_params": GuideParams(None, coefficient)}
        return jnp.stack(moments(sample(denoise, None, key, shape, config=sampler, **guide)))

    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    coefficients = jnp.asarray(config.coefficients, jnp.float32)
    return jax.lax.map(lambda key: jax.vmap(one, (None, 0))(key, coefficients), keys)


def measure_cell(config: Config, setting: str, rule: str, steps: int, *, stage: str) -> Cell:
    """`measure` as a cell of the grid, called `moments`."""
    return Cell(measure=lambda: {"moments": measure(setting, rule, config, steps)})
