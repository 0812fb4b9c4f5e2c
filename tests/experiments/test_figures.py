"""Pictures of results show their tables: values, names and colours."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from jaxrl_rollouts.experiments import figures
from jaxrl_rollouts.reports.names import SHOWN

EVIDENCE = Path(figures.__file__).with_name("evidence")


def measured(study: str, arm: str, metric: str) -> list[float]:
    with (EVIDENCE / f"{study}.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if (r["arm"], r["metric"]) == (arm, metric)]
    return [float(row["value"]) for row in rows if row["seed"] != "all"]


def points(ax: Axes, marker: str) -> list[list[float]]:
    lines = [line for line in ax.get_lines() if line.get_marker() == marker]
    return [np.asarray(line.get_ydata()).tolist() for line in lines if len(line.get_xdata())]


def test_the_toys_picture_shows_every_seed_of_the_hard_version() -> None:
    *_, ax = figures.exact_model().axes
    assert ax.get_title() == "rollouts of k = 8 steps"
    start = "edge_of_reach_toy: after training"
    arms = ("base, k=8, row=2", "oracle patch, k=8, row=5", "ravl 10, 1, k=8, row=8")
    for marker, metric in (("o", "estimated value"), ("s", "true value")):
        shown = [measured("edge_of_reach_toy", f"{start}: {arm}", metric) for arm in arms]
        assert points(ax, marker) == shown and [len(seeds) for seeds in shown] == [6, 6, 6]
    assert [t.get_text().split("\n")[0] for t in ax.get_xticklabels()][::2] == ["MBPO", "RAVL"]


def test_the_spectra_are_of_the_standardised_fields() -> None:
    left, right = figures.spectra().axes
    mse, refiner = (line for line in right.get_lines() if line.get_linestyle() == "-")
    assert [mse.get_label(), refiner.get_label()] == ["MSE", "PDE-Refiner"]
    assert mse.get_color() == SHOWN["mse"].colour and list(mse.get_xdata())[-1] == 20
    arm = "ks_refiner/standardised: late amplitude over the truth's: mse"
    middle = np.sort(measured("refiner", arm, "wavenumber 20"))[1:3].mean()
    assert np.asarray(mse.get_ydata())[-1] == pytest.approx(middle)
    assert [t.get_text() for t in left.get_xticklabels()] == ["1-7", "12-19", "≥ 20"]


@pytest.mark.parametrize("name", sorted(figures.FIGURES))
def test_axes_of_a_picture_are_named(name: str) -> None:
    drawn = figures.FIGURES[name]()
    assert drawn.axes[0].get_ylabel()
    for ax in drawn.axes:
        ticks = [text.get_text() for text in ax.get_xticklabels()]
        assert ax.get_xlabel() or any(word[:1].isalpha() for word in ticks)
        assert not set(ticks) & set(SHOWN), "names, not keys"
