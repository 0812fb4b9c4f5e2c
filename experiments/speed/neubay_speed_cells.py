"""What `neubay_speed` times: collections, collectors looping in Python, gradient steps on tapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.peer import (
    Outputs,
    Theirs,
    Timers,
    check_interpreter,
    shake,
    time_beside,
)
from jaxrl_rollouts.compare.timing import Rates, Timing, in_turns, timed
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.offline.agents.agent import Learner
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.neubay.config import NeubayConfig, Sizes
from jaxrl_rollouts.offline.neubay.neubay import NeubayData, NeubayState, make_neubay
from jaxrl_rollouts.offline.neubay.prepare import trusted_dynamics
from jaxrl_rollouts.offline.recurrent import tapes
from jaxrl_rollouts.offline.recurrent.actor_critic import ActorCritic, make_actor_critic
from jaxrl_rollouts.offline.recurrent.histories import draw, log_histories, remember, resume, warm
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig, make_memory
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig, make_recurrent_sac
from jaxrl_rollouts.offline.recurrent.tokens import Token
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, make_world_model
from jaxrl_rollouts.record.context import RunContext

from .goals import PEERS

STATES, ACTIONS = 11, 3  # hopper's sizes
SEEN = STATES + ACTIONS + 1  # what a memory gets: state, last action, reward
MEMORIES = ("lru", "gru")
LOOPS = ("loop over steps", "loop over episodes and steps")


@dataclass(frozen=True)
class Config:
    """What is timed. An empty `torch_python` leaves torch out.

    Attributes:
        members, hidden: of the ensembles of the collectors, the first pair small, the last one
            the paper's.
        rollouts, limit: episodes continued at a time, and the environment's time limit.
        row_by_row: episodes the collector gets that takes one after the other.
        sizes: members of the ensemble-size table, with the last `hidden`.
        width, critics, tape: of the agent whose gradient steps are timed.
        layers: recurrent ones of the agent.
        episode: transitions of an episode on a tape.
        updates: gradient steps that are timed.
        repeats: rounds in which everybody is timed once.
        torch_python: an interpreter with torch; empty leaves it out.
    """

    members: tuple[int, ...] = (10, 20, 100)
    hidden: tuple[tuple[int, ...], ...] = ((64, 64), (200,) * 4, (200,) * 4)
    rollouts: int = positive(100)
    limit: int = positive(200)
    row_by_row: int = positive(3)
    sizes: tuple[int, ...] = (5, 20, 100)
    width: int = positive(256)
    layers: int = 2
    critics: int = positive(10)
    tape: int = 2048
    episode: int = 255
    updates: int = positive(5)
    repeats: int = positive(3)
    torch_python: str = ""

    def validate(self) -> None:
        if len(self.members) != len(self.hidden) or not self.members or not self.sizes:
            found = (self.members, self.hidden)
            raise ConfigError("members, hidden", found, "equally many, and some")
        if self.tape % (self.episode + 1):
            raise ConfigError("tape", self.tape, f"a multiple of episode + 1 ({self.episode + 1})")
        check_interpreter("torch_python", self.torch_python, "torch")


class Bench(NamedTuple):
    """One agent and one posterior, neither of them trained: speed does not depend on it."""

    neubay: Learner
    settings: NeubayConfig
    dynamics: Dynamics
    data: NeubayData
    state: NeubayState


def logged_rows(limit: int, episodes: int = 20) -> Transitions:
    """Episodes of full length with hopper's sizes; speed does not depend on what they say."""
    rng, rows = np.random.default_rng(0), limit * episodes
    states = rng.normal(size=(rows, STATES)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, ACTIONS)).astype(np.float32)
    cut = np.arange(1, rows + 1) % limit == 0
    following = (0.9 * states).astype(np.float32)
    return Transitions(states, actions, actions.sum(1), following, np.zeros(rows, bool), cut)


def agent_config(config: Config, kind: str) -> RecurrentSacConfig:
    """Recurrent SAC of the configured size, with this memory."""
    state = max(config.width // 2, 1)
    memory = MemoryConfig(kind, width=config.width, state=state, layers=config.layers)  # type: ignore[arg-type]
    head, drawn = (config.width,) * 2, min(2, config.critics)
    sizes = {"head": head, "critics": config.critics, "drawn": drawn, "steps": config.updates}
    return RecurrentSacConfig(memory=memory, **sizes)


def make_bench(config: Config, members: int, hidden: tuple[int, ...]) -> Bench:
    """A posterior nothing cuts rollouts in, and the agent that is rolled."""
    ensemble = replace(NEUBAY_ENSEMBLE, members=members, elites=members, hidden=hidden)
    rows = logged_rows(config.limit)
    model = make_world_model(ensemble, rows, targets="observations")
    world = jax.jit(lambda key: model.world(model.fitter.init(key)))(jax.random.key(0))
    world = world._replace(limit=jnp.float32(jnp.inf))
    dynamics = trusted_dynamics(model.fitter, members, never)
    capacity = max(config.rollouts * (config.limit + 1), config.tape)
    sizes: dict[str, Any] = {"rollouts": config.rollouts, "tape": config.tape, "capacity": capacity}
    sizes |= {"horizon": config.limit, "updates_per_iteration": config.updates}
    settings = NeubayConfig(agent_config(config, "lru"), **sizes)
    neubay = make_neubay(settings, dynamics, Sizes(STATES, ACTIONS, config.limit, config.limit))
    data = NeubayData(log_histories(rows, config.limit), world, jnp.float32(0.0))
    state = jax.jit(neubay.init)(jax.random.key(1), data)
    return Bench(neubay, settings, dynamics, data, state)


def compiled_collector(bench: Bench) -> Callable[[jax.Array], int]:
    """`key -> imagined transitions`, one compiled program."""
    assert bench.neubay.imagine is not None  # NEUBAY's is `collect`
    program = jax.jit(bench.neubay.imagine)

    def collect(key: jax.Array) -> int:
        looks = program(bench.state, key, bench.data).looks
        return round(float(looks.tokens * looks.imagined_share))

    return collect


def looping_collector(bench: Bench, rollouts: int) -> Callable[[jax.Array], int]:
    """`key -> imagined transitions`, as one would write it: a Python loop over steps.

    Actor and ensemble are compiled each; endings and episodes are kept in numpy, as in the
    published code. All rows are stepped until the last has ended.
    """
    agent, world, limit = bench.neubay.agent, bench.data.world, bench.settings.horizon
    doubt, actor = world.limit, bench.state.agent.actor
    assert limit is not None and doubt is not None  # as `make_bench` sets them
    memory = make_memory(bench.settings.agent.memory, SEEN)
    shown = remember(bench.dynamics.model)
    begin = jax.jit(lambda key: draw(bench.data.logged, key, rollouts, limit))
    see = jax.jit(lambda drawn: warm(memory, actor.memory, drawn.head, drawn.lengths))
    act = jax.jit(lambda key, seen, carry: agent.policy(actor, key, seen, carry))
    member = jnp.arange(rollouts, dtype=jnp.int32) % bench.dynamics.members
    advance = jax.jit(lambda key, state, action: shown.step(world, key, state, action, member))
    observe = jax.jit(shown.observe)

    def collect(key: jax.Array) -> int:
        draw_key, key = jax.random.split(key)
        drawn = begin(draw_key)
        carry, state = see(drawn), resume(drawn, ACTIONS)
        times, alive = np.asarray(drawn.times), ~np.asarray(drawn.finished)
        episodes: list[list] = [[] for _ in range(rollouts)]
        taken = 0
        while alive.any():
            act_key, step_key, key = jax.random.split(key, 3)
            seen = observe(state)
            action, carry = act(act_key, seen, carry)
            state, out = advance(step_key, state, action)
            row = [np.asarray(x) for x in (seen, action, *out)]
            times = times + 1
            cut = (times >= limit) | (row[5] > float(doubt)) | row[4]
            for i in np.flatnonzero(alive):
                episodes[i].append([x[i] for x in row])
            taken += int(alive.sum())
            alive = alive & ~(row[3] | cut)
        for i, steps in enumerate(episodes):
            head = np.asarray(drawn.head.observations[i, : int(drawn.lengths[i])])
            if steps:
                np.concatenate([head, np.stack([step[0] for step in steps])])
        return taken

    return collect


def time_collections(
    config: Config, context: RunContext, members: int, hidden: tuple[int, ...]
) -> Timing:
    """Imagined transitions per second of an ensemble: one program and the loops in Python."""
    bench = make_bench(config, members, hidden)
    single = looping_collector(bench, 1)
    collectors: dict[str, Callable[[jax.Array], int]] = {
        "compiled": compiled_collector(bench),
        LOOPS[0]: looping_collector(bench, config.rollouts),
        LOOPS[1]: lambda key: sum(map(single, jax.random.split(key, config.row_by_row))),
    }
    keys = jax.random.split(jax.random.key(0), config.repeats + 1)
    first = timed(lambda: collectors["compiled"](keys[0]))

    def rate(collect: Callable[[jax.Array], int], turns: Iterator[jax.Array]) -> float:
        begin = time.perf_counter()
        return collect(next(turns)) / (time.perf_counter() - begin)

    timers = {who: partial(rate, collect, iter(keys)) for who, collect in collectors.items()}
    for timer in timers.values():
        timer()  # warms up
    nets = f"{members} x {' x '.join(map(str, hidden))}"
    rates = in_turns(context, f"collections, {nets}", config.repeats, timers)
    return Timing(rates, {"ensemble": nets, "first call s": first})


def time_sizes(config: Config, context: RunContext) -> tuple[list[dict[str, Any]], Rates]:
    """Ensembles of several sizes: members and megabytes, and seconds of a collection by members."""
    rows, timers = [], {}
    for members in config.sizes:
        bench = make_bench(config, members, config.hidden[-1])
        assert bench.neubay.imagine is not None  # NEUBAY's is `collect`
        lowered = jax.jit(bench.neubay.imagine).lower(bench.state, jax.random.key(0), bench.data)
        program = lowered.compile()
        keys = iter(jax.random.split(jax.random.key(0), config.repeats + 1))

        def collect(program: Any = program, bench: Bench = bench, keys: Any = keys) -> jax.Array:
            return program(bench.state, next(keys), bench.data).lengths

        timers[members] = partial(timed, collect)
        timers[members]()  # warms up
        weights = sum(leaf.nbytes for leaf in jax.tree.leaves(bench.data.world.elites))
        row: dict[str, Any] = {"members": members, "weights MB": weights / 1e6}
        if (memory := program.memory_analysis()) is not None:
            row["working memory MB"] = memory.temp_size_in_bytes / 1e6
        rows.append(row)
    return rows, in_turns(context, "collections by members", config.repeats, timers)


class OurLearning(NamedTuple):
    """Recurrent SAC of ours on random tapes, compiled at the first call.

    Attributes:
        networks: of the agent.
        actor, critic: what it begins with.
        learn: takes `config.updates` gradient steps.
    """

    networks: ActorCritic
    actor: Any
    critic: Any
    learn: Callable[[], Any]

    def parameters(self) -> int:
        """How many numbers learn."""
        return parameter_count(self.actor) + parameter_count(self.critic)

    def shaken(self) -> OurLearning:
        """With noise on all parameters."""
        actor_key, critic_key = jax.random.split(jax.random.key(3))
        actor, critic = shake(self.actor, actor_key), shake(self.critic, critic_key)
        return self._replace(actor=actor, critic=critic)

    def outputs(self) -> Outputs:
        """What actor and critics make of one episode."""
        rng, length = np.random.default_rng(1), 7
        seen = rng.normal(size=(length, SEEN)).astype(np.float32)
        acted = rng.uniform(-1, 1, size=(length, ACTIONS)).astype(np.float32)
        starts = np.arange(length) == 0
        mean, log_std = jax.jit(self.networks.heads)(self.actor, seen, starts)
        values = jax.jit(self.networks.q)(self.critic, seen, starts, acted)
        ours = {"mean": mean, "log_std": log_std, "values": values}
        return [({"seen": seen, "acted": acted, "of": name}, x) for name, x in ours.items()]


def our_learning(config: Config, kind: str) -> OurLearning:
    """The agent with a memory of this kind."""
    settings = agent_config(config, kind)
    agent = make_recurrent_sac(settings, SEEN, ACTIONS)
    networks = make_actor_critic(settings.memory, settings.head, settings.critics, SEEN, ACTIONS)
    state = jax.jit(agent.init)(jax.random.key(0))
    count, length = 2 * config.tape // (config.episode + 1), config.episode + 1
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(count, length, SEEN))
    acted = rng.uniform(-1, 1, size=(count, length, ACTIONS))
    numbers = (jnp.float32(x) for x in (seen, acted, rng.normal(size=(count, length))))
    flag = jnp.zeros((count, length), bool)
    real = jnp.broadcast_to(jnp.arange(length) < length // 2, flag.shape)
    tokens = Token(*numbers, terminations=flag, truncations=flag, real=real)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), tokens)
    empty = tapes.create(one, count * length, count, tape=config.tape)
    ring = tapes.add(empty, tokens, jnp.full(count, length))

    @jax.jit
    def learn(state: Any, ring: Any, key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            tape_key, update_key = jax.random.split(key)
            return agent.update(carry, update_key, tapes.sample(ring, tape_key, config.tape))

        return jax.lax.scan(step, state, jax.random.split(key, config.updates))

    steps = partial(learn, state, ring, jax.random.key(1))
    return OurLearning(networks, state.actor, state.critic, steps)


def time_learning(config: Config, context: RunContext) -> Timing:
    """Gradient steps per second, ours with either memory and torch's with a GRU.

    Columns: `parameters` and `first call s`, by who.
    """
    ours = {f"ours, {kind}": our_learning(config, kind) for kind in MEMORIES}
    first = {who: timed(each.learn) for who, each in ours.items()}

    def rate(learn: Callable[[], Any]) -> float:
        return config.updates / timed(learn)

    timers: Timers = {("train", who): partial(rate, each.learn) for who, each in ours.items()}
    gru = ours["ours, gru"].shaken()
    names = ("layers", "critics", "episode", "updates")
    settings: dict[str, Any] = {name: getattr(config, name) for name in names}
    settings |= {"observations": SEEN, "actions": ACTIONS}
    settings["episodes"] = config.tape // (config.episode + 1)
    python, script = config.torch_python, PEERS / "torch_recurrent.py"
    work = {"train": config.updates}
    # torch's GRU has biases of its own for the state in two gates, where one is enough.
    parameters = gru.parameters() + 2 * config.layers * 2 * config.width
    weights = {"actor": gru.actor._asdict(), "critic": gru.critic._asdict()}
    same = {"weights": weights, "parameters": parameters, "outputs": gru.outputs()}
    theirs = Theirs(python, script, "torch", settings, work, called="torch, gru", **same)
    timing = time_beside(context, "learning", config.repeats, timers, theirs)
    rates, notes = timing.rates.of("train"), []
    numbers = {who: ours[who].parameters() if who in ours else parameters for who in rates}
    if "networks differ by" in timing.columns:
        apart = timing.columns["networks differ by"]
        notes = [f"On the same weights torch's actor and critics differ from ours by {apart:.1e}."]
    return Timing(rates, {"parameters": numbers, "first call s": first}, notes, timing.versions)
