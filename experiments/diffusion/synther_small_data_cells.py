"""What `synther_small_data` trains: agents on a share of a dataset and on what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.data import Transitions, sample_batch
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.synther import MixedData, mixing
from jaxrl_rollouts.offline.training import train_on_rows
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import stack

from .synther_small_data_config import Config
from .synther_small_data_rows import Share, make_rows, measure_quality, own_rows, timed

Grids = Mapping[float, Grid]  # cells by agent and kind, by share of the data


def of_shares(config: Config, measure: Callable[[float, jax.Array], Grid]) -> dict[float, Grid]:
    """`measure(share, key)` of every share of `config.shares`."""
    key, grids = jax.random.key(config.seed), {}
    for index, share in enumerate(config.shares):
        grids[share] = measure(share, jax.random.fold_in(key, 2 + index))
        jax.clear_caches()  # programs of other sizes are not needed again
    return grids


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
    rows = own_rows(setting.dataset.with_successors, share, rows_key, config.seeds)
    part = Share(rows, share, setting.env, draw_key, percent_name(share))
    made = make_rows(part, config, context)
    quality = measure_quality(rows, made.rows, setting.env, look_key, config)

    def train_agents(agent: str, kind: str, *, stage: str) -> Cell:
        """Every seed's on its own rows, or on what was made from them."""
        extra: dict[str, Any] = {"models": np.full(config.seeds, made.seconds.get(kind, 0.0))}
        extra |= quality.get(kind, {})
        extra |= {"kept": made.kept[kind]} if kind in made.kept else {}
        cell = train_cell(agent, rows, made.rows.get(kind), setting, config, stage, context)
        return replace(cell, extra={**cell.extra, **extra})

    axes = {"agent": config.agents, "kind": config.kinds}
    return run_grid(axes, train_agents, context, seeds=config.seeds, stage=part.name, clear=False)


def percent_name(share: float) -> str:
    """What the names of a share's stages begin with."""
    return f"{100 * share:g}-percent".replace(".", "-")


def train_cell(
    agent: str,
    rows: list[Transitions],
    made: list[Transitions] | None,
    setting: Setting,
    config: Config,
    stage: str,
    context: RunContext | None,
) -> Cell:
    """One agent of `config.agents` on every seed's own rows, or on what was `made` from them with
    `config.real_share` of rows; `learning` are its CPU seconds, `[seeds]`."""
    # The same for every arm: what differs between them is the data.
    keys = tuple(jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1)))
    iterations = config.updates // config.per_iteration
    budget = {"batch_size": config.batch_size, "updates_per_iteration": config.per_iteration}
    budget |= {"iterations": iterations, "evaluate_every": iterations // config.evaluations}
    budget |= {"episodes": config.episodes, "seeds": config.seeds, "per_seed": True}
    data, draw, chosen = stack(rows), sample_batch, config.named(agent)
    if made is not None:
        data, draw = MixedData(data, stack(made)), mixing(config.real_share)
    run = budget | {"draw": draw, "stage": stage, "context": context}
    learn = partial(train_on_rows, chosen, data, setting.env, keys, **run)
    trained, seconds = timed(context, stage, learn)
    extra = {"learning": np.full(config.seeds, seconds / config.seeds)}
    return Cell.of(trained, extra, updates=config.per_iteration, rate=bootstrap_rate(chosen))
