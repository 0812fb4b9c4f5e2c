"""Regimes in which refinement might pay on Kuramoto-Sivashinsky, and what is trained in them.

All but the transient have the same trajectories, read every 1, 2, 4 or 8 frames; every training
takes the same number of windows, which begin at the same frames, and rollouts last equally long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.baselines import make_low_pass
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study import look, train
from jaxrl_rollouts.pde.study.beside import TRAINING_ROWS, cut_off
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext

from .ks import cell_of
from .ks_crossing_cells import ARMS, ZEROS, Arm, CrossingConfig, part, train_arm


class Regime(NamedTuple):
    """What emulators learn from.

    Attributes:
        what: for the table.
        every: frames of the files per step.
        few: whether trajectories are few, and gone through more often.
        start: what trajectories begin with, from their first frame on; "" for the attractor.
    """

    what: str
    every: int
    few: bool = False
    start: str = ""


COARSEST = 8
REGIMES = {
    "0.8": Regime("steps of 8 frames", 8),
    "0.4": Regime("of 4", 4),
    "0.2": Regime("of 2", 2),
    "0.1": Regime("of 1", 1),
    "few 0.8": Regime("few trajectories, as in the paper's ablation", 8, few=True),
    "few 0.2": Regime("few trajectories, where the pilots' tail mattered", 2, few=True),
    "transient": Regime("from small waves to chaos", 4, start="faint"),
}
MSE, REFINERS = (
    ARMS["mse"],
    {
        "refiner": ARMS["refiner"],
        "weight": ARMS["weight"],
        "own": Arm(
            "own network after all of MSE training, one noise from its error: twice the updates",
            ZEROS, 1, "own", before=1.0, after=1.0,
        ),
    },
)  # fmt: skip


@dataclass(frozen=True)
class SettledConfig:
    """What regimes share. `study` is that of steps of one frame.

    Attributes:
        regimes: names out of `REGIMES`.
        study: data, network and training; `steps` of a rollout, in frames.
        refiner: the paper's.
        solved_from: wavenumbers from which on the true solver steps in place of the emulator.
        screen_from: of these, the one that screens: refiners are trained where its gain is larger
            than `screen`. Not in the transient, whose small amplitudes are at small wavenumbers.
        screen: T(0.8) over MSE training's, mean over seeds.
        few: trajectories of a regime that has few.
        few_updates: its gradient steps, in those of the others.
        transient_frames: of a training trajectory of the transient.
        over_error: variance of the noise that is chosen from an error, in mean square errors.
    """

    regimes: tuple[str, ...] = tuple(REGIMES)
    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    solved_from: tuple[int, ...] = (6, 8)
    screen_from: int = 6
    screen: float = 1.1
    few: int = 16
    few_updates: float = 1.5
    transient_frames: int = 321
    over_error: float = 3.0

    def validate(self) -> None:
        if not self.regimes or set(self.regimes) - set(REGIMES):
            raise ConfigError("regimes", self.regimes, f"names out of {', '.join(REGIMES)}")
        if self.screen_from not in self.solved_from:
            raise ConfigError("screen_from", self.screen_from, f"one of {self.solved_from}")
        study = self.study
        if study.every != 1 or study.history != 1:
            raise ConfigError("study.every", study.every, "1, and a history of 1")
        if study.steps % COARSEST:
            raise ConfigError("study.steps", study.steps, f"a multiple of {COARSEST} frames")
        if min(study.train.frames, self.transient_frames) <= COARSEST:
            expected = f"more than {COARSEST} frames, here and in transient_frames"
            raise ConfigError("study.train.frames", study.train.frames, expected)
        if not 1 <= self.few <= study.train.trajectories:
            raise ConfigError("few", self.few, f"from 1 to {study.train.trajectories}")
        part(study.training, self.few_updates)


class Case(NamedTuple):
    """A regime's settings and data."""

    config: CrossingConfig
    data: StudyData


def case_of(name: str, config: SettledConfig, context: RunContext) -> Case:
    """Solve a regime's trajectories, or read what is solved, and cut them to its windows."""
    regime, study = REGIMES[name], config.study
    if regime.few:
        study = replace(study, training=part(study.training, config.few_updates))
    if regime.start:
        settled = {"burn_in": 0, "start": regime.start}
        study = replace(
            study,
            train=replace(study.train, frames=config.transient_frames, **settled),
            test=replace(study.test, **settled),
        )
    steps = study.steps // regime.every
    study = replace(study, every=regime.every, steps=steps, sampled_steps=steps)
    data = train.prepare(study, context, f"data_{regime.start}" if regime.start else "data")
    # Windows of every length begin at the same frames.
    starts = data.train.fields.shape[1] - COARSEST
    rows = config.few if regime.few else len(data.train.fields)
    fields, conditions = data.train
    data = data._replace(train=Fields(fields[:rows, : starts + regime.every], conditions[:rows]))
    study = replace(study, residual_scale=data.step_scale(regime.every))
    crossing = CrossingConfig(
        arms=("mse",),
        study=study,
        refiner=config.refiner,
        over_error=config.over_error,
        budgets=(),
        solved_from=config.solved_from,
    )
    return Case(crossing, data)


def train_cell(case: Case, arm: str, context: RunContext | None, stage: str, mse: str) -> Cell:
    """Train and roll an arm; `mse` is MSE training's stage, from which some begin."""
    config, data = case
    if arm == "low_pass":
        return _low_passed(case, context, stage, mse)
    return train_arm(REFINERS.get(arm, MSE), config, data, context, stage, mse)


def _low_passed(case: Case, context: RunContext | None, stage: str, mse: str) -> Cell:
    """MSE training's emulators without the wavenumbers that they miss on training windows.

    Extra are `cuts` `[seeds]` and `amplitude` `[seeds, K]`, that of the training fields.
    """
    data, study = case.data, case.config.study
    emulator = train.make_emulator("mse", study)
    trained = train.train_emulator(mse, emulator, study, data.train, context)
    params, (fields, conditions) = trained.state.average, data.train
    seen = Fields(fields[:TRAINING_ROWS, :: study.every], conditions[:TRAINING_ROWS])
    found = remember(context, stage, "cut", lambda: cut_off(emulator, params, study, seen))
    gain = np.arange(study.points // 2 + 1) < found["cuts"][:, None]
    filtered, both = make_low_pass(emulator, 1), (params, jnp.asarray(gain, jnp.float32))
    evaluation = look.evaluate(stage, filtered, both, study, data, context)
    amplitude = np.tile(found["amplitude"], (study.seeds, 1))
    outcome = look.Outcome(trained, evaluation, None)
    return cell_of(outcome, data.dt, {"cuts": found["cuts"], "amplitude": amplitude})


def bound(mse: Cell, lowest: int, each: bool = False) -> np.ndarray:
    """T(0.8) `[seeds]` with the solver from a wavenumber on, over MSE training's."""
    if mse.diverged:
        return np.full(mse.seeds, np.nan)
    kind = "each" if each else "curve"
    solved = mse.extra["time_solved_each" if each else "time_solved"]
    return solved[lowest] / mse[f"time_{kind}"]


def worth(regime: str, config: SettledConfig, mse: Cell) -> bool:
    """Whether refiners are trained there."""
    return bool(REGIMES[regime].start or bound(mse, config.screen_from).mean() > config.screen)


def refined_error(error: np.ndarray, noise: float) -> np.ndarray:
    """Error amplitudes after a best possible refinement of predictions with these, `[..., K]`.

    A denoiser that knows all that the prediction m knew, of a truth that is normal about m with
    variance R in a wavenumber, returns for m + s e

        m + R / (R + s^2) s e,    whose mean square error is R + R^2 s^2 / (R + s^2)^2 >= R.

    Args:
        error: of the predictions, mean |rfft|: sqrt(R) but for a factor that cancels.
        noise: the same mean of the noise, s.
    """
    power, added = np.square(error), noise**2
    return np.sqrt(power + power**2 * added / (power + added) ** 2)


def noise_amplitude(cell: Cell, study: StudyConfig) -> float:
    """Mean |rfft| of the finest noise of a refiner's cell, in the fields' units."""
    refiner = cell.extra["refiner"]
    spread = float(np.sqrt(refiner.min_noise_variance) * refiner.residual_scale)
    # Both parts of a mode are normal with half of N s^2, so that its size is Rayleigh's.
    return float(np.sqrt(np.pi * study.points) / 2 * spread)
