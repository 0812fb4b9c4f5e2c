"""Rows, samples and agents of `synther_small_data`, every seed with its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, sample_batch, take_rows
from jaxrl_rollouts.offline.study.model_based import Setting, slug
from jaxrl_rollouts.offline.synthetic.synther import (
    MixedData,
    SyntherConfig,
    draw_rows,
    fit_layout,
    make_synther,
    mixing,
    unpack_finite,
)
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import stack

from .synther_quality import augmented


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
    synther: SyntherConfig = field(default_factory=SyntherConfig)
    samples: int = 5_000_000
    sample_batch: int = 10_000
    real_share: float = 0.0
    agent: Td3BcConfig = field(default_factory=Td3BcConfig)
    updates: int = 1_000_000
    per_iteration: int = 1000
    batch_size: int = 256
    evaluations: int = 10
    episodes: int = 10
    judged: int = 10_000
    noise: float = 0.1

    def validate(self) -> None:
        at_least_one(self, "seeds", "samples", "sample_batch", "updates", "per_iteration",
                     "batch_size", "evaluations", "episodes", "judged")  # fmt: skip
        found = self.shares
        if not found or list(found) != sorted(set(found)) or found[0] <= 0 or found[-1] > 1:
            raise ConfigError("shares", found, "ascending, above 0 and at most 1")
        if self.updates % (self.per_iteration * self.evaluations):
            expected = f"a multiple of per_iteration * evaluations ({self.per_iteration} * "
            raise ConfigError("updates", self.updates, f"{expected}{self.evaluations})")
        if self.noise <= 0:
            raise ConfigError("noise", self.noise, "above 0")


ARMS = {"rows": "", "samples": ", up-sampled", "rows with noise": ", with noise"}


class Arm(NamedTuple):
    """A share of the data and what the agent learns from in its place, one of `ARMS`."""

    share: float
    kind: str

    @property
    def name(self) -> str:
        return f"{100 * self.share:g} %" + ARMS[self.kind]


class Result(NamedTuple):
    """A trained arm: returns per seed, and the history behind them."""

    returns: np.ndarray
    trained: Trained


def own_rows(data: Transitions, share: float, key: jax.Array, seeds: int) -> list[Transitions]:
    """Every seed's rows of the dataset: random, without replacement, in their order."""
    count = len(data.rewards)
    kept = max(round(share * count), 1)
    return [
        take_rows(data, np.sort(np.asarray(jax.random.permutation(k, count)[:kept])))
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
    model = make_synther(config.synther, features)
    packed = stack([layout.pack(own) for layout, own in zip(layouts, rows, strict=True)])
    fitted = train(
        model.training.update, model.training.init, jax.random.split(fit_key, config.seeds), packed,
        per_seed=True, iterations=model.training.iterations,
        stage=f"{name}-denoiser", units_per_iteration=config.synther.training.per_iteration,
        context=context,
    )  # fmt: skip
    batch = min(config.sample_batch, config.samples)
    shape = -(-config.samples // batch), batch, features

    def one(of_seed: tuple, shared: tuple) -> jax.Array:
        return draw_rows(model.denoiser, *of_seed, shape, sampler)[: config.samples]

    keys = jax.random.split(draw_key, config.seeds)
    drawn = map_seeds(one, (fitted.state.average, keys))
    made = [unpack_finite(layout, own) for layout, own in zip(layouts, drawn, strict=True)]
    return jax.tree.map(np.asarray, made)


def with_noise(rows: list[Transitions], config: Config) -> list[Transitions]:
    """The usual augmentation: as many rows as there are samples, drawn anew, with noise."""
    made = []
    for seed, own in enumerate(rows):
        drawn = np.random.default_rng(seed).integers(0, len(own.rewards), config.samples)
        made.append(augmented(take_rows(own, drawn), config.noise, seed))
    return made


def train_arm(
    arm: Arm, rows: list[Transitions], made: list[Transitions] | None, setting: Setting,
    config: Config, key: jax.Array, context: RunContext | None,
) -> Result:  # fmt: skip
    """Train every seed's agent on its own rows, or what was `made` from them, and play it."""
    env, data = setting.env, stack(rows)
    if made is not None:
        data = MixedData(data, stack(made))
    learner = make_model_free(
        config.agent, env.observation_size, env.action_size, batch_size=config.batch_size,
        updates_per_iteration=config.per_iteration,
        draw=sample_batch if made is None else mixing(config.real_share),
    )  # fmt: skip
    train_key, play_key = jax.random.split(key)
    iterations = config.updates // config.per_iteration
    trained = train_learner(
        learner, data, train_key, seeds=config.seeds, per_seed=True, iterations=iterations,
        evaluate=evaluator(
            learner, env, play_key, config.episodes, discount=config.agent.discount
        ),
        evaluate_every=iterations // config.evaluations,
        stage=slug(arm.name.replace("%", "percent")), context=context,
    )  # fmt: skip
    return Result(np.asarray(trained.history.last("return")), trained)
