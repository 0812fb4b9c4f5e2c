"""The study's measures on curves whose valid times and agreement are known."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.experiments.studies.trust_pde import agreed, groups, measured

S, T, N = 3, 60, 400


def curves(times: np.ndarray, agreeing: np.ndarray) -> dict[str, np.ndarray]:
    """Correlation 1 until `times` and 0 from there on, of all seeds; and agreement until
    `agreeing`, `[N]` each; double steps see every second frame."""
    steps = np.arange(T)[:, None]
    until = {"true": steps < times, "agree": steps < agreeing}
    true, agree = (np.where(x, 1.0, 0.0) for x in until.values())
    return {
        "true": np.broadcast_to(true, (S, T, N)),
        "single": np.broadcast_to(agree, (S, S, T, N)),
        "double": np.broadcast_to(agree[1::2], (2 * S, 2 * S, T // 2, N)),
    }


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(10, 50, N)


def test_groups_promise_every_seed_once() -> None:
    found = groups(5)
    assert list(found) == ["2 seeds", "3 seeds", "5 seeds", "1 seed, 2 steps", "5 seeds, 2 steps"]
    for rows, stride in found.values():
        assert [row[0] for row in rows] == [0, 1, 2, 3, 4] and stride in (1, 2)
    assert found["2 seeds"][0][4] == [4, 0] and found["1 seed, 2 steps"] == (
        [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]],
        2,
    )
    assert found["5 seeds, 2 steps"][0][1] == [1, 2, 3, 4, 0, 6, 7, 8, 9, 5]


def test_agreement_that_ends_with_validity_is_a_perfect_guess() -> None:
    sets = [curves(t, t) for t in (drawn(0), drawn(1))]
    found = measured(sets[0], sets[1], [0, 1, 2], 1, 0.1)
    assert found["Spearman"] == pytest.approx(1) and found["relative error"] == 0
    assert found["Spearman, members' mean"] == pytest.approx(1) and found["misses"] == 0
    assert found["valid"] == pytest.approx(drawn(1).mean())
    assert found["constant's promise"] == np.sort(drawn(0))[39]  # the 40th of 400, 10 %
    middle = np.median(drawn(0))
    want = np.median(np.abs(middle - drawn(1)) / drawn(1))
    assert found["constant's"] == pytest.approx(want)


def test_agreement_that_says_nothing_has_no_rank_and_keeps_its_promise() -> None:
    """Times and agreement drawn apart; agreement falls to 0 at once, so that only a promise that
    ends before is kept."""
    sets = [curves(drawn(seed), drawn(seed + 10)) for seed in (0, 1)]
    found = measured(sets[0], sets[1], [0, 1], 1, 0.1)
    assert abs(found["Spearman"]) < 0.15
    assert found["misses"] <= 0.1 + 2 * np.sqrt(0.09 * 2 / N)


def test_double_steps_count_in_frames() -> None:
    sets = [curves(t, t) for t in (drawn(0), drawn(1))]
    agreement, times = agreed(sets[0], [0, S], 2)
    assert agreement.shape == (T // 2, N)
    np.testing.assert_array_equal(times, drawn(0) // 2)
    found = measured(sets[0], sets[1], [0, S], 2, 0.1)
    assert found["valid"] == pytest.approx(2 * (drawn(1) // 2).mean())
    assert found["Spearman"] == pytest.approx(1)
