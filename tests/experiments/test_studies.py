"""Studies: presets are valid, smoke runs report, measures are right on known cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import claimed, smoke

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import JumpConfig, SamplerConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.catalogue import LISTINGS
from jaxrl_rollouts.experiments.studies import (
    bandit,
    edge_of_reach,
    guidance_gaussian,
    sampling,
    true_dynamics,
)
from jaxrl_rollouts.experiments.studies import edge_of_reach_toy_cells as toy
from jaxrl_rollouts.experiments.studies.bandit_beliefs import Beliefs, FittedRewards, play_optimum
from jaxrl_rollouts.experiments.studies.bandit_task import TEST_ARMS, Arms
from jaxrl_rollouts.experiments.studies.edge_of_reach_toy import EXPERIMENT as TOY
from jaxrl_rollouts.experiments.studies.edge_of_reach_toy import add_claims as toy_claims
from jaxrl_rollouts.experiments.studies.plane import Reach
from jaxrl_rollouts.experiments.studies.true_dynamics_cells import complete
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import load_report

SMOKE = {  # a table of the report, and how many claims; None where none is due at this size
    "bandit": ("return per pull: agents", None),
    "control_from_a_log": ("returns", 2),
    "edge_of_reach": ("results", 4),
    "edge_of_reach_toy": ("after training", 7),
    "guidance_gaussian": ("alone", 6),
    "operators": ("shear_layer", None),
    "refiner": ("rollouts", 8),
    "sampling": ("samplers", 6),
    "true_dynamics": ("score on plane", None),
    "trust_pde": ("groups", 8),
}
QUICK = {"edge_of_reach"}  # the others compile for longer than a quarter of an hour has room


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in SMOKE]
)
def test_a_smoke_run_reports(name: str, tmp_path: Path) -> None:
    if name in ("operators", "refiner", "trust_pde"):
        pytest.importorskip("exponax")
    folder = smoke(name, tmp_path)
    report, (table, count) = load_report(folder), SMOKE[name]
    assert report.tables[table] and report.seeds >= 1
    assert count is None or len(report.claims) == count
    cli.dispatch(["resume", str(folder), "--no-progress"])
    again = load_report(folder)
    assert [c.values for c in again.claims] == [c.values for c in report.claims]


@pytest.mark.parametrize("name", LISTINGS)
def test_presets_are_valid_and_listed(name: str) -> None:
    experiment = load_experiment(name)
    assert set(LISTINGS[name].minutes) == set(experiment.presets)
    for preset in experiment.presets.values():
        check(preset)


def preset(name: str) -> Any:
    return load_experiment(name).preset("smoke")


@pytest.mark.parametrize(
    ("name", "wrong", "named"),
    [
        ("bandit", {"penalties": (0.1, 0.5)}, "penalties"),
        ("bandit", {"evaluations": 7}, "evaluations"),
        ("edge_of_reach", {"horizons": (5,)}, "rising"),
        ("edge_of_reach", {"horizons": (5, 5)}, "rising"),
        ("edge_of_reach", {"horizons": (5, 7)}, "divisors of rows 120"),
        ("edge_of_reach_toy", {"epochs": 10, "evaluations": 3}, "evaluations"),
        ("edge_of_reach_toy", {"horizons": ()}, "horizons"),
        ("guidance_gaussian", {"samples": 3}, "samples"),
        ("guidance_gaussian", {"steps": (64, 32)}, "steps"),
        ("guidance_gaussian", {"coefficients": (0.0, 1.0)}, "coefficients"),
        ("operators", {"mixers": ("drift", "conv")}, "mixers"),
        ("operators", {"parts": ("no head",)}, "parts"),
        ("refiner", {"methods": ("mse", "best")}, "methods"),
        ("sampling", {"calls": (4,)}, "calls"),
        ("sampling", {"calls": (4, 2)}, "calls"),
        ("true_dynamics", {"truths": (0.5, 1.0)}, "truths"),
        ("trust_pde", {"shifted": (0.5,)}, "shifted"),
        ("trust_pde", {"seeds": 2}, "seeds"),
        ("true_dynamics", {"ravl_truths": (1.0, 0.0)}, "ravl_truths"),
    ],
)
def test_settings_are_checked(name: str, wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(preset(name), **wrong))


def cell(**arrays: list[float]) -> Cell:
    return Cell(extra={name: np.array(values) for name, values in arrays.items()}, seeds=2)


def opinions(*spreads: float) -> FittedRewards:
    """Seeds whose members believe 0.495 +- 0.01 of arm 0 and 0.3 +- spread of arm 1."""
    sign = np.linspace(-1, 1, 101) * np.sqrt(3) / np.sqrt(1.02)
    mean = [np.stack([0.495 + 0.01 * sign, 0.3 + s * sign], 1) for s in spreads]
    std = np.full((len(spreads), 101, 2), 0.5)
    spread = np.stack([m.std(0) for m in mean])
    arms = Arms(*map(jnp.asarray, (np.stack(mean), std, spread, np.zeros(len(spreads)))))
    return FittedRewards(arms, np.full((len(spreads), 101), 0.725), None)  # type: ignore[arg-type]


def test_beliefs_are_each_seeds_opinions() -> None:
    fitted = opinions(0.3, 0.05)
    for penalty in (0.0, 0.1):
        want = play_optimum(Beliefs(penalty=penalty), TEST_ARMS).returns
        found = play_optimum(fitted.beliefs(0, penalty), TEST_ARMS).returns
        np.testing.assert_allclose(found, want, atol=1e-3)
    # An agent that is sure that arm 1 is worse never tries it.
    np.testing.assert_array_equal(play_optimum(fitted.beliefs(1), TEST_ARMS).returns, 0.5)


def test_claims_separate_bayesian_from_penalised_agents() -> None:
    bayes = np.array([[0.483, 0.476, 0.469, 0.480, 0.535, 0.679, 0.836, 0.984]] * 3)
    flat, fitted = np.full((3, 8), 0.5), opinions(0.3, 0.3, 0.3)

    def failing(returns: dict) -> set[str]:
        made = claimed(bandit.add_claims, fitted, returns)
        assert len(made) >= 11
        return {claim.name for claim in made if not claim.holds}

    assert failing({0.0: bayes, 0.1: 0.5 * (bayes + flat), 2.5: flat}) == set()
    assert "the Bayesian earns more over all arms" in failing({0.0: flat, 2.5: bayes})


def test_arms_differ_in_length_and_imagine_as_many_rows() -> None:
    config = edge_of_reach.EXPERIMENT.preset("cpu")
    for horizon, count in ((5, 4000), (20, 1000), (100, 200)):
        at = edge_of_reach.in_lengths_of(config, horizon)
        assert (at.rollouts.length, at.rollouts.batch_size) == (horizon, count)


def test_rows_are_the_simulators_own_steps_up_to_the_horizon() -> None:
    config = preset("edge_of_reach")
    config = replace(config, method=replace(config.method, steps=10))  # one epoch
    result = edge_of_reach.train(config, load("pendulum-mixed"), 12, None)
    rows = jax.tree.map(lambda x: np.asarray(x[0, :120]), result.trained.state.imagined.rows)
    set_observation = PENDULUM.set_observation
    assert set_observation is not None
    state, out = PENDULUM.step(jax.random.key(0), set_observation(rows.observations), rows.actions)
    np.testing.assert_allclose(PENDULUM.observe(state), rows.next_observations, atol=1e-4)
    np.testing.assert_allclose(out.reward, rows.rewards, atol=1e-4)
    # Of 120 rows ten are last steps: every other state that is reached is acted from, too.
    acted = {row.tobytes() for row in rows.observations}
    assert sum(row.tobytes() not in acted for row in rows.next_observations) == 10


def test_without_endings_a_fall_is_a_row_like_others(made_hopper: Path) -> None:
    dataset = load(made_hopper / "hopper-random.hdf5")
    rows, before = edge_of_reach.endless(dataset).transitions, dataset.transitions
    assert before.terminations.sum() > 20 and not rows.terminations.any()
    np.testing.assert_array_equal(rows.truncations, before.terminations | before.truncations)
    np.testing.assert_array_equal(rows.rewards, before.rewards)
    with pytest.raises(ConfigError, match="expected no options"):
        make(f"pendulum?{edge_of_reach.ENDLESS}")


def recorded(returns: float, estimate: float) -> Cell:
    history = History()
    for step in range(1, 6):
        measured = {"return": returns, "discounted_return": returns / 4}
        values = {n: np.full(2, v) for n, v in (measured | {"estimated_value": estimate}).items()}
        history.append(step, values)
    return Cell(history, seeds=2)


@pytest.mark.parametrize("diverges", [True, False])
def test_claims_are_of_the_shortest_and_the_longest(diverges: bool) -> None:
    short, long = recorded(-2000.0, 1e5), recorded(40.0, 12.0)
    first, last = (short, long) if diverges else (long, short)
    cells = {"3 steps": first, "6 steps": recorded(0.0, 0.0), "12 steps": last}
    made = claimed(edge_of_reach.add_claims, cells, -1000.0)
    assert [claim.holds for claim in made] == [diverges] * 4


def test_the_edge_on_the_plane_is_exact_and_arms_differ_in_critics_only() -> None:
    reach = Reach(2.0, 10)
    states = jnp.array([[0.0, 1.9], [10.9, 0.0], [11.1, 0.0], [-3.0, -12.0], [0.0, 12.1]])
    assert reach.within(states).tolist() == [True, True, False, False, False]
    assert reach.edge(states).tolist() == [False, False, True, True, False]
    arms = toy.Config(ravl=((5, 1.0), (20, 10.0))).arms
    found = [(m.agent.num_critics, m.agent.eta) for m in arms.values()]
    assert found == [(2, 0.0), (2, 0.0), (5, 1.0), (20, 10.0)]
    config = TOY.preset("cpu")
    steps = config.epochs * config.rollouts.every
    assert config.seeds >= 6 and steps * config.agent.tau * (1 - config.agent.discount) >= 3


def test_toy_claims_are_about_every_seed() -> None:
    """One seed that behaves otherwise is enough for a claim to fail."""
    spreads = {"spread_edge": [9.0, 8.0], "spread_within": [2.0, 2.0]}
    fails = {"percent": [20.0, 60.0], "estimated_value": [300.0, 140.0]}
    cured = {"percent": [90.0, 85.0], "estimated_value": [96.0, 115.0], "true_value": [95.0, 90.0]}
    cells = {
        (toy.BASE, 10): cell(**fails, **spreads, excess=[99.0, 99.0]),
        (toy.PATCHED, 10): cell(**cured, **spreads, excess=[0.0, 0.0]),
        ("ravl 5, 1", 10): cell(percent=[95.0, 20.0], **spreads, excess=[-5.0, 7.0]),
    }
    claims = claimed(toy_claims, Grid(("method", "k"), cells), 10, 100.0)
    values = [claim.values[0] for claim in claims]
    np.testing.assert_allclose(values, [60.0, 1.4, 85.0, 115 / 90, 20.0, 4.0, 100.0])


def dialled(arm: str, scores: dict[float, list[float]], value: float = 50.0) -> dict:
    """Finished cells of a method by w with these final `[seeds]`."""
    made = {}
    for w, last in scores.items():
        history = History()
        other = {m: np.full(2, value) for m in ("estimated_value", "imagined_uncertainty")}
        history.append(2, {"percent": np.array(last, float), **other})
        made[arm, w] = Cell(history, seeds=2)
    return made


GRID = Grid(
    ("method", "w"),
    {
        **dialled("base", {0.0: [50, 52], 0.5: [40, 42], 1.0: [20, 24]}, 500.0),
        **dialled("mopo 1", {0.0: [60, 62], 0.5: [90, 94]}),
        **dialled("mobile", {0.0: [30, 32], 0.5: [26, 26]}),
        **dialled("ravl", {0.0: [95, 97], 1.0: [94, 98]}),
    },
)


def test_base_stands_in_for_penalised_methods_at_one_and_the_best_is_below_one() -> None:
    full = complete(GRID)
    for arm in ("mopo 1", "mobile"):
        np.testing.assert_array_equal(full[arm, 1.0]["percent"], [20, 24])
        np.testing.assert_array_equal(full[arm, 0.5]["percent"], GRID[arm, 0.5]["percent"])
    np.testing.assert_array_equal(full["ravl", 1.0]["percent"], [94, 98])
    assert true_dynamics.best_below_one(full, "mopo").point == {"method": "mopo 1", "w": 0.5}
    assert true_dynamics.best_below_one(full, "ravl").point["w"] == 0.0


@pytest.mark.parametrize("coefficient", [0.3, 2.0])
def test_closed_forms_are_the_products_of_densities(coefficient: float) -> None:
    a = np.linspace(-8, 8, 4001)

    def moments(log_density: np.ndarray) -> tuple[float, float]:
        weight = np.exp(log_density - log_density.max())
        mean = (weight * a).sum() / weight.sum()
        return mean, np.sqrt((weight * (a - mean) ** 2).sum() / weight.sum())

    found = moments(-0.5 * a**2 - 0.5 * coefficient * (a - 1) ** 2)
    np.testing.assert_allclose(guidance_gaussian.product("alone", coefficient), found, rtol=1e-6)
    ((k, s), (m, p)), state = guidance_gaussian.NORMALS["given state"], 1.3
    density = -0.5 * ((a - k * state) / s) ** 2
    found = moments(density - 0.5 * coefficient * ((a - m * state) / p) ** 2)
    slope, spread = guidance_gaussian.product("given state", coefficient)
    np.testing.assert_allclose((slope * state, spread), found, rtol=1e-6)


def test_solvers_make_the_calls_of_their_names() -> None:
    for name, sampler in sampling.solvers((1, 2, 4, 8)).items():
        assert isinstance(sampler, SamplerConfig | JumpConfig)
        assert sampler.calls == int(name.split(", ")[1])


def test_a_student_is_compared_with_solvers_of_no_more_calls() -> None:
    """The best solver of at most four calls has a distance of 2, so a half is 0.5 of it."""
    near = {"distance": [0.5] * 2, "rate": [9.0] * 2, "error": [1.0] * 2}
    distances = {1: 5.0, 2: 4.0, 3: 3.0, 4: 2.0, 7: 0.1, 8: 0.1, 15: 0.1, 255: 0.1}
    cells = {
        name: cell(distance=[distances[s.calls]] * 2, rate=[1.0] * 2, error=[1.0] * 2)
        for name, s in sampling.solvers((1, 2, 4, 8)).items()
    }
    for n in (4, 8):
        cells |= {f"student, {n}": cell(**near), f"student, {n}, relabelled": cell(**near)}
    made = claimed(sampling.add_claims, cells, (1, 2, 4, 8))
    nearer = [claim for claim in made if "twice as near" in claim.name]
    assert [claim.values[0] for claim in nearer] == [0.25, 5.0]
