"""A dataset in, synthetic rows out: SynthER's, or those of policy-guided diffusion.

more = synthesise(dataset, "synther", 100_000)
near = synthesise(dataset, "pgd", 100_000, policy=(outcome.agent, actor))
relabelled = synthesise(dataset, relabel="ensemble")  # successors by a world model of the same rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrl_rollouts.configs import check, unknown
from jaxrl_rollouts.diffusion import (
    make_denoiser,
    make_guidance,
    make_temporal_unet,
    train_denoiser,
)
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree, unstack

from ..behaviours.made import load
from ..data import Dataset, Transitions, take_rows
from ..method import Agent
from ..worlds.dynamics import Termination
from .pgd import policy_target
from .relabel import By, RelabelConfig, fit_relabeller, relabelled
from .synther import upsample
from .windows import WindowModel, cut_windows, fit_window_layout, generate_windows

if TYPE_CHECKING:
    from ..methods.pgd import Pgd
    from ..methods.synther import Synther

KINDS = ("synther", "pgd")
RELABELLED: Mapping[By, str] = {
    "ensemble": " Successors of a state and an action are those of members of a world model.",
    "model": " Successors of a state and an action are those of a single network.",
    "inverse": " Actions are those that an inverse model finds behind the changes.",
}


def relabel_note(config: RelabelConfig | None) -> str:
    """Which model relabelled the rows, a sentence for reports; "" for none."""
    return "" if config is None else RELABELLED[config.relabel_with]


def fit_windows(
    rows: Transitions,
    method: Pgd,
    key: jax.Array,
    *,
    stage: str = "pgd",
    source: str = "dataset",
    context: RunContext | None = None,
) -> WindowModel:
    """Policy-guided diffusion's model of windows of a dataset's episodes; `key` is consumed."""
    windows = cut_windows(rows, method.length, method.stride, source=source)
    layout = fit_window_layout(windows)
    denoiser = make_denoiser(make_temporal_unet(method.unet, layout.length, layout.channels))
    packed, run = layout.pack(windows), {"stage": stage, "context": context}
    trained = train_denoiser(denoiser, method.training, packed, key[None], **run)
    return WindowModel(denoiser, unstack(trained.state.average)[0], layout)


def synthesise(
    dataset: Dataset | str,
    method: Synther | Pgd,
    rows: int | None = None,
    *,
    policy: tuple[Agent, PyTree] | None = None,
    relabel: By | None = None,
    termination: Termination | None = None,
    seed: int = 0,
    stage: str | None = None,
    context: RunContext | None = None,
) -> Dataset:
    """Fit a diffusion model to a dataset and sample rows from it.

    Args:
        dataset: a `Dataset`, or what `load` takes.
        method: settings of SynthER, for single transitions (every row an episode that was cut at
            once), or of policy-guided diffusion, for windows of consecutive ones:
            `recipe("synther", "small")`.
        rows: number of rows; None is SynthER's `rows`, or those of one refresh of windows. Rows
            after a termination of a window are left out, and uncertain relabelled rows may be, so
            that they may be fewer.
        policy: policy of `pgd`: the agent and the parameters of one of its policies, towards which
            actions are pulled; None samples unguided windows.
        relabel: `ensemble`, `model` or `inverse`, in place of the method's `relabel`: the model of
            what follows sampled states and actions. Windows are relabelled step by step and stay
            trajectories.
        termination: the environment's rule, for relabelling; None learns one from the dataset.
        seed: random seed of training and sampling.
        stage: stage of the run; by default the method's name.
        context: a run whose folder keeps checkpoints and the rows. None keeps nothing.

    Returns:
        A `Dataset` whose `attributes` have `synthetic`, `made_from` and `relabelled`.

    Raises:
        ConfigError: an unknown method, a setting out of range, or a policy that is not normal.
        DataError: the dataset cannot be read, or has no episode as long as a window.
        DivergenceError: a sample is not finite.
    """
    chosen = _settings(method)
    if policy is not None and (chosen.name != "pgd" or policy[0].gaussian is None):
        raise ConfigError("policy", chosen.name, "pgd, and an agent with a normal policy")
    if isinstance(dataset, str):
        dataset = load(dataset, seed)
    config, stage = _relabelling(chosen.relabel, relabel), str(stage or chosen.name)
    count, sample = _sampler(dataset, chosen, rows, as_key(seed, "seed"), policy)

    def measure() -> dict[str, np.ndarray]:
        paths, valid = sample(stage, context)
        if config is None:
            return take_rows(_flat(paths), np.flatnonzero(valid)[:count])._asdict()
        fit_key, key = jax.random.split(jax.random.fold_in(as_key(seed, "seed"), 1))
        run = {"stage": f"{stage}-relabel", "context": context, "termination": termination}
        relabeller = fit_relabeller(dataset.with_successors, config, fit_key, **run)
        found = relabelled(relabeller, paths, valid, key)
        return take_rows(found, np.arange(min(count, len(found.rewards))))._asdict()

    made = Transitions(**remember(context, stage, "rows", measure))
    return _described(dataset, made, chosen.name, config)


def _relabelling(config: RelabelConfig | None, by: By | None) -> RelabelConfig | None:
    """A method's relabelling, or `by` in its place, checked; None where neither is."""
    if by is not None:
        config = replace(config or RelabelConfig(), relabel_with=by)
    if config is not None:
        check(config)
    return config


def _sampler(
    dataset: Dataset,
    method: Any,
    rows: int | None,
    key: jax.Array,
    policy: tuple[Agent, PyTree] | None,
) -> tuple[int, Callable[[str, RunContext | None], tuple[Transitions, np.ndarray]]]:
    """The requested number of rows, and `(stage, context) -> paths, which steps count`."""
    if method.name == "pgd":
        count = rows or method.refresh.windows * (method.length - 1)
        return count, partial(_windows, dataset, method, count, key, policy)
    count = rows or method.rows
    return count, partial(_transitions, dataset, method, count, key)


def _described(
    dataset: Dataset, made: Transitions, method: str, config: RelabelConfig | None
) -> Dataset:
    """The sampled rows as a dataset, with their origin as metadata."""
    facts = {"synthetic": method, "made_from": dataset.name}
    name = f"{dataset.name}-{method}"
    if config is not None:
        facts["relabelled"] = config.relabel_with
        name += f"-{config.relabel_with}"
    return replace(
        dataset,
        name=name,
        transitions=made,
        environment=dataset.environment or dataset.name,
        attributes={**dataset.attributes, **facts, "ends_alone": 0},
        infos={},
    )


def _settings(method: Any) -> Any:
    """Settings of one of `KINDS`; a name is refused."""
    name = getattr(method, "name", method if isinstance(method, str) else type(method).__name__)
    if name not in KINDS:
        raise unknown("method", name, KINDS)
    if isinstance(method, str):
        raise ConfigError("method", method, "settings", f'recipe("{method}", "small")')
    return method


def _flat(paths: Transitions) -> Transitions:
    """`[B, T, ...]` paths as rows, path by path."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), paths)


def _transitions(
    dataset: Dataset,
    method: Synther,
    count: int,
    key: jax.Array,
    stage: str,
    context: RunContext | None,
) -> tuple[Transitions, np.ndarray]:
    """Paths `[rows, 1, ...]`, and that all of them count."""
    run = {"stage": stage, "context": context}
    made = upsample(dataset.with_successors, method.model, key, count, **run)
    made = made._replace(truncations=~made.terminations)
    return jax.tree.map(lambda x: x[:, None], made), np.ones((count, 1), bool)


def _windows(
    dataset: Dataset,
    method: Pgd,
    count: int,
    key: jax.Array,
    policy: tuple[Agent, PyTree] | None,
    stage: str,
    context: RunContext | None,
) -> tuple[Transitions, np.ndarray]:
    """Paths `[windows, L - 1, ...]`, and which of their steps count."""
    fit_key, draw_key = jax.random.split(key)
    fitted = fit_windows(
        dataset.with_successors, method, fit_key, stage=stage, source=dataset.name, context=context
    )
    guided: dict[str, Any] = {}
    if policy is not None:
        assert policy[0].gaussian is not None
        target = policy_target(policy[0].gaussian, fitted.layout)
        guided["guidance"] = make_guidance(target, method.refresh.guidance)
        guided["guide"] = GuideParams(policy[1], method.refresh.guidance_scale)
    steps = method.length - 1
    drawn = generate_windows(
        fitted.denoiser,
        fitted.params,
        draw_key,
        fitted.layout,
        -(-count // steps),
        config=method.refresh.sampler,
        **guided,
    )
    flat, valid = fitted.layout.unpack(drawn)
    paths = jax.tree.map(lambda x: np.asarray(x).reshape(-1, steps, *x.shape[1:]), flat)
    last = np.arange(steps) == steps - 1
    return paths._replace(truncations=last & ~paths.terminations), np.asarray(valid).reshape(
        -1, steps
    )
