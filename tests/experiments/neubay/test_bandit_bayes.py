"""The bandit experiment: reference, looks and the run from end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.neubay.bandit_bayes import EXPERIMENT, Config, add_claims
from jaxrl_rollouts.offline.bandit.environment import TEST_ARMS, Arms
from jaxrl_rollouts.offline.bandit.optimum import Beliefs, play_optimum
from jaxrl_rollouts.offline.bandit.rewards import FittedRewards
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report, load_report


def claims_on(fitted: FittedRewards, returns: dict) -> list[Claim]:
    report = Report("bandit_bayes", "smoke", {}, "command", 3)
    add_claims(report, fitted, returns)
    return report.claims


def opinions(*spreads: float) -> FittedRewards:
    """Seeds whose members believe 0.495 +- 0.01 of arm 0 and 0.3 +- spread of arm 1."""
    sign = np.linspace(-1, 1, 101) * np.sqrt(3) / np.sqrt(1.02)
    mean = [np.stack([0.495 + 0.01 * sign, 0.3 + s * sign], 1) for s in spreads]
    std = np.full((len(spreads), 101, 2), 0.5)
    spread = np.stack([m.std(0) for m in mean])
    arms = Arms(*map(jnp.asarray, (np.stack(mean), std, spread, np.zeros(len(spreads)))))
    return FittedRewards(arms, np.full((len(spreads), 101), 0.725), None)  # type: ignore[arg-type]


def test_beliefs_are_each_seed_s_opinions() -> None:
    fitted = opinions(0.3, 0.05)
    for penalty in (0.0, 0.1):
        want = play_optimum(Beliefs(penalty=penalty), TEST_ARMS)
        np.testing.assert_allclose(
            play_optimum(fitted.beliefs(0, penalty), TEST_ARMS).returns, want.returns, atol=1e-3
        )
    # Whoever is sure that arm 1 is worse never tries it.
    np.testing.assert_array_equal(play_optimum(fitted.beliefs(1), TEST_ARMS).returns, 0.5)


def test_claims_tell_bayesians_from_conservatives() -> None:
    bayes = np.array([[0.483, 0.476, 0.469, 0.480, 0.535, 0.679, 0.836, 0.984]] * 3)
    flat, fitted = np.full((3, 8), 0.5), opinions(0.3, 0.3, 0.3)
    good = claims_on(fitted, {0.0: bayes, 0.1: 0.5 * (bayes + flat), 2.5: flat})
    assert all(claim.holds for claim in good) and len(good) == 12
    swapped = claims_on(fitted, {0.0: flat, 2.5: bayes})
    failing = {claim.name for claim in swapped if not claim.holds}
    assert {
        "the conservative stays with the known arm",
        "the Bayesian finds the best arm",
        "the Bayesian earns more over all arms",
    } <= failing
    sure = claims_on(opinions(0.01, 0.3, 0.3), {0.0: bayes, 2.5: flat})
    assert "members disagree about the unknown arm" in {c.name for c in sure if not c.holds}


@pytest.mark.slow
def test_smoke_run_of_the_bandit_reports_and_redraws(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    folder = RunFolder.create(tmp_path, EXPERIMENT.name, "smoke", config, "command")
    context = RunContext(folder, progress=False)
    report = EXPERIMENT.run(config, context)
    report.save(folder.path)
    loaded = load_report(folder.path)
    assert set(loaded.pictures) == {"arms", "learning", "opinions"}
    for picture in loaded.pictures.values():
        assert (folder.path / picture.file).stat().st_size > 5000
    rows = loaded.tables["return per pull: agents"]
    assert [row["penalty"] for row in rows] == [0.0, 2.5]
    harsh = loaded.tables["return per pull: optimal stopping"][1]
    assert harsh["mean"].values == (0.5, 0.5)
    shares = loaded.tables["share of pulls of arm 1, %"][0]
    for arm in TEST_ARMS:
        share, paid = (np.array(r[f"arm 1 pays {arm:g}"].values) for r in (shares, rows[0]))
        expected = 0.5 + share / 100 * (arm - 0.5)
        np.testing.assert_allclose(paid, expected, atol=5 * 0.5 / np.sqrt(400))
    assert any("MB for 2 seeds" in note for note in loaded.notes)
    assert {c.name: c.holds for c in loaded.claims}[
        "optimal stopping under the published prior earns 0.624"
    ]
    again = EXPERIMENT.run(config, context)
    assert [c.values for c in again.claims] == [c.values for c in report.claims]
    assert again.wall_seconds == pytest.approx(report.wall_seconds)  # nothing was trained again


def test_settings_of_the_bandit_are_checked() -> None:
    for preset in EXPERIMENT.presets.values():
        check(preset)
    assert EXPERIMENT.preset("cpu").seeds >= 5
    assert EXPERIMENT.preset("cpu").penalties == (0.0, 0.1, 0.5, 2.5)
    for change in ({"penalties": (0.1, 0.5)}, {"evaluations": 7}, {"last": 26}, {"seeds": 0}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            check(replace(Config(), **change))
