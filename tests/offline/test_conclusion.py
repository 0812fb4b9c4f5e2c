"""Conclusions of a report: verdict, reasons and advice from numbers with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.offline.conclusion import Measured, conclude, disagreeing, world_is_worse
from jaxrl_rollouts.offline.policy_value import ImaginedValue
from jaxrl_rollouts.offline.worlds.quality import Quality


def world(first: float, last: float, still: float = 0.5) -> Quality:
    """Errors of three windows over fifty steps, from `first` to `last`."""
    errors = np.repeat(np.linspace(first, last, 50)[:, None], 3, 1)
    return Quality(errors, np.ones(6), np.full((50, 3), still))


def settled(returns: tuple[float, ...], **more: object) -> list[str]:
    values = np.array(returns)
    return conclude(Measured(values, 10.0, values / 2, values / 2, 4.0)._replace(**more))


@pytest.mark.parametrize(
    ("returns", "more", "verdict", "rest"),
    [
        ((12.0, 20.0), {}, "Use it", ()),
        ((8.0, 9.0), {}, "Do not use it: every seed earns less", ("Try: a stronger penalty",)),
        ((8.0, 12.0), {}, "Undecided: 1 of 2 seeds", ("Try: more seeds",)),
        (
            (np.nan, 12.0),
            {},
            "Undecided: training diverged in 1 of 2",
            ("Try: a smaller",),
        ),
        ((12.0, 20.0), {"time_constants": 1.5}, "Not converged", ("Try: 2 times",)),
        ((12.0, 20.0), {"time_constants": 0.002}, "Not converged", ("Try: --preset small",)),
        ((12.0, 20.0), {"time_constants": None}, "Use it", ()),
        ((12.0, 20.0), {"unlike": "limits differ"}, "Undecided", ("Try: an environment",)),
        ((12.0, 20.0), {"world": world(0.1, 0.4)}, "Use it", ()),
        (
            (12.0, 20.0),
            {"world": world(0.1, 1.0)},
            "Use it",
            ("1 against 0.5 at step 50", "Try: a larger world model"),
        ),
        (
            (12.0, 20.0),
            {"estimated_value": np.array([60.0, 70.0])},
            "Use it",
            ("critics overestimate the value (60 to 70 where 6 to 10 is true)",),
        ),
        ((12.0, 20.0), {"estimated_value": np.array([60.0, 10.0])}, "Use it", ()),
        (
            (12.0, 20.0),
            {
                "imagined": ImaginedValue(
                    np.array([np.nan, 8.0]), np.zeros((2, 5)), np.array([5, 1])
                )
            },
            "Use it",
            (
                "the world models' value is not finite in 1 of 2 seeds",
                "6 of 10 members of the world models diverged",
            ),
        ),
    ],
)
def test_a_conclusion_is_that_of_the_numbers(
    returns: tuple[float, ...], more: dict, verdict: str, rest: tuple[str, ...]
) -> None:
    found = settled(returns, **more)
    assert found[0].startswith(verdict)
    assert len(found) == 1 or rest
    for words in rest:
        assert any(words in sentence for sentence in found[1:]), found


def test_a_world_model_is_worse_where_its_median_error_is() -> None:
    assert world_is_worse(world(0.1, 0.4)) == []
    assert world_is_worse(world(0.6, 1.0)) == [1, 50]
    assert world_is_worse(world(np.nan, np.nan)) == [1, 50]


def test_seeds_disagree_where_some_are_below_the_data() -> None:
    assert disagreeing(np.array([1.0, 3.0]), 2.0) == "1 of 2 seeds earn as much as the data"
    assert disagreeing(np.array([3.0, 3.0]), 2.0) == ""
