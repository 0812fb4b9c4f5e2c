"""What the Kuramoto-Sivashinsky experiments share: sizes, one method as a cell of a grid."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import chosen, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.comparison import holdout
from jaxrl_rollouts.pde.emulator import NetworkConfig, Objective
from jaxrl_rollouts.pde.ensemble import agreement, valid_time
from jaxrl_rollouts.pde.evaluation import Holdout, evaluate, high_correlation_times
from jaxrl_rollouts.pde.fieldset import FieldSet, take_trajectories
from jaxrl_rollouts.pde.fitting import fit, untrained
from jaxrl_rollouts.pde.generate import Simulation
from jaxrl_rollouts.pde.objectives import Mse, Refiner
from jaxrl_rollouts.pde.operators import Resnet, Unet
from jaxrl_rollouts.pde.registries import NETWORKS
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.context import RunContext

from ..kit.fields import solved


@dataclass(frozen=True)
class Study:
    """Data, network, training and measures; the same for every objective.

    Attributes:
        seeds, seed: runs side by side, and the random seed.
        train, test: what is solved.
        stride: frames per step of an emulator.
        conditions: further inputs of an emulator: dt, dx, the equation's parameter.
        network: the network to train.
        training: training settings of every emulator.
        steps: steps of a rollout; the test trajectories must be longer.
        samples: stochastic rollouts per trajectory, of the first `sampled` test trajectories and
            for `sampled_steps`.
        sampled: trajectories that stochastic emulators are sampled on.
        sampled_steps: steps of these samples.
    """

    seeds: int = positive(4)
    seed: int = 0
    train: Simulation = field(default_factory=Simulation)
    test: Simulation = field(default_factory=Simulation)
    stride: int = positive(1)
    conditions: tuple[str, ...] = ()
    network: NetworkConfig = chosen(NETWORKS, Resnet)
    training: Training = field(default_factory=Training)
    steps: int = positive(250)
    samples: int = number(16, least=2)
    sampled: int = positive(256)
    sampled_steps: int = positive(150)

    def validate(self) -> None:
        if self.sampled_steps > self.steps:
            raise ConfigError("sampled_steps", self.sampled_steps, f"at most steps ({self.steps})")
        if self.test.frames <= self.steps * self.stride:
            expected = f"more than {self.steps * self.stride}: steps times stride"
            raise ConfigError("test.frames", self.test.frames, expected)
        for name in ("points", "equation"):
            found, expected = getattr(self.test, name), getattr(self.train, name)
            if found != expected:
                raise ConfigError(f"test.{name}", found, f"{expected}, as train has")


class Data(NamedTuple):
    """Trajectories to train on, and those to measure on, also in the units of the former."""

    train: FieldSet
    fields: FieldSet
    test: Holdout


def prepare(study: Study, context: RunContext | None) -> Data:
    """Solve both sets, or read what an earlier session of the run solved."""
    train = solved("train", [study.train], context)
    own = untrained(Mse(), study.network, train, train.array(), study.conditions, 1, study.stride)
    test = solved("test", [study.test], context)
    return Data(train, test, holdout(own, test, study.steps, study.seeds, study.seed))


def train_cell(
    name: str,
    study: Study,
    objective: str | Objective,
    data: Data,
    context: RunContext | None,
    *,
    sampled: bool = False,
) -> Cell:
    """Train an emulator, all seeds side by side, and roll it; arrays by their names.

    `time_curve` is the paper's: how long the correlation averaged over trajectories stays above
    0.8; `time_each` is the mean of the trajectories' own times. With
    samples: `predicted_horizon` and `true_horizon` `[seeds, B]`.
    """
    fitted = fit(
        objective,
        data.train,
        network=study.network,
        conditions=study.conditions,
        stride=study.stride,
        seeds=study.seeds,
        key=study.seed,
        training=study.training,
        stage=name,
        context=context,
    )
    test = data.test
    found = evaluate(name, fitted.emulator.emulator, fitted.params, test, context)
    curve, each = high_correlation_times(found.correlation, test.dt)
    arrays = found._asdict() | {"time_curve": curve, "time_each": each}
    if sampled:
        own, some = fitted.emulator, take_trajectories(data.fields, slice(0, study.sampled))

        def agreed(seed: int) -> jax.Array:
            keys = range(study.samples)
            rolls = [own.roll(some, study.sampled_steps, key, seed=seed) for key in keys]
            return agreement(jnp.asarray(np.stack(rolls)))

        of_samples = [agreed(seed) for seed in range(study.seeds)]
        true = found.correlation[:, : study.sampled_steps, : study.sampled]
        for key, of_each in (("predicted_horizon", of_samples), ("true_horizon", true)):
            arrays[key] = np.array([valid_time(one) * test.dt for one in of_each])
    return Cell.of(fitted.trained, arrays, per_iteration=fitted.training.per_iteration)


def small_domain(
    trajectories: int, frames: int, seed: int, points: int = 64, oversampling: int = 2
) -> Simulation:
    """Length 22, where every trajectory is chaotic; frames 0.8 apart, after 80 time units."""
    domain = Simulation(extent=(22.0, 22.0), dt=(0.8, 0.8), burn_in=100, substeps=16)
    size = {"points": points, "oversampling": oversampling, "seed": seed}
    return replace(domain, trajectories=trajectories, frames=frames, **size)


REFINER = Refiner(min_noise_variance=1e-6)

# A minute or two: everything runs, nothing is learned.
SMOKE = Study(
    seeds=2,
    train=small_domain(16, 13, 0),
    test=small_domain(8, 13, 1),
    network=Resnet(width=8, blocks=1, dilations=(1, 2), embedding=16),
    training=Training(steps=20, batch=8, warmup=2, per_iteration=10),
    steps=12,
    samples=3,
    sampled=4,
    sampled_steps=10,
)

# Two cores.
CPU = Study(
    train=small_domain(1024, 36, 0), test=small_domain(256, 251, 1), training=Training(steps=10_000)
)

# For one GPU: the paper's data at 64 points, a wider network. A third of its updates were run. Both
# seeds' step in float32 on an H200: 7.6 ms as products, 18.0 ms as the backend's convolutions.
_LONG = Simulation(extent=(57.6, 70.4), points=64, oversampling=4, chunk=512)
GPU = Study(
    seeds=2,
    train=_LONG,
    test=replace(_LONG, trajectories=256, frames=640, chunk=256, seed=1),
    stride=4,
    conditions=("dt", "dx"),
    network=Resnet(width=128, blocks=4, form="matmul"),
    training=Training(
        steps=80_000, batch=128, lr=3e-4, final_lr=1e-6, warmup=1000, per_iteration=1000
    ),
    steps=159,
    sampled_steps=159,
)

# Released settings: 400 epochs of 2240 updates on 53.9 million parameters; days on one GPU.
_FINE = {"points": 256, "oversampling": 1}
PAPER = replace(
    GPU,
    network=Unet(),
    train=replace(GPU.train, **_FINE),
    test=replace(GPU.test, trajectories=128, **_FINE),
    seeds=3,
    training=Training(
        steps=896_000,
        batch=128,
        lr=1e-4,
        final_lr=1e-6,
        warmup=0,
        clip=None,
        average=0.995,
        random_shift=False,
        per_iteration=1000,
    ),
)
