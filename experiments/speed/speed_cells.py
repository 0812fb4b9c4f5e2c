"""What `speed` times: SAC on rows of HalfCheetah's shape, ours and d3rlpy's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts import loop
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import Transitions, to_device

from ..kit.peer import Peer, check_interpreter

OBSERVATIONS, ACTIONS = 17, 6  # HalfCheetah's sizes


@dataclass(frozen=True)
class Config:
    """What is timed. `peer_python` is an interpreter with d3rlpy; empty leaves the peer out."""

    widths: tuple[int, ...] = (64, 256)
    layers: int = 2
    critics: tuple[int, ...] = (2, 10)
    batch: int = 256
    rows: int = 50_000
    updates: int = 200
    repeats: int = 5
    seeds: tuple[int, ...] = (1, 2, 4, 8)
    seeds_width: int = 64
    horizons: tuple[int, ...] = (1, 5, 50, 500)
    rollout_rows: int = 5_000
    environments: tuple[str, ...] = (
        "pendulum", "gymnax/Pendulum-v1", "brax/inverted_pendulum", "mujoco/HalfCheetah-v4"
    )  # fmt: skip
    environment_copies: int = 4096
    environment_steps: int = 100
    host_copies: int = 16
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    peer_python: str = ""

    def validate(self) -> None:
        check_interpreter("peer_python", self.peer_python, "d3rlpy")
        if min(self.repeats, self.updates, *self.seeds, *self.horizons) < 1:
            raise ConfigError("repeats, updates, seeds, horizons", "0", "all at least 1")


def random_rows(rows: int) -> Transitions:
    """Rows of HalfCheetah's shape; speed does not depend on what they say."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, OBSERVATIONS)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, ACTIONS)).astype(np.float32)
    following = (0.9 * observations + 0.1 * np.roll(observations, 1, 0)).astype(np.float32)
    none = np.zeros(rows, bool)
    return Transitions(observations, actions, actions.sum(1), following, none, none)


def sac_speed(config: Config, width: int, critics: int, seeds: int) -> Callable[[], loop.Trained]:
    """A function that trains SAC-N for `config.updates` steps; compiled at its first call."""
    agent = make_model_free(
        SacConfig(critics=critics, diversity=0.0, hidden=(width,) * config.layers),
        OBSERVATIONS, ACTIONS, batch_size=config.batch, updates_per_iteration=config.updates,
    )  # fmt: skip
    data = to_device(random_rows(config.rows))
    keys = jax.random.split(jax.random.key(0), seeds)
    return lambda: loop.train(agent.update, agent.init, keys, data, iterations=1, stage="speed")


def peer_speed(config: Config, width: int, critics: int) -> dict[str, Any]:
    """d3rlpy's SAC with the same nets and batch, in its own process."""
    settings = {
        "rows": config.rows, "observations": OBSERVATIONS, "actions": ACTIONS, "width": width,
        "layers": config.layers, "critics": critics, "batch": config.batch,
        "updates": config.updates, "threads": os.cpu_count(),
    }  # fmt: skip
    with Peer(config.peer_python, "d3rlpy_sac.py", option="peer_python", needs="d3rlpy") as peer:
        return peer.ask(settings)


def update_operations(config: Config, width: int, critics: int) -> float:
    """Operations in the matrix products of one SAC update, counted from its passes.

    A pass over a batch costs 2 per weight and row; gradients of weights and of inputs one pass
    each. Actor: forward on two batches, backward with both gradients. Critics: forward for the
    actor, its input gradients, the target's forward, forward and both gradients of the loss. The
    first layers' input gradients are counted too, though few of them are needed.
    """
    hidden = (config.layers - 1) * width**2
    actor = OBSERVATIONS * width + hidden + width * 2 * ACTIONS
    critic = (OBSERVATIONS + ACTIONS) * width + hidden + width
    return 2.0 * config.batch * (4 * actor + 6 * critics * critic)
