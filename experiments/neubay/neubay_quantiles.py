"""Where to cut rollouts: what critics promise on the data's states, and what is true there.

NEUBAY has one knob for the length of rollouts: the quantile of the members' disagreement over the
data beyond which a rollout ends. Low quantiles end it after a step or two; then values are asked
for in states that nobody acts from, and nothing but the targets' own extrapolation answers. Here
the paper's Markov agent learns with several quantiles from the same rows, and its critics are then
compared with the simulator itself: set to states of the data, the data's action, then the policy.
The same played in the world models tells whose error it is that a promise is too high: the models',
where their answer is too, or the critics' own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import curves, level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import as_model
from jaxrl_rollouts.offline.evaluation import values_from
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.recurrent import sac
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study import neubay, neubay_page, page
from jaxrl_rollouts.offline.study.colours import COLOURS, colour
from jaxrl_rollouts.offline.study.config import CPU_MUJOCO, SMOKE_MUJOCO, StudyConfig
from jaxrl_rollouts.offline.study.neubay import (
    NeubayStudyConfig,
    Posterior,
    small_markov,
    smoke_markov,
)
from jaxrl_rollouts.offline.study.outcome import Outcome
from jaxrl_rollouts.offline.study.setting import termination_of
from jaxrl_rollouts.offline.study.source import slug
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import spread_name
from jaxrl_rollouts.trees import PyTree

from ..catalogue import LISTINGS

SOURCE = LISTINGS["neubay_quantiles"].source


@dataclass(frozen=True)
class Config:
    """A dataset, the quantiles, and what all of them share.

    Attributes:
        dataset: name, or file, of MuJoCo data that keep positions and velocities.
        levels: quantiles of the members' spread on the data, of which claims hold the smallest
            against the largest; negative for rollouts that no threshold cuts.
        rows: of the data, for the comparison with the simulator.
        horizon: most steps played from each of them.
        study: seeds and evaluations.
        neubay: world models, agent and rollouts; the agent has no memory.
    """

    dataset: str = "hopper-mixed"
    levels: tuple[float, ...] = (0.9, 0.99, 1.0)
    rows: int = positive(200)
    horizon: int = positive(600)
    study: StudyConfig = field(default_factory=StudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)

    def validate(self) -> None:
        if not self.levels or any(level > 1 or level == 0 for level in self.levels):
            expected = "at least one, above 0 and at most 1; negative for no threshold"
            raise ConfigError("levels", self.levels, expected)
        if not self.neubay.agent.markov:
            kind = self.neubay.agent.agent.memory.kind
            expected = "none: a state of the simulator is no history"
            raise ConfigError("neubay.agent.agent.memory.kind", kind, expected)

    @property
    def names(self) -> dict[str, float]:
        """The arms."""
        return {
            f"quantile {level:g}" if level > 0 else "no threshold": level for level in self.levels
        }

    @property
    def quantiles(self) -> list[float]:
        """Levels that are some, ascending: claims are about these."""
        return sorted(level for level in self.levels if level > 0)


def chosen(dataset: Dataset, rows: int, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows of the data, drawn without replacement, and their positions and velocities.

    Raises:
        DataError: the file has none.
    """
    if not {"qpos", "qvel"} <= set(dataset.infos):
        found = "no infos/qpos and infos/qvel"
        expected = "both: the simulator is set to states of the data"
        raise DataError(dataset.source, "infos", found, expected)
    count = len(dataset.transitions.rewards)
    index = np.sort(np.random.default_rng(seed).choice(count, min(rows, count), replace=False))
    picked = jax.tree.map(lambda x: x[index], dataset.transitions)
    return picked, dataset.infos["qpos"][index], dataset.infos["qvel"][index]


@lru_cache(maxsize=8)
def entropy_bonus(config: RecurrentSacConfig, observation_size: int, action_size: int) -> Any:
    """`alpha (-log pi)` as `values_from` takes it; parameters are `(actor, alpha)`."""
    nets = sac.make_nets(config, observation_size, action_size)
    return lambda params, key, seen: params[1] * sac.surprise(nets, params[0], key, seen)


@lru_cache(maxsize=8)
def acting(policy: Any) -> Any:
    """The same policy, with parameters `(actor, alpha)`."""
    return lambda params, *rest: policy(params[0], *rest)


def measure(
    config: Config, outcome: Outcome, posterior: Posterior, dataset: Dataset
) -> dict[str, np.ndarray]:
    """What is promised and what is true at rows of the data, `[seeds, rows]` each.

    `promised` is the critics' mean; `imagined` what the policy earns there in the world models,
    each row in a member of its own, its entropy's worth included as in the critics' targets; `true`
    the same in the simulator; `earned` there without the entropy.
    """
    rows, qpos, qvel = chosen(dataset, config.rows, config.study.seed)
    env, agent, model = posterior.env, outcome.agent, posterior.model
    assert env.reset_to is not None and agent.q is not None
    states: PyTree = outcome.trained.state.agent
    bonus = entropy_bonus(outcome.config, env.observation_size, env.action_size)
    rule = termination_of(dataset, env, config.study)
    learned = learned_dynamics(model.fitter, model.elites, termination=rule).model
    simulator, members = as_model(env), jnp.arange(model.elites)
    clock = {"discount": outcome.config.discount, "horizon": config.horizon}
    q = jax.jit(lambda critic: agent.q(critic, rows.observations, rows.actions).mean(0))
    found: dict[str, list] = {"promised": [], "imagined": [], "true": [], "earned": []}
    for seed in range(config.study.seeds):
        state = jax.tree.map(lambda x, k=seed: x[k], states)
        key = jax.random.fold_in(jax.random.key(config.study.seed), 100 + seed)
        play = partial(
            values_from,
            policy=acting(agent.policy),
            policy_params=(state.actor, jnp.exp(state.log_alpha)),
            actions=jnp.asarray(rows.actions),
            key=key,
            **clock,
        )
        world, seen = posterior.world_of(seed), jnp.asarray(rows.observations)
        found["promised"].append(q(state.critic))
        found["imagined"].append(play(learned, world, start=seen, members=members, bonus=bonus))
        for name, more in (("true", bonus), ("earned", None)):
            start = env.reset_to(jnp.asarray(qpos), jnp.asarray(qvel))
            found[name].append(play(simulator, None, start=start, bonus=more))
    return {name: np.stack(values) for name, values in found.items()}


def train_all(config: Config, context: RunContext) -> tuple[Grid, Posterior]:
    """Every quantile, all seeds side by side, each seed in a posterior of its own."""
    study, arms = config.study, config.names
    dataset = load_dataset(config.dataset, infos=True)
    posterior = neubay.fit_posterior(dataset, study, config.neubay, context, config.levels)

    def train(name: str, stage: str) -> Cell:
        del stage  # of `train_neubay`: dataset and arm
        settings: NeubayConfig = replace(config.neubay.agent, level=arms[name])
        outcome = neubay.train_neubay(name, posterior, study, settings, context)
        return Cell.of(
            outcome.trained,
            measure=partial(measure, config, outcome, posterior, dataset),
            updates=settings.updates_per_iteration,
            rate=bootstrap_rate(settings.agent),
        )

    grid = run_grid(
        {"arm": list(arms)}, train, context, seeds=study.seeds, stage=slug(dataset.name)
    )
    return grid, posterior


def over_rows(cell: Cell, name: str) -> np.ndarray:
    """Means over the rows of the data, `[seeds]`."""
    return cell[name, :, :].mean(1)


def share(cell: Cell) -> np.ndarray:
    """What is promised over what is true, means over the rows, `[seeds]`."""
    return over_rows(cell, "promised") / over_rows(cell, "true")


def run(config: Config, context: RunContext) -> Report:
    """Fit, train every quantile, set the simulator to the data's states and compare."""
    report = Report.of(context, config.study.seeds)
    grid, posterior = train_all(config, context)
    columns = {
        "median horizon": lambda c: c.curve("horizon_median")[1].mean(1),
        "promised on the data": lambda c: over_rows(c, "promised"),
        "in the models": lambda c: over_rows(c, "imagined"),
        "true there": lambda c: over_rows(c, "true"),
        "without entropy": lambda c: over_rows(c, "earned"),
        "promised over true": share,
        "return": "return",
    }
    report.table("values on the data", grid.rows(columns))
    add_clock(report, clock_rows(grid))
    report.table("rollouts of the last collection", neubay_page.horizon_rows(config.dataset, grid))
    report.table("imagined and real", grid.rows(RATIO))
    report.table("posteriors", [neubay_page.posterior_row(posterior)])
    report.table("learned from and held out", neubay_page.part_spreads(posterior))
    add_claims(report, config, grid)
    draw(report, grid)
    longest_first = dict(reversed(list(grid.items())))  # what ended rollouts is drawn of the first
    neubay_page.draw_horizons(report, config.dataset, longest_first)
    agent = config.neubay.agent
    report.note(
        f"{config.rows} rows of the data. Promised: mean of the {agent.agent.critics} critics at "
        "their states and actions. True: the simulator is set to the state, takes the action and "
        f"then up to {config.horizon} of the policy's, drawn as in training; rewards and the "
        "entropy's worth after the first step, discounted, which is what the critics' targets "
        "hold. In the models: the same in the members, each row in one of them, never cut."
    )
    single = f"batches of {agent.tape // 2} single transitions"
    what = single if agent.weighting == "transition" else f"tapes of {agent.tape} tokens"
    report.note(f"The agent has no memory; {agent.agent.steps:,} gradient steps on {what}.")
    page.note_made(report, [posterior.dataset])
    page.note_environments(report, [posterior])
    return report


RATIO = {
    "collections": lambda c: collections(c),
    "imagined, share of new tokens": lambda c: c.curve("imagined_share")[1].mean(1),
    "imagined steps per logged one": lambda c: imagined_per_real(c),
    "gradient steps": lambda c: c.curve("q_real")[0][-1],
}


def collections(cell: Cell) -> np.ndarray:
    """How many there were: each changes what is owed by more than the steps taken, `[seeds]`."""
    owed = cell.curve("owed")[1]
    before = np.concatenate([np.zeros_like(owed[:, :1]), owed[:, :-1]], 1)
    return (owed > before - cell.updates + 1e-3).sum(1)


def imagined_per_real(cell: Cell) -> np.ndarray:
    """Imagined tokens over real ones of all collections, `[seeds]`."""
    imagined = cell.curve("imagined_share")[1].mean(1)
    return imagined / np.maximum(1.0 - imagined, 1e-6)


def add_claims(report: Report, config: Config, grid: Grid) -> None:
    """The longest rollouts, by quantile and without a threshold; the shortest against them."""
    claim = claims(report, SOURCE)
    medians = {name: cell.curve("horizon_median")[1].mean(1) for name, cell in grid.items()}
    cuts = [f"quantile {level:g}" for level in config.quantiles]
    # fmt: off
    if len(cuts) > 1:
        low, high = cuts[0], cuts[-1]
        claim(f"short rollouts promise more: {low} against {high}",
              over_rows(grid[low], "promised") / over_rows(grid[high], "promised"), at_least=1.2,
              cells=[grid[low], grid[high]],
              means="critics' value on the data over that of the last quantile, seed by seed")
        claim(f"short rollouts overestimate: {low}", share(grid[low]), at_least=1.2,
              cells=[grid[low]], means="promised over true on the data's states")
        claim("rollouts last longer with a higher quantile", medians[high] / np.maximum(
              medians[low], 1.0), at_least=10, cells=(),
              means=f"median imagined steps over training at {high} over those at {low}")
    for name in (*cuts[-1:], *(name for name in grid if name not in cuts)):
        claim(f"long rollouts are calibrated: {name}", np.abs(share(grid[name]) - 1.0),
              at_most=0.15, cells=[grid[name]],
              means="distance of promised over true from 1, on the data's states")
        claim(f"{name} plans fifty steps ahead", medians[name], at_least=50, cells=(),
              means="median imagined steps over training")
    # fmt: on


def draw(report: Report, grid: Grid) -> None:
    """Values on the data while training, what they are worth, and the horizons' length."""
    caption = (
        "Left: the critics' value of logged states and actions while training (dashed: what the "
        "last policy earns there). Right: the same at the end, over what is true; bars: "
        f"{spread_name(report.seeds)}, dots: seeds, dotted: promises hold."
    )
    titles = ("Value on the data", "Promised and true")
    with picture(report, "values", caption, titles=titles) as (left, right):
        curves(left, grid, "q_real", colours=COLOURS)
        pairs = {}
        for name, cell in grid.trained.items():
            truth = float(np.median(over_rows(cell, "true")))
            level(left, truth, color=colour(name))
            pairs[name] = (over_rows(cell, "promised"), over_rows(cell, "true"))
        left.set_ylabel("discounted value")
        if pairs:
            neubay_page.promised_and_earned(right, pairs, markersize=6)
            right.set_xlabel("true, from the same states")


# fmt: off
_SMOKE = Config(
    "hopper-random", levels=(0.9, 1.0), rows=6, horizon=20, study=SMOKE_MUJOCO,
    neubay=smoke_markov(),
)
_CPU = Config(
    study=replace(CPU_MUJOCO, seeds=3, evaluations=10, episodes=5),
    neubay=small_markov(
        worlds=3, members=12, hidden=(128,) * 4, epochs=15, width=64, steps=50_000,
        per_iteration=100, rollouts=50, tape=512, capacity=400_000,
    ),
)
# fmt: on

EXPERIMENT = LISTINGS["neubay_quantiles"].experiment(
    config_type=Config, presets={"smoke": _SMOKE, "cpu": _CPU}, run=run
)
