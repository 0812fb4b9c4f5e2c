"""Forecasts of 20 steps, composed or direct, at equal weights and gradient steps.

    python -m jaxrl_rollouts.experiments.studies.strategies DATASET [SEED ...] [UNCERTAINTY]

Networks are fitted to windows of four fifths of the episodes and rolled along logged actions of the
others. There too, how well two uncertainties rank errors: an ensemble's and an any-step model's.
Rows are added to `evidence/open_loop.csv`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.choosing.scores import rank_correlation
from jaxrl_rollouts.offline.data import Transitions, episodes, take_rows
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.worlds import any_step
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import fit_model, fit_world_models
from jaxrl_rollouts.offline.worlds.open_loop import LoggedWindows, open_loop, windows
from jaxrl_rollouts.offline.worlds.strategies import Strategy, fit_strategy, forecast
from jaxrl_rollouts.record.provenance import code_commit

from ..collect import EVIDENCE

# The mean has one variance for each output: it is fitted by least squares.
FIXED: dict[str, Any] = {"variance": "output", "learned_bounds": False, "weight_decay": (2.5e-5,)}
NET = EnsembleConfig(members=1, elites=1, **FIXED)
LENGTH: dict[str, Any] = {"batch_size": 1024, "max_epochs": 10, "lr": 1e-3}
ENSEMBLE = EnsembleConfig(hidden_dims=(64,) * 3, weight_decay=(2.5e-5,), **LENGTH)
ANY_STEP = any_step.AnyStepConfig(width=64, layers=1, blocks=2, **LENGTH)
ARMS: tuple[tuple[Any, int], ...] = (("rec", 1), ("rec", 5), ("dir", 5), ("dirrec", 5), ("dir", 20))
HORIZON, WIDTH, EPOCHS, WINDOWS, TESTED = 20, 128, 3, 20_000, 500
STEPS, LONGEST = (1, 5, 10, HORIZON), 5
BACKTRACKS: tuple[tuple[Any, int], ...] = (("adm", 2), ("adm", LONGEST), ("adm2", LONGEST))


def parted(transitions: Transitions, seed: int) -> tuple[Transitions, Transitions]:
    """Rows of four fifths of the episodes, and of the others."""
    parts = episodes(transitions)
    order = np.random.default_rng(seed).permutation(len(parts.lengths))
    held = np.repeat(order < len(order) // 5, parts.lengths)
    return take_rows(transitions, ~held), take_rows(transitions, held)


def width_of(strategy: Strategy, weights: float, states: int, actions: int) -> int:
    """Of three layers, so that all networks of a strategy have at most so many weights."""

    def total(width: int) -> int:
        found, s = 0, strategy.block
        for i in range(strategy.heads):
            known = {"dirrec": i * s, "rectifier": (i + 1) * s}.get(strategy.kind, 0)
            acted = s if strategy.kind == "rec" else (i + 1) * s
            found += width * ((1 + known) * states + acted * actions + 2 * width + s * states)
        return found

    return max(w for w in range(1, 1024) if total(w) <= weights)


def forecaster(
    arm: tuple[Any, int], logged: LoggedWindows, key: jax.Array, rectified: bool = False
) -> Callable:
    """Fit one strategy; `(state, actions) -> [H, B, S]`. With a rectifier each has half of the
    weights and half of the windows."""
    sizes = logged.observations.shape[-1], logged.actions.shape[-1]
    weights = WIDTH * (sum(sizes) + 2 * WIDTH + sizes[0]) / (1 + rectified)

    def fitted(strategy: Strategy, part: LoggedWindows, base: Any = None) -> tuple:
        # rec(s) has H / s rows in a window and the others H / s networks: steps are equal.
        epochs, width = EPOCHS * strategy.block, width_of(strategy, weights, *sizes)
        net = replace(NET, hidden_dims=(width,) * 3, max_epochs=epochs, patience=epochs)
        return fit_strategy(strategy, net, part, key, base)

    strategy, half = Strategy(*arm, HORIZON), logged.actions.shape[1] // (1 + rectified)
    heads = fitted(strategy, jax.tree.map(lambda x: x[:, :half], logged))
    base = jax.jit(lambda state, actions: forecast(strategy, heads, state, actions))
    if not rectified:
        return base
    other, mend = jax.tree.map(lambda x: x[:, half:], logged), Strategy("rectifier", 5, HORIZON)
    mends = fitted(mend, other, base(other.observations[0], other.actions))
    return jax.jit(lambda s, a: forecast(mend, mends, s, a, base(s, a)))


def errors(parts: tuple[Transitions, Transitions], seed: int) -> Iterator[tuple]:
    """Root mean squares over windows and entries, in deviations of the data, by arm and step."""
    counts = WINDOWS, TESTED
    fit_to, test = (windows(p, HORIZON, n, seed=seed) for p, n in zip(parts, counts, strict=True))
    std, key = np.asarray(parts[0].observations).std(0), jax.random.key(seed)
    arms = {f"{kind}({s})": ((kind, s), False) for kind, s in ARMS}
    for name, (arm, mended) in {**arms, "rec(1), rectified": (ARMS[0], True)}.items():
        path = forecaster(arm, fit_to, key, mended)(test.observations[0], test.actions)
        gap = np.square((np.asarray(path) - np.asarray(test.observations[1:])) / std)
        yield from ((f"strategies: {name}", t, "error", gap[t - 1].mean() ** 0.5) for t in STEPS)


def ranks(parts: tuple[Transitions, Transitions], seed: int, only: str = "") -> Iterator[tuple]:
    """Spearman correlation of uncertainty and error, after a step and over all of a rollout."""
    key, back = jax.random.key(seed), LONGEST - 1
    test = windows(parts[1], HORIZON + back, TESTED, seed=seed)
    later = LoggedWindows(test.observations[back:], test.actions[back:], test.rewards[back:])
    rolled = {}
    if not only:
        model, worlds, _ = fit_world_models(ENSEMBLE, parts[0], key)
        more: dict[str, Any] = {"disagreement": spread_of_means, "normalised": True}
        dynamics = learned_dynamics(model.fitter, model.elites, termination=never, **more)
        world = jax.tree.map(lambda x: x[0], worlds)
        rolled["ensemble"] = open_loop(dynamics, world, later, key)
    for version, m in BACKTRACKS:
        if only not in (name := f"{'any-step' if version == 'adm' else version}, m={m}"):
            continue
        settings: Any = replace(ANY_STEP, version=version, backtrack=m)
        model = any_step.make_any_step(settings, parts[0])
        seen, taken = test.observations[back - m + 1 : back + 1], test.actions[back - m + 1 : back]
        start = any_step.Recent(*(jnp.moveaxis(x, 0, 1) for x in (seen, taken)))
        dynamics = any_step.any_step_dynamics(model.fitter, m, never, version)
        world = fit_model(model, settings, key).world()
        rolled[name] = open_loop(dynamics, world, later, key, start)
    for name, one in rolled.items():
        u, e = np.asarray(one.uncertainty), np.asarray(one.error)
        for t in (1, HORIZON):
            good = np.isfinite(e[:t]) & np.isfinite(u[:t])
            found = rank_correlation(u[:t][good], e[:t][good])
            yield f"uncertainty: {name}", t, "Spearman", found
            yield f"uncertainty: {name}", t, "median error", float(np.median(e[t - 1]))


def main(name: str, *words: str) -> None:
    """Append the rows of a dataset to the study's table.

    Args:
        name: of the dataset.
        words: seeds; a name of an uncertainty, `adm2, m=5`, computes its rank correlation alone.
    """
    commit = code_commit()
    dataset, table = load(name, 0), Path(EVIDENCE / "open_loop.csv")
    sha, rows = dataset.sha256[:8], dataset.with_successors
    seeds = [int(word) for word in words if word.isdigit()]
    only = next((word for word in words if not word.isdigit()), "")
    for seed in seeds or (0,):
        parts = parted(rows, seed)
        for part in (partial(ranks, only=only),) if only else (errors, ranks):
            found = [(*x[:3], f"{x[3]:.6g}") for x in part(parts, seed)]
            with table.open("a", newline="") as file:
                lines = ((name, sha, arm, seed, *rest, commit) for arm, *rest in found)
                csv.writer(file, lineterminator="\n").writerows(lines)
            print(seed, *found, sep="\n", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
