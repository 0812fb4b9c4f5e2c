"""The study of strategies: episodes stay whole."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.experiments.studies.strategies import parted
from jaxrl_rollouts.offline.data import Transitions, episodes


def test_a_fifth_of_the_episodes_is_held_out_whole() -> None:
    lengths, last = [3, 5, 2, 4, 6, 3, 2, 5, 4, 6], np.zeros(40, bool)
    last[np.cumsum(lengths) - 1] = True
    number = np.repeat(np.arange(10), lengths)
    rows = Transitions(*[number[:, None]] * 2, number, number[:, None], last, np.zeros(40, bool))
    kept, held = parted(rows, 1)
    assert len(set(held.rewards)) == 2 and not set(held.rewards) & set(kept.rewards)
    for part in (kept, held):
        assert episodes(part).lengths.tolist() == [lengths[i] for i in dict.fromkeys(part.rewards)]
