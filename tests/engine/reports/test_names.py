"""Names and colours in pictures: one of each, whatever else is shown."""

from __future__ import annotations

import re

import pytest

from jaxrl_rollouts.reports.names import PALETTE, SHOWN, colour, known, named


def test_every_method_and_objective_has_a_name_and_a_colour_of_its_own() -> None:
    from jaxrl_rollouts.offline import METHODS
    from jaxrl_rollouts.pde.registries import OBJECTIVES

    methods, objectives = {*METHODS}, {*OBJECTIVES}
    assert methods | objectives <= set(SHOWN)
    for group in (methods, objectives):  # never in one picture
        colours = [SHOWN[key].colour for key in group]
        assert len(set(colours)) == len(colours)
    names = [shown.name for shown in SHOWN.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("#[0-9A-F]{6}", shown.colour) for shown in SHOWN.values())


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("base", "base"),
        ("MBPO", "base"),
        ("TD3+BC", "td3_bc"),
        ("td3_awr expectile 0.7", "td3_awr"),
        ("RAVL (10 critics)", "ravl"),
        ("neubay_markov", "neubay_markov"),
        ("PDE-Refiner, low-pass", "refiner"),
        ("a method of yours", ""),
    ],
)
def test_a_label_has_the_colour_of_what_it_begins_with(label: str, key: str) -> None:
    assert known(label) == key
    assert colour(label) == SHOWN[key].colour if key else colour(label) in PALETTE


def test_names_instead_of_keys() -> None:
    assert [named(key) for key in ("base", "td3_bc", "mse")] == ["MBPO", "TD3+BC", "MSE"]
    assert named("penalty 0.5") == "penalty 0.5"
