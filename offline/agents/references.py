"""What was earned from each row on: the lower bound of Cal-QL's critics.

Nakamoto et al. 2023, arXiv:2303.05479: a critic below the value of the policy that made the data is
not pushed down further, so that fine-tuning does not first have to unlearn pessimism.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..data import Transitions


class ReferencedTransitions(NamedTuple):
    """`Transitions` and `returns` `[N]`, the discounted return to go; -inf where it is unknown."""

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminations: Any
    truncations: Any
    returns: Any


def returns_to_go(rewards: jax.Array, ended: jax.Array, discount: float) -> jax.Array:
    """`G_t = r_t + gamma G_{t+1}` to the end of each episode, `[T, ...]`; -inf where an episode has
    not ended by the last row.

    Args:
        rewards: `[T, ...]`, in order of time.
        ended: `[T, ...]` bool, terminations and truncations alike.
    """

    def back(after: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, end = row
        now = reward + discount * jnp.where(end, 0.0, after)
        return now, now

    unknown = jnp.full(rewards.shape[1:], -jnp.inf, rewards.dtype)
    return jax.lax.scan(back, unknown, (rewards, ended), reverse=True)[1]


def referenced(rows: Transitions, discount: float, copies: int = 1) -> ReferencedTransitions:
    """Rows with their returns.

    Args:
        rows: `[T * copies]`, row `t * copies + i` the step `t` of copy `i`; rewards as they are
            learned from.
        discount: gamma.
        copies: simulators side by side.
    """
    ended = jnp.asarray(rows.terminations) | jnp.asarray(rows.truncations)
    rewards, ended = (jnp.asarray(x).reshape(-1, copies) for x in (rows.rewards, ended))
    return ReferencedTransitions(*rows, returns_to_go(rewards, ended, discount).reshape(-1))


def referenced_data(rows: Transitions, discount: float) -> ReferencedTransitions:
    """The same of a dataset, on the host; its last episode ends with its last row."""
    cut = np.array(rows.truncations, bool)
    cut[-1:] = True
    found = referenced(rows._replace(truncations=cut), discount)
    return ReferencedTransitions(*rows, np.asarray(found.returns))
