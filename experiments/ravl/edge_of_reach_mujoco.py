"""The edge of reach on a real simulator: a perfect model, and rollouts that end sooner or later.

What is rolled is the simulator itself, so nothing can be blamed on a model. Every arm has the same
critics, data, random numbers and rows imagined in an epoch; what differs is whether they are many
short rollouts or few long ones. The last states of rollouts are bootstrapped from and never acted
from: of short rollouts one row in five, of long ones one in a hundred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell, run_grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.data import episodes
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.environments.mujoco import ENDLESS
from jaxrl_rollouts.offline.evaluation import values_from
from jaxrl_rollouts.offline.study import page
from jaxrl_rollouts.offline.study.config import CPU_MUJOCO, SMOKE_MUJOCO, StudyConfig
from jaxrl_rollouts.offline.study.method_settings import check_settings
from jaxrl_rollouts.offline.study.outcome import Outcome
from jaxrl_rollouts.offline.study.page import late, promised_to_earned
from jaxrl_rollouts.offline.study.setting import environment_of
from jaxrl_rollouts.offline.study.source import Setting, Source, behaviour, slug
from jaxrl_rollouts.offline.synthetic.quality import novelty
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.rollouts import rollout

from ..catalogue import LISTINGS
from . import ravl_mujoco

SOURCE = LISTINGS["edge_of_reach_mujoco"].source
MODEL_VALUE = "value in the model"
FAR = 0.01  # of the data's own rows are as far from the other episodes as what is called beyond


@dataclass(frozen=True)
class Config:
    """One method on one dataset, with the simulator for a model.

    Attributes:
        dataset: name, or file.
        method: base, or RAVL.
        horizons: of rollouts, rising. An epoch imagines `rollouts_per_epoch * horizon` rows of the
            study, in rollouts of each of these lengths.
        endings: a fall ends an episode, as the simulator has it. Else it goes on, lying and without
            the reward for being upright, and no row terminates: of the data, of rollouts or where
            policies are judged.
        study: agent, rows, lengths.
    """

    dataset: str = "hopper-mixed"
    method: Literal["base", "ravl"] = "base"
    horizons: tuple[int, ...] = (5, 20, 100)
    endings: bool = True
    study: StudyConfig = field(default_factory=StudyConfig)

    def validate(self) -> None:
        check_settings(self.method, self.study)
        rows = rows_of(self.study)
        if len(self.horizons) < 2 or list(self.horizons) != sorted(set(self.horizons)):
            raise ConfigError("horizons", self.horizons, "two or more, rising")
        for horizon in self.horizons:
            if horizon < 1 or rows % horizon:
                raise ConfigError(
                    "horizons", horizon, f"divisors of the {rows} rows that an epoch imagines"
                )


def rows_of(study: StudyConfig) -> int:
    """Rows that an epoch imagines, where no rollout ends before its horizon."""
    return study.rollouts.rollouts_per_epoch * study.rollouts.horizon


def in_lengths_of(study: StudyConfig, horizon: int) -> StudyConfig:
    """The same number of rows in rollouts of another length."""
    count = rows_of(study) // horizon
    rollouts = replace(study.rollouts, horizon=horizon, rollouts_per_epoch=count)
    return replace(study, rollouts=rollouts)


def endless(setting: Setting) -> Setting:
    """The same, where a fall ends nothing; the last reward of a row that fell stays the data's.

    Raises:
        ConfigError: nothing ends it anyway.
    """
    env = make(f"{setting.env.name}?{ENDLESS}")
    rows = setting.dataset.transitions
    cut = rows.truncations | rows.terminations
    rows = rows._replace(terminations=np.zeros_like(cut), truncations=cut)
    return Setting(replace(setting.dataset, transitions=rows), env)


def name_of(horizon: int) -> str:
    """What an arm is called."""
    return f"{horizon} step{'s' * (horizon != 1)}"


def run(config: Config, context: RunContext) -> Report:
    """The method at every horizon; each is a stage of its own."""
    study, report = config.study, Report.of(context, config.study.seeds)
    dataset = load_dataset(config.dataset, study.seed)
    source = Setting(dataset, environment_of(dataset))  # whose episodes are what the data earned
    setting = source if config.endings else endless(source)
    lead = lead_rows(setting, config.horizons, study.seed)  # first: a dataset may not do for it

    def train(horizon: int, stage: str) -> Cell:
        stage = f"{slug(dataset.name)}-{config.method}-{horizon}"
        at = in_lengths_of(study, horizon)
        outcome = ravl_mujoco.in_simulator(config.method, setting, at, context, stage)
        rate, hides = bootstrap_rate(study.agent), setting.env.clipped_transition is not None
        extra = {MODEL_VALUE: values_in_model(outcome, study)} if hides else None
        return Cell.of(outcome.trained, extra, updates=outcome.updates, rate=rate)

    grid = run_grid({"horizon": config.horizons}, train, context, seeds=study.seeds)
    cells = {name_of(h): grid[h] for h in config.horizons}
    report.table("results", result_rows(source, cells, study.agent.discount))
    report.table("where uniform actions lead", lead)
    add_clock(report, clock_rows(cells))
    add_claims(report, source, config, cells)
    colours = dict(zip(cells, PALETTE, strict=False))
    page.draw_training(report, source, cells, study.agent.discount, colours)
    page.note_made(report, [dataset])
    report.note(
        "The simulator is rolled in the place of a world model, an epoch "
        f"{rows_of(study):,} rows at every horizon, fewer where rollouts terminate."
    )
    ravl_mujoco.note_clipped(report, {dataset.name: dataset}, {dataset.name: setting})
    page.note_environments(report, [setting])
    return report


def values_in_model(outcome: Outcome, study: StudyConfig, *, horizon: int = 600) -> np.ndarray:
    """What policies are worth where they learned, `[seeds]`: discounted, from start states.

    A simulator whose observations hide velocities is another one when it is a model. Critics that
    promise this, and not what is true, know their model.
    """
    env, agent = outcome.env, outcome.agent
    assert env is not None
    reset_key, act_key, play_key = jax.random.split(jax.random.key(study.seed), 3)
    starts = env.observe(env.reset(reset_key, study.episodes))
    model = true_dynamics(env, clipped=True).model  # one object for all: compiled once
    values = []
    for seed in range(study.seeds):
        actor = outcome.actor(seed)
        actions, _ = agent.greedy(actor, act_key, starts, ())
        earned = values_from(
            model, None, agent.greedy, actor, starts, actions, play_key,
            discount=study.agent.discount, horizon=horizon,
        )  # fmt: skip
        values.append(earned.mean())
    return np.asarray(values)


def result_rows(setting: Source, cells: Mapping[str, Cell], discount: float) -> list[dict]:
    """Those of `ravl_mujoco` with how long imagined rollouts are before they terminate, and what
    policies are worth in the model where that hides velocities."""
    rows = ravl_mujoco.result_rows(setting, cells, discount)
    for row in rows:
        cell = cells.get(row["method"])
        if cell is not None:
            row |= {MODEL_VALUE: cell[MODEL_VALUE]} if MODEL_VALUE in cell else {}
            row["imagined steps"] = late(cell, "imagined_length")
    return rows


def lead_rows(
    setting: Setting, horizons: tuple[int, ...], seed: int, *, count: int = 500
) -> list[dict]:
    """Where rollouts of uniform actions end: what an edge is before any critic has a say.

    They begin in states of every second episode, and all lengths are in deviations of the data.
    `distance` is that to the nearest state of the other episodes, the starts' after 0 steps being
    the measure. `far out` is how far from the data's mean states lie, the root mean square of their
    components, about 1 for the data's own. `edge` is the distance of last states to the nearest
    that is acted from, of the other episodes or in earlier steps of rollouts from these, as many of
    each, over that of the states one step before: 1 where the last are like those before them.

    Args:
        setting: data and simulator.
        horizons: steps after which is looked.
        seed: of starts and actions.
        count: rollouts; three times as many begin in the other episodes, to compare with.

    Raises:
        ConfigError: the data are one episode.
    """
    rows, env = setting.dataset.transitions, setting.env
    observations, parts = np.asarray(rows.observations), episodes(rows)
    if len(parts.starts) < 2:
        raise ConfigError("dataset", setting.dataset.name, "one of two episodes or more")
    episode = np.repeat(np.arange(len(parts.starts)), parts.lengths)
    own, others = (observations[episode % 2 == rest] for rest in (0, 1))
    own_key, others_key = jax.random.split(jax.random.key(seed))
    states, there = uniform_rollouts(env, own, count, max(horizons), own_key)
    acted, there_too = uniform_rollouts(env, others, 3 * count, max(horizons), others_key)
    mean, deviation = observations.mean(0), observations.std(0)
    unit = np.where(deviation > 0, deviation, 1.0)

    def far_out(places: np.ndarray) -> float:
        return float(np.sqrt(np.square((places - mean) / unit).mean(-1)).mean())

    starts = states[0]
    nearest = novelty(others, starts)
    limit, away = np.quantile(nearest, 1.0 - FAR), float(np.median(nearest))
    lead: list[dict] = [
        {"steps": 0, "ended": 0.0, "distance": away, "beyond": FAR, "far out": far_out(starts)}
    ]
    for horizon in horizons:
        lead.append({"steps": horizon, "ended": float(1.0 - there[horizon].mean())})
        if there[horizon].any():
            last, before = (states[at, there[at]] for at in (horizon, horizon - 1))
            nearest = novelty(others, last)
            away, beyond = float(np.median(nearest)), float((nearest > limit).mean())
            lead[-1] |= {"distance": away, "beyond": beyond, "far out": far_out(last)}
            pool = alike(acted[:horizon][there_too[:horizon]], others, seed)
            one, other = (np.median(novelty(pool, places)) for places in (last, before))
            lead[-1] |= {"edge": float(one / other)} if other > 0 else {}
    return lead


def uniform_rollouts(
    env: Environment, places: np.ndarray, count: int, horizon: int, key: jax.Array
) -> tuple[np.ndarray, np.ndarray]:
    """States of rollouts of uniform actions from some of the places, the starts first,
    `[horizon + 1, count, S]`, and which of them are not past an end, `[horizon + 1, count]`."""
    starts_key, roll_key = jax.random.split(key)
    starts = places[np.asarray(jax.random.randint(starts_key, (count,), 0, len(places)))]
    rolled = rollout(
        true_dynamics(env, clipped=True).model, None, jnp.asarray(starts), roll_key,
        horizon=horizon, policy=random_policy(env.action_size),
        record=lambda step: (step.next_observations, step.terminations),
    )  # fmt: skip
    (reached, fell), valid = jax.tree.map(np.asarray, rolled.steps), np.asarray(rolled.valid)
    states = np.concatenate([starts[None], reached])
    return states, np.concatenate([np.ones((1, count), bool), valid & ~fell])


def alike(one: np.ndarray, other: np.ndarray, seed: int, most: int = 20_000) -> np.ndarray:
    """As many rows of each, drawn without replacement from the larger one."""
    rng, size = np.random.default_rng(seed), min(len(one), len(other), most)
    return np.concatenate([rng.permutation(rows)[:size] for rows in (one, other)])


def add_claims(report: Report, setting: Source, config: Config, cells: Mapping[str, Cell]) -> None:
    """Short rollouts promise what nobody earns, long ones do not, and earn more."""
    shortest, longest = (name_of(config.horizons[i]) for i in (0, -1))
    short, long = cells[shortest], cells[longest]

    claim = claims(report, SOURCE)
    means = "critics' value over the true one (at least 1), mean of the last looks"
    name = f"rollouts of {shortest} promise ten times what is earned"
    claim(name, promised_to_earned(short), at_least=10, means=means, cells=[short])
    name = f"rollouts of {longest} promise at most half too much"
    claim(name, promised_to_earned(long), at_most=1.5, means=means, cells=[long])
    name = f"rollouts of {longest} beat the behaviour"
    means = "mean return of the last looks above that of the dataset's episodes"
    claim(name, late(long), at_least=behaviour(setting).mean(), means=means, cells=[long])
    name = f"rollouts of {longest} earn more than rollouts of {shortest}"
    means = "difference of returns, mean of the last looks, seed by seed"
    claim(name, late(long) - late(short), at_least=0, means=means, cells=[short, long])


_CPU = replace(
    CPU_MUJOCO, agent=replace(CPU_MUJOCO.agent, max_alpha=1.0), epochs=60, evaluations=20
)  # twelve time constants
_SMOKE = replace(SMOKE_MUJOCO.rollouts, rollouts_per_epoch=40, horizon=3)
EXPERIMENT = LISTINGS["edge_of_reach_mujoco"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            "pendulum-mixed", horizons=(3, 12), study=replace(SMOKE_MUJOCO, rollouts=_SMOKE)
        ),
        "cpu": Config(study=_CPU),
    },
    run=run,
)
