"""Settings trained side by side in one program: each arm is its training alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_train import LOOKS, changes, dataset, train

from jaxrl_rollouts.configs import columns
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.arms import arms_of, of_arm
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.morel import Morel
from jaxrl_rollouts.offline.recipes import recipe


def test_a_sweep_names_a_coefficient() -> None:
    assert columns(Mopo(penalty=3.0), Job().settings) == {"penalty": [3.0]}
    job = Job(sweep={"penalty": (1.0, 2.0)})
    assert columns(Mopo(), job.settings) == {"penalty": [1.0, 2.0]} and job.arms == 2
    np.testing.assert_array_equal(job.coefficients(Mopo())["penalty"], [1.0, 1.0, 2.0, 2.0])
    for method, sweep, says in (
        (Mopo(), {"penalti": (1.0,)}, "did you mean penalty"),
        (Mopo(), {"penalty": (-1.0,)}, "penalty: found -1.0"),
    ):
        with pytest.raises(ConfigError, match=says):
            columns(method, Job(sweep=sweep).settings)
    with pytest.raises(ConfigError, match="sweep: found 'alpha', expected none for bc"):
        train(dataset(), "bc", preset="smoke", sweep=[{"alpha": 1.0}])
    pairs = Job(sweep=({"halt": -1.0}, {}))
    assert (
        columns(Morel(halt=-3.0), pairs.settings) == {"halt": [-1.0, -3.0]} and pairs.repeats == 2
    )
    assert arms_of(["a-b=1e-2", "x=1,y=2"]) == ({"a_b": 0.01}, {"x": 1.0, "y": 2.0})
    with pytest.raises(ConfigError, match="arms: found 'x=high'"):
        arms_of(["x=high"])


def test_a_sweep_of_penalties_is_its_runs_side_by_side() -> None:
    """The first arm of a sweep is the run of its penalty alone; MOPO's at 0 is base."""
    options = {"preset": "smoke", **LOOKS}

    def rewards(name: str, **more: Any) -> np.ndarray:
        result = train(dataset(), name, **options, **{**changes("mopo"), **more})
        return np.asarray(result.trained.state.imagined.rows.rewards)

    both = rewards("mopo", sweep={"penalty": (0.0, 3.0)})
    assert len(both) == 4
    alone = rewards("mopo", penalty=0.0)
    np.testing.assert_allclose(both[:2], alone, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(alone, rewards("base"), rtol=1e-4, atol=1e-4)
    assert (both[2:].mean(1) < both[:2].mean(1)).all()


@pytest.mark.parametrize(
    ("name", "arms"),
    [
        ("iql", [{"expectile": 0.6}, {"expectile": 0.9, "beta": 1.0}]),
        ("td3_bc", [{"alpha": 0.5}, {"alpha": 5.0}]),
        ("rebrac", [{"actor_bc_coef": 0.01}, {"actor_bc_coef": 1.0}]),
        ("cql", [{"weight": 0.5}, {"weight": 5.0}]),
        ("fql", [{"alpha": 1.0}, {"alpha": 30.0}]),
        ("ifql", [{"expectile": 0.6}, {"expectile": 0.9}]),
        ("mopo", [{"penalty": 0.5}, {"penalty": 3.0}]),
    ],
)
def test_an_arm_of_a_list_is_the_training_with_its_settings(name: str, arms: list) -> None:
    options = {**LOOKS, "seed": 3}
    method = recipe(name, "smoke", **{**changes(name), "steps": 20})
    both = train(dataset(), method, sweep=arms, **options)
    assert both.returns.shape == (4,)
    for arm, settings in enumerate(arms):
        alone = train(dataset(), replace(method, **settings), **options)
        for found, want in ((both.returns, alone.returns), (both.true_value, alone.true_value)):
            np.testing.assert_allclose(of_arm(found, arm, 2), want, rtol=1e-3)
        actors = of_arm(both.actors, arm, 2), alone.actors
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), *actors)
    # Equal random numbers: states differ by the coefficient alone, or are the same bits.
    learned = [
        x for x in jax.tree.leaves(both.trained.state) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    assert any(not np.array_equal(x[:2], x[2:]) for x in learned)
