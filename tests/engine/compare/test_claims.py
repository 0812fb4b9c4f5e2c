"""Claims in two lines are the engine's claims."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report


def test_each_bound_is_the_engines() -> None:
    report = Report("e", "smoke", {}, "jaxrl-rollouts run e", 3)
    claim, values = claims(report, "a paper"), np.array([1.0, 2.0, 4.0])
    claim("low", values, at_least=1, means="m")
    claim("high", values, at_most=1, means="m", statistic="max")
    claim("both", 2.0, between=(1, 3), means="m", source="another paper")
    expected = [
        Claim.at_least("low", values=values, threshold=1, source="a paper", expected="m"),
        Claim.at_most(
            "high", values=values, threshold=1, source="a paper", expected="m", statistic="max"
        ),
        Claim.between("both", values=2.0, low=1, high=3, source="another paper", expected="m"),
    ]
    for one, other in zip(report.claims, expected, strict=True):
        assert one.to_json() | {"command": ""} == other.to_json()
    assert [one.holds for one in report.claims] == [True, False, True]


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1, "at_most": 2}])
def test_there_is_exactly_one_bound(bounds: dict) -> None:
    claim = claims(Report("e", "smoke", {}, "", 3), "a paper")
    with pytest.raises(ValueError, match="one of at_least"):
        claim("none", [1.0], means="m", **bounds)
