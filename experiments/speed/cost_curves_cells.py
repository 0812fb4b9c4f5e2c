"""What `cost_curves` times, by what grows: rows, seeds, members, horizon, grid points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices
from jaxrl_rollouts.compare.costs import Cost, of_host, of_program, size_of
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.agent import Learner
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.data import Transitions, sample_batch, to_device
from jaxrl_rollouts.offline.data.d4rl import load_d4rl, write_d4rl
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import make_world_model
from jaxrl_rollouts.pde.emulator import Emulator
from jaxrl_rollouts.pde.evaluation import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.operators import NETWORKS, FnoConfig, ResnetConfig, UnetConfig
from jaxrl_rollouts.pde.refiner import RefinerConfig, make_refiner
from jaxrl_rollouts.pde.training import TrainingConfig, make_training
from jaxrl_rollouts.rollouts import Members, rollout
from jaxrl_rollouts.scaler import fit_scaler

from .speed import ACTIONS, OBSERVATIONS, random_rows

AXES = ("rows", "seeds", "members", "horizon", "points")
EPISODE = 1000  # rows


@dataclass(frozen=True)
class Config:
    """Sizes along every axis, each ascending, and what is the same at all of them.

    Attributes:
        rows: of a dataset.
        seeds: of an agent, side by side.
        members: of an ensemble.
        horizon: steps of a rollout.
        points: of the grid of an emulator.
        unet_points: of the U-Net's, each a multiple of 8; fewer, since each takes half a minute to
            compile. None at all leaves it out.
        batch: rows in a gradient step of agents.
        updates: gradient steps, or draws, in a call.
        hidden: layers of the agent.
        few_rows: of the dataset where rows do not grow; ensembles pass over them once a call.
        ensemble_hidden: layers of a member.
        ensemble: members of the world model whose horizon grows; all of them are rolled.
        rolled: rows that are rolled side by side.
        steps: of the rollouts by members.
        fields: of an emulator in a gradient step, and rolled side by side.
        emulator_updates: gradient steps in a call.
        emulator_steps: that emulators roll.
        resnet, unet, fno: networks of the emulators.
        repeats: rounds in which every size is timed once.
    """

    rows: tuple[int, ...] = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
    seeds: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    members: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    horizon: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000)
    points: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)
    unet_points: tuple[int, ...] = (32, 256, 2048)
    batch: int = positive(256)
    updates: int = positive(50)
    hidden: tuple[int, ...] = (64, 64)
    few_rows: int = positive(3000)
    ensemble_hidden: tuple[int, ...] = (200, 200, 200, 200)
    ensemble: int = positive(5)
    rolled: int = positive(200)
    steps: int = positive(5)
    fields: int = positive(8)
    emulator_updates: int = positive(2)
    emulator_steps: int = positive(5)
    resnet: ResnetConfig = ResnetConfig(width=32)
    unet: UnetConfig = UnetConfig(hidden=16, blocks=1)
    fno: FnoConfig = FnoConfig(width=32, modes=16)
    repeats: int = positive(5)

    def validate(self) -> None:
        for axis in (*AXES, *(["unet_points"] if self.unet_points else [])):
            sizes = getattr(self, axis)
            if len(sizes) < 2 or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
                raise ConfigError(axis, sizes, "two sizes or more, ascending, from 1")
        if any(points % 8 for points in self.unet_points):
            raise ConfigError(
                "unet_points", self.unet_points, "multiples of 8: it is halved thrice"
            )


class Work(NamedTuple):
    """One kind of work and what makes it more or less than proportional to its size.

    Attributes:
        name, axis: of it.
        build: size -> `Cost`.
        flatter, steeper: reasons; see `costs.tell`.
        sizes: name of the setting that has them; empty for the axis.
    """

    name: str
    axis: str
    build: Callable[[int], Cost]
    flatter: str
    steeper: str
    sizes: str = ""


def works(config: Config, folder: Path) -> Iterator[Work]:
    """All of it, each made when it is its turn.

    Args:
        config: sizes.
        folder: where files may be written.
    """
    yield from row_works(config, folder)
    yield Work(
        "gradient steps", "seeds", partial(seeds_cost, config),
        "starting each of a step's small products costs as much as the product does, and a second "
        "core is idle until there is a second seed",
        "states and activations of all seeds no longer stay in the cache between steps",
    )  # fmt: skip
    yield from member_works(config)
    yield Work(
        "rollouts", "horizon", partial(horizon_cost, config),
        "starting the program and drawing members are paid once, not per step",
        "the recorded trajectory no longer fits the cache: its steps are written to memory",
    )  # fmt: skip
    yield from point_works(config)


def row_works(config: Config, folder: Path) -> Iterator[Work]:
    """Reading a file, statistics of all rows, batches, gradient steps."""
    yield Work(
        "reading a file", "rows", partial(reading_cost, config, folder),
        "opening the file and reading its attributes take the same time whatever it holds",
        "arrays no longer fit the cache, and fresh pages have to be cleared for each",
    )  # fmt: skip
    yield Work(
        "normalising", "rows", partial(normalising_cost, config),
        "starting a program costs as much as its work on few rows",
        "observations no longer fit the cache: they come from memory, twice",
    )  # fmt: skip
    gather = "the gather of a batch touches rows that no cache holds any more"
    constant = "a batch is a batch: the work does not depend on how many rows it is drawn from"
    yield Work("batches", "rows", partial(batches_cost, config), constant, gather)
    yield Work("gradient steps", "rows", partial(update_cost, config), constant, gather)


def reading_cost(config: Config, folder: Path, rows: int) -> Cost:
    """A file in D4RL's layout, from the system's page cache to checked arrays."""
    path = folder / f"{rows}.hdf5"
    written, ends = random_rows(rows), np.arange(1, rows + 1) % EPISODE == 0
    following = np.roll(written.observations, -1, 0)
    write_d4rl(path, written._replace(next_observations=following, truncations=ends))
    return of_host(lambda: load_d4rl(path), path.stat().st_size)


def normalising_cost(config: Config, rows: int) -> Cost:
    """Mean and standard deviation of all observations, and the observations in those units."""
    observations = jnp.asarray(random_rows(rows).observations)

    def normalise(state: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        return state, fit_scaler(x).normalise(x)

    return of_program(normalise, (), observations)


def batches_cost(config: Config, rows: int) -> Cost:
    """`updates` batches, each summed up so that all of it is read."""

    def draw(key: jax.Array, data: Transitions) -> tuple[jax.Array, jax.Array]:
        next_key, *keys = jax.random.split(key, config.updates + 1)

        def one(total: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            batch = sample_batch(data, key, config.batch)
            return total + sum(leaf.sum() for leaf in jax.tree.leaves(batch)), None

        return next_key, jax.lax.scan(one, jnp.float32(0), jnp.stack(keys))[0]

    return of_program(draw, jax.random.key(0), to_device(random_rows(rows)))


def learner_of(config: Config) -> Learner:
    """SAC on HalfCheetah's sizes."""
    settings = SacConfig(critics=2, diversity=0.0, hidden=config.hidden)
    sizes = {"batch_size": config.batch, "updates_per_iteration": config.updates}
    return make_model_free(settings, OBSERVATIONS, ACTIONS, **sizes)


def update_cost(config: Config, rows: int) -> Cost:
    """`updates` gradient steps of SAC."""
    learner, data = learner_of(config), to_device(random_rows(rows))
    return of_program(learner.update, jax.jit(learner.init)(jax.random.key(0), data), data)


def seeds_cost(config: Config, seeds: int) -> Cost:
    """`updates` gradient steps of so many seeds of SAC, over the cores as `loop.train` has them."""
    learner, data = learner_of(config), to_device(random_rows(config.few_rows))
    keys = jax.random.split(jax.random.key(0), seeds)
    state = jax.jit(jax.vmap(learner.init, (0, None)))(keys, data)
    mesh = devices.mesh_for(seeds)
    if mesh is not None:
        state, data = devices.shard_seeds(state, mesh), devices.replicate(data, mesh)
    count = 1 if mesh is None else mesh.size
    return of_program(jax.vmap(learner.update, (0, None)), state, data, devices=count)


def member_works(config: Config) -> Iterator[Work]:
    """An epoch of the fit; rollouts that ask one member about a row, or all of them."""
    weights = "the members' weights and moments no longer stay in the cache between steps"
    yield Work(
        "an epoch of the fit", "members", partial(fit_cost, config),
        "a step's fixed part: starting each operation, and products too small to fill the cores",
        weights,
    )  # fmt: skip
    yield Work(
        "rollouts, a member per row", "members", partial(members_cost, config, False),
        "every row asks one member, so the products stay the same; what grows is the gather of "
        "the weights and of the rows by member",
        "fewer rows per member than its weights: reading the weights is what takes the time",
    )  # fmt: skip
    yield Work(
        "rollouts, all members asked", "members", partial(members_cost, config, True),
        "policy, scaling and starting the program are paid once for all members",
        weights,
    )  # fmt: skip


def ensemble_of(config: Config, members: int) -> EnsembleConfig:
    """As MBPO's, all members elites."""
    decay = (5e-5,)
    sizes = {"members": members, "elites": members, "hidden": config.ensemble_hidden}
    return EnsembleConfig(**sizes, weight_decay=decay)


def fit_cost(config: Config, members: int) -> Cost:
    """One epoch over `few_rows` rows."""
    model = make_world_model(ensemble_of(config, members), random_rows(config.few_rows))
    state = jax.jit(model.fitter.init)(jax.random.key(0))
    # Parameters and the best snapshot are one buffer at first, which cannot be donated twice.
    state = jax.tree.map(jnp.copy, state)
    return of_program(model.fitter.update, state, model.data)


def spread(mean: jax.Array, std: jax.Array) -> jax.Array:
    """Standard deviation of the members' means `[E, B, S]`, averaged: `[B]`."""
    return mean.std(0).mean(-1)


def rollout_cost(config: Config, members: int, horizon: int, *, asked: bool) -> Cost:
    """`rolled` rows with a policy, every step recorded."""
    ensemble = ensemble_of(config, members)
    model = make_world_model(ensemble, random_rows(config.few_rows))
    world = jax.jit(model.world)(model.fitter.init(jax.random.key(0)))
    agent = make_sac(SacConfig(hidden=config.hidden), OBSERVATIONS, ACTIONS)
    actor = jax.jit(agent.init)(jax.random.key(1)).actor
    asking = {"termination": never, "disagreement": spread if asked else None}
    dynamics = learned_dynamics(model.fitter, members, **asking)
    elites = Members(jnp.arange(members, dtype=jnp.int32))
    start = jnp.zeros((config.rolled, OBSERVATIONS))

    def roll(key: jax.Array, data: Any) -> tuple[jax.Array, Any]:
        key, roll_key = jax.random.split(key)
        world, actor, start = data
        policy: dict[str, Any] = {"policy": agent.policy, "policy_params": actor, "members": elites}
        return key, rollout(dynamics.model, world, start, roll_key, horizon=horizon, **policy)

    cost = of_program(roll, jax.random.key(2), (world, actor, start))
    return cost._replace(kept=size_of(world))


def members_cost(config: Config, asked: bool, members: int) -> Cost:
    return rollout_cost(config, members, config.steps, asked=asked)


def horizon_cost(config: Config, horizon: int) -> Cost:
    return rollout_cost(config, config.ensemble, horizon, asked=False)


def point_works(config: Config) -> Iterator[Work]:
    """PDE-Refiner's gradient step and rollout, with each network."""
    starting = "starting each layer costs as much as its work on few points"
    cache = "activations of a layer no longer fit the cache, so the next one reads memory"
    fft = f"{cache}; transforms take N log N"
    modes = f"{starting}; the matrices of the kept modes are as many on any grid"
    for name in NETWORKS:
        reasons = (modes, fft) if name == "fno" else (starting, cache)
        trained = Work(
            f"{name}: gradient steps", "points", partial(train_cost, config, name), *reasons
        )
        if name != "unet":
            yield trained
            yield Work(f"{name}: a roll", "points", partial(roll_cost, config, name), *reasons)
        elif config.unet_points:
            yield trained._replace(sizes="unet_points")


def emulator_of(config: Config, name: str, points: int) -> Emulator:
    """PDE-Refiner with three refinements."""
    make: Any = NETWORKS[name][1]
    return make_refiner(make(getattr(config, name), 1, points), RefinerConfig())


def train_cost(config: Config, name: str, points: int) -> Cost:
    """`emulator_updates` gradient steps on random fields: what they say does not matter."""
    emulator, updates = emulator_of(config, name, points), config.emulator_updates
    settings = TrainingConfig(updates=100 * updates, batch=config.fields, warmup=updates)
    training = make_training(emulator, replace(settings, per_iteration=updates))
    shape = (4 * config.fields, 8, 1, points)
    data = Fields(jax.random.normal(jax.random.key(0), shape), jnp.zeros((shape[0], 0)))
    # Weights and their average are one buffer at first, which cannot be donated twice.
    state = jax.tree.map(jnp.copy, jax.jit(training.init)(jax.random.key(1), data))
    return of_program(training.update, state, data)


def roll_cost(config: Config, name: str, points: int) -> Cost:
    """`emulator_steps` steps of `fields` fields; a step calls the network four times."""
    emulator = emulator_of(config, name, points)
    params = jax.jit(emulator.init)(jax.random.key(0))
    start = jax.random.normal(jax.random.key(1), (config.fields, 1, points))
    none = jnp.zeros((config.fields, 0))

    def roll(key: jax.Array, data: Any) -> tuple[jax.Array, jax.Array]:
        params, start = data
        key, roll_key = jax.random.split(key)
        steps = config.emulator_steps
        return key, roll_emulator(emulator, params, start, none, roll_key, steps)

    return of_program(roll, jax.random.key(2), (params, start))._replace(kept=size_of(params))
