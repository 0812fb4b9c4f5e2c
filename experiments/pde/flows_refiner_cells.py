"""PDE-Refiner on two flows in the plane: what is solved, trained and measured; `flows_refiner`
compares.

A cell is one arm on one flow, all seeds. Fields are standardised; errors are in that unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.emulator import persistence
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.generate import GenerateConfig, quality
from jaxrl_rollouts.pde.objectives import OneStepConfig
from jaxrl_rollouts.pde.operators import FnoConfig
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study import look
from jaxrl_rollouts.pde.study.beside import Beside, linear, low_pass
from jaxrl_rollouts.pde.study.fit import Fitted, fit
from jaxrl_rollouts.pde.study.flow import find_flow
from jaxrl_rollouts.pde.study.solve import solve
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData
from jaxrl_rollouts.pde.study.units import standardised
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext

FLOWS = ("smooth", "turbulent")
ARMS = ("persistence", "linear", "mse", "mse, low-pass", "refiner")
LOUDEST = 0.5  # noise variance of a refinement, at most


def kolmogorov(viscosity: float, dt: float, substeps: int, burn_in: float = 15.0) -> GenerateConfig:
    """32 trajectories of 60 frames on 48 points, solved on 96, after `burn_in` time units."""
    return GenerateConfig(
        "kolmogorov_2d", parameter=(viscosity, viscosity), dt=(dt, dt), substeps=substeps,
        burn_in=round(burn_in / dt), points=48, finer=2, trajectories=32, frames=60, chunk=16,
    )  # fmt: skip


@dataclass(frozen=True)
class FlowsConfig:
    """The same networks, trainings and arms on two flows.

    The finest noise is no setting: `noise_variances` reads it off the training fields.

    Attributes:
        smooth, turbulent: training trajectories.
        flows: which of the two.
        tested: test trajectories of each.
        seeds: emulators side by side.
        fno: the operator of MSE training and of the refiner.
        training: of both.
        refiner: PDE-Refiner's settings; its noises are replaced.
        quieter: how far below the first refinement's noise the finest lies, in amplitude.
        steps: of rollouts.
        samples: rollouts of every test trajectory by the refiner; their spread is its own guess.
    """

    smooth: GenerateConfig = field(default_factory=lambda: kolmogorov(0.025, 0.25, 10))
    turbulent: GenerateConfig = field(default_factory=lambda: kolmogorov(0.01, 0.1, 5))
    flows: tuple[str, ...] = FLOWS
    tested: int = positive(16)
    seeds: int = positive(3)
    fno: FnoConfig = field(default_factory=lambda: FnoConfig(16, 3, 12, 16))
    training: TrainingConfig = field(default_factory=TrainingConfig)
    refiner: RefinerConfig = field(
        default_factory=lambda: RefinerConfig(steps=2, first="zeros", first_share=0.5)
    )
    quieter: float = 10.0
    steps: int = positive(60)
    samples: int = 8

    def validate(self) -> None:
        if self.samples < 2:
            raise ConfigError("samples", self.samples, "at least 2")
        if self.quieter <= 1:
            raise ConfigError("quieter", self.quieter, "above 1")
        if self.refiner.steps != 2:
            raise ConfigError("refiner.steps", self.refiner.steps, "2, which the rule is for")
        if not self.flows or {*self.flows} - {*FLOWS}:
            raise ConfigError("flows", self.flows, " or ".join(FLOWS) + ", or both")
        for name in FLOWS:
            if getattr(self, name).equation != "kolmogorov_2d":
                expected = "kolmogorov_2d, which has a flow to judge"
                raise ConfigError(f"{name}.equation", getattr(self, name).equation, expected)


def top_third(spectrum: np.ndarray) -> np.ndarray:
    """The mean over the highest third of the shells, `[..., K] -> [...]`."""
    return spectrum[..., 2 * spectrum.shape[-1] // 3 :].mean(-1)


def noise_variances(u: np.ndarray, quieter: float) -> tuple[float, float]:
    """The finest and the coarser noise of two refinements, in units of the scaled residual.

    The coarser is as loud as a step's change in the top third of the shells, where what MSE
    training leaves is to be repaired; the finest is `quieter` times quieter. White noise of unit
    variance on N points has the amplitude `metrics.white_noise_amplitude(N)`.

    Args:
        u: training fields `[N, T, 1, *space]`.
        quieter: in amplitude, above 1.
    """
    change = np.diff(u, axis=1)
    found = metrics.mean_spectrum(jnp.asarray(change / change.std()), space_dims=u.ndim - 3)
    loud = float(top_third(np.asarray(found))) / metrics.white_noise_amplitude(u[0, 0, 0].size)
    highest = min(loud**2, LOUDEST)
    return highest / quieter**2, highest


def solved(name: str, config: GenerateConfig, context: RunContext) -> FieldSet:
    """Trajectories of an equation, kept in the run's folder."""

    def measure() -> dict[str, np.ndarray]:
        found = solve(config, progress=context.progress)
        return {"u": found.array().astype(np.float32), "dt": found.dt}

    kept = remember(context, "data", name, measure)
    dx = config.extent[0] / config.points
    value = {"viscosity": config.parameter[0]}
    found = from_arrays(
        kept["u"], kept["dt"], dx, value, names=("vorticity",), axes=2, source=f"{name}.npz"
    )
    return found._replace(equation=config.equation)


class FlowStudy:
    """One flow: its trajectories, and every arm on them."""

    def __init__(self, name: str, config: FlowsConfig, context: RunContext) -> None:
        self.name, self.config, self.context = name, config, context
        made: GenerateConfig = getattr(config, name)
        tests = replace(
            made, trajectories=config.tested, frames=config.steps + 1, seed=made.seed + 1
        )
        self.train = solved(f"{name}_train", made, context)
        self.test = solved(f"{name}_test", tests, context)
        self.u = np.asarray(self.train.array())
        self.looks = quality(self.u)
        self.noises = noise_variances(self.u, config.quieter)

    def times(self, steps: int) -> np.ndarray:
        """When every step of a rollout ends, `[steps]`."""
        return float(self.train.dt.mean()) * np.arange(1, steps + 1)

    def amplitude(self) -> np.ndarray:
        """Mean amplitudes of standardised training fields by shell, `[K]`."""
        fields = jnp.asarray(self.u / self.u.std())
        return np.asarray(metrics.mean_spectrum(fields, space_dims=2))

    def truth(self) -> np.ndarray:
        """What follows the first frame of the first test trajectory, standardised `[T, *space]`."""
        first = np.asarray(self.test.read(slice(0, 1), slice(1, None)))[0, :, 0]
        return (first - self.u.mean()) / self.u.std()

    def fitted(self, arm: str) -> Fitted:
        """MSE training or the refiner; what a stage of the run holds is not trained again."""
        finest, coarser = self.noises
        refiner = replace(
            self.config.refiner, min_noise_variance=finest, max_noise_variance=coarser
        )
        return fit(
            refiner if arm == "refiner" else OneStepConfig(),
            self.train,
            network=self.config.fno,
            seeds=self.config.seeds,
            training=self.config.training,
            stage=f"{self.name}-{arm}",
            context=self.context,
        )

    def beside(self, fitted: Fitted) -> Beside:
        """How arms are tested, and on what, in the units of the training fields."""
        own, config = fitted.emulator, self.config
        u = np.asarray(self.test.array(), np.float32)
        fields = standardised(self.test, u, own.units, own.conditions)
        study = StudyConfig(
            seeds=config.seeds, points=own.grid[0], steps=config.steps, samples=config.samples,
            sampled=config.tested, sampled_steps=config.steps,
        )  # fmt: skip
        flow = find_flow(self.test)
        data = StudyData(fields, fields, own.dt or 1.0, np.zeros(len(u)), own.units, flow)
        return Beside(own, self.train, self.test, study, data, 1, self.context)

    def cell(self, arm: str, stage: str) -> Cell:
        """Train an arm, where there is something to train, and roll it."""
        fitted = self.fitted("refiner" if arm == "refiner" else "mse")
        beside, extra = self.beside(fitted), dict[str, Any]()
        if arm == "persistence":
            found = beside.judge(stage, persistence(1), ())
        elif arm == "linear":
            found = linear(beside, "never", stage)
        elif arm == "mse, low-pass":
            found, cuts = low_pass(beside, f"{self.name}-mse", fitted.emulator)
            extra["cut"] = cuts
        else:
            found = beside.judge(stage, fitted.emulator.emulator, fitted.params)
        if arm == "refiner":
            extra |= self.sampled(stage, fitted, found, beside)
        extra |= arrays_of(found, beside.data.dt)
        return Cell.of(fitted.trained, extra) if arm in ("mse", "refiner") else Cell(extra=extra)

    def sampled(
        self, stage: str, fitted: Fitted, found: look.Evaluation, beside: Beside
    ) -> dict[str, np.ndarray]:
        """What its samples know: spread, error, predicted and true horizons."""
        samples = look.sample(
            stage, fitted.emulator.emulator, fitted.params, beside.study, beside.data,
            self.context,
        )  # fmt: skip
        outcome = look.Outcome(fitted.trained, found, samples)
        predicted, true = look.sampled_horizons(outcome, beside.data.dt)
        horizons = {"predicted_horizon": predicted, "true_horizon": true}
        return {f"sampled_{k}": v for k, v in samples._asdict().items()} | horizons


def arrays_of(found: look.Evaluation, dt: float) -> dict[str, np.ndarray]:
    """An evaluation's arrays, and both times `[seeds]` for which vorticities stay correlated."""
    curve, each = look.high_correlation_times(found.vorticity, dt)
    return found._asdict() | {"time_curve": curve, "time_each": each}


def per_flow(config: FlowsConfig, context: RunContext) -> Callable[[str], FlowStudy]:
    """Every flow is solved and looked at once."""
    made: dict[str, FlowStudy] = {}

    def study(name: str) -> FlowStudy:
        if name not in made:
            made[name] = FlowStudy(name, config, context)
        return made[name]

    return study
