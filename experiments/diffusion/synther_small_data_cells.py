"""What `synther_small_data` trains: agents on a share of a dataset and on what is made of it.

Kinds of rows: the share's own; `samples` of a diffusion model fitted to it; `rows with noise`; and
samples told anew, one of `TOLD`. Every seed has rows and models of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import fraction, positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critic_view import bootstrap_rate
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, sample_batch, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.quality import augmented, quality_of
from jaxrl_rollouts.offline.synthetic.relabel import (
    RelabelConfig,
    Relabeller,
    fit_relabeller,
    oracle,
    relabelled_rows,
)
from jaxrl_rollouts.offline.synthetic.synther import MixedData, SyntherConfig, mixing, upsample
from jaxrl_rollouts.offline.training import train_on_rows
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import stack

MADE = ("samples", "rows with noise")
# Samples told anew: by whom, and what about steps that an ensemble does not know.
TOLD: Mapping[str, dict[str, Any]] = {
    "ensemble": {"by": "ensemble"},
    "ensemble-drop": {"by": "ensemble", "unknown": "drop"},
    "model": {"by": "model"},
    "inverse": {"by": "inverse"},
    "oracle": {"by": "oracle"},
}
AGENTS = ("td3_bc", "iql")
Grids = Mapping[float, Grid]  # cells by agent and kind, by share of the data


@dataclass(frozen=True)
class Config:
    """Shares of one dataset, and the budgets.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        dataset: a name or file. Where the environment's observation does not determine its state
            (Hopper's speeds are cut) nobody says how wrong rows are, and there is no `oracle`.
        shares: of its rows, ascending; drawn at random and anew for every seed.
        synther: the diffusion model.
        samples: drawn from it per seed and share.
        sample_batch: of them side by side.
        real_share: of real rows in a batch of samples or noisy rows; 0 replaces the data.
        told: arms of samples told anew (`offline.synthetic.relabel`): rewards and next observations
            by an `ensemble` fitted to the same rows, the same without the rows it does not know
            (`ensemble-drop`), by a single `model` or by the simulator (`oracle`); or actions by an
            `inverse` model. Claims are about the first.
        networks: of those models. A smaller share takes more passes, and more patience, so that
            every share has as many gradient steps, as the diffusion model has.
        noise_told: members of an ensemble draw from their normals; False takes their means.
        level: an ensemble does not know rows on which its members disagree more than on this
            quantile of the data.
        agents: out of `AGENTS`.
        agent, iql: TD3+BC and IQL.
        updates, per_iteration, batch_size: of their training.
        evaluations: spread over the training, of so many `episodes` per seed.
        episodes: played at each evaluation, per seed.
        judged: samples per seed whose quality is measured.
        noise: of the augmented rows, in standard deviations.
    """

    seeds: int = positive(4)
    seed: int = 0
    dataset: str = "halfcheetah-mixed"
    shares: tuple[float, ...] = (0.03, 0.15, 1.0)
    synther: SyntherConfig = SyntherConfig()
    samples: int = positive(5_000_000)
    sample_batch: int = positive(10_000)
    real_share: float = fraction(0.0)
    told: tuple[str, ...] = ()
    networks: EnsembleConfig = field(default_factory=EnsembleConfig)
    noise_told: bool = True
    level: float = fraction(0.9)
    agents: tuple[str, ...] = ("td3_bc",)
    agent: Td3BcConfig = Td3BcConfig()
    iql: IqlConfig = IqlConfig(normalise=True)
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)
    batch_size: int = positive(256)
    evaluations: int = positive(10)
    episodes: int = positive(10)
    judged: int = positive(10_000)
    noise: float = 0.1

    def validate(self) -> None:
        shares = self.shares
        if not shares or list(shares) != sorted(set(shares)) or shares[0] <= 0 or shares[-1] > 1:
            raise ConfigError("shares", shares, "ascending, above 0 and at most 1")
        if self.updates % (self.per_iteration * self.evaluations):
            expected = f"a multiple of per_iteration * evaluations ({self.per_iteration} * "
            raise ConfigError("updates", self.updates, f"{expected}{self.evaluations})")
        if self.noise <= 0:
            raise ConfigError("noise", self.noise, "above 0")
        if not set(self.told) <= set(TOLD) or len(set(self.told)) < len(self.told):
            raise ConfigError("told", self.told, f"different ones out of {', '.join(TOLD)}")
        agents = self.agents
        if not agents or not set(agents) <= set(AGENTS) or len(set(agents)) < len(agents):
            raise ConfigError("agents", agents, f"at least one out of {', '.join(AGENTS)}")

    @property
    def judged_kinds(self) -> tuple[str, ...]:
        """Kinds of rows whose quality is measured: all that were made."""
        return (*MADE, *self.told)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of rows that agents learn from, the share's own first."""
        return ("rows", *self.judged_kinds)

    def named(self, agent: str) -> Td3BcConfig | IqlConfig:
        """The settings of one of the `agents`."""
        return self.agent if agent == "td3_bc" else self.iql


class MadeRows(NamedTuple):
    """What stands in for the rows of a share.

    Attributes:
        rows: by kind, every seed's `[samples, ...]`.
        seconds: by kind, of this process's CPU time for one seed: fitting models and asking them.
        kept: by kind of samples told anew, the share of them that is left, `[seeds]`.
    """

    rows: dict[str, list[Transitions]]
    seconds: dict[str, float]
    kept: dict[str, np.ndarray]


def measure_share(
    share: float, setting: Setting, config: Config, key: jax.Array, context: RunContext | None
) -> Grid:
    """What agents learn from a share of the rows and from what is made of them.

    Returns:
        Cells by agent and kind: `return`; of what was made the numbers of `quality_of`; `models`
        and `learning`, CPU seconds of a seed for making the rows and for the agent, `[seeds]`; of
        what was told anew `kept`, `[seeds]`.
    """
    rows_key, draw_key, look_key = jax.random.split(key, 3)
    # The same for every arm: what differs between them is the data.
    agent_keys = tuple(jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1)))
    rows = own_rows(setting.dataset.transitions, share, rows_key, config.seeds)
    name = f"{100 * share:g}-percent".replace(".", "-")
    made = make_rows(rows, share, setting.env, config, draw_key, name, context)
    quality = measure_quality(rows, made.rows, setting.env, look_key, config)
    iterations = config.updates // config.per_iteration
    budget = {"batch_size": config.batch_size, "updates_per_iteration": config.per_iteration}
    budget |= {"iterations": iterations, "evaluate_every": iterations // config.evaluations}
    budget |= {"episodes": config.episodes, "seeds": config.seeds, "per_seed": True}

    def train_agents(agent: str, kind: str, *, stage: str) -> Cell:
        """Every seed's on its own rows, or on what was made from them."""
        data, draw, chosen = stack(rows), sample_batch, config.named(agent)
        if kind in made.rows:
            data, draw = MixedData(data, stack(made.rows[kind])), mixing(config.real_share)
        run = budget | {"draw": draw, "stage": stage, "context": context}
        learn = partial(train_on_rows, chosen, data, setting.env, agent_keys, **run)
        trained, seconds = timed(context, stage, learn)
        spent = {"models": made.seconds.get(kind, 0.0), "learning": seconds / config.seeds}
        extra = {name: np.full(config.seeds, value) for name, value in spent.items()}
        extra |= quality.get(kind, {})
        extra |= {"kept": made.kept[kind]} if kind in made.kept else {}
        return Cell.of(trained, extra, updates=config.per_iteration, rate=bootstrap_rate(chosen))

    axes = {"agent": config.agents, "kind": config.kinds}
    return run_grid(axes, train_agents, context, seeds=config.seeds, stage=name, clear=False)


def timed(context: RunContext | None, stage: str, work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and this process's CPU seconds for it, compilation among them.

    A resumed run knows those of the session that finished the stage.
    """
    begin = time.process_time()
    done = work()
    spent = {"seconds": time.process_time() - begin}
    return done, float(remember(context, stage, "cpu", lambda: spent)["seconds"])


def own_rows(data: Transitions, share: float, key: jax.Array, seeds: int) -> list[Transitions]:
    """Every seed's rows of the dataset: random, without replacement, in their order."""
    count = len(data.rewards)
    some = slice(max(round(share * count), 1))
    return [
        take_rows(data, np.sort(np.asarray(jax.random.permutation(k, count)[some])))
        for k in jax.random.split(key, seeds)
    ]


def make_rows(
    rows: list[Transitions],
    share: float,
    env: Environment,
    config: Config,
    key: jax.Array,
    name: str,
    context: RunContext | None,
) -> MadeRows:
    """Samples, noisy rows and samples told anew; `name` begins the names of the stages."""
    stage, seeds = f"{name}-denoiser", config.seeds
    run = {"batch": config.sample_batch, "stage": stage, "context": context}
    draw = partial(upsample, rows, config.synther, key, config.samples, **run)
    samples, seconds = timed(context, stage, draw)
    made = MadeRows({"samples": samples}, {"samples": seconds / seeds}, {})
    made.rows["rows with noise"] = with_noise(rows, config)
    for by in dict.fromkeys(TOLD[kind]["by"] for kind in config.told):
        # Like the samples, what is told begins with keys that depend on the name alone.
        keys = jax.random.split(jax.random.fold_in(key, list(TOLD).index(by)), 2 * seeds)
        relabellers, fitting = [], 0.0
        for seed, own in enumerate(rows):
            relabeller, seconds = _relabeller(
                by, own, share, env, config, keys[seed], f"{name}-{by}-{seed}", context
            )
            relabellers.append(relabeller)
            fitting += seconds

        def tell(kind: str, by: list[Relabeller] = relabellers, keys: Any = keys) -> list:
            unknown = TOLD[kind].get("unknown", "keep")
            arms = zip(by, samples, keys[seeds:], strict=True)
            return [relabelled_rows(one._replace(unknown=unknown), s, k) for one, s, k in arms]

        for kind in (kind for kind in config.told if TOLD[kind]["by"] == by):
            told, telling = timed(context, f"{name}-told-{kind}", partial(tell, kind))
            made.rows[kind] = [refilled(one, config.samples) for one in told]
            made.kept[kind] = np.array([len(one.rewards) / config.samples for one in told])
            made.seconds[kind] = made.seconds["samples"] + (fitting + telling) / seeds
    return made


def _relabeller(
    by: str,
    rows: Transitions,
    share: float,
    env: Environment,
    config: Config,
    key: jax.Array,
    stage: str,
    context: RunContext | None,
) -> tuple[Relabeller, float]:
    """Of one seed, and the CPU seconds of its fit; the simulator needs none."""
    if by == "oracle":
        return oracle(env), 0.0
    settings: Any = {"noise": config.noise_told, "level": config.level}
    settings["networks"] = passes_for(config.networks, share)
    run: Any = {"termination": env.termination, "stage": stage, "context": context}
    chosen = RelabelConfig(by, **settings)  # type: ignore[arg-type]
    return timed(context, stage, partial(fit_relabeller, rows, chosen, key, **run))


def passes_for(networks: EnsembleConfig, share: float) -> EnsembleConfig:
    """As many gradient steps on a share of the rows, and between two looks at the patience."""
    passes = (networks.max_epochs, networks.least_epochs, networks.patience)
    most, least, patience = (round(count / share) for count in passes)
    return replace(networks, max_epochs=most, least_epochs=least, patience=patience)


def refilled(rows: Transitions, count: int) -> Transitions:
    """`count` rows: these in turn, so that none is in there twice more than another."""
    return take_rows(rows, np.arange(count) % len(rows.rewards))


def with_noise(rows: list[Transitions], config: Config) -> list[Transitions]:
    """The usual augmentation: as many rows as there are samples, drawn anew, with noise."""
    noisy = []
    for seed, own in enumerate(rows):
        drawn = np.random.default_rng(seed).integers(0, len(own.rewards), config.samples)
        noisy.append(augmented(take_rows(own, drawn), config.noise, seed))
    return noisy


def measure_quality(
    rows: list[Transitions],
    made: Mapping[str, list[Transitions]],
    env: Environment,
    key: jax.Array,
    config: Config,
) -> dict[str, dict[str, np.ndarray]]:
    """`quality_of` by kind, `[seeds]`: of `config.judged` of the rows made, and of as many rows
    with noise."""
    quality: dict[str, list] = {kind: [] for kind in config.judged_kinds}
    for seed, real in enumerate(rows):
        rng = np.random.default_rng(seed)
        own = take_rows(real, rng.integers(0, len(real.rewards), config.judged))
        chosen = rng.permutation(config.samples)[: config.judged]
        for kind, judged in quality.items():
            looked = take_rows(made[kind][seed], chosen)
            if kind == "rows with noise":
                looked = augmented(own, config.noise, seed)
            judged.append(quality_of(real, looked, env, jax.random.fold_in(key, seed)))
    return {kind: jax.tree.map(lambda *q: np.array(q), *each) for kind, each in quality.items()}
