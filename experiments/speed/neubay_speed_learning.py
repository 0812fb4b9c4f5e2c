"""Gradient steps of recurrent SAC on tapes: ours with either memory, and torch's with a GRU."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.offline.agents.agent import Agent
from jaxrl_rollouts.offline.recurrent import tapes
from jaxrl_rollouts.offline.recurrent.actor_critic import ActorCritic, make_actor_critic
from jaxrl_rollouts.offline.recurrent.sac import make_recurrent_sac
from jaxrl_rollouts.offline.recurrent.tokens import Token
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report

from ..kit.peer import Peer, check_outputs, check_parameters, torch_timers
from ..kit.timing import SOURCE, rounds, timed
from .neubay_speed_study import ACTIONS, STATES, Config, agent_config
from .pde_speed_nets import shake, write_weights

MEMORIES = ("lru", "gru")


class OurLearning(NamedTuple):
    """Recurrent SAC of ours on random tapes, compiled at the first call.

    Attributes:
        agent, state: nothing is trained beyond what is timed.
        learn: takes `config.updates` gradient steps.
        parameters: how many numbers learn.
    """

    agent: Agent
    networks: ActorCritic
    state: Any
    learn: Callable[[], Any]
    parameters: int


def our_learning(config: Config, kind: str) -> OurLearning:
    """The agent with a memory of this kind."""
    size = STATES + ACTIONS + 1
    settings = agent_config(config, kind)
    agent = make_recurrent_sac(settings, size, ACTIONS)
    networks = make_actor_critic(settings.memory, settings.head, settings.critics, size, ACTIONS)
    state = jax.jit(agent.init)(jax.random.key(0))
    count, length = 2 * config.tape // (config.episode + 1), config.episode + 1
    rng = np.random.default_rng(0)
    flag = jnp.zeros((count, length), bool)
    floats = partial(jnp.asarray, dtype=jnp.float32)
    tokens = Token(
        floats(rng.normal(size=(count, length, size))),
        floats(rng.uniform(-1, 1, size=(count, length, ACTIONS))),
        floats(rng.normal(size=(count, length))), flag, flag,
        jnp.broadcast_to(jnp.arange(length) < length // 2, flag.shape),
    )  # fmt: skip
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), tokens)
    empty = tapes.create(one, count * length, count, tape=config.tape)
    ring = tapes.add(empty, tokens, jnp.full(count, length))

    @jax.jit
    def learn(state: Any, ring: Any, key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            tape_key, update_key = jax.random.split(key)
            return agent.update(carry, update_key, tapes.sample(ring, tape_key, config.tape))

        return jax.lax.scan(step, state, jax.random.split(key, config.updates))

    numbers = parameter_count(state.actor) + parameter_count(state.critic)
    return OurLearning(
        agent, networks, state, lambda: learn(state, ring, jax.random.key(1)), numbers
    )


def show_learning(config: Config, report: Report, context: RunContext) -> None:
    """Gradient steps per second, ours with either memory and torch's with a GRU."""
    ours = {f"ours, {kind}": our_learning(config, kind) for kind in MEMORIES}
    first = {name: timed(own.learn) for name, own in ours.items()}
    numbers = {name: own.parameters for name, own in ours.items()}
    timers: dict[str, Callable[[], float]] = {
        name: (lambda f=own.learn: timed(f)) for name, own in ours.items()
    }
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        if config.torch_python:
            weights = context.folder.path / "weights_gru.npz"
            theirs, count = _torch(config, report, stack, ours["ours, gru"], weights)
            timers |= theirs
            numbers |= dict.fromkeys(theirs, count)
        else:
            report.note("torch was left out, and its claims: no torch_python was given.")
        for _ in rounds(context, "learning", config.repeats):
            for name, timer in timers.items():
                seconds.setdefault(name, []).append(timer())
    rates = {name: config.updates / np.array(values) for name, values in seconds.items()}
    rows = []
    for name, rate in rates.items():
        middle = float(np.median(rate))
        row = {"agent": name, "parameters": numbers[name], "steps/s": middle}
        row["tokens/s"] = middle * config.tape
        rows.append(row | ({"first call s": first[name]} if name in first else {}))
    report.table("gradient steps per second", rows)
    report.note(
        f"A gradient step is one of critic ({config.critics} heads), target, actor and "
        f"temperature on {config.tape} tokens; ours on a tape with start flags, torch's on a "
        f"padded batch of whole episodes of {config.episode}, nothing of it padding."
    )
    if found := [name for name in rates if name.startswith("torch")]:
        best = max(found, key=lambda name: float(np.median(rates[name])))
        for kind in MEMORIES:
            report.claim(
                Claim.at_least(
                    f"gradient steps, {kind}: as fast as torch's GRU", threshold=1.0,
                    values=rates[f"ours, {kind}"] / rates[best], source=SOURCE,
                    statistic="median", expected=f"steps per second against {best}, equal tokens",
                )
            )  # fmt: skip


def _torch(
    config: Config, report: Report, stack: ExitStack, ours: OurLearning, weights: Path
) -> tuple[dict[str, Callable[[], float]], int]:
    """How to time the peer, warmed up, and how many numbers it learns.

    Raises:
        DataError: its agent is not ours: another size, or other outputs on our weights.
    """
    actor_key, critic_key = jax.random.split(jax.random.key(3))
    actor, critic = shake(ours.state.actor, actor_key), shake(ours.state.critic, critic_key)
    write_weights(weights, {"actor": actor._asdict(), "critic": critic._asdict()})
    peer = stack.enter_context(
        Peer(config.torch_python, "torch_recurrent.py", option="torch_python", needs="torch")
    )
    said = peer.ask(
        {
            "kind": "start", "observations": STATES + ACTIONS + 1, "actions": ACTIONS,
            "width": config.width, "layers": config.layers, "critics": config.critics,
            "episode": config.episode, "episodes": config.tape // (config.episode + 1),
            "threads": os.cpu_count(), "weights": str(weights),
        }
    )  # fmt: skip
    report.versions |= {"torch": said["torch"]}
    # torch's GRU has biases of its own for the state in two gates, where one is enough.
    expected = ours.parameters + 2 * config.layers * 2 * config.width
    check_parameters("torch", said["parameters"], expected)
    apart = compared(peer, ours.networks, actor, critic)
    report.note(f"On the same weights torch's actor and critics differ from ours by {apart:.1e}.")
    question = {"updates": config.updates}
    timers = torch_timers(peer, question, ("train",), report, compiling=None)
    train = {
        name.replace("torch", "torch, gru"): partial(timer, "train")
        for name, timer in timers.items()
    }
    return train, said["parameters"]


def compared(peer: Peer, nets: ActorCritic, actor: Any, critic: Any) -> float:
    """Largest difference of what both make of one episode.

    Raises:
        DataError: they are not the same networks.
    """
    rng, length = np.random.default_rng(1), 7
    seen = rng.normal(size=(length, STATES + ACTIONS + 1)).astype(np.float32)
    acted = rng.uniform(-1, 1, size=(length, ACTIONS)).astype(np.float32)
    question = {"kind": "apply", "seen": seen.tolist(), "acted": acted.tolist()}
    starts = np.arange(length) == 0
    mean, log_std = jax.jit(nets.heads)(actor, seen, starts)
    values = jax.jit(nets.q)(critic, seen, starts, acted)
    ours = {"mean": mean, "log_std": log_std, "values": values}
    theirs = {name: np.array(peer.ask(question | {"of": name})["said"]) for name in ours}
    return max(check_outputs("torch", theirs[name], np.asarray(ours[name])) for name in ours)
