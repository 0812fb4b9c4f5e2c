"""What `pgd_agents` trains: agents on a dataset, and on what denoisers fitted to it make up.

Sources: `real`; `synther`, single transitions out of a residual MLP; `unguided`, windows out of a
U-Net; `guided`, the same U-Net pulled towards the current policy and drawn anew at every refresh.
The first three are fixed sets; both synthetic ones have equally many rows. Each synthetic one also
told anew, the same states and actions: by an ensemble of the dataset's rows (`synther-told`, ...),
or by the simulator (`synther-oracle`, ...). Windows are told step by step and stay trajectories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import fraction, number, positive
from jaxrl_rollouts.diffusion import GuidanceConfig, SamplerConfig, small_training
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.registry import AgentConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, sample_batch, take_rows, to_device
from jaxrl_rollouts.offline.study.source import Setting, setting_of, slug
from jaxrl_rollouts.offline.synthetic.paths import policy_gap
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig, PgdData, make_pgd
from jaxrl_rollouts.offline.synthetic.quality import dynamics_error
from jaxrl_rollouts.offline.synthetic.relabel import (
    RelabelConfig,
    Relabeller,
    fit_relabeller,
    oracle,
    relabelled,
    relabelled_rows,
)
from jaxrl_rollouts.offline.synthetic.synther import MixedData, SyntherConfig, generate, mixing
from jaxrl_rollouts.offline.synthetic.synthesis import (
    SMALL_WORLD,
    SyntheticConfig,
    fit_rows,
    fit_windows,
)
from jaxrl_rollouts.offline.synthetic.windows import WindowModel, generate_windows
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree, unstack

from .synther_small_data_rows import refilled

LOOK = 4096  # rows of a source that are looked at
SAMPLED = ("synther", "unguided", "guided")
TELLERS = ("told", "oracle")
PLAIN = ("real", *SAMPLED)
SOURCES = (*PLAIN, *(f"{source}-{teller}" for source in SAMPLED for teller in TELLERS))
AGENTS = ("td3_bc", "iql")
NORMED = "critic norm"


@dataclass(frozen=True)
class Config:
    """Datasets by agents by sources by regularisers.

    Attributes:
        datasets: names; those made on the spot are `study.MADE`.
        agents, sources: out of `AGENTS` and `SOURCES`.
        alphas: of TD3+BC, swept on every source; the first is the default.
        critic_norm: also TD3+BC's default with layer-normalised critics, after the alphas.
        iql: expectile and inverse temperature of IQL, likewise; it standardises observations, as
            TD3+BC does (on HalfCheetah it learns twice as much in as many updates).
        seeds, seed: agents trained side by side in every cell.
        hidden, rate, batch_size: of every agent.
        polyak: how fast the critics' targets move: TD3+BC's at every second update, IQL's at each.
        refreshes, updates: how often guided data are drawn, and gradient steps after each draw;
            agents on other sources take as many in all.
        windows: drawn per refresh and seed.
        pool: windows of the unguided set, drawn once.
        real_share: of every batch on a synthetic source, as policy-guided diffusion has it; 0 is
            SynthER's own.
        length, stride: states of a window, and rows between two windows of the data.
        unet, unet_training: the denoiser of windows.
        synther: that of transitions.
        sampler, guidance, coefficient: of windows.
        networks, noise_told: the ensemble that tells synthetic rows anew; its members draw from
            their normals, or tell their means.
        evaluations, episodes: evaluations while training, and episodes of each per seed.
    """

    datasets: tuple[str, ...] = ("acrobot-broad", "hopper-mixed", "halfcheetah-medium")
    agents: tuple[str, ...] = AGENTS
    sources: tuple[str, ...] = PLAIN
    alphas: tuple[float, ...] = (2.5, 10.0, 40.0)
    critic_norm: bool = False
    iql: tuple[tuple[float, float], ...] = ((0.7, 3.0), (0.7, 10.0), (0.9, 10.0))
    seeds: int = positive(5)
    seed: int = 0
    hidden: tuple[int, ...] = (256, 256)
    rate: float = 3e-4
    polyak: float = number(0.005, above=0, most=1)
    batch_size: int = 256
    refreshes: int = positive(5)
    updates: int = positive(4000)
    windows: int = positive(1536)
    pool: int = positive(7680)
    real_share: float = fraction(1 / 16)
    length: int = 32
    stride: int = 8
    unet: diffusion.TemporalUnetConfig = diffusion.TemporalUnetConfig()
    unet_training: diffusion.DenoiserTrainingConfig = small_training(20_000, 64)
    synther: SyntherConfig = SyntherConfig(
        diffusion.ResidualMlpConfig(width=256), small_training(20_000, 256), SamplerConfig(128)
    )
    sampler: SamplerConfig = SamplerConfig(32)
    guidance: GuidanceConfig = GuidanceConfig(reference_steps=256)
    coefficient: float = 0.5
    networks: EnsembleConfig = replace(SMALL_WORLD, variance="row")
    noise_told: bool = False
    evaluations: int = positive(5)
    episodes: int = 10

    def validate(self) -> None:
        for name, known in (("agents", AGENTS), ("sources", SOURCES)):
            names = getattr(self, name)
            if not names or not set(names) <= set(known):
                raise ConfigError(name, names, f"names out of {', '.join(known)}")
        if not self.datasets or not self.alphas or not self.iql:
            raise ConfigError("datasets, alphas, iql", "nothing", "at least one of each")
        if self.refreshes % self.evaluations:
            expected = f"a divisor of refreshes ({self.refreshes})"
            raise ConfigError("evaluations", self.evaluations, expected)

    def regularisers(self, agent: str) -> Mapping[str, AgentConfig]:
        """Settings of one agent by a name for tables; the first is the default."""
        net: dict[str, Any] = {"hidden": self.hidden, "actor_rate": self.rate}
        net |= {"critic_rate": self.rate, "polyak": self.polyak}
        if agent == "td3_bc":
            swept = {f"alpha {alpha:g}": Td3BcConfig(alpha=alpha, **net) for alpha in self.alphas}
            if self.critic_norm:
                name, default = next(iter(swept.items()))
                swept[f"{name}, {NORMED}"] = replace(default, critic_norm=True)
            return swept
        iql = IqlConfig(normalise=True, value_rate=self.rate, **net)
        return {
            f"tau {tau:g}, beta {beta:g}": replace(iql, expectile=tau, inverse_temperature=beta)
            for tau, beta in self.iql
        }


def parts_of(source: str) -> tuple[str, str]:
    """What was sampled, and who tells what follows: `("guided", "told")`; nobody is empty."""
    sampled, _, teller = source.partition("-")
    return sampled, teller


class Sources(NamedTuple):
    """A dataset with its environment, and what was made of it."""

    setting: Setting
    sets: dict[str, Transitions]  # by source, on the device, of those that are drawn once
    model: WindowModel | None  # for all seeds; None without windows
    tellers: Mapping[str, Relabeller]  # by name, of those that are asked


def make_sources(name: str, config: Config, context: RunContext | None) -> Sources:
    """Load a dataset, fit its denoisers and draw the fixed synthetic sets."""
    setting = setting_of(name, config.seed, context)
    rows, model = setting.dataset.with_successors, None
    sets = {"real": to_device(setting.dataset.transitions)}
    unet_key, pool_key, mlp_key, rows_key = jax.random.split(jax.random.key(config.seed), 4)
    count, steps = config.pool * (config.length - 1), config.length - 1
    parts = [parts_of(source) for source in config.sources]
    sampled, asked = ({part[i] for part in parts} for i in range(2))
    tellers = make_tellers(name, setting, asked, config, context)
    told_key = jax.random.fold_in(rows_key, 1)

    def tell(sampled: str, plain: Transitions, told: Callable[[Relabeller], Transitions]) -> None:
        """The set and those of its variants that are wanted, equally large."""
        every = {"": plain} | {t: told(by) for t, by in tellers.items() if (sampled, t) in parts}
        for teller, made in every.items():
            source = f"{sampled}-{teller}" if teller else sampled
            if source in config.sources:
                sets[source] = to_device(refilled(made, len(plain.rewards)))

    if {"unguided", "guided"} & sampled:
        cut: dict[str, Any] = {"length": config.length, "stride": config.stride}
        settings = SyntheticConfig(unet=config.unet, training=config.unet_training, **cut)
        run = {"stage": f"{slug(name)}-unet", "source": name, "context": context}
        model = fit_windows(rows, settings, unet_key, **run)
    if model and "unguided" in sampled:
        draw = {"config": config.sampler, "batch": config.windows}
        drawn = generate_windows(*model[:2], pool_key, model.layout, config.pool, **draw)
        every, valid = jax.tree.map(np.asarray, model.layout.unpack(drawn))
        paths = jax.tree.map(lambda x: x.reshape(-1, steps, *x.shape[1:]), every)
        which = valid.reshape(-1, steps)
        plain = take_rows(every, np.flatnonzero(valid))
        tell("unguided", plain, lambda by: relabelled(by, paths, which, told_key))
        count = len(plain.rewards)
    if "synther" in sampled:
        run = {"stage": f"{slug(name)}-synther", "context": context}
        denoiser, params, layout = fit_rows(rows, config.synther, mlp_key, **run)
        plain = jax.tree.map(
            np.asarray,
            generate(denoiser, params, rows_key, layout, count, config=config.synther.sampler),
        )
        tell("synther", plain, lambda by: relabelled_rows(by, plain, told_key))
    return Sources(setting, sets, model, tellers)


def make_tellers(
    name: str, setting: Setting, asked: set[str], config: Config, context: RunContext | None
) -> dict[str, Relabeller]:
    """Who tells synthetic rows anew, of those that are `asked`."""
    tellers, env = {}, setting.env
    if "told" in asked:
        by = RelabelConfig("ensemble", networks=config.networks, noise=config.noise_told)
        key = jax.random.fold_in(jax.random.key(config.seed), 2)
        run = {"stage": f"{slug(name)}-teller", "context": context}
        rows, rule = setting.dataset.with_successors, env.termination
        tellers["told"] = fit_relabeller(rows, by, key, termination=rule, **run)
    if "oracle" in asked:
        tellers["oracle"] = oracle(env)
    return tellers


def train_grid(name: str, sources: Sources, config: Config, context: RunContext | None) -> Grid:
    """All arms of one dataset: agents by sources by regularisers; see `train_cell`."""
    labels = {agent: tuple(config.regularisers(agent)) for agent in config.agents}
    points = [(a, s, r) for a in config.agents for r in labels[a] for s in config.sources]
    train, axes = partial(train_cell, sources, config, context), ("agent", "source", "regulariser")
    run: dict[str, Any] = {"seeds": config.seeds, "stage": slug(name)}
    # Sources share their programs as long as settings are the same.
    return run_grid(axes, train, context, points=points, clear=False, **run)


def train_cell(
    sources: Sources, config: Config, context: RunContext | None, *point: str, stage: str
) -> Cell:
    """Train an agent on a source, both named by the `point`, and look at what it learned from.

    Returns:
        A cell with, beside the evaluations, `gap`, the mean squared distance of the source's
        actions from those of the final policy, `[seeds]`; `dynamics`, the mean squared error of its
        next observations in the true simulator in variances of the data, `[seeds or 1]`, where the
        simulator can be set; `size`, the mean size of an action, `[seeds or 1]`; and
        `terminations`, the share of its rows that end an episode.
    """
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    *keys, look_key = jax.random.split(key, 3)
    env, data, draw = sources.setting.env, sources.sets["real"], sample_batch
    agent, source, regulariser = point
    chosen, (sampled, by) = config.regularisers(agent)[regulariser], parts_of(source)
    if sampled == "guided":
        assert sources.model is not None
        denoiser, params, layout = sources.model
        sizes = config.windows, config.updates, config.batch_size, config.real_share
        pgd = PgdConfig(config.guidance, config.coefficient, config.sampler, *sizes)
        teller = sources.tellers.get(by)
        learner = make_pgd(pgd, chosen, denoiser, layout, teller)
        data = PgdData(data, params, () if teller is None else teller.data)
    else:
        if source != "real":
            data, draw = MixedData(data, sources.sets[source]), mixing(config.real_share)
        sizes = {"batch_size": config.batch_size, "updates_per_iteration": config.updates}
        observed, acting = env.observation_size, env.action_size
        learner = make_model_free(chosen, observed, acting, draw=draw, **sizes)
    every = config.refreshes // config.evaluations
    budget = {"seeds": config.seeds, "iterations": config.refreshes, "evaluate_every": every}
    play = {"episodes": config.episodes, "discount": chosen.discount}
    run = {"stage": stage, "context": context}
    trained = train_and_play(learner, data, env, tuple(keys), **play, **budget, **run)
    if sampled == "guided":
        synthetic = trained.state.synthetic
        rows = jax.tree.map(lambda x: x[:, : int(synthetic.size.min())], synthetic.rows)
    else:
        rows = jax.tree.map(lambda x: x[None], sources.sets[source])
    looked, actors = some_rows(rows, look_key), trained.state.agent.actor
    extra: dict[str, Any] = {"terminations": float(rows.terminations.mean())}
    extra["size"] = np.abs(np.asarray(looked.actions)).mean((1, 2))
    extra |= {"gap": action_gap(learner.agent, actors, looked)} | dynamics_of(sources, looked)
    return Cell.of(trained, extra, updates=config.updates, rate=bootstrap_rate(chosen))


def some_rows(rows: Transitions, key: jax.Array) -> Transitions:
    """`[seeds, LOOK]` of `[seeds, N]` rows, or all where they are no more.

    At random: every k-th could skip a step of all windows, such as the last, which terminates.
    """
    chosen = jax.random.permutation(key, rows.rewards.shape[1])[:LOOK]
    return jax.tree.map(lambda x: x[:, chosen], rows)


def action_gap(agent: Any, actors: PyTree, rows: Transitions) -> np.ndarray:
    """Mean of `(a - pi(s))^2` over each seed's rows `[seeds, N]`, or all seeds' `[1, N]`."""

    def one(actor: PyTree, rows: Transitions) -> jax.Array:
        return policy_gap(agent.gaussian, actor, rows).mean()

    axis, rows = (None, unstack(rows)[0]) if len(rows.rewards) == 1 else (0, rows)
    return np.asarray(jax.jit(jax.vmap(one, (0, axis)))(actors, rows))


def dynamics_of(sources: Sources, rows: Transitions) -> dict[str, np.ndarray]:
    """`dynamics` of `[seeds or 1, N]` rows, see `train_cell`; nothing where there is no telling."""
    env = sources.setting.env
    if env.set_observation is None or env.host:
        return {}
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    error = dynamics_error(env, flat, sources.sets["real"], jax.random.key(0))
    return {"dynamics": error.next_observation.reshape(rows.rewards.shape).mean(1)}
