"""Guided diffusion against the density it approximates, which is known for normal densities.

Policy-guided diffusion aims at `p(x) pi(a|s)^lambda`. With a behaviour N(m_b, s_b^2) and a policy
N(m_p, s_p^2) that is normal with mean (m_b / s_b^2 + lambda m_p / s_p^2) v and variance
v = 1 / (1 / s_b^2 + lambda / s_p^2), per state. The denoiser is exact and nothing is trained: what
differs from the closed form is the rule's doing, or the sampler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.diffusion import GuidanceConfig, SamplerConfig, Target, make_guidance, sample
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import PALETTE, curve_with_band
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS

MOMENTS = (
    "The calibrated rule follows the product at any number of steps; the published one gets "
    "stronger with more steps and collapses onto the policy."
)
RULES: Mapping[str, GuidanceConfig] = {
    "published": GuidanceConfig(),
    "published, plain gradient": GuidanceConfig(normalise="none"),
    "calibrated": GuidanceConfig(rule="calibrated"),
    "calibrated, joint": GuidanceConfig(rule="calibrated", spread="joint"),
}
Setting = tuple[Target, Callable, Callable]  # a policy, the data's denoiser, what is measured
ACTIONS = 16  # entries of one trajectory that share the published rule's unit gradient
# Behaviour and policy: mean of the action (slope over the state, where there is one) and spread.
NORMALS = {"alone": ((0.0, 1.0), (1.0, 1.0)), "given state": ((0.8, 0.6), (-1.0, 0.5))}


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

    seeds: int = positive(5)
    seed: int = 0
    samples: int = number(20_000, least=ACTIONS)
    coefficients: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    steps: tuple[int, ...] = (32, 64, 128, 256)
    churn: float = 0.0

    def validate(self) -> None:
        for name, least in (("coefficients", 1e-9), ("steps", 2)):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < least:
                raise ConfigError(name, values, f"ascending, from {least:g}")


def run(config: Config, context: RunContext) -> Report:
    """Sample every cell, compare, draw."""
    # One number per row: with unrelated actions the joint rule is the other one.
    points = [("alone", r, n) for r in RULES if r != "calibrated, joint" for n in config.steps]
    # With a single action the published rule is the sign of the gradient.
    points += [("given state", r, config.steps[-1]) for r in RULES if r != "published"]

    def cell(*point: Any, stage: str) -> Cell:
        return Cell(measure=lambda: {"moments": measure(*point, config)})

    report, axes = Report.of(context, config.seeds), ("setting", "rule", "steps")
    grid = run_grid(axes, cell, context, seeds=config.seeds, points=points)
    report.table("alone", rows(config, grid, "alone", "mean"))
    report.table("given the state", rows(config, grid, "given state", "slope"))
    add_claims(report, config, grid)
    draw(report, config, grid)
    report.note("The denoiser is exact: no network is trained.")
    report.note(
        f"'published' normalises the gradient over {ACTIONS} actions, as its trajectories do; "
        f"S_churn is {config.churn:g}."
    )
    return report


def product(setting: str, coefficient: Any) -> tuple[Any, Any]:
    """Mean (slope over the state, where there is one) and spread of the tempered product."""
    (k, s), (m, p) = NORMALS[setting]
    precision = 1.0 / s**2 + coefficient / p**2
    return (k / s**2 + coefficient * m / p**2) / precision, 1.0 / np.sqrt(precision)


def alone() -> Setting:
    """`ACTIONS` unrelated standard normal actions, each pulled to N(1, 1); mean and spread."""

    def log_density(params: Any, rows: jax.Array) -> jax.Array:
        return -0.5 * jnp.square(rows - 1.0).sum(-1)

    target = Target(log_density, (0, ACTIONS), lambda params, rows: jnp.ones_like(rows))
    denoise = gaussian_denoise(jnp.zeros(ACTIONS), jnp.eye(ACTIONS))
    return target, denoise, lambda rows: (rows.mean(), rows.std())


def given_state() -> Setting:
    """A standard normal state and one action; its slope over the state, and spread around it."""
    (k, s), (m, p) = NORMALS["given state"]

    def log_density(params: Any, rows: jax.Array) -> jax.Array:
        return -0.5 * jnp.square((rows[..., 1] - m * rows[..., 0]) / p)

    def precision(params: Any, rows: jax.Array) -> jax.Array:
        return jnp.full_like(rows[..., 1:], 1.0 / p**2)

    def regression(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        state, action = rows[:, 0], rows[:, 1]
        slope = (state * action).mean() / jnp.square(state).mean()
        return slope, (action - slope * state).std()

    denoise = gaussian_denoise(jnp.zeros(2), jnp.array([[1.0, k], [k, k**2 + s**2]]))
    return Target(log_density, (1, 2), precision), denoise, regression


@partial(jax.jit, static_argnames=("setting", "rule", "steps", "config"))
def measure(setting: str, rule: str, steps: int, config: Config) -> jax.Array:
    """`[seeds, coefficients, 2]`: mean and spread, or slope and spread."""
    with jax.ensure_compile_time_eval():  # the data's constants stay constants
        target, denoise, moments = alone() if setting == "alone" else given_state()
    guidance = make_guidance(target, RULES[rule])
    shape = (config.samples // ACTIONS, ACTIONS) if setting == "alone" else (config.samples, 2)
    sampler = SamplerConfig(steps, churn=config.churn)

    def one(key: jax.Array, coefficient: jax.Array) -> jax.Array:
        guide = {"guidance": guidance, "guide_params": GuideParams(None, coefficient)}
        return jnp.stack(moments(sample(denoise, None, key, shape, config=sampler, **guide)))

    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    coefficients = jnp.asarray(config.coefficients, jnp.float32)
    return jax.lax.map(lambda key: jax.vmap(one, (None, 0))(key, coefficients), keys)


def rows(config: Config, grid: Grid, setting: str, first: str) -> list[dict[str, Any]]:
    """One per rule, number of steps and coefficient; each number beside the product's."""
    table = []
    for (rule, steps), cell in grid.at(setting=setting).items():
        for i, coefficient in enumerate(config.coefficients):
            row: dict[str, Any] = {"rule": rule, "steps": steps, "coefficient": coefficient}
            for j, name in enumerate((first, "spread")):
                row[name] = cell["moments"][:, i, j]
                row[f"{name} of the product"] = float(product(setting, coefficient)[j])
            table.append(row)
    return table


def errors(values: np.ndarray, wanted: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Largest errors over coefficients, `[seeds]`: of the first number and of the spread."""
    first = np.abs(values[..., 0] - wanted[0]).max(1)
    return first, np.abs(values[..., 1] / wanted[1] - 1.0).max(1)


def add_claims(report: Report, config: Config, grid: Grid) -> None:
    claim = claims(report, LISTINGS["guidance_gaussian"].source)
    at, few, many = np.asarray(config.coefficients), config.steps[0], config.steps[-1]

    def exact(text: str, apart: Any, source: str, **bounds: float) -> None:
        """The product's numbers, by name, are met within these bounds."""
        for values, (name, bound) in zip(apart, bounds.items(), strict=True):
            means = f"error at most {bound} at every coefficient"
            style = {"at_most": bound, "statistic": "max", "means": means, "source": source}
            claim(text.format(name), values, **style)

    calibrated = grid.at(setting="alone", rule="calibrated").values()
    apart = np.stack([errors(cell["moments"], product("alone", at)) for cell in calibrated], 2)
    text = "the calibrated rule has the product's {} at every number of steps"
    exact(text, apart, "pseudo-inverse guidance for normal targets", mean=0.02, spread=0.05)
    joint = grid["given state", "calibrated, joint", many]["moments"]
    text = "the joint rule has the product's {} given the state"
    apart = errors(joint, product("given state", at))
    exact(text, apart, "Tweedie's formula", slope=0.04, spread=0.05)
    published = {n: grid["alone", "published", n]["moments"] for n in (few, many)}
    nearest = int(np.argmin(np.abs(at - 1.0)))
    spread = published[many][:, nearest, 1] / product("alone", at[nearest])[1]
    text = "the published rule collapses where its product would not"
    means = f"spread below half of the product's at {many} steps, coefficient {at[nearest]:g}"
    claim(text, spread, at_most=0.5, means=means)
    # The exponent whose product has this mean.
    power = {n: values[:, 0, 0] / (1.0 - values[:, 0, 0]) for n, values in published.items()}
    means = f"effective exponent at {many} steps over that at {few}, at least half of "
    text = "the published rule's strength grows with the number of steps"
    bound = {"at_least": 0.5 * many / few, "means": f"{means}{many / few:g}"}
    claim(text, power[many] / power[few], **bound)


def draw(report: Report, config: Config, grid: Grid) -> None:
    at, cells = np.asarray(config.coefficients), grid.at(setting="alone")
    rules = list(dict.fromkeys(rule for rule, _ in cells))
    shown = [rule.replace("calibrated", "inside the denoiser") for rule in rules]
    title = "Guided samples against the product (N(0, 1) data, N(1, 1) policy)"
    panels: dict[str, Any] = {"titles": (*shown, *[""] * len(rules)), "columns": len(rules)}
    panels |= {"sharex": True, "width": 2.9, "height": 2.3}
    with picture(report, "moments", MOMENTS, title=title, **panels) as axes:
        for i, ax in enumerate(axes):
            j, by_steps = i // len(rules), cells.at(rule=rules[i % len(rules)])
            for (n, cell), shade in zip(by_steps.items(), PALETTE, strict=False):
                curve_with_band(ax, at, cell["moments"][..., j], f"{n} steps", colour_name=shade)
            ax.plot(at, product("alone", at)[j], "k--", label="product", linewidth=1.2)
            ax.set_xscale("log")
            ax.set(
                ylabel=("mean", "standard deviation")[j], xlabel="guidance coefficient" if j else ""
            )


PRESETS = {
    "smoke": Config(seeds=2, samples=3200, coefficients=(0.1, 1.0), steps=(16, 64)),
    "cpu": Config(),
}
EXPERIMENT = LISTINGS["guidance_gaussian"].experiment(Config, PRESETS, run)
