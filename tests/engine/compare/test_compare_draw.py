"""What comparisons draw."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.compare import draw
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report


def report() -> Report:
    return Report("e", "smoke", {}, "jaxrl-rollouts run e", 2)


def cell(scale: float) -> Cell:
    history = History()
    for iteration in (1, 2):
        history.append(iteration, {"return": scale * np.array([1.0, 2.0]) * iteration})
    return Cell(history, per_iteration=10, seeds=2)


def test_a_picture_has_a_panel_per_title_and_hides_the_others() -> None:
    made = report()
    with draw.picture(made, "p", "Caption.", titles=("a", "b", "c"), columns=2) as axes:
        assert [ax.get_title() for ax in axes] == ["a", "b", "c"]
        draw.curves(axes[0], {"ravl": cell(1.0), "base": cell(2.0)}, "return", scale=3.0)
        draw.level(axes[1], 5.0, "optimum")
    drawn = made.pictures["p"].figure
    assert drawn is not None and len(drawn.axes) == 4 and not drawn.axes[3].get_visible()
    line = axes[0].lines[1]
    np.testing.assert_allclose(line.get_xdata(), [10, 20])
    np.testing.assert_allclose(line.get_ydata(), [9.0, 18.0])  # iqm of two seeds, 3 times
    texts = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert texts == ["RAVL", "MBPO", "optimum"]
    assert made.pictures["p"].caption == "Caption."


def test_nothing_to_name_is_no_legend() -> None:
    with draw.picture(report(), "p", "") as (ax,):
        ax.plot([0, 1])
    assert ax.get_legend() is None


def test_a_diverged_cell_is_left_out() -> None:
    _, (ax,) = figure()
    draw.curves(ax, {"base": Cell(diverged=True, seeds=2), "ravl": cell(1.0)}, "return")
    assert [line.get_label() for line in ax.lines] == ["RAVL"]
