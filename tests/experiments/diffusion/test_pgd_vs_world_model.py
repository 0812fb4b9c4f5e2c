"""Diffusion against an ensemble: what its numbers mean, and the run from end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError, DataError, UserError
from jaxrl_rollouts.experiments.diffusion.pgd_vs_world_model import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.pgd_vs_world_model_cells import (
    CaseConfig,
    Config,
    Source,
    data_paths,
    ensemble_paths,
    load_rows,
    prepare,
)
from jaxrl_rollouts.experiments.diffusion.pgd_vs_world_model_page import (
    broad_claims,
    coefficient_at,
    common_claims,
    crossing,
    narrow_claims,
)
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.collect import write_rows
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.synthetic.paths import (
    PathQuality,
    log_likelihood,
    policy_gap,
    step_error,
)
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")


def test_crossing_is_the_first_step_above_the_others_mean() -> None:
    ensemble = np.array([[0.1, 0.5, 2.0, 0.3], [0.1, 0.1, 0.1, 0.1], [9.0, 0.0, 0.0, 0.0]])
    other = np.array([[0.2, 1.2], [0.2, 0.4], [1.0, 3.0]])
    np.testing.assert_array_equal(crossing(ensemble, other), [3.0, np.inf, 1.0])


def test_coefficient_at_a_gap() -> None:
    at = np.array([0.25, 0.5, 1.0, 4.0])
    falling = 0.1 / at  # a straight line in logarithms
    turning = np.array(
        [0.4, 0.2, 0.1, 0.9]
    )  # strong guidance overshoots: the rise is not looked at
    found = coefficient_at(np.array([0.1 / 0.7, 0.15]), at, np.stack([falling, turning]))
    np.testing.assert_allclose(found, [0.7, 0.1 / 0.15], rtol=1e-6)
    np.testing.assert_allclose(coefficient_at(np.array([9.0]), at, falling[None]), [0.25])


def test_log_likelihood_is_a_unit_normals() -> None:
    gap = 0.3
    wanted = np.log(np.exp(-gap / 2) / np.sqrt(2 * np.pi))
    assert log_likelihood(gap) == pytest.approx(wanted)


def measured(gap: float, error: float, steps: int = 8, growth: float = 1.0) -> PathQuality:
    """Two seeds alike; the error grows geometrically, by `growth` in all."""
    along = error * growth ** np.linspace(0.0, 1.0, steps)
    rows = [np.full((2, steps), gap), *(np.tile(along, (2, 1)) for _ in range(3))]
    return PathQuality(*rows)


def published_table(scale: float, costs: float) -> dict[Source, PathQuality]:
    """Sources in the proportions our own measurement had; `costs` is what guidance adds."""
    found = {Source("data"): measured(0.72, 0.0), Source("ensemble"): measured(0.0, 1.0)}
    found[Source("unguided", 32)] = measured(0.95, scale)
    for coefficient, gap in ((1.0, 0.23), (2.0, 0.086), (4.0, 0.048), (16.0, 0.36)):
        found[Source("published", 32, coefficient)] = measured(gap, scale * costs)
    found[Source("published, noised", 32, 1.0)] = measured(0.37, scale)
    found[Source("unguided", 128)] = measured(0.95, scale / 1.7)
    for coefficient, gap in ((0.25, 0.23), (0.5, 0.086), (1.0, 0.048), (4.0, 0.03)):
        found[Source("published", 128, coefficient)] = measured(gap, scale)
    return found


def claims_of(function: Any, *arguments: Any) -> dict[str, Claim]:
    report = Report("pgd_vs_world_model", "cpu", {}, "", 2)
    function(report, Config(horizon=8), *arguments)
    return {claim.name.split(": ", 1)[1]: claim for claim in report.claims}


@pytest.mark.parametrize(("scale", "costs"), [(0.01, 1.05), (50.0, 1.05), (0.01, 1.5)])
def test_the_papers_sentences_are_computed(scale: float, costs: float) -> None:
    claims = claims_of(common_claims, "broad", published_table(scale, costs))
    assert claims["guidance brings the actions to the policy"].holds
    assert claims["guidance costs no dynamics error"].holds == (costs < 1.15)
    assert claims["guided diffusion is a third truer than the ensemble"].holds == (scale < 0.6)
    ratio = claims["guided diffusion is a third truer than the ensemble"].measured
    assert ratio == pytest.approx(scale * costs)


def test_claims_on_broad_data() -> None:
    found = published_table(0.01, 1.0)
    claims = claims_of(broad_claims, found)
    assert len(claims) == 5 and all(claim.holds for claim in claims.values())
    assert claims["coefficient times steps is the strength"].measured == pytest.approx(1.0)
    assert claims["the published rule overshoots"].measured == pytest.approx(0.36 / 0.048)
    found[Source("unguided", 128)] = measured(0.95, 0.0099)
    found[Source("published", 32, 2.0)] = measured(0.03, 0.01)
    found[Source("unguided", 32)] = measured(0.3, 0.01)
    claims = claims_of(broad_claims, found)
    assert not claims["more sampler steps, less error"].holds
    assert not claims["coefficient times steps is the strength"].holds
    assert not claims["without guidance the actions are the behaviour's"].holds


def test_claims_on_narrow_data() -> None:
    found = published_table(0.01, 1.0)
    found[Source("ensemble")] = measured(0.0, 1e-3, growth=1e4)
    found[Source("published", 128, 4.0)] = measured(0.12, 0.04)
    claims = claims_of(narrow_claims, found)
    assert len(claims) == 4 and all(claim.holds for claim in claims.values())
    assert claims["the ensemble's error explodes"].measured == pytest.approx(1e4)
    found[Source("published", 32, 2.0)] = measured(0.086, 0.01, growth=3.0)
    claims = claims_of(narrow_claims, found)
    assert not claims["guided diffusion's error does not grow"].holds


@pytest.mark.slow
def test_the_smoke_run_measures_every_source(tmp_path: Path) -> None:
    config = replace(SMOKE, narrow=None)
    folder = RunFolder.create(tmp_path, "pgd_vs_world_model", "smoke", config, "")
    EXPERIMENT.run(config, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["broad: sources"]
    labels = [(r["paths"], r["sampler steps"], r["coefficient"]) for r in rows]
    assert labels == [
        ("data", None, None),
        ("ensemble", None, None),
        ("unguided", 4, 0.0),
        ("published", 4, 1.0),
        ("published", 4, 2.0),
        ("published, noised", 4, 1.0),
        ("calibrated", 4, 10.0),
        ("unguided", 8, 0.0),
        ("published", 8, 0.5),
    ]
    by = {row["paths"]: row for row in rows}
    # The data are the simulator's own, and the ensemble is rolled with the policy itself.
    assert max(by["data"]["error"].values) < 1e-6 and min(by["data"]["gap"].values) > 0.3
    assert max(by["ensemble"]["gap"].values) < 1e-4 and min(by["ensemble"]["error"].values) > 1e-3
    lengths = report.tables["broad: rollout lengths"]
    assert [row["length"] for row in lengths] == [4, 8]
    np.testing.assert_allclose(lengths[-1]["ensemble"].values, by["ensemble"]["error"].values)
    assert set(report.pictures) == {"tradeoff", "over_time"}
    assert len(report.claims) == 3 + 3


@pytest.mark.slow
def test_a_file_has_a_target_trained_on_it(tmp_path: Path) -> None:
    """One policy per seed, which the seed's ensemble is rolled with and its windows judged by."""
    path = tmp_path / "pendulum.hdf5"
    write_rows(path, PENDULUM, pendulum_mixed(jax.random.key(0), 1000), {})
    config = replace(SMOKE.broad, data=str(path), rows=800)
    case = prepare(config, 6, 2, jax.random.key(1), None)
    assert case.env is PENDULUM and len(case.data.rewards) == 800 and case.data.truncations[-1]
    assert case.target.returns.shape == (2,)
    rolled = ensemble_paths(case, jax.random.key(2), 5, 7)
    assert rolled[0].actions.shape == (5, 7, 1)
    for seed in (0, 1):
        actors = [jax.tree.map(lambda x, i=i: x[i], case.target.params) for i in (seed, 1 - seed)]
        gaps = [policy_gap(case.target.gaussian, actor, rolled[seed]).max() for actor in actors]
        assert float(gaps[0]) < 1e-9 < 1e-4 < float(gaps[1])
    starts = data_paths(case, jax.random.key(3), 4)
    assert starts[0].observations.shape == (4, 6, 3)
    assert step_error(case.env, starts[0], case.data, jax.random.key(0)).max() < 1e-6


def test_data_no_case_can_be_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="nowhere"):
        load_rows(replace(SMOKE.broad, data="nowhere"), jax.random.key(0))
    with pytest.raises(DataError, match="at most 201 states"):
        prepare(replace(SMOKE.broad, rows=200), 300, 1, jax.random.key(0), None)
    ending = ACROBOT._replace(termination=lambda *_: jnp.zeros(1, bool))
    monkeypatch.setattr(
        "jaxrl_rollouts.experiments.diffusion.pgd_vs_world_model_cells.ACROBOT", ending
    )
    with pytest.raises(ConfigError, match="never terminate"):
        prepare(SMOKE.broad, 8, 1, jax.random.key(0), None)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"broad": None, "narrow": None, "mujoco": None}, "broad, narrow, mujoco"),
        ({"reference": 3.0}, "reference"),
        ({"calibrated": (3.0, 1.0)}, "calibrated"),
        ({"published": (0.0, 2.0)}, "published"),
        ({"long_horizon": 4}, "long_horizon"),
        ({"seeds": 0}, "seeds"),
        ({"broad": CaseConfig(rows=-1)}, "broad.rows"),
        ({"broad": CaseConfig(agent_updates=1500)}, "broad.agent_updates"),
    ],
)
def test_pgd_comparison_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(Config(), **change))
    assert caught.value.setting == setting


def test_presets_hold_what_they_promise() -> None:
    for name in ("smoke", "cpu", "gpu", "paper"):
        check(EXPERIMENT.preset(name))
    cpu = EXPERIMENT.preset("cpu")
    assert cpu.seeds >= 3 and set(cpu.cases()) == {"broad", "narrow", "mujoco"}
    assert isinstance(cpu.mujoco, CaseConfig) and cpu.horizon >= 32
    assert jnp.isfinite(cpu.reference)
