"""Rows, samples and agents of `synther_small_data`, every seed with its own."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.grid import Cell, Grid, run_grid
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, sample_batch, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.study.model_based import Setting
from jaxrl_rollouts.offline.synthetic.quality import augmented, quality_of
from jaxrl_rollouts.offline.synthetic.synther import (
    MixedData,
    SyntherConfig,
    draw_rows,
    fit_layout,
    make_synther,
    mixing,
    unpack_finite,
)
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import stack

KINDS = {"rows": "", "samples": ", up-sampled", "rows with noise": ", with noise"}
JUDGED = ("samples", "rows with noise")


@dataclass(frozen=True)
class Config:
    """Shares of one dataset, and the budgets.

    Attributes:
        dataset: a name or file; its environment's observation has to determine its state.
        shares: of its rows, ascending; drawn at random and anew for every seed.
        synther: the diffusion model.
        samples: drawn from it per seed and share.
        sample_batch: of them side by side.
        real_share: of real rows in a batch of samples or noisy rows; 0 replaces the data.
        agent: TD3+BC.
        updates, per_iteration, batch_size: of its training.
        evaluations: spread over the training, of so many `episodes` per seed.
        judged: samples per seed whose quality is measured.
        noise: of the augmented rows, in standard deviations.
    """

    seeds: int = 4
    seed: int = 0
    dataset: str = "jr/halfcheetah-mixed"
    shares: tuple[float, ...] = (0.03, 0.15, 1.0)
    synther: SyntherConfig = SyntherConfig()
    samples: int = 5_000_000
    sample_batch: int = 10_000
    real_share: float = 0.0
    agent: Td3BcConfig = Td3BcConfig()
    updates: int = 1_000_000
    per_iteration: int = 1000
    batch_size: int = 256
    evaluations: int = 10
    episodes: int = 10
    judged: int = 10_000
    noise: float = 0.1

    def validate(self) -> None:
        at_least_one(self, "seeds", "samples", "sample_batch", "updates", "per_iteration")
        at_least_one(self, "batch_size", "evaluations", "episodes", "judged")
        shares = self.shares
        if not shares or list(shares) != sorted(set(shares)) or shares[0] <= 0 or shares[-1] > 1:
            raise ConfigError("shares", shares, "ascending, above 0 and at most 1")
        if self.updates % (self.per_iteration * self.evaluations):
            expected = f"a multiple of per_iteration * evaluations ({self.per_iteration} * "
            raise ConfigError("updates", self.updates, f"{expected}{self.evaluations})")
        if self.noise <= 0:
            raise ConfigError("noise", self.noise, "above 0")


def measure_share(
    share: float, setting: Setting, config: Config, keys: tuple, context: RunContext | None
) -> Grid:
    """A share of the data: what agents learn from its rows and from what is made of them.

    Args:
        share: of the rows.
        setting: dataset and environment.
        config: of the experiment.
        keys: four, for rows, samples, their quality and agents; the last is every share's.
        context: of the run.

    Returns:
        Cells by kind, one of `KINDS`: `return`, and of what was made the numbers of `quality_of`.
    """
    rows_key, draw_key, look_key, agent_key = keys
    rows = own_rows(setting.dataset.transitions, share, rows_key, config.seeds)
    name = f"{100 * share:g}-percent".replace(".", "-")
    samples = upsample(rows, name, config, draw_key, context)
    quality = measure_quality(rows, samples, setting.env, look_key, config)
    made = {"samples": samples, "rows with noise": with_noise(rows, config)}

    def train_agents(kind: str, *, stage: str) -> Cell:
        """Every seed's on its own rows, or on what was made from them."""
        env, data, draw = setting.env, stack(rows), sample_batch
        if kind in made:
            data, draw = MixedData(data, stack(made[kind])), mixing(config.real_share)
        sizes = {"batch_size": config.batch_size, "updates_per_iteration": config.per_iteration}
        learner = make_model_free(
            config.agent, env.observation_size, env.action_size, draw=draw, **sizes
        )
        iterations = config.updates // config.per_iteration
        budget = {"iterations": iterations, "evaluate_every": iterations // config.evaluations}
        budget |= {"seeds": config.seeds, "per_seed": True, "episodes": config.episodes}
        keys, discount = tuple(jax.random.split(agent_key)), config.agent.discount
        run = {"discount": discount, "stage": stage, "context": context}
        trained = train_and_play(learner, data, env, keys, **budget, **run)
        return Cell.of(trained, quality.get(kind), updates=config.per_iteration)

    axes = {"kind": tuple(KINDS)}
    return run_grid(axes, train_agents, context, seeds=config.seeds, stage=name, clear=False)


def own_rows(data: Transitions, share: float, key: jax.Array, seeds: int) -> list[Transitions]:
    """Every seed's rows of the dataset: random, without replacement, in their order."""
    count = len(data.rewards)
    some = slice(max(round(share * count), 1))
    return [
        take_rows(data, np.sort(np.asarray(jax.random.permutation(k, count)[some])))
        for k in jax.random.split(key, seeds)
    ]


def upsample(
    rows: list[Transitions], name: str, config: Config, key: jax.Array, context: RunContext | None
) -> list[Transitions]:
    """Fit one diffusion model per seed to its rows and draw from it.

    Raises:
        ConfigError: some seeds' rows hold terminations and others' none.
        DivergenceError: a sample is not finite.
    """
    fit_key, draw_key = jax.random.split(key)
    layouts = [fit_layout(own) for own in rows]
    if len({layout.terminals for layout in layouts}) > 1:
        raise ConfigError("shares", name, "rows with terminations for every seed, or for none")
    features, sampler = layouts[0].features, config.synther.sampler
    denoiser, training = make_synther(config.synther, features)
    packed = stack([layout.pack(own) for layout, own in zip(layouts, rows, strict=True)])
    fit_keys, keys = (jax.random.split(k, config.seeds) for k in (fit_key, draw_key))
    budget = {"iterations": training.iterations, "stage": f"{name}-denoiser", "per_seed": True}
    budget["units_per_iteration"] = config.synther.training.per_iteration
    fitted = train(training.update, training.init, fit_keys, packed, **budget, context=context)
    batch = min(config.sample_batch, config.samples)
    shape = -(-config.samples // batch), batch, features

    def one(per_seed: tuple, shared: tuple) -> jax.Array:
        return draw_rows(denoiser, *per_seed, shape, sampler)[: config.samples]

    drawn = map_seeds(one, (fitted.state.average, keys))
    samples = [unpack_finite(layout, own) for layout, own in zip(layouts, drawn, strict=True)]
    return jax.tree.map(np.asarray, samples)


def with_noise(rows: list[Transitions], config: Config) -> list[Transitions]:
    """The usual augmentation: as many rows as there are samples, drawn anew, with noise."""
    noisy = []
    for seed, own in enumerate(rows):
        drawn = np.random.default_rng(seed).integers(0, len(own.rewards), config.samples)
        noisy.append(augmented(take_rows(own, drawn), config.noise, seed))
    return noisy


def measure_quality(
    rows: list[Transitions],
    made: list[Transitions],
    env: Environment,
    key: jax.Array,
    config: Config,
) -> dict[str, dict[str, np.ndarray]]:
    """`quality_of` by kind, `[seeds]`: of `config.judged` samples and of as many noisy rows."""
    quality: dict[str, list] = {kind: [] for kind in JUDGED}
    for seed, (real, samples) in enumerate(zip(rows, made, strict=True)):
        rng = np.random.default_rng(seed)
        own = take_rows(real, rng.integers(0, len(real.rewards), config.judged))
        drawn = take_rows(samples, rng.permutation(len(samples.rewards))[: config.judged])
        for kind, judged in zip(JUDGED, (drawn, augmented(own, config.noise, seed)), strict=True):
            quality[kind].append(quality_of(real, judged, env, jax.random.fold_in(key, seed)))
    return {kind: jax.tree.map(lambda *q: np.array(q), *quality[kind]) for kind in JUDGED}
