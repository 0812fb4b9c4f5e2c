"""Is guided diffusion the density it stands for? Where all is normal the answer is known.

Policy-guided diffusion aims at `p(x) pi(a|s)^lambda`. With a behaviour N(m_b, s_b^2) and a policy
N(m_p, s_p^2) that is normal with mean (m_b / s_b^2 + lambda m_p / s_p^2) v and variance
v = 1 / (1 / s_b^2 + lambda / s_p^2), per state. The denoiser is exact and nothing is trained: what
differs from the closed form is the rule's doing, or the sampler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion import GuidanceConfig, SamplerConfig, Target, make_guidance, sample
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.guidance import GuideParams
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .guidance_gaussian_page import (
    BEHAVIOUR,
    POLICY,
    SOURCE,
    add_claims,
    add_tables,
    closed_form,
    closed_form_given_state,
    draw,
)

RULES: Mapping[str, GuidanceConfig] = {
    "published": GuidanceConfig(),
    "published, plain gradient": GuidanceConfig(normalise="none"),
    "calibrated": GuidanceConfig(rule="calibrated"),
    "calibrated, joint": GuidanceConfig(rule="calibrated", spread="joint"),
}
ACTIONS = 16  # entries of one trajectory that share the published rule's unit gradient


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
        for name, found, least in (
            ("coefficients", self.coefficients, 1e-9), ("steps", self.steps, 2),
        ):  # fmt: skip
            if not found or list(found) != sorted(set(found)) or found[0] < least:
                raise ConfigError(name, found, f"ascending, from {least:g}")


def _alone() -> tuple[Target, Callable, tuple[int, ...]]:
    """`ACTIONS` unrelated standard normal actions, each pulled to N(1, 1)."""
    target = Target(
        lambda params, rows: -0.5 * jnp.square(rows - 1.0).sum(-1), (0, ACTIONS),
        lambda params, rows: jnp.ones_like(rows),
    )  # fmt: skip
    return target, gaussian_denoise(jnp.zeros(ACTIONS), jnp.eye(ACTIONS)), (ACTIONS,)


def _given_state() -> tuple[Target, Callable, tuple[int, ...]]:
    """A standard normal state and one action; covariance of the two by `BEHAVIOUR`."""
    (k, s), (m, p) = BEHAVIOUR, POLICY
    covariance = jnp.array([[1.0, k], [k, k**2 + s**2]])
    target = Target(
        lambda params, rows: -0.5 * jnp.square((rows[..., 1] - m * rows[..., 0]) / p), (1, 2),
        lambda params, rows: jnp.full_like(rows[..., 1:], 1.0 / p**2),
    )  # fmt: skip
    return target, gaussian_denoise(jnp.zeros(2), covariance), (2,)


def _moments(drawn: jax.Array) -> jax.Array:
    return jnp.stack([drawn.mean(), drawn.std()])


def _regression(drawn: jax.Array) -> jax.Array:
    state, action = drawn[:, 0], drawn[:, 1]
    slope = (state * action).mean() / jnp.square(state).mean()
    return jnp.stack([slope, (action - slope * state).std()])


SETTINGS = {"alone": (_alone(), _moments), "given state": (_given_state(), _regression)}


@partial(jax.jit, static_argnames=("setting", "rule", "config", "steps"))
def measure(setting: str, rule: str, config: Config, steps: int) -> jax.Array:
    """`[seeds, coefficients, 2]`: mean and spread, or slope and spread."""
    (target, denoise, shape), look = SETTINGS[setting]
    guidance = make_guidance(target, RULES[rule])
    rows = config.samples // ACTIONS if setting == "alone" else config.samples

    def one(key: jax.Array, coefficient: jax.Array) -> jax.Array:
        drawn = sample(
            denoise, None, key, (rows, *shape), config=SamplerConfig(steps, churn=config.churn),
            guidance=guidance, guide_params=GuideParams(None, coefficient),
        )  # fmt: skip
        return look(drawn)

    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    over = jnp.asarray(config.coefficients, jnp.float32)
    return jax.lax.map(lambda key: jax.vmap(one, (None, 0))(key, over), keys)


def run(config: Config, context: RunContext) -> Report:
    """Sample every cell, compare, draw."""
    report = Report.of(context, config.seeds)
    # One number per row: with unrelated actions the joint rule is the other one.
    alone = {
        rule: {n: np.asarray(measure("alone", rule, config, n)) for n in config.steps}
        for rule in RULES
        if rule != "calibrated, joint"
    }
    given = {
        rule: {n: np.asarray(measure("given state", rule, config, n)) for n in config.steps[-1:]}
        for rule in RULES
        if rule != "published"  # with a single action it is the sign of the gradient
    }
    at = np.asarray(config.coefficients)
    add_tables(report, "alone", alone, at, closed_form, "mean")
    add_tables(report, "given the state", given, at, closed_form_given_state, "slope")
    add_claims(report, config, alone, given)
    draw(report, config, alone, given)
    report.note("The denoiser is exact: no network is trained.")
    report.note(
        f"'published' normalises the gradient over {ACTIONS} actions, as its trajectories do; "
        f"S_churn is {config.churn:g}."
    )
    return report


EXPERIMENT = Experiment(
    name="guidance_gaussian",
    summary="is policy-guided diffusion the tempered product it stands for? normal data, exact",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(seeds=2, samples=3200, coefficients=(0.1, 1.0), steps=(16, 64)),
        "cpu": Config(),
    },
    run=run,
)
