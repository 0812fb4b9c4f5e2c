"""What public codes chose for single datasets, and which datasets those are."""

from __future__ import annotations

import pytest

from jaxrl_rollouts.offline.data.catalogue import CATALOGUE
from jaxrl_rollouts.offline.methods.published import MOBILE, MOPO, kind_of, published
from jaxrl_rollouts.offline.methods.registry import MethodConfig, Mobile


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hopper-medium-replay-v2", "hopper-medium-replay"),
        ("halfcheetah-mixed", "halfcheetah-medium-replay"),
        ("some/folder/walker2d_medium-v2.hdf5", "walker2d-medium"),
        ("walker2d-random", "walker2d-random"),
    ],
)
def test_a_dataset_is_known_by_its_family_and_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_what_is_chosen_is_chosen_for_datasets_that_exist() -> None:
    kinds = {kind_of(name) for name in CATALOGUE}
    assert {*MOPO, *MOBILE} <= kinds


def test_a_method_gets_its_penalty_and_horizon_and_keeps_the_rest() -> None:
    ours = MethodConfig(mobile=Mobile(penalty=9.0, samples=3))
    config, horizon = published("mobile", "walker2d-mixed", ours, 7)
    assert (config.mobile.penalty, config.mobile.samples, horizon) == (0.5, 3, 1)
    assert config.mobile.min_target == 0.0 and config.mopo == ours.mopo
    config, horizon = published("mopo", "hopper-medium-v2", ours, 7)
    assert (config.mopo.penalty, horizon) == (5.0, 5) and config.mobile == ours.mobile
    config, horizon = published("ravl", "hopper-medium-v2", ours, 7)
    assert (config.ravl.critics, horizon) == (50, 7)


@pytest.mark.parametrize(("method", "data"), [("base", "hopper-mixed"), ("mopo", "reacher-mixed")])
def test_nothing_is_made_up(method: str, data: str) -> None:
    assert published(method, data, MethodConfig(), 7) == (MethodConfig(), 7)
