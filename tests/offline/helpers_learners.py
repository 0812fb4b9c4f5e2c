"""Every learner in one table, small, with what it learns from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import helpers_neubay as neubay
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import coefficients
from jaxrl_rollouts.diffusion import (
    GuidanceConfig,
    SamplerConfig,
    Unet,
    make_denoiser,
)
from jaxrl_rollouts.experiments.studies.bandit_dqn import DqnConfig, Task, make_recurrent_dqn
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.offline.agents.actors import ActorConfig
from jaxrl_rollouts.offline.agents.bc import BcConfig
from jaxrl_rollouts.offline.agents.cql import CqlConfig
from jaxrl_rollouts.offline.agents.fql import FqlConfig
from jaxrl_rollouts.offline.agents.ifql import IfqlConfig
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.leq import LeqConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.planner import PlannerConfig
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig
from jaxrl_rollouts.offline.agents.sac import EdacConfig, SacConfig
from jaxrl_rollouts.offline.agents.td3_awr import Td3AwrConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.method import Learner
from jaxrl_rollouts.offline.methods.admpo import Admpo
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.combo import Combo
from jaxrl_rollouts.offline.methods.cvar import Cvar
from jaxrl_rollouts.offline.methods.leq import Leq
from jaxrl_rollouts.offline.methods.mobile import Mobile
from jaxrl_rollouts.offline.methods.mobrac import Mobrac
from jaxrl_rollouts.offline.methods.model_based import Imagination, ModelBased, Rollouts, bind
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.morel import Morel
from jaxrl_rollouts.offline.methods.rambo import Rambo
from jaxrl_rollouts.offline.methods.ravl import Ravl
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig, PgdData, make_pgd
from jaxrl_rollouts.offline.synthetic.windows import cut_windows, fit_window_layout
from jaxrl_rollouts.offline.worlds.any_step import (
    AnyStepConfig,
    any_step_dynamics,
    make_any_step,
)
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples
from jaxrl_rollouts.rollouts import Model, step_result

S, A, B, MEMBERS = 2, 1, 5, 3
FAST: dict[str, Any] = {"hidden_dims": (8,), "actor_lr": 0.01, "critic_lr": 0.01}


@dataclass(frozen=True)
class Case:
    """A learner with what it learns from.

    Attributes:
        learner, data: what is trained.
        spoiled: the data with a NaN in every reward (of cloning: action).
        observations: `D`, what the agent sees at a time.
        actions: of a batch, as `q` takes them.
        actor: `agent state -> ` what `policy` takes first.
    """

    learner: Learner
    data: Any
    spoiled: Any
    observations: int
    actions: jax.Array
    actor: Callable[[Any], Any] = lambda state: state.actor


@functools.cache
def rows() -> Transitions:
    """Four episodes of ten steps; the second and the last one fall."""
    rng = np.random.default_rng(0)
    s, n = (rng.normal(size=(40, S)).astype(np.float32) for _ in range(2))
    a = rng.uniform(-0.9, 0.9, (40, A)).astype(np.float32)
    last = np.arange(40) % 10 == 9
    fell = last & (np.arange(40) // 10 % 2 == 1)
    return Transitions(s, a, s[:, 0] + a[:, 0], n, fell, last & ~fell)


CONTINUOUS = jnp.full((B, A), 0.1)


def spoil(data: Any, column: str = "rewards") -> Any:
    return data._replace(**{column: jnp.full_like(getattr(data, column), jnp.nan)})


def model_free(config: Any, learns_from: str = "rewards", seen: Any = rows) -> Case:
    learner = make_model_free(config, S, A, batch_size=8, per_iteration=2)
    data = to_device(seen())
    return Case(learner, data, spoil(data, learns_from), S, CONTINUOUS)


def step(world: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
    following = (
        0.9 * s + a + world["shift"][member][:, None] + 0.1 * jax.random.normal(key, s.shape)
    )
    fell = following[:, 0] > 3.0
    return following, step_result(
        len(s), reward=s[:, 0], terminated=fell, uncertainty=jnp.abs(a[:, 0])
    )


def sample_elites(world: Any, key: Any, s: Any, a: Any) -> EliteSamples:
    following = 0.9 * s + a + world["shift"][:, None, None]
    rewards = jnp.broadcast_to(s[:, 0], (MEMBERS, len(s)))
    return EliteSamples(rewards, following, jnp.zeros((MEMBERS, len(s)), bool))


KNOWN, WORLD = Dynamics(Model(step), sample_elites, MEMBERS), {"shift": jnp.array([-0.5, 0.0, 0.5])}


class Shifts(NamedTuple):
    """A world whose elites are shifts `[E, S + 1]` of change and reward; unknown from 0.4 on."""

    elites: Any
    uncertainty_threshold: Any


def density(world: Shifts, s: Any, a: Any) -> Gaussian:
    change = jnp.concatenate([a - 0.1 * s, s[:, :1]], -1)
    mean = change + world.elites[:, None]
    return Gaussian(mean, 0.1 * jnp.ones_like(mean))


def drawn(world: Shifts, key: Any, s: Any, a: Any) -> EliteSamples:
    found = density(world, s, a).sample(key)
    ends = jnp.zeros(found.shape[:2], bool)
    return EliteSamples(found[..., -1], s + found[..., :-1], ends)


def member_step(world: Shifts, key: Any, s: Any, a: Any, member: Any) -> tuple:
    every = drawn(world, key, s, a)
    own = member, jnp.arange(len(s))
    unsure = jnp.abs(a[:, 0])
    return every.next_observations[own], step_result(
        len(s), reward=every.rewards[own], uncertainty=unsure
    )


DENSE = Dynamics(Model(member_step), drawn, MEMBERS, True, density)
SHIFTS = Shifts(0.3 * jnp.arange(9.0).reshape(MEMBERS, S + 1) - 1.0, jnp.float32(0.4))
SAC = SacConfig(**FAST)
ROLLOUTS = Rollouts(length=2, batch_size=6, retain_epochs=2, every=2)
CADENCE: dict[str, Any] = {"rollouts": ROLLOUTS, "batch_size": 8, "real_ratio": 0.5}
HARD = replace(SAC, backup_entropy=False)
METHODS: dict[str, ModelBased] = {
    "base": Base(agent=SAC, **CADENCE),
    "mopo": Mopo(agent=SAC, **CADENCE),
    "mobile": Mobile(agent=HARD, num_samples=2, **CADENCE),
    "ravl": Ravl(agent=replace(SAC, num_critics=3, eta=1.0), **CADENCE),
    "combo": Combo(agent=HARD, num_actions=2, **CADENCE),
    "morel": Morel(agent=SAC, **CADENCE),
    "rambo": Rambo(agent=SAC, adversary_steps=2, **CADENCE),
    "cvar": Cvar(agent=HARD, dropped=0.5, num_samples=2, **CADENCE),
    "mobrac": Mobrac(agent=RebracConfig(**FAST), **CADENCE),
    "leq": Leq(agent=LeqConfig(**FAST), horizon=2, **CADENCE),
    "base, td3": Base(agent=Td3BcConfig(**FAST), **CADENCE),
    "ravl, plain flow": Ravl(agent=replace(SAC, actor=ActorConfig("plain", 2)), **CADENCE),
}


def imagination(method: ModelBased, world: Any = WORLD) -> Imagination:
    """The data of a seed of a method."""
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}
    return Imagination(to_device(method.real_rows(rows())), world, own, jnp.ones(()))


def model_based(name: str, dynamics: Dynamics = KNOWN, world: Any = WORLD) -> Case:
    data = imagination(METHODS[name], world)
    learner = bind(METHODS[name].program(), dynamics, S, A)
    return Case(learner, data, data._replace(real=spoil(data.real)), S, CONTINUOUS)


def any_step(**settings: Any) -> tuple[Admpo, Dynamics, Imagination]:
    """ADMPO in a model of random weights."""
    config = AnyStepConfig(**{"backtrack": 3, "width": 8, "layers": 2, "blocks": 1, **settings})
    method = Admpo(agent=replace(SAC, learn_alpha=False), world=config, **CADENCE)
    model = make_any_step(config, rows())
    world = model.world(model.fitter.init(jax.random.key(4)))
    dynamics = any_step_dynamics(model.fitter, config.backtrack, never)
    return method, dynamics, imagination(method, world)


def in_an_any_step_model() -> Case:
    method, dynamics, data = any_step()
    learner = bind(method.program(), dynamics, S, A)
    return Case(learner, data, data._replace(real=spoil(data.real)), S, CONTINUOUS)


def history_dependent(kind: str) -> Case:
    memory = replace(neubay.CONFIG.agent.memory, kind=kind)
    learner, _ = neubay.made(agent=replace(neubay.CONFIG.agent, memory=memory))
    data = neubay.data()
    spoiled = data._replace(logged=data.logged._replace(timesteps=spoil(data.logged.timesteps)))
    # Without a memory it is not shown what was done and paid before.
    seen = neubay.S + (neubay.A + 1 if kind != "none" else 0)
    return Case(learner, data, spoiled, seen, jnp.full((B, neubay.A), 0.1))


def pull(pays: jax.Array, key: Any, state: jax.Array, action: jax.Array, member: Any) -> tuple:
    """A bandit of two arms that shows what was paid."""
    reward = pays[action] + 0.1 * jax.random.normal(key, action.shape)
    return jnp.stack([reward, state[:, 1] + 0.1], 1), step_result(len(state), reward=reward)


def zeros(key: jax.Array, batch: int) -> jax.Array:
    return jnp.zeros((batch, 2))


def discrete() -> Case:
    config = DqnConfig(
        memory=MemoryConfig("gru", width=4, layers=1),
        head_dims=(8,),
        episodes=4,
        memory_lr=0.01,
        head_lr=0.01,
        utd_ratio=0.1,
        tape_length=12,
        capacity=60,
        steps=20,
    )
    learner = make_recurrent_dqn(config, Task(Model(pull), zeros, 5, 2, 2))
    data = jnp.array([0.2, 0.8])
    return Case(
        learner,
        data,
        data * jnp.nan,
        2,
        jnp.zeros(B, jnp.int32),
        lambda state: (state.actor, jnp.float32(0.5)),
    )


def planning() -> Case:
    unet = Unet(features=16, blocks=1)
    config = PlannerConfig(horizon=2, unet=unet, hidden_dims=(8,), actor_lr=0.01)
    return model_free(config, "actions", lambda: config.rows(rows()))


def guided() -> Case:
    layout = fit_window_layout(cut_windows(rows(), 4, 2))
    # It learns nothing here, so one number will do.
    denoiser = make_denoiser(Network(lambda key: jnp.float32(0.1), lambda p, x, noise: p * x))
    config = PgdConfig(
        guidance=GuidanceConfig(rule="calibrated"),
        sampler=SamplerConfig(3),
        windows=6,
        steps=2,
        real_ratio=0.5,
        lifetime=2,
    )
    learner = make_pgd(config, Td3BcConfig(**FAST), denoiser, layout, batch_size=8)
    data = PgdData(to_device(rows()), jnp.float32(0.1))
    return Case(learner, data, data._replace(real=spoil(data.real)), S, CONTINUOUS)


TABLE: dict[str, Callable[[], Case]] = {
    "bc": lambda: model_free(BcConfig(hidden_dims=(8,), actor_lr=0.01), learns_from="actions"),
    "sac": lambda: model_free(SAC),
    "edac": lambda: model_free(EdacConfig(num_critics=3, **FAST)),
    "sac, gated flow": lambda: model_free(replace(SAC, actor=ActorConfig("gated", 2))),
    "bc, flow": lambda: model_free(
        BcConfig(hidden_dims=(8,), actor_lr=0.01, flow_steps=2), learns_from="actions"
    ),
    "cql": lambda: model_free(CqlConfig(**FAST, num_actions=2, target_gap=1.0, bc_steps=3)),
    "td3_bc": lambda: model_free(Td3BcConfig(**FAST)),
    "iql": lambda: model_free(IqlConfig(**FAST, value_lr=0.01)),
    "rebrac": lambda: model_free(RebracConfig(**FAST), seen=lambda: RebracConfig().rows(rows())),
    "td3_awr": lambda: model_free(Td3AwrConfig(**FAST, critic_bc_coef=0.0, value_lr=0.01)),
    "fql": lambda: model_free(FqlConfig(**FAST, flow_steps=2)),
    "ifql": lambda: model_free(IfqlConfig(**FAST, flow_steps=2, candidates=3)),
    "planner": planning,
    "base": lambda: model_based("base"),
    "mopo": lambda: model_based("mopo"),
    "mobile": lambda: model_based("mobile"),
    "ravl": lambda: model_based("ravl"),
    "combo": lambda: model_based("combo"),
    "morel": lambda: model_based("morel", DENSE, SHIFTS),
    "rambo": lambda: model_based("rambo", DENSE, SHIFTS),
    "cvar": lambda: model_based("cvar"),
    "mobrac": lambda: model_based("mobrac"),
    "leq": lambda: model_based("leq"),
    "admpo": in_an_any_step_model,
    "base, td3": lambda: model_based("base, td3"),
    "ravl, plain flow": lambda: model_based("ravl, plain flow"),
    "neubay": lambda: history_dependent("lru"),
    "neubay, markov": lambda: history_dependent("none"),
    "recurrent dqn": discrete,
    "pgd": guided,
}


@functools.cache
def case(name: str) -> Case:
    return TABLE[name]()
