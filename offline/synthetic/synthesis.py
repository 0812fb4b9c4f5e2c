"""A dataset in, made-up rows out: SynthER's, or those of policy-guided diffusion.

more = synthesise(dataset, "synther", 100_000)
near = synthesise(dataset, "pgd", 100_000, policy=(outcome.agent, actor))
told = synthesise(dataset, relabel="ensemble")  # what follows, by a world model of the same rows
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import check, fraction, number, positive, unknown
from jaxrl_rollouts.diffusion import (
    Denoiser,
    DenoiserTrainingConfig,
    Flow,
    ResidualMlpConfig,
    SamplerConfig,
    TemporalUnetConfig,
    make_guidance,
    small_training,
    train_denoiser,
)
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree, unstack

from ..agent import Agent
from ..behaviours.made import load_dataset
from ..data import Dataset, Transitions, take_rows
from ..worlds.dynamics import Termination
from .pgd import PgdConfig, policy_target
from .relabel import By, RelabelConfig, fit_relabeller, relabelled
from .synther import RowLayout, SyntherConfig, fit_layout, make_synther, teach, upsample
from .windows import WindowModel, cut_windows, fit_window_models, generate_windows

Kind = Literal["synther", "pgd"]
KINDS: tuple[Kind, ...] = ("synther", "pgd")


def _published() -> DenoiserTrainingConfig:
    """Policy-guided diffusion's, for a budget of ours: the public code counts epochs."""
    return DenoiserTrainingConfig(
        updates=500_000, batch=32, rate=2e-3, betas=(0.9, 0.999), warmup=50_000, clip=None
    )


@dataclass(frozen=True)
class SyntheticConfig:
    """Diffusion models of a dataset and what is drawn from them; sizes are the papers'.

    Attributes:
        synther: SynthER's model of single transitions.
        rows: drawn from it once.
        real_ratio: of real rows in a batch beside SynthER's; 0 replaces the data.
        length, stride: states of a window of policy-guided diffusion, and rows between two.
        unet, training: its model of windows.
        pgd: guidance, and how often windows are drawn anew while an agent learns.
        relabel: who tells what follows a sampled state and action; as published, nobody.
    """

    synther: SyntherConfig = field(default_factory=SyntherConfig)
    rows: int = positive(5_000_000)
    real_ratio: float = fraction(0.0)
    length: int = number(16, least=2, expected="at least 2 states")
    stride: int = positive(8)
    unet: TemporalUnetConfig = field(default_factory=lambda: TemporalUnetConfig(features=1024))
    training: DenoiserTrainingConfig = field(default_factory=_published)
    pgd: PgdConfig = field(default_factory=PgdConfig)
    relabel: RelabelConfig = field(default_factory=RelabelConfig)


# One variance for each output: on HalfCheetah the error of what such networks tell is two thirds of
# what it is with a variance for every row (0.043 and 0.064 of the mixed data's variance).
SMALL_WORLD = EnsembleConfig(
    members=5,
    elites=4,
    hidden=(128, 128, 128),
    variance="output",
    weight_decay=(2.5e-5,),
    max_epochs=20,
)


def small_synthetic(
    *,
    width: int = 128,
    features: int = 16,
    blocks: int = 3,
    updates: int = 10_000,
    steps: int = 32,
    rows: int = 50_000,
    windows: int = 256,
    refresh: int = 1000,
    length: int = 16,
) -> SyntheticConfig:
    """Small networks and few sampler steps, for a CPU.

    Transitions are drawn by DPM-Solver++(2M) as an SDE, which makes about the errors that the
    published sampler makes with twice the calls of the network (`sampler_steps`'s report). Half of
    a batch is real: samples of small models are better beside rows than in their place
    (`relabel_sizes`'s report).

    Args:
        width: of SynthER's network.
        features, blocks: of the U-Net.
        updates: of the first; the second takes half as many.
        steps: of both samplers.
        rows: of SynthER's.
        windows, refresh: drawn at a time, and gradient steps of the agent between two draws.
        length: of a window.
    """
    rows_sampler = SamplerConfig(steps, method="dpmpp_2m", eta=1.0)
    return SyntheticConfig(
        SyntherConfig(ResidualMlpConfig(width=width), small_training(updates, 256), rows_sampler),
        rows=rows,
        real_ratio=0.5,
        length=length,
        unet=TemporalUnetConfig(features=features, blocks=blocks),
        training=small_training(updates // 2, 64),
        pgd=PgdConfig(sampler=SamplerConfig(steps), windows=windows, updates=refresh),
        relabel=RelabelConfig(networks=SMALL_WORLD),
    )


class RowModel(NamedTuple):
    """A trained model of single transitions: a denoiser, or its student."""

    denoiser: Denoiser | Flow
    params: PyTree
    layout: RowLayout


def fit_rows(
    rows: Transitions,
    config: SyntherConfig,
    key: jax.Array,
    *,
    stage: str = "synther",
    context: RunContext | None = None,
) -> RowModel:
    """SynthER's model of a dataset's rows; `key` is consumed."""
    layout = fit_layout(rows)
    synther = make_synther(config, layout.features)
    packed, run = layout.pack(rows), {"stage": stage, "context": context}
    trained = train_denoiser(synther.denoiser, config.training, packed, key[None], **run)
    model, params = teach(synther, config, trained.state.average, packed, key, **run)
    return RowModel(model, unstack(params)[0], layout)


def fit_windows(
    rows: Transitions,
    config: SyntheticConfig,
    key: jax.Array,
    *,
    stage: str = "pgd",
    source: str = "dataset",
    context: RunContext | None = None,
) -> WindowModel:
    """Policy-guided diffusion's model of windows of a dataset's episodes; `key` is consumed.

    Raises:
        DataError: no episode is as long as a window.
    """
    windows = cut_windows(rows, config.length, config.stride, source=source)
    run = {"stage": stage, "context": context}
    model = fit_window_models(windows, config.unet, config.training, key[None], **run)
    return model._replace(params=unstack(model.params)[0])


def synthesise(
    dataset: Dataset | str,
    kind: Kind = "synther",
    rows: int | None = None,
    *,
    policy: tuple[Agent, PyTree] | None = None,
    config: SyntheticConfig | None = None,
    relabel: By | None = None,
    termination: Termination | None = None,
    seed: int = 0,
    stage: str | None = None,
    context: RunContext | None = None,
) -> Dataset:
    """Fit a diffusion model to a dataset and draw rows from it.

    Args:
        dataset: a `Dataset`, or what `load_dataset` knows.
        kind: `synther` draws single transitions (every row an episode that was cut at once), `pgd`
            windows of consecutive ones.
        rows: how many; None is the configuration's. Of windows what follows a termination is left
            out, and of relabelled rows what the model does not know may be, so that they may be
            fewer.
        policy: of `pgd`: the agent and the parameters of one of its policies, towards which actions
            are pulled; None draws unguided windows.
        config: networks, lengths and samplers; None is `small_synthetic()`, for minutes on two
            cores.
        relabel: who tells what follows sampled states and actions, in place of
            `config.relabel.by`: `ensemble`, `model`, `inverse` or `sampled`. Windows are told step
            by step and stay trajectories.
        termination: the environment's rule, for relabelling; None learns one from the dataset.
        seed: of training and draws.
        stage: of the run; by default the kind.
        context: a run whose folder keeps checkpoints and the rows. None keeps nothing.

    Returns:
        A `Dataset` whose `attributes` say `synthetic`, `made_from` and, where it was, by whom it
        was `relabelled`.

    Raises:
        ConfigError: an unknown kind, a setting out of range, or a policy without a normal density.
        DataError: the dataset cannot be read, or has no episode as long as a window.
        DivergenceError: a draw is not finite.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if policy is not None and (kind != "pgd" or policy[0].gaussian is None):
        raise ConfigError("policy", kind, "pgd, and an agent with a normal policy")
    if isinstance(dataset, str):
        dataset = load_dataset(dataset, seed)
    config, stage = config or small_synthetic(), stage or kind
    config = config if rows is None else replace(config, rows=rows)
    if relabel is not None:
        config = replace(config, relabel=replace(config.relabel, by=relabel))
    check(config.relabel)
    make = partial(_synther, dataset, config, jax.random.key(seed))
    if kind == "pgd":
        make = partial(_windows, dataset, config, jax.random.key(seed), policy)

    by = config.relabel.by

    def measure() -> dict[str, np.ndarray]:
        paths, valid = make(stage, context)
        if by == "sampled":
            return take_rows(_flat(paths), np.flatnonzero(valid)[: config.rows])._asdict()
        fit_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
        run = {"stage": f"{stage}-relabel", "context": context, "termination": termination}
        told = fit_relabeller(dataset.with_successors, config.relabel, fit_key, **run)
        rows = relabelled(told, paths, valid, key)
        return take_rows(rows, np.arange(min(config.rows, len(rows.rewards))))._asdict()

    made = Transitions(**remember(context, stage, "rows", measure))
    facts = {"synthetic": kind, "made_from": dataset.name}
    facts |= {} if by == "sampled" else {"relabelled": by}
    return replace(
        dataset,
        name=f"{dataset.name}-{kind}" + ("" if by == "sampled" else f"-{by}"),
        transitions=made,
        environment=dataset.environment or dataset.name,
        attributes={**dataset.attributes, **facts, "ends_alone": 0},
        infos={},
    )


def _flat(paths: Transitions) -> Transitions:
    """`[B, T, ...]` paths as rows, path by path."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), paths)


def _synther(
    dataset: Dataset,
    config: SyntheticConfig,
    key: jax.Array,
    stage: str,
    context: RunContext | None,
) -> tuple[Transitions, np.ndarray]:
    """Paths `[rows, 1, ...]`, and that all of them count."""
    run = {"stage": stage, "context": context}
    (made,) = upsample([dataset.with_successors], config.synther, key, config.rows, **run)
    made = made._replace(truncations=~made.terminations)
    return jax.tree.map(lambda x: x[:, None], made), np.ones((config.rows, 1), bool)


def _windows(
    dataset: Dataset,
    config: SyntheticConfig,
    key: jax.Array,
    policy: tuple[Agent, PyTree] | None,
    stage: str,
    context: RunContext | None,
) -> tuple[Transitions, np.ndarray]:
    """Paths `[windows, L - 1, ...]`, and which of their steps count."""
    fit_key, draw_key = jax.random.split(key)
    fitted = fit_windows(
        dataset.with_successors, config, fit_key, stage=stage, source=dataset.name, context=context
    )
    guided: dict[str, Any] = {}
    if policy is not None:
        assert policy[0].gaussian is not None
        target = policy_target(policy[0].gaussian, fitted.layout)
        guided["guidance"] = make_guidance(target, config.pgd.guidance)
        guided["guide"] = GuideParams(policy[1], config.pgd.coefficient)
    steps = config.length - 1
    drawn = generate_windows(
        fitted.denoiser,
        fitted.params,
        draw_key,
        fitted.layout,
        -(-config.rows // steps),
        config=config.pgd.sampler,
        **guided,
    )
    flat, valid = fitted.layout.unpack(drawn)
    paths = jax.tree.map(lambda x: np.asarray(x).reshape(-1, steps, *x.shape[1:]), flat)
    last = np.arange(steps) == steps - 1
    return paths._replace(truncations=last & ~paths.terminations), np.asarray(valid).reshape(
        -1, steps
    )
