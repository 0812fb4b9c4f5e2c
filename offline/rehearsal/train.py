"""Continual offline learning with replay buffers (OER: Gai et al. 2023, arXiv:2305.13804).

Tasks come one after the other, each as a dataset. A policy `pi_n` learns task n from its data
alone, by any method. One network `mu`, which reads the task as well, clones it and rehearses what
the buffers `B_j` of the tasks before have kept:

    (1 - c) E_{D_n} |mu(s, n) - pi_n(s)|^2 + c / (n - 1) sum_{j < n} E_{B_j} |mu(s, j) - a|^2

A buffer keeps the data's actions, as published, or those of `pi_j` at the time of selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check, layers, number, positive, step_size
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.feeds import blocks
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import fit_scaler
from jaxrl_rollouts.trees import PyTree, row

from ..agents.bc import BcConfig
from ..collect import random_policy
from ..evaluation import evaluate, evaluate_seeds
from ..job import DatasetLike, train
from ..matching import EnvironmentLike
from ..method import Method, cadence, no_memory
from ..methods import MethodName
from ..result import TrainResult
from ..worlds.dynamics import predict
from ..worlds.fit import WorldModelConfig, fit_world_models
from .network import Rows, Seen, TaskPolicy, carry_on, make_network, with_task
from .result import Continual
from .selection import Rule, select

Stored = Literal["data", "policy"]
NOTHING, EVERYTHING = "nothing", "everything"


@dataclass(frozen=True)
class ContinualConfig:
    """Selection and rehearsal of buffered rows.

    Attributes:
        rules: rules that select a buffer's rows. Every pair of a rule and `stored` is an arm.
        stored: the actions in a buffer, the data's or the policy's.
        bounds: two more arms: `nothing` is kept, and `everything`, with the policy's actions.
        share: share of a task's rows in its buffer.
        rehearsed: share of a batch that is of the buffers, once there are any.
        steps: gradient steps of the network on each task.
        batch_size: rows of a gradient step.
        hidden_dims, lr: settings of the network.
        world: for the rule `mbes`.
        episodes: episodes per evaluation and seed.
    """

    rules: tuple[Rule, ...] = ("random",)
    stored: tuple[Stored, ...] = ("policy",)
    bounds: bool = True
    share: float = number(0.01, above=0, most=1)
    rehearsed: float = number(0.5, least=0, below=1)
    steps: int = positive(5_000)
    batch_size: int = positive(256)
    hidden_dims: tuple[int, ...] = layers((256, 256))
    lr: float = step_size(1e-3)
    world: WorldModelConfig = field(default_factory=WorldModelConfig)
    episodes: int = positive(20)

    def validate(self) -> None:
        for name, found in (("rules", self.rules), ("stored", self.stored)):
            if not found:
                raise ConfigError(name, "nothing", "one at least")


class Arm(NamedTuple):
    """A buffer's share of rows, rule and stored actions; its share of a batch, `rehearsed`."""

    name: str
    share: float
    rule: Rule
    stored: Stored
    rehearsed: float


class Learned(NamedTuple):
    """A task's own policy.

    Attributes:
        result: result of its training.
        actions: its mean actions in the rows' states, `[seeds, N, A]`.
        predicted: next observations of world models under these, `[seeds, N, S]`; None without
            the rule `mbes`.
    """

    result: TrainResult
    actions: np.ndarray
    predicted: np.ndarray | None

    @property
    def name(self) -> str:
        return self.result.source.dataset.name

    @property
    def rows(self) -> Any:
        return self.result.source.dataset.transitions

    @property
    def env(self) -> Any:
        return self.result.env


def continual(
    tasks: Sequence[tuple[DatasetLike, EnvironmentLike | None]],
    method: MethodName | Method = "td3_bc",
    config: ContinualConfig | None = None,
    *,
    seeds: int = 2,
    seed: int = 0,
    context: RunContext | None = None,
    **options: Any,
) -> Continual:
    """Continual learning on a sequence of tasks, with rehearsal of small buffers of earlier tasks.

    Args:
        tasks: datasets and where policies are evaluated, of the same sizes; None takes what a
            dataset says.
        method: method of each task's own policy, as for `train`; one without a memory.
        config: settings of the buffers and the network; None takes the defaults.
        seeds: trained side by side.
        seed: random seed.
        context: a run whose folder keeps every training.
        options: options of `train`: `preset`, `steps`, ...

    Raises:
        ConfigError: no task, tasks of different sizes or of the same name, one without a
            simulator, or a policy with a memory.
    """
    config = config or ContinualConfig()
    check(config)
    given: Any = {"seeds": seeds, "seed": seed, "context": context, **options}
    own: list[Learned] = []
    for data, environment in tasks:
        result = train(data, method, environment=environment, **given)
        _check_task(result, own)
        own.append(_learned(config, result, seed, context))
    if not own:
        raise ConfigError("tasks", "nothing", "datasets and their environments")
    arms = [
        Arm(f"{rule}, {stored}", config.share, rule, stored, config.rehearsed)
        for rule in config.rules
        for stored in config.stored
    ]
    groups = [arms]
    if config.bounds:
        arms.append(Arm(NOTHING, config.share, "random", "policy", 0.0))
        # On its own, as its buffers are as large as the data.
        groups.append([Arm(EVERYTHING, 1.0, "random", "policy", config.rehearsed)])
    sequences = [Sequenced(config, own, group, seed, context) for group in groups]
    return _result(sequences, [sequence.learn() for sequence in sequences])


def _check_task(result: TrainResult, before: Sequence[Learned]) -> None:
    """Raise unless a task has the sizes of the others, a name of its own and a simulator."""
    name, found = result.source.dataset.name, _sizes(result.source.env)
    if name in [x.name for x in before]:
        raise ConfigError("tasks", f"{name} twice", "names that differ: a run keeps tasks by name")
    if result.env is None:
        raise ConfigError("tasks", f"{name} without a simulator", "one to evaluate policies in")
    if before and found != (expected := _sizes(before[0].env)):
        raise ConfigError("tasks", f"{name}: {found}", f"observations and actions {expected}")
    if result.agent.memory is not no_memory:
        raise ConfigError("method", result.method.name, "one whose policy has no memory")


def _sizes(env: Any) -> tuple[int, int]:
    return env.observation_size, env.action_size


def _learned(
    config: ContinualConfig, result: TrainResult, seed: int, context: RunContext | None
) -> Learned:
    """The policy's actions in the task's rows, and for `mbes` the predicted next observations."""
    data, agent, actors = result.source.dataset, result.agent, result.actors
    seen = data.transitions.observations
    parts = list(blocks(len(seen), 4096))
    key = jax.random.key(0)
    act = jax.jit(jax.vmap(lambda actor, x: agent.greedy(actor, key, x, ())[0], (0, None)))
    actions = np.concatenate([act(actors, seen[part]) for part in parts], 1)
    if "mbes" not in config.rules:
        return Learned(result, actions, None)
    more: Any = {"seeds": len(actions), "targets": config.world.targets, "context": context}
    fitted = fit_world_models(config.world.ensemble, data, seed, stage=f"{data.name}-world", **more)

    def lead(world: PyTree, x: jax.Array, action: jax.Array) -> jax.Array:
        return x + predict(fitted.model.fitter, world, x, action).mean[..., :-1].mean(0)

    step = jax.jit(jax.vmap(lead, (0, None, 0)))
    found = [step(fitted.worlds, seen[part], actions[:, part]) for part in parts]
    return Learned(result, actions, np.concatenate(found, 1))


def kept_rows(arm: Arm, task: Learned, seed: int) -> np.ndarray:
    """The rows that an arm keeps of a task by each seed's own policy, `[seeds, count]`."""
    seeds, total, _ = task.actions.shape
    count = max(round(arm.share * total), 1)
    found = []
    for i in range(seeds):
        predicted = None if task.predicted is None else task.predicted[i]
        given: Any = {"predicted": predicted, "length": task.env.max_episode_steps}
        own = seed * seeds + i
        found.append(select(arm.rule, task.rows, count, own, actions=task.actions[i], **given))
    return np.stack(found)


@dataclass
class Sequenced:
    """All tasks one after the other, of arms that keep the same share."""

    config: ContinualConfig
    tasks: Sequence[Learned]
    arms: Sequence[Arm]
    seed: int
    context: RunContext | None

    def __post_init__(self) -> None:
        first = self.tasks[0]
        self.width, self.seeds, self.total = len(self.arms), len(first.actions), len(self.tasks)
        self.sizes, self.one_hot = _sizes(first.env), jnp.eye(self.total)
        # Of the first task: the others' data are not there yet.
        self.scaler = fit_scaler(jnp.asarray(first.rows.observations))
        c = self.config
        self.iterations, per = cadence(c.steps, 1000, 1)
        own = BcConfig(c.hidden_dims, normalize_obs=False, actor_lr=c.lr)
        self.learner, self.act = make_network(own, self.sizes, self.total, c.batch_size, per)
        key = jax.random.fold_in(as_key(self.seed, "seed"), 2)
        self.train_key, self.play_key = jax.random.split(key)
        self.kept = [[kept_rows(arm, task, self.seed) for task in self.tasks] for arm in self.arms]

    def learn(self) -> tuple[np.ndarray, PyTree]:
        """Returns `[arms, T, T, seeds]` and the network's parameters `[arms, seeds, ...]`."""
        counts = np.array([index.shape[1] for index in self.kept[0]])
        shape = (self.width, self.seeds, self.total, counts.max())
        wide = (self.sizes[0] + self.total, self.sizes[1])
        buffers = Rows(*(np.zeros((*shape, size), np.float32) for size in wide))
        returns = np.full((self.width, self.total, self.total, self.seeds), np.nan)
        # Every arm begins alike and samples the same rows.
        every = np.tile(np.arange(self.seeds), self.width)
        state: PyTree = jax.random.split(self.train_key, self.seeds)[every]
        for n, task in enumerate(self.tasks):
            seen = np.asarray(with_task(self.scaler, self.one_hot[n], jnp.asarray(task.rows[0])))
            state = self.fit(n, state, Rows(seen, task.actions[every]), buffers, counts)
            actors = jax.tree.map(
                lambda x: x.reshape(self.width, self.seeds, *x.shape[1:]), state.agent.actor
            )
            for i, j in np.ndindex(self.width, n + 1):
                returns[i, n, j] = self.play(row(actors, i), j)
            for i, arm in enumerate(self.arms):
                index = self.kept[i][n]
                stored = task.actions if arm.stored == "policy" else task.rows.actions[None]
                stored = np.broadcast_to(stored, task.actions.shape)
                buffers.observations[i, :, n, : counts[n]] = seen[index]
                buffers.actions[i, :, n, : counts[n]] = np.take_along_axis(
                    stored, index[..., None], 1
                )
        return returns, actors

    def fit(self, n: int, state: PyTree, now: Rows, buffers: Rows, counts: np.ndarray) -> PyTree:
        """The network after a task, `[arms * seeds, ...]`; of the first one `state` are keys."""
        flat = jax.tree.map(lambda x: x.reshape(self.width * self.seeds, *x.shape[2:]), buffers)
        rehearsed = np.repeat([np.float32(arm.rehearsed) for arm in self.arms], self.seeds)
        alone: Any = Seen(Rows(False, True), True, False, False, True)  # type: ignore[arg-type]
        trained = train_loop(
            self.learner.update,
            carry_on if n else self.learner.init,
            state,
            Seen(now, flat, counts, np.int32(n), rehearsed),
            per_seed=alone,
            iterations=self.iterations,
            units_per_iteration=self.learner.per_iteration,
            stage=f"continual-{self.arms[-1].name}-{n + 1}",
            context=self.context,
            about={"continual": self.config, "tasks": [task.name for task in self.tasks]},
        )
        return trained.state

    def play(self, actors: PyTree, task: int) -> np.ndarray:
        """Mean returns of one arm in a task, `[seeds]`."""
        same = (self.scaler, self.one_hot[task])
        params = TaskPolicy(
            actors, *jax.tree.map(lambda x: jnp.broadcast_to(x, (self.seeds, *x.shape)), same)
        )
        return self.earned(task, self.act, params)

    def earned(self, task: int, policy: Any, params: PyTree) -> np.ndarray:
        """Mean returns of a policy, `[seeds]`; all play from the same starts."""
        env = self.tasks[task].env
        found = evaluate_seeds(env, policy, params, self.play_key, self.config.episodes)
        return np.asarray(found.returns.mean(1))


def _result(
    sequences: Sequence[Sequenced], found: Sequence[tuple[np.ndarray, PyTree]]
) -> Continual:
    """All arms, beside each task's own policy and uniform actions."""
    first = sequences[0]
    tasks, size = first.tasks, first.sizes[1]
    own = [
        first.earned(j, task.result.agent.greedy, task.result.actors)
        for j, task in enumerate(tasks)
    ]
    uniform = [
        evaluate(task.env, random_policy(size), (), first.play_key, 100).returns.mean()
        for task in tasks
    ]
    kept = {arm.name: k for s in sequences for arm, k in zip(s.arms, s.kept, strict=True)}
    return Continual(
        arms=tuple(kept),
        tasks=tuple(task.name for task in tasks),
        returns=np.concatenate([returns for returns, _ in found]),
        own=np.stack(own),
        random=np.asarray(uniform),
        kept=kept,
        actors=jax.tree.map(lambda *x: jnp.concatenate(x), *(actors for _, actors in found)),
        scaler=first.scaler,
        act=first.act,
    )
