"""An agent that acts while it learns: steps in every copy of the simulator, then gradient steps.

An iteration is one compiled call of `train_loop`: `rows / environments` steps with sampled actions
in every copy, whose rows go into a replay buffer on the device, and then `rows * update_ratio`
gradient steps on batches of it. Everything is in the state, the simulators' included, so that a
checkpoint suffices to resume bitwise. Haarnoja et al. 2018, "Soft Actor-Critic Algorithms
and Applications", algorithm 1, with the environment's and the gradient's steps in blocks.

With rows of a dataset (`Prior`) each gradient step takes a fixed share of its batch from them (Ball
et al. 2023, arXiv:2302.02948, RLPD: one half), or draws from dataset and buffer alike.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.replay import Replay
from jaxrl_rollouts.trees import PyTree

from ..agents.sac import SacConfig
from ..collect import random_policy
from ..data import Transitions
from ..data.transitions import RAW, RewardScale
from ..environments.base import Environment, EnvironmentState, restart
from ..environments.replayed import keeping
from ..evaluation import Policy
from ..matching import is_simulator
from ..method import Agent, AgentConfig, Job, Learner, Method, Prepared, learn
from ..task import Task
from .rows import Known, Prior, known_of, logged, mix_of, mixed


@dataclass(frozen=True, kw_only=True)
class Acting:
    """Alternation of acting and learning.

    Attributes:
        environments: parallel copies of the simulator.
        rows: environment steps in all copies together between two blocks of gradient steps.
        warmup: environment steps before training: with uniformly random actions, or with the
            pretrained policy.
        update_ratio: gradient steps per environment step (UTD).
        share: share of a batch sampled from the dataset, if there is one; rounded to whole rows.
            None: rows are sampled uniformly from dataset and replay buffer together.
        capacity: size of the replay buffer in rows; None keeps all.
    """

    environments: int = positive(10)
    rows: int = positive(200)
    warmup: int = number(5_000, least=0)
    update_ratio: float = number(1.0, above=0)
    share: float | None = number(0.5, least=0, most=1)
    capacity: int | None = None

    def validate(self) -> None:
        for name in ("rows", "warmup"):
            if getattr(self, name) % self.environments:
                expected = f"a multiple of environments ({self.environments})"
                raise ConfigError(name, getattr(self, name), expected)
        if self.per_iteration < 1:
            raise ConfigError("update_ratio", self.update_ratio, "a gradient step at least")
        if self.capacity is not None and self.capacity < max(self.rows, self.warmup):
            expected = f"room for rows ({self.rows}) and warmup ({self.warmup})"
            raise ConfigError("capacity", self.capacity, expected)

    @property
    def per_iteration(self) -> int:
        """Gradient steps of an iteration."""
        return round(self.rows * self.update_ratio)

    def steps_at(self, iteration: Any) -> Any:
        """Steps in the simulator after so many iterations."""
        return self.warmup + iteration * self.rows


@dataclass(frozen=True, kw_only=True)
class OnlineConfig(Acting):
    """Settings of `train_online` besides the agent.

    Attributes:
        batch_size: rows in a gradient step.
        looks: evaluations, evenly spread; the policy of each is kept.
        episodes: episodes per evaluation, with the mean action.
        tape: act with actions rounded to float16 and keep the simulator's positions and velocities
            beside the rows, so that the replay buffer can be written as a tape (`data.tapes`).
    """

    batch_size: int = positive(256)
    looks: int = positive(20)
    episodes: int = positive(5)
    tape: bool = False

    def iterations(self, steps: int) -> int:
        """Iterations that come nearest to `steps` in the simulator, and fit the looks."""
        return max(round((steps - self.warmup) / self.rows / self.looks), 1) * self.looks


class OnlineState(NamedTuple):
    """State of one seed.

    Attributes:
        agent: the learner's.
        replay: pairs of `Transitions`, whose `truncations` no update reads, and the positions and
            velocities before them, `[2 (Q + V)]` uint32 halves of float64; () without a tape.
        simulators: `[environments]` copies, in the middle of their episodes.
        looks: parameters of the policy at each evaluation so far, `[looks, ...]`.
        key: key of this seed; an iteration folds its number in.
        iteration: int32, done so far.
    """

    agent: Any
    replay: Replay
    simulators: EnvironmentState
    looks: PyTree
    key: jax.Array
    iteration: jax.Array


def act(
    env: Environment,
    policy: Policy,
    params: PyTree,
    start: EnvironmentState,
    key: jax.Array,
    steps: int,
    tape: bool = False,
) -> tuple[EnvironmentState, tuple[Transitions, PyTree]]:
    """So many steps in every copy; episodes that end are followed by others.

    Returns:
        The simulators, and `steps * B` rows in order of time, next observations the true ones,
        with positions and velocities where they are requested.
    """
    width = 2 * coordinates(env) if tape else 0

    def step(state: EnvironmentState, key: jax.Array) -> tuple[EnvironmentState, tuple]:
        act_key, step_key, begin_key = jax.random.split(key, 3)
        before = env.observe(state)
        action = jnp.clip(policy(params, act_key, before, ())[0], -1.0, 1.0)
        if tape:
            action = rounded(action)
        # The state begins with the time, a float64 seen as two uint32.
        place = state.inner[:, 2 : 2 + width] if tape else ()
        state, out = env.step(step_key, state, action)
        after = env.observe(state)
        row = Transitions(before, action, out.reward, after, out.terminated, out.truncated)
        return restart(env, begin_key, state, out.terminated | out.truncated), (row, place)

    state, rows = jax.lax.scan(step, start, jax.random.split(key, steps))
    return state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


def coordinates(env: Environment) -> int:
    """Positions and velocities of a simulator's state, together."""
    if env.positions is None:
        raise ConfigError("tape", env.name, "an environment of Gymnasium's MuJoCo")
    inner = jax.eval_shape(lambda key: env.reset(key, 1).inner, jax.random.key(0))
    return sum(part.shape[1] for part in env.positions(np.zeros(inner.shape, inner.dtype)))


def rounded(action: jax.Array) -> jax.Array:
    """To float16 and back, inside (-1, 1): what a tape stores is what the simulator gets."""
    largest = 1.0 - 2.0**-11
    return jnp.clip(action, -largest, largest).astype(jnp.float16).astype(jnp.float32)


def _begin(
    agent: Agent,
    env: Environment,
    config: OnlineConfig,
    capacity: int,
    known: Known,
    key: jax.Array,
    data: Prior,
) -> OnlineState:
    """Fresh networks and a buffer of random actions, or those of `data` and what they did."""
    agent_key, reset_key, act_key, key = jax.random.split(key, 4)
    start, count = env.reset(reset_key, config.environments), config.environments
    if jax.tree.leaves(data.agent):
        state, policy, params = data.agent, agent.policy, data.agent.actor
    else:
        state, policy, params = agent.init(agent_key), random_policy(env.action_size), ()
    simulators, rows = act(env, policy, params, start, act_key, config.warmup // count, config.tape)
    rows = known(rows[0], count), rows[1]
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows)
    kept = replay.add(replay.create(row, capacity), rows)
    looks = jax.tree.map(lambda x: jnp.zeros((config.looks, *x.shape), x.dtype), state.actor)
    return OnlineState(state, kept, simulators, looks, key, jnp.int32(0))


def _update(
    agent: Agent,
    env: Environment,
    config: OnlineConfig,
    places: tuple[int, ...],
    reward: RewardScale,
    known: Known,
    state: OnlineState,
    data: Prior,
) -> tuple[OnlineState, dict[str, jax.Array]]:
    """Act, remember, learn; after the iterations in `places` the policy is kept."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(state.key, state.iteration))
    count = config.rows // config.environments
    actor, before = state.agent.actor, state.simulators
    simulators, rows = act(env, agent.policy, actor, before, act_key, count, config.tape)
    kept = replay.add(state.replay, (known(rows[0], config.environments), rows[1]))
    seen = kept._replace(rows=kept.rows[0])

    def draw(key: jax.Array) -> Transitions:
        return mixed(data.rows, seen, key, config.batch_size, config.share, reward)

    learned, metrics = learn(agent, state.agent, learn_key, draw, config.per_iteration)
    done = state.iteration + 1
    now = jnp.asarray(places) == done
    # A slot past the end is never written to.
    slot = jnp.where(now.any(), now.argmax(), config.looks)
    looks = jax.tree.map(
        lambda all_of, now: all_of.at[slot].set(now, mode="drop"), state.looks, learned.actor
    )
    metrics["reward"] = rows[0].rewards.mean()
    return OnlineState(learned, kept, simulators, looks, state.key, done), metrics


@functools.lru_cache(maxsize=8)
def make_online(
    env: Environment,
    agent: AgentConfig,
    config: OnlineConfig,
    iterations: int,
    reward: RewardScale = RAW,
) -> Learner:
    """An online learner, whose data are a `Prior`. Equal arguments give the same functions."""
    check(config)
    if env.host:
        expected = "MuJoCo of Gymnasium, gymnax, brax, or one in jax"
        hint = "its state can be kept in no checkpoint"
        raise ConfigError("environment", env.name, expected, hint)
    made = agent.make(env.observation_size, env.action_size, iterations * config.per_iteration)
    capacity = config.capacity or config.steps_at(iterations)
    known = functools.partial(known_of, agent, reward)
    return Learner(
        made,
        functools.partial(_begin, made, env, config, capacity, known),
        functools.partial(
            _update,
            made,
            env,
            config,
            tuple(sorted(evenly(iterations, config.looks))),
            reward,
            known,
        ),
        config.per_iteration,
    )


@dataclass(frozen=True, kw_only=True)
class OnlineSac(Acting, Method):
    """SAC in the simulator of a dataset, of which it uses no rows except `share`.

    Attributes:
        steps: gradient steps in all; `update_ratio` of them follow each step in the simulator.
        batch_size: rows of the replay buffer in a gradient step.
        agent: settings of SAC or EDAC.
    """

    name: ClassVar[str] = "online_sac"
    reads_disk: ClassVar[bool] = True
    share: float | None = number(0.0, least=0, most=1)
    agent: SacConfig = SacConfig(hidden_dims=(256, 256))

    def prepare(self, task: Task, job: Job) -> Prepared:
        env = task.env
        if not is_simulator(env):
            raise ConfigError("environment", "none", f"a simulator for {self.name} to act in")
        env = keeping(env)
        acting: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(Acting)}
        config = OnlineConfig(
            **acting, looks=job.evaluations, episodes=job.episodes, batch_size=self.batch_size
        )
        iterations = max(round(self.steps / config.per_iteration), 1)
        learner = make_online(env, self.agent, config, iterations)
        played = f"{config.steps_at(iterations):,} steps of its own in {env.name}"
        rows = () if self.share == 0 else logged(task.dataset, self.agent)
        mix = mix_of(self.share, task.dataset.name)
        source = task._replace(synthetic=f"Data: {mix}; {played}, for each seed.")
        return Prepared(learner, Prior(rows=rows), iterations, self.agent, env, source)
