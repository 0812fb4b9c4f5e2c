"""NEUBAY's settings, and the sizes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import ConfigError

from ..recurrent import tapes
from ..recurrent.sac import RecurrentSacConfig
from ..recurrent.tapes import Weighting
from ..recurrent.tokens import Token, token_of


@dataclass(frozen=True)
class NeubayConfig:
    """Agent, rollouts and cadence; defaults are the public code's for D4RL locomotion.

    Attributes:
        agent: `agent.steps` is the number of gradient steps in all. Without a memory
            (`MemoryConfig(kind="none")`, the Markov ablation) it is shown the state only.
        rollouts: episodes continued per collection, `K`; row `i` in member `i % N`.
        level: quantile of the members' spread over the dataset beyond which a rollout is cut;
            1.0 its largest value there, negative no threshold.
        penalty: taken from imagined rewards, in units of the mean spread over the dataset (the
            conservative ablation).
        horizon: most imagined steps; None leaves only the environment's time limit.
        utd_ratio: gradient steps for each new token, real ones included.
        updates_per_iteration: of the training loop; the remainder is carried.
        tape, capacity: tokens of a tape and of the ring.
        weighting: what a tape is made of; see `tapes.sample`. `transition`, single ones, is for
            the Markov ablation.
        early_exit: look every so many steps whether all rollouts have ended; None never looks.
    """

    agent: RecurrentSacConfig = field(default_factory=RecurrentSacConfig)
    rollouts: int = positive(100)
    level: float = number(1.0, most=1, expected="at most 1, or negative for no threshold")
    penalty: float = number(0.0, least=0)
    horizon: int | None = positive(None)
    utd_ratio: float = number(0.05, above=0, most=1)
    updates_per_iteration: int = positive(250)
    tape: int = number(2048, least=2, expected="at least 2 tokens, which are one transition")
    capacity: int = positive(40_000_000)
    weighting: Weighting = "episode"
    early_exit: int | None = positive(32)

    def validate(self) -> None:
        if self.capacity < self.tape:
            raise ConfigError("capacity", self.capacity, f"at least one tape of {self.tape} tokens")
        if self.weighting == "transition" and (not self.markov or self.tape % 2):
            found = f"a memory of kind {self.agent.memory.kind}, tapes of {self.tape} tokens"
            expected = "no memory and an even number: a transition is two tokens"
            raise ConfigError("weighting: transition", found, expected)
        if self.agent.steps % self.updates_per_iteration:
            expected = f"a divisor of the agent's {self.agent.steps} steps"
            raise ConfigError("updates_per_iteration", self.updates_per_iteration, expected)

    @property
    def markov(self) -> bool:
        return self.agent.memory.kind == "none"

    @property
    def iterations(self) -> int:
        """Of the training loop."""
        return self.agent.steps // self.updates_per_iteration


class Sizes(NamedTuple):
    """What is static about a dataset and its environment.

    Attributes:
        state, action: `S`, `A`.
        limit: the environment's time limit `T`.
        longest: most transitions before a moment (`LoggedHistories.longest`), at most `T`.
    """

    state: int
    action: int
    limit: int
    longest: int


def token_size(config: NeubayConfig, sizes: Sizes) -> int:
    """Numbers an agent is shown: state, last action and last reward, or the state only."""
    return sizes.state if config.markov else sizes.state + sizes.action + 1


def episode_room(config: NeubayConfig, sizes: Sizes) -> int:
    """Most tokens of a stored episode, its last look included."""
    imagined = min(config.horizon or sizes.limit, sizes.limit)
    return min(sizes.longest + imagined, sizes.limit) + 1


def token(config: NeubayConfig, sizes: Sizes) -> Token:
    """The shapes of one token of the ring."""
    action = jax.ShapeDtypeStruct((sizes.action,), jnp.float32)
    return token_of(token_size(config, sizes), action)


def ring_entries(config: NeubayConfig) -> int:
    """Episodes the ring has room for; they cost eight bytes each."""
    return max(config.rollouts, config.capacity // 16)


def ring_bytes(config: NeubayConfig, sizes: Sizes) -> int:
    """Bytes the token ring of one seed takes."""
    return tapes.bytes_of(token(config, sizes), config.capacity, ring_entries(config))
