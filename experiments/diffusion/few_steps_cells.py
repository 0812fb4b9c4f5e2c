"""What `few_steps` trains on a dataset: teachers and students of rows and of windows, agents.

Rows are judged and learned from as they were drawn, and told anew: the same states and actions,
with reward and next state by one network that was fitted to the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.compare.timing import timed
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    DistilConfig,
    JumpConfig,
    Lesson,
    SamplerConfig,
    distil,
    draw_samples,
    flow_of_denoiser,
    make_flow,
    small_distil,
    small_training,
    train_denoiser,
)
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.acrobot import EXPERT, pump_policy
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.data import Transitions, normalised_score, sample_batch, to_device
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.quality import dynamics_error, sliced_wasserstein
from jaxrl_rollouts.offline.synthetic.refresh import RefreshConfig, RefreshData, make_refreshed
from jaxrl_rollouts.offline.synthetic.relabel import (
    RelabelConfig,
    Relabeller,
    fit_relabeller,
    relabelled_rows,
)
from jaxrl_rollouts.offline.synthetic.synther import RowLayout, draw_rows, fit_layout
from jaxrl_rollouts.offline.training import train_and_play, train_on_rows
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree, stack

from .few_steps_ring import RingConfig, Sampler, teachers_samplers
from .few_steps_windows import WindowsConfig
from .synther_small_data_rows import refilled

MANY = "Heun with churn, 128 levels"  # SynthER's sampler, 255 calls
IN_LOOP = "in the loop"
TOLD = "told anew"
PARTS = ("ring", "rows", "agents", "windows")


@dataclass(frozen=True)
class Config:
    """Data, networks and samplers.

    Attributes:
        seeds, seed: models trained side by side.
        parts: what is done, out of `PARTS`; `agents` learn from the `rows` of their models.
        ring: of two dimensions.
        dataset: its environment's observation must determine the state.
        network, training: the teacher of transitions.
        student: updates of a student; batches are the teacher's.
        calls: of the students.
        networks: the one (`members` is not used) that tells rows anew.
        rows: judged per seed and sampler.
        windows: of the dataset.
        samples: rows that agents learn from, per seed.
        agent: TD3+BC, on samples and nothing else.
        updates, per_iteration, batch_size: of its training.
        refresh: rows drawn anew after every `per_iteration` updates, in the loop.
        evaluations, episodes: spread over the training, per seed.
    """

    seeds: int = positive(4)
    seed: int = 0
    parts: tuple[str, ...] = PARTS
    ring: RingConfig = field(default_factory=RingConfig)
    dataset: str = "acrobot-broad"
    network: diffusion.ResidualMlpConfig = diffusion.ResidualMlpConfig(width=128)
    training: DenoiserTrainingConfig = small_training(6000, 256)
    student: int = positive(2500)
    calls: tuple[int, ...] = (1, 2, 4, 8)
    networks: EnsembleConfig = EnsembleConfig(
        hidden=(128, 128, 128),
        variance="output",
        bootstrap=False,
        cosine=True,
        weight_decay=(0.0,),
        batch_size=512,
        max_epochs=30,
    )
    rows: int = positive(4096)
    windows: WindowsConfig = field(default_factory=WindowsConfig)
    samples: int = positive(16_384)
    agent: Td3BcConfig = Td3BcConfig(
        hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, polyak=0.05
    )
    updates: int = positive(12_000)
    per_iteration: int = positive(500)
    batch_size: int = positive(256)
    refresh: int = positive(8192)
    evaluations: int = positive(4)
    episodes: int = positive(10)

    def validate(self) -> None:
        if not self.parts or not set(self.parts) <= set(PARTS):
            raise ConfigError("parts", self.parts, f"at least one out of {', '.join(PARTS)}")
        if "agents" in self.parts and "rows" not in self.parts:
            raise ConfigError("parts", self.parts, "rows with agents, who learn from them")
        if list(self.calls) != sorted(set(self.calls)) or len(self.calls) < 2:
            raise ConfigError("calls", self.calls, "at least two, ascending")
        if self.updates % (self.per_iteration * self.evaluations):
            expected = f"a multiple of per_iteration * evaluations ({self.per_iteration} * "
            raise ConfigError("updates", self.updates, f"{expected}{self.evaluations})")

    def student_of(self, calls: int) -> DistilConfig:
        return small_distil(calls, self.student, self.training.batch)


class Rows(NamedTuple):
    """Trained models of transitions, all seeds'."""

    layout: RowLayout
    packed: jax.Array
    models: Mapping[str, tuple[Any, PyTree]]  # by sampler's name: functions and weights
    samplers: Mapping[str, Sampler]
    calls: Mapping[str, int]
    tellers: tuple[Relabeller, ...]  # every seed's
    told: Mapping[str, str]  # names of what is told anew, and of what it is told of

    def draw(self, name: str, keys: jax.Array, shape: tuple[int, int, int]) -> list[Transitions]:
        """Every seed's rows of one sampler, `shape` packed ones; told anew where its name says so.

        Args:
            name: of `samplers`, or of `told`.
            keys: one for each seed.
            shape: `(n, B, F)`: n times B rows.
        """
        plain = self.told.get(name, name)
        (model, params), sampler = self.models[plain], self.samplers[plain]

        def one(per_seed: tuple, shared: tuple) -> jax.Array:
            return draw_rows(model, *per_seed, shape, sampler)

        drawn = [self.layout.unpack(own) for own in map_seeds(one, (params, keys))]
        if name == plain:
            return drawn
        arms = zip(self.tellers, drawn, keys, strict=True)
        return [relabelled_rows(by, own, jax.random.fold_in(key, 1)) for by, own, key in arms]


def fit_rows(config: Config, setting: Setting, key: jax.Array, context: RunContext | None) -> Rows:
    """The teacher, its students, all ways to draw from them, and who tells what follows."""
    data = setting.dataset.with_successors
    layout = fit_layout(data)
    packed, keys = layout.pack(data), jax.random.split(key, config.seeds)
    sizes = config.network, layout.features
    denoiser = diffusion.make_denoiser(diffusion.make_residual_mlp(*sizes))
    run: dict[str, Any] = {"stage": "rows-teacher", "context": context}
    taught = train_denoiser(denoiser, config.training, packed, keys, **run).state.average
    models: dict[str, tuple[Any, PyTree]] = {MANY: (denoiser, taught)}
    samplers: dict[str, Sampler] = {MANY: SamplerConfig(128)}
    calls = {MANY: SamplerConfig(128).calls}
    for how, settings in teachers_samplers(config.calls).items():
        for count, sampler in settings.items():
            if count < 255:
                name = f"teacher, {how}, {count}"
                models[name], samplers[name], calls[name] = models[MANY], sampler, count
    net = diffusion.make_residual_mlp(*sizes, interval=True)
    for count in config.calls:
        settings = config.student_of(count)
        flow = make_flow(net, settings.flow, flow_of_denoiser(denoiser))
        run = {"stage": f"rows-student-{count}", "context": context}
        lesson, name = Lesson(packed, taught), f"student, {count}"
        student = distil(flow, settings.training, lesson, keys, **run).state.average
        models[name], samplers[name], calls[name] = (flow, student), settings.jumps, count
    last = config.calls[-2:]
    told = {f"{MANY}, {TOLD}": MANY} | {f"student, {TOLD}, {n}": f"student, {n}" for n in last}
    calls |= {name: calls[plain] for name, plain in told.items()}
    tellers = fit_tellers(config, setting, key, context)
    return Rows(layout, packed, models, samplers, calls, tellers, told)


def fit_tellers(
    config: Config, setting: Setting, key: jax.Array, context: RunContext | None
) -> tuple[Relabeller, ...]:
    """Every seed's network of what follows a state and an action, fitted to the dataset."""
    settings = RelabelConfig("model", config.networks)
    keys = jax.random.split(jax.random.fold_in(key, 1), config.seeds)
    run: dict[str, Any] = {"termination": setting.env.termination, "context": context}
    return tuple(
        fit_relabeller(
            setting.dataset.with_successors, settings, own, stage=f"rows-teller-{seed}", **run
        )
        for seed, own in enumerate(keys)
    )


def judge_rows(
    config: Config, setting: Setting, rows: Rows, key: jax.Array, context: RunContext | None
) -> tuple[Grid, float]:
    """Every sampler's rows in the simulator and as a distribution.

    Returns:
        Cells by sampler, `[seeds]` each: `seconds` of all seeds' draws, `distance`,
        `next_observation`, `median` and `reward` (squared, in the data's variances); and the
        distance of two draws of real rows.
    """
    draw_key, real_key, look_key = jax.random.split(key, 3)
    keys, count = jax.random.split(draw_key, config.seeds), config.rows
    real = [
        rows.packed[jax.random.randint(k, (count,), 0, len(rows.packed))]
        for k in jax.random.split(real_key)
    ]

    def measured(name: str) -> dict[str, Any]:
        shape, scale = (1, count, rows.layout.features), setting.dataset.transitions
        drawn = rows.draw(name, keys, shape)
        seconds = min(timed(lambda: rows.draw(name, keys, shape)) for _ in range(2))
        errors = [dynamics_error(setting.env, own, scale, look_key) for own in drawn]
        apart = [sliced_wasserstein(real[0], rows.layout.pack(own)) for own in drawn]
        return {
            "seconds": np.full(config.seeds, seconds),
            "distance": np.array(apart),
            "next_observation": np.array([e.next_observation.mean() for e in errors]),
            "median": np.array([np.median(e.next_observation) for e in errors]),
            "reward": np.array([e.reward.mean() for e in errors]),
        }

    def cell(name: str, stage: str) -> Cell:
        return Cell(measure=lambda: measured(name))

    axes = {"sampler": (*rows.models, *rows.told)}
    grid = run_grid(axes, cell, context, seeds=config.seeds, stage="rows", clear=False)
    return grid, sliced_wasserstein(*real)


def conversion(rows: Rows, seeds: int, key: jax.Array, context: RunContext | None) -> np.ndarray:
    """Mean difference, `[seeds]`, of the teacher's samples by EDM's Heun and by Heun on the linear
    path from the same noise at the same 256 levels."""
    denoiser, params = rows.models[MANY]
    levels = SamplerConfig(256, churn=0.0)
    sigmas = levels.levels(denoiser.config)[:-1]
    times = tuple((sigmas / (1.0 + sigmas)).tolist())
    linear = JumpConfig(256, method="heun", times=times)

    def one(per_seed: tuple[Any, jax.Array], shared: tuple) -> jax.Array:
        shape = 256, rows.layout.features
        by = [draw_samples(denoiser, *per_seed, shape, config=c) for c in (levels, linear)]
        return abs(by[0] - by[1]).mean()

    def measured() -> dict[str, Any]:
        return {"apart": map_seeds(one, (params, jax.random.split(key, seeds)))}

    return remember(context, "rows", "conversion", measured)["apart"]


def references(setting: Setting, seed: int) -> tuple[float, float] | None:
    """Returns that are 0 and 100 points: a random policy's and the scripted expert's, of the
    acrobot; elsewhere points are normalised scores."""
    if setting.env.name != "acrobot":
        return None
    key = jax.random.key(seed)
    low = evaluate(setting.env, random_policy(1), None, key, 64)
    high = evaluate(setting.env, pump_policy, jax.tree.map(np.float32, EXPERT), key, 64)
    return float(low.returns.mean()), float(high.returns.mean())


def points(setting: Setting, ends: tuple[float, float] | None, returns: np.ndarray) -> np.ndarray:
    """Returns in points, or as they are where nobody knows what 100 points are."""
    if ends is not None:
        return 100.0 * (returns - ends[0]) / (ends[1] - ends[0])
    scores = normalised_score(setting.dataset.name, returns)
    return returns if scores is None else scores


def agent_arms(config: Config) -> tuple[str, ...]:
    """What agents learn from: real rows, drawn once, told anew, or drawn in the loop."""
    last, middle = config.calls[-1], config.calls[-2]
    drawn = (MANY, f"teacher, 2M, {last}", f"student, {last}", f"student, {middle}")
    told = (f"{MANY}, {TOLD}", f"student, {TOLD}, {last}", f"student, {TOLD}, {middle}")
    return ("real rows", *drawn, *told, f"student, {middle}, {IN_LOOP}")


def train_agents(
    config: Config,
    setting: Setting,
    rows: Rows,
    judged: Grid,
    key: jax.Array,
    context: RunContext | None,
) -> Grid:
    """TD3+BC on every kind of rows.

    Returns:
        Cells by arm, `[seeds]` each: `return`; seconds of the `training`, compilation left out,
        and of `drawing` rows before it, at the rate that was `judged`; rows `drawn` in all.
    """
    draw_key, *agent_keys = jax.random.split(key, 3)
    keys, real = jax.random.split(draw_key, config.seeds), to_device(setting.dataset.transitions)
    iterations = config.updates // config.per_iteration
    budget: dict[str, Any] = {"seeds": config.seeds, "iterations": iterations}
    budget |= {"episodes": config.episodes, "evaluate_every": iterations // config.evaluations}
    rate = bootstrap_rate(config.agent)
    sizes = {"batch_size": config.batch_size, "updates_per_iteration": config.per_iteration}

    def drawn_once(name: str) -> Transitions:
        batch = min(config.samples, 4096)
        shape = -(-config.samples // batch), batch, rows.layout.features
        drawn = rows.draw(name, keys, shape)
        return stack([refilled(own, config.samples) for own in drawn])

    def trained(arm: str, *, stage: str) -> Cell:
        run: dict[str, Any] = {**budget, "stage": stage, "context": context}
        seconds, count = 0.0, len(real.rewards)
        if arm.endswith(IN_LOOP):
            name = arm.removesuffix(f", {IN_LOOP}")
            (model, params), sampler = rows.models[name], rows.samplers[name]
            loop = (config.refresh, config.per_iteration, config.batch_size)
            learner = make_refreshed(
                RefreshConfig(sampler, *loop), config.agent, model, rows.layout
            )
            run["per_seed"] = RefreshData(False, True)  # type: ignore[arg-type]
            data, count = RefreshData(real, params), config.refresh * iterations
            play: Any = {"discount": config.agent.discount}
            done = train_and_play(learner, data, setting.env, tuple(agent_keys), **play, **run)
        else:
            learn = partial(train_on_rows, config.agent, env=setting.env, keys=tuple(agent_keys))
            if arm == "real rows":
                done = learn(rows=real, draw=sample_batch, **sizes, **run)
            else:
                count = config.samples
                seconds = float(judged[arm]["seconds"].mean()) * count / config.rows
                done = learn(rows=drawn_once(arm), per_seed=True, **sizes, **run)
        extra = {"drawing": seconds, "training": done.run_seconds, "drawn": count}
        kept = remember(context, stage, "times", lambda: extra)
        extra = {name: np.full(config.seeds, float(value)) for name, value in kept.items()}
        return Cell.of(done, extra, updates=config.per_iteration, rate=rate)

    axes = {"rows": agent_arms(config)}
    return run_grid(axes, trained, context, seeds=config.seeds, stage="agents", clear=False)
