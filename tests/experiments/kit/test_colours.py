"""The experiments' colours, and the library's drawings in them."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.experiments.kit import colours, draw
from jaxrl_rollouts.offline.study.colours import AGENTS, ARMS
from jaxrl_rollouts.reports.pictures import figure


def test_a_method_keeps_its_colour() -> None:
    colour = colours.colour
    assert colour("ravl") == colour("RAVL (10 critics)")
    assert colour("something new") == colour("something new")
    for family in (AGENTS, ARMS, colours.EMULATORS):  # never in one figure
        assert len(set(family.values())) == len(family)
    beside = {colour(name) for name in ("neubay", "mopo", "mobile", "ravl")}
    assert beside.isdisjoint({colour(f"{name} 0.9") for name in ARMS})
    assert colour("data") == colour("behaviour")


def test_engine_drawings_take_the_house_colours() -> None:
    _, (ax,) = figure()
    draw.curve_with_band(ax, range(3), np.eye(3), "ravl")
    assert ax.lines[0].get_color() == AGENTS["ravl"]
    draw.intervals(ax, {"mopo": np.arange(3.0)})
    assert ax.lines[-1].get_color() == AGENTS["mopo"]
    draw.sweep(ax, (1, 2), [np.arange(3.0), np.arange(3.0)], "mse")
    assert ax.lines[-1].get_color() == colours.EMULATORS["mse"]
