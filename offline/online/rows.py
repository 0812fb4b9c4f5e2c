"""Batches of an online training: rows of a dataset and of the replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.replay import Replay
from jaxrl_rollouts.rollouts import where_rows
from jaxrl_rollouts.trees import PyTree

from ..agents.references import ReferencedTransitions, referenced, referenced_data
from ..data import Dataset, Transitions, sample_batch, to_device
from ..data.transitions import RAW, RewardScale
from ..method import AgentConfig

Known = Callable[[Transitions, int], Any]


class Prior(NamedTuple):
    """What an online training begins with, of one seed.

    Attributes:
        agent: state of an agent that was trained; () for fresh networks.
        rows: `Transitions` of a dataset, rewards as they are learned from; () for none.
    """

    agent: PyTree = ()
    rows: PyTree = ()


def known_of(agent: AgentConfig, reward: RewardScale, rows: Transitions, copies: int) -> Any:
    """Rows of a block with what else an agent learns from: the returns to go of Cal-QL."""
    if not getattr(agent, "calibrated", False):
        return rows
    returns = referenced(reward.of(rows), agent.discount, copies).returns
    return ReferencedTransitions(*rows, returns)


def mixed(
    rows: PyTree,
    seen: Replay,
    key: jax.Array,
    count: int,
    share: float | None,
    reward: RewardScale = RAW,
) -> Transitions:
    """`count` rows for a gradient step, those of the dataset first; see `OnlineConfig.share`.

    Args:
        rows: rows of a dataset, `[N, ...]`, or ().
        seen: replay buffer, its rewards as the simulator gave them.
        reward: the view that those are learned in.
    """

    def lived(key: jax.Array, count: int) -> Transitions:
        return reward.of(replay.sample(seen, key, count))

    if not jax.tree.leaves(rows):
        return lived(key, count)
    logged_key, lived_key, coin_key = jax.random.split(key, 3)
    if share is None:
        size = rows.rewards.shape[0]
        logged = jax.random.randint(coin_key, (count,), 0, size + seen.size) < size
        pair = sample_batch(rows, logged_key, count), lived(lived_key, count)
        return where_rows(logged, *pair)
    first = round(share * count)
    parts = [sample_batch(rows, logged_key, first)] if first else []
    parts += [lived(lived_key, count - first)] if first < count else []
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def logged(data: Dataset, agent: AgentConfig, reward: RewardScale = RAW) -> Any:
    """The rows of a dataset on the device, as an agent learns from them.

    Raises:
        ConfigError: rows that stay on the disk.
    """
    if data.rows_file is not None:
        hint = "read them (stream='never'), or take none of them (share 0)"
        raise ConfigError("data", "rows on disk", "rows in memory", hint)
    rows: Any = reward.of(data.transitions)
    if getattr(agent, "calibrated", False):
        rows = referenced_data(rows, agent.discount)
    return to_device(rows)


def mix_of(share: float | None, data: str) -> str:
    """How many rows of a dataset there are in a batch, in words."""
    if share == 0 or data == "none":
        return "no row of the dataset"
    if share is None:
        return f"rows of {data} as likely as those of the replay buffer"
    return f"{100 * share:g} % of each batch from {data}"
