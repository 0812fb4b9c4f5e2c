"""The shapes of an agent, a learner and a method.

An `Agent` is functions of one agent, a `Learner` those of a training.
A method is one frozen dataclass with everything it reads, which can be trained:

    class Mine(Method):                     # in a package of yours, announced by an entry point
        name = "mine"
        strength: float = coefficient(1.0, least=0)

        def prepare(self, task, job): ...   # -> Prepared: a learner and its data

Most methods need no `prepare`: `ModelFree` trains an agent on rows, `ModelBased` in rollouts of
world models, and both leave what makes a method to a few functions with defaults.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import jax
import numpy as np

from jaxrl_rollouts.configs import coefficients, columns, positive, settings
from jaxrl_rollouts.finite import OnDivergence
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree

from .data import Dataset
from .data.transitions import RAW, RewardScale
from .environments import Environment
from .task import Source, Task
from .worlds.dynamics import Dynamics

if TYPE_CHECKING:
    from jaxrl_rollouts.compare.grid import Cell
    from jaxrl_rollouts.reports.report import Report


Sweep = Mapping[str, tuple[float, ...]] | tuple[Mapping[str, float], ...]


class Scaled(NamedTuple):
    """A network's parameters with the statistics of its observations.

    Policies and critics take raw observations and normalise them with these.
    """

    net: PyTree
    scaler: Scaler


def no_memory(batch: int) -> PyTree:
    """The start of an agent that sees the present only."""
    del batch
    return ()


class Agent(NamedTuple):
    """Functions of one agent. Its state has at least the fields `actor` and, with `q`, `critic`.

    Attributes:
        init: `(key, scaler=None) -> state`; the scaler is that of the observations.
        update: `(state, key, batch, ...) -> (state, metrics)`, one gradient step. Where `period`
            is above 1 it takes `actor=False` (static) for steps in which neither the policy nor the
            target networks move.
        policy: `(actor, key, observation [B, S], memory) -> (action [B, A], memory)`, as trained.
        greedy: the same signature, its mean.
        q: `(critic, observations [B, S], actions [B, A]) -> [N, B]`, every critic; of agents with a
            memory, at the beginning of an episode. None where there is no critic.
        memory: `batch -> memory` of episodes that begin, leaves `[batch, ...]`.
        sample: `(actor, key, observations) -> (actions [B, A], log-densities [B])`; None where the
            policy has no density.
        gaussian: `(actor, observations [..., S]) -> (mean, std)`, the normal density over actions
            that guidance takes the policy for; both broadcast to `[..., A]`. None: it has none.
        normalise: whether `init` takes the scaler of the data.
        period: the actor moves in every so many updates.
        nets: the functions' bound arguments, for methods that compose their own steps.
        density: `(actor, observations [B, S], actions [B, A]) -> log-densities [B]` of given
            actions; None where there is none.
    """

    init: Callable[..., Any]
    update: Callable[..., tuple[Any, dict[str, jax.Array]]]
    policy: Callable[..., tuple[jax.Array, PyTree]]
    greedy: Callable[..., tuple[jax.Array, PyTree]]
    q: Any = None
    memory: Callable[[int], PyTree] = no_memory
    sample: Callable[..., tuple[jax.Array, jax.Array]] | None = None
    gaussian: Callable[..., tuple[jax.Array, jax.Array]] | None = None
    normalise: bool = False
    period: int = 1
    nets: Any = None
    density: Callable[..., jax.Array] | None = None


def bound(nets: Any, **functions: Any) -> dict[str, Any]:
    """An agent's functions with their first argument; the same function stays the same one."""
    made = {function: functools.partial(function, nets) for function in functions.values()}
    return {name: made[function] for name, function in functions.items()}


class Learner(NamedTuple):
    """What a trainer needs of a method: functions of one seed.

    Attributes:
        agent: the agent; its state is the field `agent` of the learner's.
        init: `(key, data) -> state`.
        update: one iteration, `(state, data) -> (state, metrics)`.
        per_iteration: gradient steps in one iteration.
        imagine: generation of data, `(state, key, data) -> Trajectory` or the method's
            own record; None where it learns from the data alone.
    """

    agent: Agent
    init: Callable[[jax.Array, PyTree], Any]
    update: Callable[[Any, PyTree], tuple[Any, dict[str, jax.Array]]]
    per_iteration: int
    imagine: Callable[[Any, jax.Array, PyTree], Any] | None = None


class AgentConfig(Protocol):
    """Settings of an agent: a frozen dataclass that builds it."""

    @property
    def discount(self) -> float:
        """Gamma: the weight of a reward one step later."""
        ...

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        """Build the agent; equal arguments give the same functions.

        Args:
            observation_size, action_size: sizes of the environment.
            steps: gradient steps of the training, for rates that fall over it; None only acts.
        """
        ...


def first_state(agent: Agent, key: jax.Array, observations: jax.Array | Scaler) -> Any:
    """An agent's initial state, with normalised observations where its settings say so.

    Args:
        observations: `[N, S]` of the data, or their `fit_scaler`.
    """
    if agent.normalise:
        return agent.init(key, observation_scaler(observations))
    return agent.init(key)


def observation_scaler(observations: jax.Array | Scaler) -> Scaler:
    """Of `[N, S]` rows, or of their `fit_scaler`, with TD3+BC's 1e-3 added to the deviation."""
    given = isinstance(observations, Scaler)
    scaler = observations if given else fit_scaler(observations)
    return Scaler(scaler.mean, scaler.std + 1e-3)


def step_keys(key: jax.Array, updates: int) -> jax.Array:
    """Keys `[updates, 2]` of the batch and of the update of every gradient step of `learn`."""
    return jax.vmap(jax.random.split)(jax.random.split(key, updates))


def learn(
    agent: Agent,
    state: Any,
    key: jax.Array,
    draw: Callable[[jax.Array], Any],
    updates: int,
    drawn: Any = None,
    unroll: int = 1,
) -> tuple[Any, dict[str, jax.Array]]:
    """`updates` gradient steps as one scan.

    Args:
        agent: whose.
        state: its state.
        key: consumed.
        draw: `key -> batch`, called for every step; of an entry of `drawn`, where that is given.
        updates: a multiple of the agent's period.
        drawn: for every step, leaves `[updates, ...]`: its batch, or which rows it takes. Or the
            function that makes them of the steps' keys `[updates]`, all before the first step.
        unroll: as for `gradient_steps`.

    Returns:
        The state, and metrics averaged over the steps that moved the actor.
    """

    def step(state: Any, given: Any, **moves: bool) -> tuple[Any, dict[str, jax.Array]]:
        (batch_key, update_key), ready = given
        batch = draw(batch_key if ready is None else ready)
        return agent.update(state, update_key, batch, **moves)

    keys = step_keys(key, updates)
    drawn = drawn(keys[:, 0]) if callable(drawn) else drawn
    return gradient_steps(step, state, (keys, drawn), agent.period, unroll)


def gradient_steps(
    step: Callable[..., Any], state: PyTree, given: PyTree, period: int, unroll: int = 1
) -> tuple[PyTree, dict[str, jax.Array]]:
    """`step(state, given[i], **moves)` for every i, as one scan; metrics are means over the steps
    in which everything moved. Where `period` is above 1 `actor` is true if the policy does.
    `unroll` steps, rounded up to whole periods, are one pass of the loop."""

    def group(state: PyTree, given: PyTree) -> tuple[PyTree, dict[str, jax.Array]]:
        metrics: dict[str, jax.Array] = {}
        for i in range(period):
            # Static: under `vmap` a condition would compute both branches.
            moves = {} if period == 1 else {"actor": i == period - 1}
            state, metrics = step(state, jax.tree.map(lambda x, i=i: x[i], given), **moves)
        return state, metrics

    grouped = jax.tree.map(lambda x: x.reshape(len(x) // period, period, *x.shape[1:]), given)
    state, metrics = jax.lax.scan(group, state, grouped, unroll=-(-unroll // period))
    return state, jax.tree.map(lambda x: x.mean(), metrics)


@dataclass(frozen=True)
class Job:
    """Settings of a training that all methods share.

    Attributes:
        seeds: trained side by side.
        seed: random seed.
        evaluations: during the training, evenly spread.
        episodes: episodes per evaluation and seed.
        context: a run whose folder keeps checkpoints; None trains in memory.
        dynamics: dynamics used in place of world models fitted here.
        world_models: parameters of `dynamics`, leading axis = seeds; `()` where it has none.
        sweep: arms trained side by side in one program: all combinations of coefficients' values;
            or a list of settings, each with the random numbers of a training of its own.
        on_divergence: treatment of a seed whose numbers become non-finite: it is dropped and the
            others continue, or the training ends.
    """

    seeds: int = positive(2)
    seed: int = 0
    evaluations: int = positive(5)
    episodes: int = positive(10)
    context: RunContext | None = field(default=None, compare=False)
    dynamics: Dynamics | None = field(default=None, compare=False)
    world_models: PyTree = field(default=(), compare=False)
    sweep: Sweep = field(default_factory=dict, compare=False)
    on_divergence: OnDivergence = "drop"

    @property
    def settings(self) -> list[Mapping[str, float]]:
        """Of every arm; of combinations the last varies fastest."""
        if isinstance(self.sweep, tuple):
            return list(self.sweep) or [{}]
        points = itertools.product(*self.sweep.values())
        return [dict(zip(self.sweep, point, strict=True)) for point in points]

    @property
    def arms(self) -> int:
        """How many settings are trained side by side."""
        return len(self.settings)

    def coefficients(self, method: Method) -> dict[str, jax.Array]:
        """A method's, `[arms * seeds]`, of which seeds vary fastest."""
        found = columns(method, self.settings).items()
        return jax.device_put(
            {k: np.repeat(np.asarray(x, np.float32), self.seeds) for k, x in found}
        )

    @property
    def repeats(self) -> int:
        """How many arms share each seed's random numbers."""
        return self.arms if isinstance(self.sweep, tuple) else 1


class Prepared(NamedTuple):
    """A method bound to a dataset: what the loop takes, and what a result is made of.

    Attributes:
        learner: its functions.
        data: the training data.
        iterations: of the loop, each of `learner.per_iteration` gradient steps.
        acts: settings of the agent that acts, as a policy's file has them.
        env: the environment as the agent sees it.
        source: the training data: a `Task`, or world models.
        per_seed: per-seed parts of the data, as for `train_loop`.
        about: further settings that checkpoints are compared by, by name.
        reward: the reward transformation used in training.
        save_every_seconds: least time between two checkpoints.
    """

    learner: Learner
    data: PyTree
    iterations: int
    acts: Any
    env: Environment
    source: Source
    per_seed: PyTree = False
    about: Mapping[str, Any] = {}
    reward: RewardScale = RAW
    save_every_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's settings; see the module.

    Attributes:
        steps: gradient steps in all, rounded to whole iterations.
        batch_size: rows of a gradient step.
    """

    name: ClassVar[str]
    imagines: ClassVar[bool] = False  # rolls world models, whose episodes have to end
    reads_disk: ClassVar[bool] = False  # learns from rows that stay on the disk
    sweeps: ClassVar[bool] = False  # trains several values of a coefficient side by side
    steps: int = positive(1_000_000)
    batch_size: int = positive(256)

    def prepare(self, task: Task, job: Job) -> Prepared:
        """Fit what has to be fitted first, and bind the method to a dataset.

        Raises:
            ConfigError, DataError: what the method cannot do.
        """
        raise NotImplementedError

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise `ConfigError` or `DataError` where the method cannot learn from a dataset."""

    def add_to_report(self, report: Report, source: Source, cell: Cell) -> None:
        """Add tables and pictures of the method's own to the main job's report."""

    def program(self) -> Self:
        """The same with coefficients and length at their defaults: methods that are equal so share
        what is compiled."""
        free = {"steps", *coefficients(self)}
        return replace(self, **{f.name: f.default for f in fields(self) if f.name in free})

    def fixed_length(self) -> bool:
        """Whether a rate falls to zero over the steps, so that a longer training is another one."""
        known = settings(self).items()
        return any(value is True and name.rpartition(".")[2] == "cosine" for name, value in known)


def cadence(steps: int, most: int, period: int, evaluations: int = 1) -> tuple[int, int]:
    """Iterations, and gradient steps of each, that come as near to `steps` as they can."""
    per = min(most, max(steps // evaluations, 1))
    per = max(per // period, 1) * period
    return max(round(steps / per), 1), per
