"""The rows of `synther_small_data`: a share's own, and all that is made of them and how good it is.

Every seed has rows and models of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.synthetic.quality import augmented, quality_of
from jaxrl_rollouts.offline.synthetic.relabel import (
    RelabelConfig,
    Relabeller,
    fit_relabeller,
    oracle,
    relabelled_rows,
)
from jaxrl_rollouts.offline.synthetic.synther import upsample
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext

from .synther_small_data_config import TOLD, Config


class Share(NamedTuple):
    """A share of a dataset, as rows are made from it.

    Attributes:
        rows: every seed's own.
        share: of the dataset's rows.
        env: the dataset's.
        key: of all that is drawn.
        name: what the names of the stages begin with.
    """

    rows: list[Transitions]
    share: float
    env: Environment
    key: jax.Array
    name: str


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


def make_rows(part: Share, config: Config, context: RunContext | None) -> MadeRows:
    """Samples, noisy rows and samples told anew."""
    samples, seconds = draw_samples(part, config, context)
    made = MadeRows({"samples": samples}, {"samples": seconds}, {})
    made.rows["rows with noise"] = with_noise(part.rows, config)
    told = tell_anew(part, samples, config, context)
    made.rows.update(told.rows)
    made.kept.update(told.kept)
    made.seconds.update({kind: seconds + spent for kind, spent in told.seconds.items()})
    return made


def draw_samples(
    part: Share, config: Config, context: RunContext | None
) -> tuple[list[Transitions], float]:
    """Every seed's `config.samples` of a diffusion model of its rows; CPU seconds of a seed."""
    stage = f"{part.name}-denoiser"
    run = {"batch": config.sample_batch, "stage": stage, "context": context}
    draw = partial(upsample, part.rows, config.synther, part.key, config.samples, **run)
    samples, seconds = timed(context, stage, draw)
    return samples, seconds / config.seeds


def tell_anew(
    part: Share, samples: list[Transitions], config: Config, context: RunContext | None
) -> MadeRows:
    """The `samples` by every kind of `config.told`, from what is fitted to the share's rows; the
    seconds are without those of the samples."""
    made, seeds = MadeRows({}, {}, {}), config.seeds
    for by in dict.fromkeys(TOLD[kind]["by"] for kind in config.told):
        # Like the samples, what is told begins with keys that depend on the name alone.
        keys = jax.random.split(jax.random.fold_in(part.key, list(TOLD).index(by)), 2 * seeds)
        fits = [_relabeller(by, part, seed, config, keys[seed], context) for seed in range(seeds)]

        def tell(kind: str, fits: list = fits, keys: Any = keys) -> list[Transitions]:
            unknown = TOLD[kind].get("unknown", "keep")
            arms = zip(fits, samples, keys[seeds:], strict=True)
            return [relabelled_rows(one._replace(unknown=unknown), s, k) for (one, _), s, k in arms]

        for kind in (kind for kind in config.told if TOLD[kind]["by"] == by):
            told, telling = timed(context, f"{part.name}-told-{kind}", partial(tell, kind))
            made.rows[kind] = [refilled(one, config.samples) for one in told]
            made.kept[kind] = np.array([len(one.rewards) / config.samples for one in told])
            made.seconds[kind] = (sum(seconds for _, seconds in fits) + telling) / seeds
    return made


def _relabeller(
    by: str, part: Share, seed: int, config: Config, key: jax.Array, context: RunContext | None
) -> tuple[Relabeller, float]:
    """Of one seed, and the CPU seconds of its fit; the simulator needs none."""
    if by == "oracle":
        return oracle(part.env), 0.0
    settings: Any = {"noise": config.noise_told, "level": config.level}
    settings["networks"] = passes_for(config.networks, part.share)
    chosen = RelabelConfig(by, **settings)  # type: ignore[arg-type]
    stage = f"{part.name}-{by}-{seed}"
    run: Any = {"termination": part.env.termination, "stage": stage, "context": context}
    return timed(context, stage, partial(fit_relabeller, part.rows[seed], chosen, key, **run))


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
    """`quality_of` by kind of what was `made`, `[seeds]`: of `config.judged` of the rows, and where
    noise was added of as many rows with noise."""
    quality: dict[str, list] = {kind: [] for kind in made}
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
