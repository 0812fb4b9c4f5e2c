"""SAC with a normal policy and with flows: on a bandit with two peaks, in simulators, offline."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.actors import ActorConfig
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.environments.base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    proceed,
)
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.methods.registry import NAMES, MethodConfig, Ravl, make_method
from jaxrl_rollouts.offline.methods.scheme import OWN_WORLDS, imagination, make_model_based
from jaxrl_rollouts.offline.online.learner import OnlineConfig
from jaxrl_rollouts.offline.online.train import Online, train_online
from jaxrl_rollouts.offline.study import small_budget
from jaxrl_rollouts.offline.study.config import StudyConfig
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.offline.worlds.fit import fit_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.rollouts import StepOutcome

KINDS = ("gaussian", "plain", "gated")
PARTS = ("bandit", "online", "offline")
PEAK, NEAR = 0.7, 0.2  # where the bandit's peaks are, and how near an action counts as at one
_RATES: dict[str, Any] = {"actor_rate": 1e-3, "critic_rate": 1e-3, "temperature_rate": 1e-3}
# The entropy of a path is large at the start: from a weight of 1 values go to hundreds.
_START = 0.2  # SAC Flow's
_SMALL = small_budget().study
_SMALL = replace(_SMALL, agent=replace(_SMALL.agent, initial_alpha=_START))
_FEW = (4, 4)


@dataclass(frozen=True)
class BanditConfig:
    """The bandit, and how long each policy learns on it.

    Attributes:
        width: standard deviation of a peak of the reward.
        rates: learning rates of policy, critics and temperature, a training for each.
        updates: gradient steps, each after `rows` actions.
        batch_size: actions in a gradient step.
        rows: actions between two gradient steps.
        looks: at the policy, spread evenly.
        draws: actions at each look.
    """

    width: float = number(0.15, above=0)
    rates: tuple[float, ...] = number((1e-3, 1e-2), above=0, most=1, entries=1)
    updates: int = positive(3000)
    batch_size: int = positive(64)
    rows: int = positive(16)
    looks: int = positive(20)
    draws: int = positive(2000)


@dataclass(frozen=True)
class Config:
    """Policies, the bandit, simulators and the offline example.

    Attributes:
        parts: what is run, of the bandit, the simulators and the offline example.
        kinds: policies that are compared.
        flow_steps: Euler steps of the flows.
        seed: of the random numbers; the same one gives the same numbers.
        bandit: two equal peaks.
        bandit_seeds: trained side by side there.
        environments: simulators for online SAC.
        steps: in each of them.
        seeds: trained side by side in simulators.
        agent: settings of SAC there; the bandit's networks and temperature are these, too.
        online: how acting and learning alternate in simulators.
        method: with a world model, for the offline example.
        rows: of the pendulum's mixed data, for it.
        critics: of RAVL in it.
        offline: its world model, agent, lengths and seeds.
    """

    parts: tuple[str, ...] = PARTS
    kinds: tuple[str, ...] = KINDS
    flow_steps: int = positive(4)
    seed: int = 0
    bandit: BanditConfig = field(default_factory=BanditConfig)
    bandit_seeds: int = positive(10)
    environments: tuple[str, ...] = ("pendulum", "halfcheetah")
    steps: tuple[int, ...] = positive((16_000, 16_000))
    seeds: int = positive(4)
    agent: SacConfig = SacConfig(hidden=(64, 64), polyak=0.05, initial_alpha=_START, **_RATES)
    online: OnlineConfig = OnlineConfig(
        warmup=2_000, update_ratio=0.5, batch_size=128, looks=10, episodes=5
    )
    method: str = "ravl"
    rows: int = positive(10_000)
    critics: int = positive(5)
    offline: StudyConfig = field(default_factory=lambda: replace(_SMALL, seeds=4, episodes=20))

    def validate(self) -> None:
        if not self.parts or not {*self.parts} <= {*PARTS}:
            raise ConfigError("parts", self.parts, f"out of {', '.join(PARTS)}")
        if self.kinds[:1] != KINDS[:1] or not {*self.kinds} <= {*KINDS}:
            raise ConfigError("kinds", self.kinds, f"gaussian first, out of {', '.join(KINDS)}")
        if len(self.steps) != len(self.environments):
            expected = f"one number for each of {len(self.environments)} environments"
            raise ConfigError("steps", self.steps, expected)
        if self.method not in NAMES:
            raise ConfigError("method", self.method, f"one of {', '.join(NAMES)}")

    @property
    def most_seeds(self) -> int:
        """Of the parts that are run, side by side."""
        each = (self.bandit_seeds, self.seeds, self.offline.seeds)
        return max(n for part, n in zip(PARTS, each, strict=True) if part in self.parts)

    def with_actor(self, agent: SacConfig, kind: str) -> SacConfig:
        """The same agent with another policy."""
        made: Any = ActorConfig(kind=kind, steps=self.flow_steps)  # type: ignore[arg-type]
        return replace(agent, actor=made)


def paid(width: float, actions: jax.Array) -> jax.Array:
    """`exp(-(a - 0.7)^2 / 2 w^2) + exp(-(a + 0.7)^2 / 2 w^2)`, `[...]` of actions `[..., 1]`."""
    distances = jnp.stack([actions[..., 0] - PEAK, actions[..., 0] + PEAK])
    return jnp.exp(-0.5 * jnp.square(distances / width)).sum(0)


@functools.lru_cache(maxsize=4)
def two_peaks(width: float) -> Environment:
    """A bandit as an environment: one state, one action, one step."""

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        return begin((), jnp.ones((batch, 1)))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepOutcome]:
        over = jnp.ones(len(action), bool)
        return proceed(state, (), state.observation, paid(width, action), over, 1)

    return Environment("two-peaks", 1, 1, 1, reset, step, observe, version="two equal peaks")


def drawn(outcome: Online, count: int, seed: int) -> np.ndarray:
    """Actions of every seed's policy at every look, `[seeds, looks, count]`."""
    looks = outcome.trained.state.looks
    seeds, times = jax.tree.leaves(looks)[0].shape[:2]
    seen = jnp.ones((count, 1))

    @jax.jit
    def draw(actors: Any, keys: jax.Array) -> jax.Array:
        of = jax.vmap(jax.vmap(lambda actor, key: outcome.agent.policy(actor, key, seen, ())[0]))
        return of(actors, keys)[..., 0]

    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), (seeds, times))
    return np.asarray(draw(looks, keys))


def masses(actions: np.ndarray) -> np.ndarray:
    """Shares of `[..., count]` actions within 0.2 of the left and of the right peak, `[..., 2]`."""
    return np.stack([(np.abs(actions - at) < NEAR).mean(-1) for at in (-PEAK, PEAK)], -1)


def on_bandit(config: Config, context: RunContext | None) -> Grid:
    """Every policy at every rate; `mass` is `[seeds, looks, 2]`, `actions` those of the last."""
    bandit = config.bandit
    online = OnlineConfig(
        environments=bandit.rows, rows=bandit.rows, warmup=64 * bandit.rows,
        update_ratio=1 / bandit.rows, looks=bandit.looks, episodes=1,
        batch_size=bandit.batch_size,
    )  # fmt: skip

    def train(kind: str, rate: float, stage: str) -> Cell:
        rates = {name: rate for name in _RATES}
        agent = replace(config.with_actor(config.agent, kind), initial_alpha=0.1, **rates)
        outcome = train_online(
            two_peaks(bandit.width), agent, online.warmup + bandit.updates * bandit.rows,
            online=online, seeds=config.bandit_seeds, seed=config.seed, stage=stage,
            context=context,
        )  # fmt: skip

        def measure() -> dict[str, np.ndarray]:
            actions = drawn(outcome, bandit.draws, config.seed)
            reward = np.asarray(paid(bandit.width, jnp.asarray(actions[:, -1, :, None])))
            return {"mass": masses(actions), "actions": actions[:, -1], "paid": reward.mean(-1)}

        return Cell.of(outcome.trained, measure=measure, updates=outcome.config.updates)

    axes = {"policy": config.kinds, "rate": bandit.rates}
    return run_grid(axes, train, context, seeds=config.bandit_seeds, stage="bandit")


def in_simulators(config: Config, context: RunContext | None) -> Grid:
    """Online SAC with every policy in every environment."""
    steps = dict(zip(config.environments, config.steps, strict=True))

    def train(name: str, kind: str, stage: str) -> Cell:
        outcome = train_online(
            name, config.with_actor(config.agent, kind), steps[name], online=config.online,
            seeds=config.seeds, seed=config.seed, stage=stage, context=context,
        )  # fmt: skip
        rate = bootstrap_rate(outcome.settings)
        return Cell.of(outcome.trained, updates=outcome.config.updates, rate=rate)

    axes = {"environment": config.environments, "policy": config.kinds}
    return run_grid(axes, train, context, seeds=config.seeds, stage="online")


def on_data(config: Config, context: RunContext | None) -> Grid:
    """A method with a world model, every policy in the same worlds, on the pendulum's data."""
    study = config.offline
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 2), 4)
    rows = pendulum_mixed(keys[0], config.rows)
    fitted = fit_worlds(
        study.ensemble, rows, keys[1], seeds=study.seeds, stage="offline-world", context=context
    )
    sizes = PENDULUM.observation_size, PENDULUM.action_size

    def train(kind: str, stage: str) -> Cell:
        settings = MethodConfig(ravl=Ravl(critics=config.critics))
        method = make_method(config.method, config.with_actor(study.agent, kind), settings)
        learner = make_model_based(
            study.rollouts, method, fitted.dynamics(PENDULUM, method.disagreement), *sizes
        )
        trained = train_and_play(
            learner, imagination(method, rows, fitted.worlds), PENDULUM, (keys[2], keys[3]),
            episodes=study.episodes, discount=study.agent.discount, seeds=study.seeds,
            per_seed=OWN_WORLDS, iterations=study.epochs,
            evaluate_every=max(study.epochs // study.evaluations, 1),
            stage=stage, context=context,
        )  # fmt: skip
        return Cell.of(trained, updates=learner.updates, rate=bootstrap_rate(study.agent))

    return run_grid({"policy": config.kinds}, train, context, seeds=study.seeds, stage="offline")


class Trained(NamedTuple):
    """Everything that was trained; None for parts that were left out."""

    bandit: Grid | None
    online: Grid | None
    offline: Grid | None


def train_all(config: Config, context: RunContext | None) -> Trained:
    """The bandit, the simulators, the offline example: those of them that are wanted."""
    make = (on_bandit, in_simulators, on_data)
    pairs = zip(PARTS, make, strict=True)
    return Trained(*(f(config, context) if part in config.parts else None for part, f in pairs))


SMOKE = Config(
    flow_steps=2,
    bandit=BanditConfig(rates=(1e-3,), updates=8, looks=2, draws=50),
    bandit_seeds=2,
    environments=("pendulum",),
    steps=(2_000,),
    seeds=2,
    agent=SacConfig(hidden=_FEW, polyak=0.02, **_RATES),
    online=OnlineConfig(
        looks=2, episodes=1, warmup=1_000, rows=100, update_ratio=0.02, batch_size=8
    ),
    rows=400,
    critics=2,
    offline=replace(
        _SMALL,
        seeds=2,
        ensemble=replace(
            _SMALL.ensemble, hidden=_FEW, members=2, elites=2, max_epochs=1, weight_decay=(0.0,)
        ),
        agent=SacConfig(hidden=_FEW, polyak=0.05, **_RATES),
        rollouts=replace(
            _SMALL.rollouts, rollouts_per_epoch=50, updates_per_epoch=5, batch_size=16
        ),
        epochs=2,
        evaluations=2,
        episodes=2,
    ),
)
BANDIT = Config(parts=("bandit",), bandit=BanditConfig(rates=(1e-3,)))
# Published networks and rates, and the lengths of the online study.
GPU = Config(
    environments=("pendulum", "halfcheetah", "hopper"),
    steps=(30_000, 200_000, 200_000),
    seeds=8,
    agent=SacConfig(hidden=(256, 256), initial_alpha=_START, **_RATES),
    online=OnlineConfig(warmup=10_000, episodes=10),
    offline=replace(_SMALL, seeds=8, episodes=50, epochs=60),
)
