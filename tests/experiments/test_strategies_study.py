"""The study of strategies: episodes stay whole, and all strategies have as many weights."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.experiments.studies.strategies import of_mlp, parted, width_of
from jaxrl_rollouts.offline.data import Transitions, episodes
from jaxrl_rollouts.strategies import Strategy, reads


def test_a_fifth_of_the_episodes_is_held_out_whole() -> None:
    lengths, last = [3, 5, 2, 4, 6, 3, 2, 5, 4, 6], np.zeros(40, bool)
    last[np.cumsum(lengths) - 1] = True
    number = np.repeat(np.arange(10), lengths)
    rows = Transitions(*[number[:, None]] * 2, number, number[:, None], last, np.zeros(40, bool))
    kept, held = parted(rows, 1)
    assert len(set(held.rewards)) == 2 and not set(held.rewards) & set(kept.rewards)
    for part in (kept, held):
        assert episodes(part).lengths.tolist() == [lengths[i] for i in dict.fromkeys(part.rewards)]


@pytest.mark.parametrize("kind", ["rec", "dir", "dirrec", "rectifier"])
def test_networks_have_as_many_weights_as_there_are_to_share(kind: Any) -> None:
    states, actions, strategy = 3, 2, Strategy(kind, 5, 20)
    given = jnp.zeros((1, states)), jnp.zeros((20, 1, actions)), jnp.zeros((20, 1, states))
    read = [reads(strategy, i, *given) for i in range(strategy.heads)]
    columns = [first.shape[1] + rest.shape[1] for first, rest, _ in read]

    def total(width: int) -> int:
        return sum(width * (n + 2 * width + 5 * states) for n in columns)

    width = width_of(strategy, 40_000, (states, actions), of_mlp)
    assert total(width) <= 40_000 < total(width + 1)
