"""Valid times of emulators: agreement of members against the truth.

Members are training seeds, and the same networks at two steps. Every group is calibrated on
trajectories that nothing was trained on, and measured on others, on other domains too.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.configs import chosen, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.choosing.scores import rank_correlation
from jaxrl_rollouts.pde import scores
from jaxrl_rollouts.pde.emulator import NetworkConfig
from jaxrl_rollouts.pde.ensemble import calibrate, valid_time
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.generate import Simulation
from jaxrl_rollouts.pde.metrics import correlation
from jaxrl_rollouts.pde.operators import Fno, Resnet
from jaxrl_rollouts.pde.promises import group_of
from jaxrl_rollouts.pde.registries import NETWORKS
from jaxrl_rollouts.pde.trained import TrainedEmulator
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from ..kit.fields import solved
from .ks import small_domain

RANKED = {"ks": 0.75, "kolmogorov_2d": 0.5, "navier_stokes_2d": 0.3}  # least Spearman, by equation
Curves = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Config:
    """One equation, one network.

    Attributes:
        seeds, seed: networks side by side, and what decides everything that is drawn.
        train, calibration, test: what is solved; rollouts are as long as the last two.
        shifted: lengths of the domain that the calibrated level is tried on besides.
        network: network of every member; trained at one and at two frames per step.
        training: training settings of every member.
        miss: largest share of promised times that do not hold.
    """

    seeds: int = number(5, least=3)
    seed: int = 0
    train: Simulation = field(default_factory=lambda: small_domain(128, 100, 0))
    calibration: Simulation = field(default_factory=lambda: small_domain(128, 251, 1))
    test: Simulation = field(default_factory=lambda: small_domain(256, 251, 2))
    shifted: tuple[float, ...] = positive((20.0, 26.0))
    network: NetworkConfig = chosen(NETWORKS, Resnet)
    training: Training = field(default_factory=lambda: Training(steps=4000))
    miss: float = number(0.1, above=0, below=1)

    def validate(self) -> None:
        if self.calibration.frames != self.test.frames or self.test.frames % 2 == 0:
            found = f"{self.calibration.frames} and {self.test.frames}"
            raise ConfigError(
                "test.frames", found, "the calibration's, and odd: whole double steps"
            )


def curves_of(own: TrainedEmulator, fields: FieldSet) -> dict[str, np.ndarray]:
    """Roll all members along trajectories `[N, T + 1, C, *X]` and correlate.

    Returns:
        `true` `[S, T, N]`, seeds against the truth; `single` `[S, S, T, N]`, seeds against each
        other; `double` `[2 S, 2 S, T // 2, N]`, with the seeds' double steps behind them, every
        second frame; `ratio` and `crps` `[T]`, spread over skill and fair CRPS of the seeds.
    """
    start, conditions = own.start(fields, 1)
    truth: Any = np.swapaxes(fields.read(slice(None), slice(1, None)), 0, 1)
    both = list(zip(*group_of(own, conditions), strict=True))
    rolled = [(np.asarray(m.roll(start, len(truth) // s)), s) for m, s in both]
    ones: Any = np.stack([x for x, stride in rolled if stride == 1])

    def pairs(some: Sequence[Any]) -> np.ndarray:
        found = np.ones((len(some), len(some), *some[0].shape[:2]), np.float32)
        for a, b in itertools.combinations(range(len(some)), 2):
            found[a, b] = found[b, a] = np.nan_to_num(correlation(some[a], some[b]), nan=-1.0)
        return found

    return {
        "true": np.stack([np.asarray(correlation(x, truth)) for x in ones]),
        "single": pairs(ones),
        "double": pairs([x[1::2] if stride == 1 else x for x, stride in rolled]),
        "ratio": np.asarray(scores.spread_skill(ones, truth)),
        "crps": np.asarray(scores.crps(ones, truth)).mean(tuple(range(1, truth.ndim))),
    }


def groups(seeds: int) -> dict[str, tuple[list[list[int]], int]]:
    """Members of every group, the promised one first, and frames between comparisons."""
    cyclic = {n: [[(k + i) % seeds for i in range(n)] for k in range(seeds)] for n in (2, 3, seeds)}
    found = {f"{n} seeds": (rows, 1) for n, rows in cyclic.items()}
    found["1 seed, 2 steps"] = ([[k, seeds + k] for k in range(seeds)], 2)
    doubled = [[*row, *(seeds + k for k in row)] for row in cyclic[seeds]]
    found[f"{seeds} seeds, 2 steps"] = doubled, 2
    return found


def agreed(curves: Curves, members: Sequence[int], stride: int) -> tuple[np.ndarray, ...]:
    """Agreement `[T, N]` of a group, and true valid times `[N]` of its first member, in steps."""
    pairs = curves["single" if stride == 1 else "double"]
    agreement = np.mean([pairs[a, b] for a, b in itertools.combinations(members, 2)], 0)
    return agreement, np.asarray(valid_time(curves["true"][members[0]][stride - 1 :: stride]))


def measured(
    calibration: Curves, test: Curves, members: Sequence[int], stride: int, miss: float
) -> dict[str, float]:
    """Ranks, errors and promises of one group, times in frames.

    `constant` is what needs no members: the median, or the quantile that keeps the promise.
    """
    (known, true), (new, after) = (agreed(x, members, stride) for x in (calibration, test))
    trust = calibrate(known, true, miss)
    first, guess = np.asarray(valid_time(new)), np.asarray(valid_time(known))
    promised = np.asarray(valid_time(new, trust.level))
    kept = np.sort(true)[int(miss * (len(true) + 1) + 1e-9) - 1]
    before, mean = (np.mean([valid_time(one) for one in x["true"]], 0) for x in (calibration, test))
    factor = np.median(before[guess > 0] / (stride * guess[guess > 0]))
    off, still = (
        np.abs(said - mean) / np.maximum(mean, 1)
        for said in (factor * stride * first, np.median(before))
    )
    return {
        "Spearman": float(np.nan_to_num(rank_correlation(after, first))),
        "Spearman, members' mean": float(np.nan_to_num(rank_correlation(mean, first))),
        "relative error": float(np.median(off)),
        "constant's": float(np.median(still)),
        "misses": float((after < promised).mean()),
        "promised": stride * float(promised.mean()),
        "constant's promise": stride * float(kept),
        "valid": stride * float(after.mean()),
    }


def run(config: Config, context: RunContext) -> Report:
    """Train, roll, calibrate, measure."""
    train = solved("train", [config.train], context)
    fitted = fit(
        "mse", train, network=config.network, strides=(1, 2), seeds=config.seeds,
        key=config.seed, training=config.training, stage="members", context=context,
    )  # fmt: skip
    sets = {"calibration": config.calibration, "test": config.test}
    for length in config.shifted:
        domain = replace(config.calibration, seed=config.test.seed, extent=(length, length))
        sets[f"length {length:g}"] = domain

    def roll(name: str) -> Curves:
        fields = solved(name, [sets[name]], context)
        return remember(context, "curves", name, lambda: curves_of(fitted.emulator, fields))

    curves = {name: roll(name) for name in sets}
    report, known = Report.of(context, config.seeds), curves["calibration"]
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, (rows, stride) in groups(config.seeds).items():
        every = [measured(known, curves["test"], row, stride, config.miss) for row in rows]
        found[name] = {key: np.array([one[key] for one in every]) for key in every[0]}
    report.table("groups", [{"group": name, **columns} for name, columns in found.items()])
    rows, stride = groups(config.seeds)[f"{config.seeds} seeds"]
    shifted = {}
    for name in list(sets)[1:]:
        each = [measured(known, curves[name], row, stride, config.miss) for row in rows]
        shifted[name] = {key: np.array([one[key] for one in each]) for key in each[0]}
    columns = ("misses", "promised", "valid", "Spearman")
    domains = [{"set": n, **{c: x[c] for c in columns}} for n, x in shifted.items()]
    report.table("domains", domains)
    last = max(int(found[f"{config.seeds} seeds"]["valid"].mean()), 1)
    spread = {
        "spread over skill": float(np.nanmean(curves["test"]["ratio"][:last])),
        "CRPS": float(curves["test"]["crps"][:last].mean()),
    }
    report.table("spread until valid", [spread])
    _claims(report, config, found, shifted, spread["spread over skill"])
    sizes = config.calibration.trajectories, config.test.trajectories
    report.note(
        f"{sizes[0]} trajectories to calibrate on, {sizes[1]} to measure on, "
        f"{config.test.frames - 1} frames each; valid until the correlation with the truth falls "
        "to 0.8. A seed's row has it as the promised member."
    )
    return report


def _claims(report: Report, config: Config, found: Any, shifted: Any, ratio: float) -> None:
    claim, seeds = claims(report, GOALS), found[f"{config.seeds} seeds"]
    sizes = config.calibration.trajectories, config.test.trajectories
    most = config.miss + 2 * np.sqrt(config.miss * (1 - config.miss) * sum(1 / n for n in sizes))
    least, error = RANKED.get(config.train.equation, 0.5), seeds["relative error"][:1]
    # fmt: off
    claim("promises are kept", seeds["misses"], at_most=float(most), means="share of misses")
    claim("agreement ranks valid times", seeds["Spearman, members' mean"][:1], at_least=least,
          means="Spearman with the members' mean valid time")
    if config.train.equation == "ks":
        claim("promises are longer than a constant's", seeds["promised"]
              / seeds["constant's promise"], at_least=1.15, means="mean promise over a constant's")
        claim("best guesses are near", error, at_most=0.15, means="median relative error")
        claim("nearer than a constant", error / seeds["constant's"][:1], at_most=0.6,
              means="median relative error over a constant's")
        gain = found["1 seed, 2 steps"]["Spearman"].mean() - found["2 seeds"]["Spearman"].mean()
        claim("two steps serve as two seeds do", gain, at_least=0, means="mean Spearman's gain")
    claim("spread is as large as errors", ratio, between=(0.7, 1.4),
          means="spread over skill until the valid time")
    for name, each in list(shifted.items())[1:]:
        claim(f"promises are kept: {name}", each["misses"], at_most=2 * config.miss,
              means="share of misses at the level of the own domain")
    # fmt: on


_TINY = small_domain(24, 13, 0)
# Solved at 64 x 64 and kept at 32 x 32: what two cores carry in ten minutes.
_FLOW = Simulation(
    equation="kolmogorov_2d", points=32, oversampling=2, dt=(0.2, 0.2), burn_in=100, substeps=10,
)  # fmt: skip


def _flow(one: Simulation) -> Config:
    sets = [replace(one, trajectories=n, seed=i, frames=41) for i, n in enumerate((96, 64, 128))]
    return Config(
        seeds=3,
        train=sets[0],
        calibration=sets[1],
        test=sets[2],
        shifted=(),
        network=Fno(width=16, modes=8),
        training=Training(steps=2000, batch=8),
    )


_DECAYING = replace(_FLOW, equation="navier_stokes_2d", parameter_range=(1e-3, 1e-3), burn_in=0)
PRESETS = {
    "smoke": Config(
        seeds=3,
        train=_TINY,
        calibration=replace(_TINY, seed=1),
        test=replace(_TINY, seed=2),
        shifted=(20.0,),
        network=Resnet(width=8, blocks=1, dilations=(1, 2), embedding=16),
        training=Training(steps=20, batch=8, warmup=2, per_iteration=10),
    ),
    "cpu": Config(network=Resnet(width=16, blocks=1), training=Training(steps=2000)),
    "long": Config(),
    "kolmogorov": _flow(_FLOW),
    "decaying": _flow(_DECAYING),
}
EXPERIMENT = LISTINGS["trust_pde"].experiment(Config, PRESETS, run)
