"""Why does base explode sooner on standardised observations? The same world seen in other units.

Rows, world models, agent and random numbers are the same in every arm. What differs is the units in
which actor and critics see an observation: as it is, centred, divided by its deviations, both
(standardised), both for the positions or for the velocities alone; and standardised with slower
learning rates. The world models standardise their inputs themselves, so they are what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.draw import curves
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.methods.registry import make_method
from jaxrl_rollouts.offline.methods.scheme import OWN_WORLDS, imagination, make_model_based
from jaxrl_rollouts.offline.study import model_based, page
from jaxrl_rollouts.offline.study.config import CPU_MUJOCO, SMOKE_MUJOCO, StudyConfig, keys_of
from jaxrl_rollouts.offline.study.model_based import FittedDataset
from jaxrl_rollouts.offline.study.setting import termination_of
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, learned_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.rollouts import Model, StepOutcome
from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree

from ..catalogue import LISTINGS

PILOT = "a pilot of two seeds"
STANDARD, SLOW = "standardised", "standardised, slower"
VIEWS = ("raw", "centred", "scaled", STANDARD, "positions", "velocities", SLOW)
TENFOLD = 1.0  # in powers of ten
LIKE = 0.5


@dataclass(frozen=True)
class Config:
    """One dataset; `study` is base's, of `offline.methods`.

    Attributes:
        dataset: name, or file.
        views: out of `VIEWS`.
        positions: entries of an observation that come first and are positions, not velocities.
        slower: what both learning rates are divided by in the last view.
        study: world models, agent, lengths.
    """

    dataset: str = "hopper-mixed"
    views: tuple[str, ...] = VIEWS
    positions: int = positive(5)
    slower: float = number(3.0, above=1)
    study: StudyConfig = field(default_factory=StudyConfig)

    def validate(self) -> None:
        if not {"raw", STANDARD} <= set(self.views) <= set(VIEWS):
            expected = f"raw, {STANDARD} and others out of {', '.join(VIEWS)}"
            raise ConfigError("views", self.views, expected)


def units_of(view: str, rows: Scaler, positions: int) -> Scaler:
    """What a view subtracts and divides by; `rows` are the data's mean and deviation, `[S]`."""
    nothing = Scaler(jnp.zeros_like(rows.mean), jnp.ones_like(rows.std))
    if view in ("positions", "velocities"):
        chosen = (jnp.arange(len(rows.mean)) < positions) == (view == "positions")
        return jax.tree.map(lambda own, plain: jnp.where(chosen, own, plain), rows, nothing)
    return Scaler(
        nothing.mean if view in ("raw", "scaled") else rows.mean,
        nothing.std if view in ("raw", "centred") else rows.std,
    )


def seen_in(units: Scaler, source: Setting, dynamics: Dynamics) -> tuple[Setting, Dynamics]:
    """Dataset, environment and model whose observations are in other units."""
    dataset, env, step = source.dataset, source.env, dynamics.model.step
    rows = dataset.transitions
    seen = rows._replace(
        observations=np.asarray(units.normalise(jnp.asarray(rows.observations))),
        next_observations=np.asarray(units.normalise(jnp.asarray(rows.next_observations))),
    )

    def moved(
        params: PyTree, key: jax.Array, state: jax.Array, action: jax.Array, member: jax.Array
    ) -> tuple[jax.Array, StepOutcome]:
        following, out = step(params, key, units.denormalise(state), action, member)
        return units.normalise(following), out

    env = env._replace(observe=lambda state: units.normalise(source.env.observe(state)))
    dataset = replace(dataset, transitions=seen)
    return Setting(dataset, env), dynamics._replace(model=Model(moved))


def train_view(
    view: str, world: FittedDataset, config: Config, context: RunContext | None, *, stage: str
) -> Cell:
    """Base, all seeds, in one view."""
    study = config.study
    rates = {name: getattr(study.agent, name) for name in ("actor_rate", "critic_rate")}
    if view == SLOW:
        rates = {name: rate / config.slower for name, rate in rates.items()}
    agent = replace(study.agent, **rates)
    method = make_method("base", agent, study.methods)
    termination = termination_of(world.dataset, world.env, study)
    fitter, elites = world.fitted.model.fitter, study.ensemble.elites
    dynamics = learned_dynamics(fitter, elites, termination=termination)
    rows = fit_scaler(jnp.asarray(world.dataset.transitions.observations))
    units = units_of(view, rows, config.positions)
    setting, dynamics = seen_in(units, Setting(world.dataset, world.env), dynamics)
    sizes = setting.env.observation_size, setting.env.action_size
    learner = make_model_based(study.rollouts, method, dynamics, *sizes)
    train_key, play_key = keys_of(study.seed)
    trained = train_learner(
        learner,
        imagination(method, setting.dataset.transitions, world.fitted.worlds),
        train_key,
        seeds=study.seeds,
        per_seed=OWN_WORLDS,
        iterations=study.epochs,
        evaluate=evaluator(learner, setting.env, play_key, study.episodes, discount=agent.discount),
        evaluate_at=evenly(study.epochs, study.evaluations),
        stage=stage,
        context=context,
    )
    rate, steps = bootstrap_rate(agent), study.rollouts.updates_per_epoch
    return Cell.of(trained, updates=steps, rate=rate)


def run(config: Config, context: RunContext) -> Report:
    """World models once, then base in every view."""
    report, study = Report.of(context, config.study.seeds), config.study
    dataset = load_dataset(config.dataset, study.seed)
    world = model_based.fit_dataset(dataset, study, context)

    def train(view: str, *, stage: str) -> Cell:
        return train_view(view, world, config, context, stage=stage)

    grid = run_grid({"view": config.views}, train, context, seeds=study.seeds)
    columns = {
        "return": "return",
        "promised": "estimated_value",
        "true": "discounted_return",
        "critics' mean": "q_mean",
        "alpha": "alpha",
    }
    report.table("views", grid.rows(columns))
    scaler = fit_scaler(jnp.asarray(dataset.transitions.observations))
    entries = zip(*map(np.asarray, scaler), strict=True)
    report.table(
        "observations",
        [
            {"entry": i, "mean": float(mean), "deviation": float(deviation)}
            for i, (mean, deviation) in enumerate(entries)
        ],
    )
    add_clock(report, clock_rows(grid))
    add_claims(report, grid)
    caption = "What critics promise from the start states, by the units observations are seen in."
    with picture(report, "promises", caption, width=5.6, height=3.4) as (ax,):
        curves(ax, grid.trained, "estimated_value")
        ax.set_yscale("symlog", linthresh=100)
        ax.set_ylabel("discounted value from the start")
    report.note(
        f"Base on {dataset.name}: the same rows, world models and random numbers in every view; "
        f"positions are the first {config.positions} entries. {SLOW} has both learning rates "
        f"divided by {config.slower:g}."
    )
    page.note_made(report, [dataset])
    page.note_environments(report, [world])
    return report


def promise(cell: Cell) -> np.ndarray:
    """Powers of ten of what is promised at the end, `[seeds]`; below one counts as one."""
    return np.log10(np.maximum(cell["estimated_value"], 1.0))


def add_claims(report: Report, grid: Mapping[str, Cell] | Grid) -> None:
    """How many powers of ten more standardised observations bring, and which part of it does."""
    whole = promise(grid[STANDARD])

    def claim(view: str, text: str, values: np.ndarray, **bound: float) -> None:
        if view in grid:
            cells = [grid[STANDARD], grid[view]]
            means = "powers of ten between what is promised, seed by seed"
            claims(report, PILOT, cells)(text, values, means=means, **bound)

    def over(view: str) -> np.ndarray:
        return whole - promise(grid[view]) if view in grid else np.zeros(0)

    text = "standardised observations make base promise ten times as much as raw ones"
    claim("raw", text, over("raw"), at_least=TENFOLD)
    for view, word in {"centred": "centring", "scaled": "dividing by deviations"}.items():
        claim(view, f"{word} alone does not", over(view), at_least=TENFOLD)
    text = "positions alone do: their deviations are small, and raw they are hardly seen"
    claim("positions", text, over("positions"), at_most=LIKE)
    claim("velocities", "velocities alone do not", over("velocities"), at_least=TENFOLD)
    claim(SLOW, "slower rates put it off", over(SLOW), at_least=TENFOLD)


_CPU = replace(
    CPU_MUJOCO,
    ensemble=replace(CPU_MUJOCO.ensemble, max_epochs=12),
    agent=replace(CPU_MUJOCO.agent, max_alpha=1.0),
    epochs=40,
    evaluations=10,
    episodes=5,
)
EXPERIMENT = LISTINGS["observation_units"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            "hopper-random",
            ("raw", STANDARD, "positions"),
            study=replace(SMOKE_MUJOCO, shared_world=False),
        ),
        "cpu": Config(study=_CPU),
    },
    run=run,
)
