"""Forecasts of 20 steps, composed or direct, at equal weights and gradient steps.

    python -m jaxrl_rollouts.experiments.studies.strategies DATASET [SEED ...] [UNCERTAINTY]

Networks are fitted to windows of four fifths of the episodes and rolled along logged actions of the
others. There too, how well two uncertainties rank errors: an ensemble's and an any-step model's.
DATASET may be `ks22` or `kolmogorov`: Fourier neural operators on four fifths of the trajectories.
Rows are added to `evidence/open_loop.csv`.

Criteria, fixed before the runs on fields, on the error at step 20 in every seed: direct forecasts
make recursion unnecessary where one of `dir(5)`, `dirrec(5)` and `dir(20)` is below `rec(1)` and
`rec(5)`; recursion is better where one of these two is below all three; else it is undecided. A
rectifier pays where it takes a tenth off `rec(1)`.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.choosing.scores import rank_correlation
from jaxrl_rollouts.offline.data import Transitions, episodes, take_rows
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.worlds import any_step
from jaxrl_rollouts.offline.worlds import strategies as of_worlds
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import fit_model, fit_world_models
from jaxrl_rollouts.offline.worlds.open_loop import LoggedWindows, open_loop, windows
from jaxrl_rollouts.pde import read
from jaxrl_rollouts.pde import strategies as of_fields
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.fieldset import FieldSet, take_trajectories
from jaxrl_rollouts.pde.files.problems import digest
from jaxrl_rollouts.pde.operators import Fno
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.provenance import code_commit
from jaxrl_rollouts.strategies import Strategy, forecast, idle, widest

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


# The benchmark's operators (no embedding), its trainings, frames from window to window.
FIELDS = {
    "ks22": (Fno(24, modes=15, embedding=0), Training(2000, 32), 10),
    "kolmogorov": (Fno(11, modes=8, embedding=0), Training(600, 8), 4),
}


def parted(transitions: Transitions, seed: int) -> tuple[Transitions, Transitions]:
    """Rows of four fifths of the episodes, and of the others."""
    parts = episodes(transitions)
    order = np.random.default_rng(seed).permutation(len(parts.lengths))
    held = np.repeat(order < len(order) // 5, parts.lengths)
    return take_rows(transitions, ~held), take_rows(transitions, held)


def of_mlp(width: int, seen: int, made: int) -> int:
    """Weights of three layers."""
    return width * (seen + 2 * width + made)


def predicted(
    arm: tuple[Any, int], mended: bool, fitted: Callable, states: Any, actions: Any, test: Any
) -> Any:
    """Fit a strategy, `fitted(strategy, windows, parts, base)`, and predict `[H, B, ...]` from
    `test`, a state and actions. A rectifier is fitted to the other half of the windows; then both
    have half of the weights and of the gradient steps."""
    strategy, parts = Strategy(*arm, HORIZON), 1 + mended
    half = states.shape[1] // parts
    heads = fitted(strategy, slice(half), parts, None)
    path = forecast(strategy, heads, *test)
    if not mended:
        return path
    other, mend = slice(half, None), Strategy("rectifier", 5, HORIZON)
    base = forecast(strategy, heads, states[0, other], actions[:, other])
    return forecast(mend, fitted(mend, other, parts, base), *test, base=path)


def errors(fitted: Callable, states: Any, actions: Any, test: tuple, truth: Any) -> Iterator[tuple]:
    """Root mean squares over windows and entries, in deviations of the data, by arm and step."""
    std = np.asarray(states).std((0, 1, *range(3, states.ndim)), keepdims=True)[0]
    arms = {f"{kind}({s})": ((kind, s), False) for kind, s in ARMS}
    for name, (arm, mended) in {**arms, "rec(1), rectified": (ARMS[0], True)}.items():
        path = predicted(arm, mended, fitted, states, actions, test)
        gap = np.square((np.asarray(path) - np.asarray(truth)) / std)
        yield from ((f"strategies: {name}", t, "error", gap[t - 1].mean() ** 0.5) for t in STEPS)


def of_models(parts: tuple[Transitions, Transitions], seed: int) -> Iterator[tuple]:
    """Errors of world models."""
    counts, key = (WINDOWS, TESTED), jax.random.key(seed)
    own, test = (windows(p, HORIZON, n, seed=seed) for p, n in zip(parts, counts, strict=True))
    sizes = own.observations.shape[-1], own.actions.shape[-1]
    most = of_mlp(WIDTH, sum(sizes), sizes[0])

    def fitted(strategy: Strategy, rows: slice, parts: int, base: Any) -> tuple:
        # rec(s) has H / s rows in a window and the others H / s networks: steps are equal.
        epochs, width = EPOCHS * strategy.block, widest(strategy, most / parts, sizes, of_mlp)
        net = replace(NET, hidden_dims=(width,) * 3, max_epochs=epochs, patience=epochs)
        some = jax.tree.map(lambda x: x[:, rows], own)
        return of_worlds.fit_strategy(strategy, net, some, key, base)

    start = test.observations[0], test.actions
    return errors(fitted, own.observations, own.actions, start, test.observations[1:])


def of_emulators(name: str, fields: FieldSet, seed: int) -> Iterator[tuple]:
    """Errors of emulators."""
    network, training, every = FIELDS[name]
    order, channels = np.random.default_rng(seed).permutation(fields.shape[0]), fields.shape[2]
    held = order < len(order) // 5
    own, test = (
        of_fields.windows(take_trajectories(fields, rows), HORIZON, every) for rows in (~held, held)
    )
    states, truth = (jnp.moveaxis(jnp.asarray(x.array()), 1, 0) for x in (own, test))

    @functools.cache
    def count(width: int, seen: int, made: int) -> int:
        frames: Any = {"history": seen // channels, "bundle": made // channels}
        net = replace(network, width=width).make(FieldShape(channels, fields.shape[3:], **frames))
        return parameter_count(jax.eval_shape(net.init, jax.random.key(0)))

    most = count(network.width, channels, channels)

    def fitted(strategy: Strategy, rows: slice, parts: int, base: Any) -> tuple:
        width = widest(strategy, most / parts, (channels, 0), count)
        steps = training.steps // (parts * strategy.heads)
        short = replace(training, steps=steps, warmup=steps // 10, per_iteration=steps)
        more: Any = {"network": replace(network, width=width), "training": short, "key": seed}
        return of_fields.fit_strategy(strategy, take_trajectories(own, rows), base=base, **more)

    nothing = idle(Strategy(horizon=HORIZON), states[0])
    return errors(fitted, states, nothing, (truth[0], None), truth[1:])


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
    """Append rows to the study's table; the name of an uncertainty, `adm2, m=5`, has its alone."""
    commit, table = code_commit(), Path(EVIDENCE / "open_loop.csv")
    seeds = [int(word) for word in words if word.isdigit()]
    only = next((word for word in words if not word.isdigit()), "")
    data = read(name) if name in FIELDS else load(name, 0)
    sha = (digest(data) if isinstance(data, FieldSet) else data.sha256)[:8]
    for seed in seeds or (0,):
        if isinstance(data, FieldSet):
            measured = [of_emulators(name, data, seed)]
        else:
            parts = parted(data.with_successors, seed)
            measured = [] if only else [of_models(parts, seed)]
            measured.append(ranks(parts, seed, only))
        for rows in measured:
            found = [(*x[:3], f"{x[3]:.6g}") for x in rows]
            with table.open("a", newline="") as file:
                lines = ((name, sha, arm, seed, *rest, commit) for arm, *rest in found)
                csv.writer(file, lineterminator="\n").writerows(lines)
            print(seed, *found, sep="\n", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
