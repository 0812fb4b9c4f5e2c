"""NEUBAY's tables and pictures."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.offline.neubay.report import estimated_and_true
from jaxrl_rollouts.reports.pictures import figure


def test_right_estimates_lie_on_the_dotted_line() -> None:
    _, (ax,) = figure()
    estimated_and_true(ax, {"base": (np.array([5.0, np.nan]), np.array([1.0, 2.0]))})
    assert tuple(ax.lines[0].get_xdata()) == tuple(ax.lines[0].get_ydata()) == (1.0, 5.0)
    assert ax.lines[1].get_ydata()[0] == pytest.approx(5.0)
