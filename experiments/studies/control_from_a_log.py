"""The actuated Kuramoto-Sivashinsky equation, controlled by what was learned from a log of it.

Controllers without learning, agents on the log's rows alone, and methods in world models of it,
perceptrons or networks on fields of as many weights; from a broad and from a narrow log.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import offline
from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours import ks_control as feedback
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.ks_control import KS_CONTROL as ENV
from jaxrl_rollouts.offline.evaluation import evaluate_seeds
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import FittedWorlds
from jaxrl_rollouts.offline.worlds.open_loop import open_loop, unchanged, windows
from jaxrl_rollouts.offline.worlds.thresholds import uncertainty_stats_of_seeds
from jaxrl_rollouts.pde.operators import Fno
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.trees import PyTree

from ..catalogue import GOALS, LISTINGS

WORLDS = ("fields", "mlp")
# Trained side by side in one program: the penalty's coefficient outside, the threshold inside.
VARIANTS = {
    "mopo": ("no penalty", "threshold", "penalty", "penalty and threshold"),
    "ravl": ("RAVL", "RAVL and threshold"),
    "neubay": ("NEUBAY",),
}
Found = dict[str, Any]
_WIDE: Found = {"hidden_dims": (128, 128), "actor_lr": 3e-4}
_ROLLED: Found = {
    "steps": 60_000,
    "real_ratio": 0.05,
    # At 1 the entropy outweighs the rewards: values rise, and ReLUs die as they fall again.
    "agent": {**_WIDE, "critic_lr": 3e-4, "alpha_lr": 3e-4, "tau": 0.01, "initial_alpha": 0.1},
    "rollouts": {"length": 20, "batch_size": 500, "every": 500},
}
_QUICK: Found = {**_ROLLED, "steps": 6_000, "agent": {**_ROLLED["agent"], "tau": 0.05}}
_QUICK["agent"] |= {"hidden_dims": (64, 64), "actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
_REMEMBERED: Found = {"steps": 30_000, "batch_size": 512}
_ONLINE: Found = {"agent": _ROLLED["agent"], "steps": 100_000, "environments": 50}


def _recipe(name: Any, preset: Any = "small", **changes: Any) -> Any:
    return functools.partial(offline.recipe, name, preset, **changes)


def _worlds(**changes: Any) -> offline.WorldModelConfig:
    shared = {"members": 5, "elites": 5, "weight_decay": (0.0,), "variance": "output"}
    return offline.WorldModelConfig(**{**shared, "hidden_dims": (74,) * 3, **changes})


def _fields(width: int = 16, modes: int = 12, layers: int = 3, **changes: Any) -> Any:
    network = Fno(width=width, modes=modes, layers=layers, embedding=8)
    return _worlds(network=network, **{"max_epochs": 40, **changes})


@dataclass(frozen=True)
class Config:
    """Logs, methods, world models.

    Attributes:
        logs: logs of `ks_control`, the broad one first.
        cloning, on_rows: behavioural cloning, and TD3+BC.
        mopo, ravl: methods in world models, on the same rollouts.
        neubay: NEUBAY in the same world models; rollouts end at the threshold or the time limit.
        penalty: MOPO's, per mean disagreement on the log; 0 is tried as well.
        fields, mlp: world models, of about as many weights.
        open_loop: steps after which their errors are read.
        online: SAC in the simulator.
        rounds: rounds of the search for linear gains, 24 in each.
        seeds, seed: trained side by side, and of what is drawn.
        evaluations, episodes: while training, and of an evaluation per seed.
        only: cells that this run begins, by what their names begin with; () for all. Others stay
            empty, unless they are found in its folder `cells`.
    """

    logs: tuple[str, ...] = ("mixed", "narrow")
    cloning: offline.Bc = field(default_factory=_recipe("bc", **_WIDE))
    on_rows: offline.Td3Bc = field(default_factory=_recipe("td3_bc", **_WIDE, steps=60_000))
    mopo: offline.Mopo = field(default_factory=_recipe("mopo", **_ROLLED))
    ravl: offline.Ravl = field(default_factory=_recipe("ravl", **_ROLLED))
    neubay: offline.Neubay = field(default_factory=_recipe("neubay", **_REMEMBERED))
    penalty: float = number(0.5, above=0)
    fields: offline.WorldModelConfig = field(default_factory=_fields)
    mlp: offline.WorldModelConfig = field(default_factory=_worlds)
    open_loop: int = positive(50)
    online: offline.OnlineSac = field(default_factory=_recipe("online_sac", **_ONLINE))
    rounds: int = positive(16)
    seeds: int = positive(4)
    seed: int = 0
    evaluations: int = positive(5)
    episodes: int = positive(64)
    only: tuple[str, ...] = ()


def played(
    policy: Any,
    params: PyTree,
    seeds: int,
    key: jax.Array,
    episodes: int,
    memory: PyTree = (),
    env: Any = ENV,
) -> Found:
    """Values `[K]` of parameters `[K, ...]`; every `seeds` of them play from the same starts, with
    a fresh `memory` `[episodes, ...]`."""
    count = jax.tree.leaves(params)[0].shape[0]
    parts = [jax.tree.map(lambda x, k=k: x[k : k + seeds], params) for k in range(0, count, seeds)]
    fresh = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), memory)
    found = [evaluate_seeds(env, policy, x, key, episodes, memory=fresh) for x in parts]
    both = {"return": [x.returns for x in found], "true value": [x.discounted for x in found]}
    return {name: np.concatenate(x).mean(1) for name, x in both.items()}


def linear(gains: jax.Array, key: Any, observation: jax.Array, memory: Any) -> tuple:
    """Symmetric feedback of eight sensors, at the jets and half-way between them, gains `[5]`:
    `a_i = clip(-sum_d k_d (u(x_i - d L / 8) + u(x_i + d L / 8)) / 2)`."""
    seen = observation[:, :: observation.shape[1] // 8]
    pairs = [(jnp.roll(seen, d, 1) + jnp.roll(seen, -d, 1)) / 2 for d in range(5)]
    return jnp.clip(-jnp.stack(pairs, -1)[:, 1::2] @ gains, -1.0, 1.0), memory


def best_gains(key: jax.Array, rounds: int, episodes: int) -> jax.Array:
    """Gains `[5]` by the cross-entropy method in the simulator."""
    middle, spread = jnp.zeros(5).at[0].set(2.0), jnp.full(5, 2.0)
    for number_ in range(rounds):
        draw_key, play_key = jax.random.split(jax.random.fold_in(key, number_))
        gains = (middle + spread * jax.random.normal(draw_key, (24, 5))).at[0].set(middle)
        best = gains[np.argsort(played(linear, gains, 24, play_key, episodes)["return"])[-6:]]
        middle, spread = best.mean(0), best.std(0)
    return middle


def controller(config: Config, name: str, key: jax.Array, play_key: jax.Array) -> Found:
    """One without learning; what is chosen is not chosen on the starts it is measured on."""
    policy: Any = feedback.feedback_policy(ENV)
    params: Any = feedback.PROPORTIONAL if name == "proportional" else feedback.NOTHING
    if name == "best constant":
        patterns = jnp.asarray(list(itertools.product((-1.0, 0.0, 1.0), repeat=ENV.action_size)))
        none = jnp.zeros((len(patterns), 1, 1))
        every = feedback.Feedback(none, patterns[:, None], none, none)
        tried = played(policy, every, len(patterns), key, 32)["return"]
        params = feedback.Feedback(constant=patterns[int(tried.argmax())])
    elif name == "best linear":
        policy, params = linear, best_gains(key, config.rounds, 16)
    every = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * config.seeds), params)
    return played(policy, every, config.seeds, play_key, config.episodes)


def dynamics_of(fitted: FittedWorlds, **more: Any) -> Dynamics:
    """The world models; members predict means, as the equation has no noise."""
    model, more = fitted.model, {"termination": ENV.termination, "noise": "none", **more}
    return learned_dynamics(model.fitter, model.elites, **more)


def errors(config: Config, fitted: FittedWorlds, unseen: Dataset) -> Found:
    """Error along actions of another log of the kind, in its deviations, `[seeds]`, the median of
    200 windows; that of "nothing changes"; weights of a member."""
    logged = windows(unseen.transitions, config.open_loop, 200, seed=config.seed)
    worlds = [fitted.world(seed) for seed in range(config.seeds)]
    own = dynamics_of(fitted)
    found = [open_loop(own, world, logged, jax.random.key(1)).error[-1] for world in worlds]
    still = unchanged(logged, worlds[0].inputs.std[: ENV.observation_size])[-1]
    weights = parameter_count(worlds[0].elites) / fitted.model.elites
    return {"error": np.median(found, 1), "unchanged": np.median(still), "weights": weights}


def in_worlds(config: Config, method: Any, data: Dataset, fitted: FittedWorlds) -> Found:
    """What a method is trained with: `[2 seeds]` worlds, those with a threshold behind the others
    (of NEUBAY those alone); rewards are the environment's own function of the predicted field."""
    stats = uncertainty_stats_of_seeds(fitted.model.fitter, fitted.worlds, data.with_successors)
    largest = jnp.asarray(stats.quantiles)[:, -1]
    limit = jnp.concatenate([jnp.full_like(largest, jnp.inf), largest])
    both = jax.tree.map(lambda x: jnp.concatenate([x, x]), fitted.worlds)
    given: Found = {"world_models": both._replace(uncertainty_threshold=limit)}
    spread: Found = {"disagreement": offline.spread_of_means, "normalised": True}
    given["dynamics"] = dynamics_of(fitted, reward=ENV.reward, **spread)
    if isinstance(method, offline.Neubay):
        given["world_models"] = fitted.worlds._replace(uncertainty_threshold=largest)
        return given | {"method": method}
    if isinstance(method, offline.Mopo):
        given["sweep"] = {"penalty": (0.0, config.penalty / float(jnp.mean(stats.mean)))}
    method = replace(method, rollouts=replace(method.rollouts, adaptive=True))
    return given | {"method": method, "seeds": 2 * config.seeds}


class Cells(NamedTuple):
    """Makes cells of a run; all policies are measured from the starts of `key`."""

    config: Config
    context: RunContext
    key: jax.Array

    def cell(self, name: str, measure: Callable[[], Found]) -> Found:
        """A cell's numbers; none where it is left out."""
        there = (self.context.folder.stage("cells") / f"{name}.npz").is_file()
        asked = there or not self.config.only or name.startswith(self.config.only)
        return dict(remember(self.context, "cells", name, measure)) if asked else {}

    def trained(self, name: str, data: Dataset, **given: Any) -> Found:
        """Train and play; the run keeps the policies."""
        c = self.config
        looks: Any = {"evaluations": c.evaluations, "episodes": c.episodes, "seed": c.seed}
        given = {"seeds": c.seeds, "context": self.context, "environment": ENV, **looks, **given}
        result = offline.train(replace(data, name=name), **given)
        agent, at = result.agent, (c.seeds, self.key, c.episodes)
        found = played(agent.greedy, result.actors, *at, agent.memory(c.episodes), result.env)
        value = result.estimated_value
        jax.clear_caches()
        return found if value is None else found | {"critics": value}

    def fit(self, data: Dataset, world: str) -> FittedWorlds:
        """World models of every seed, which all methods share."""
        own, stage = getattr(self.config, world), f"{data.name}-{world}-world"
        more: Any = {"targets": own.targets, "stage": stage, "context": self.context}
        more |= {"seeds": self.config.seeds, "forcing": ENV.forcing}
        return offline.fit_world_models(own.ensemble, data, self.config.seed, **more)

    def log(self, name: str) -> tuple[dict[str, Found], list[Found]]:
        """All that is learned from one log: found by arm, and errors of the world models."""
        c = self.config
        data, unseen = (offline.load(f"ks_control-{name}", c.seed + more) for more in (0, 1))
        fit = functools.cache(lambda world: self.fit(data, world))
        off = [
            self.cell(f"{name}-{w}-error", lambda w=w: errors(c, fit(w), unseen)) for w in WORLDS
        ]
        each: Any = [("rows", c.cloning, ("BC",)), ("rows", c.on_rows, ("TD3+BC",))]
        for world, method in itertools.product(WORLDS, (c.mopo, c.ravl, c.neubay)):
            each.append((world, method, [f"{x}, {world}" for x in VARIANTS[method.name]]))
        arms: dict[str, Found] = {}
        for world, method, names in each:
            stage = f"{name}-{world}-{method.name}"
            given = functools.partial(in_worlds, c, method, data)
            found = self.cell(stage, lambda s=stage, m=method, w=world, g=given: self.trained(
                s, data, **({"method": m} if w == "rows" else g(fit(w)))))  # fmt: skip
            for number_, arm in enumerate(names):
                own = slice(number_ * c.seeds, (number_ + 1) * c.seeds)
                arms[arm] = {key: x[own] for key, x in found.items()}
        return arms, off


def run(config: Config, context: RunContext) -> Report:
    """All cells, each kept as soon as it is measured; then tables and claims."""
    report = Report.of(context, config.seeds)
    play_key, key = jax.random.split(jax.random.key(config.seed))
    cells = Cells(config, context, play_key)
    plain = {
        name: cells.cell(name, lambda n=name: controller(config, n, key, play_key))
        for name in ("nothing", "best constant", "proportional", "best linear")
    }
    rows = [{"log": "", "arm": name, **found} for name, found in plain.items()]
    gaps, ratios, table, missing = {}, [], [], np.full(config.seeds, np.nan)
    for number_, log in enumerate(config.logs):
        arms, off = cells.log(log)
        rows += [{"log": log, "arm": arm, **found} for arm, found in arms.items()]
        table += [{"log": log, "world": w, **x} for w, x in zip(WORLDS, off, strict=True)]
        ratios.append(off[0]["error"] / off[1]["error"] if all(off) else missing)
        if number_ == 0 and plain["best linear"]:
            gaps = {
                arm: found["return"] - plain["best linear"]["return"]
                for arm, found in arms.items() if found and arm.endswith(WORLDS)
            }  # fmt: skip
    some = offline.load("ks_control-random", config.seed)
    online = cells.cell("online", lambda: cells.trained("online", some, method=config.online))
    report.table("returns", [*rows, {"log": "", "arm": "online SAC", **online}])
    report.table(f"error after {config.open_loop} steps", table)
    gap = max(gaps.values(), key=lambda x: np.nan_to_num(x.min(), nan=-np.inf), default=missing)
    rate = bootstrap_rate(config.mopo.agent)
    # fmt: off
    claim = claims(report, GOALS)
    claim("a model-based method beats the best linear feedback in every seed", gap, at_least=0,
          statistic="min", time_constants=config.mopo.steps * (rate or 0),
          means=f"return from the log {config.logs[0]} above that of gains chosen in the simulator")
    claim("networks on fields predict better than perceptrons", np.transpose(ratios), at_most=1,
          statistic="max", means=f"error after {config.open_loop} steps over that of perceptrons")
    # fmt: on
    report.note(
        f"Threshold: the largest disagreement on the log. Penalty: {config.penalty:g} per mean "
        "disagreement on the log. Imagined rewards: the environment's of the predicted field."
    )
    return report


_SHORT: Found = {"steps": 20, "rollouts": {"length": 3, "batch_size": 20, "every": 10}}
_TINY = _fields(4, 4, 1, max_epochs=1, batch_size=2048)
PRESETS = {
    "smoke": Config(
        ("mixed",), _recipe("bc", "smoke")(), _recipe("td3_bc", "smoke")(),
        _recipe("mopo", "smoke", **_SHORT)(), _recipe("ravl", "smoke", **_SHORT)(),
        neubay=_recipe("neubay", "smoke")(), fields=_TINY, open_loop=5,
        mlp=_worlds(hidden_dims=(8,), max_epochs=1, batch_size=2048),
        online=_recipe("online_sac", "smoke")(), rounds=1, seeds=2, evaluations=1, episodes=2,
    ),
    "cpu": Config(
        ("mixed",), mopo=_recipe("mopo", **_QUICK)(), ravl=_recipe("ravl", **_QUICK)(),
        neubay=_recipe("neubay", **{**_REMEMBERED, "steps": 6_000})(),
        fields=_fields(members=3, elites=3, max_epochs=3),
        mlp=_worlds(members=3, elites=3, max_epochs=12),
    ),
    "long": Config(),
}  # fmt: skip
EXPERIMENT = LISTINGS["control_from_a_log"].experiment(Config, PRESETS, run)
