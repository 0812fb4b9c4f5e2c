"""SynthER on few data: every seed's own rows, what is measured, and the run from end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.synther_small_data import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.synther_small_data_cells import (
    Config,
    own_rows,
    with_noise,
)
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.synthetic.quality import augmented, quality_of
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report
from jaxrl_rollouts.trees import stack

SMOKE, KEY = EXPERIMENT.preset("smoke"), jax.random.key(0)


@pytest.fixture(scope="module")
def data() -> Transitions:
    return pendulum_mixed(KEY, 2000)


def test_every_seed_has_rows_of_its_own(data: Transitions) -> None:
    numbered = data._replace(rewards=np.arange(2000, dtype=np.float32))
    one, two = own_rows(numbered, 0.1, KEY, 2)
    for rows in (one, two):
        assert len(rows.rewards) == 200 == len(np.unique(rows.rewards))
        assert (np.diff(rows.rewards) > 0).all()
        index = rows.rewards.astype(int)
        np.testing.assert_array_equal(rows.observations, data.observations[index])
    assert len(np.intersect1d(one.rewards, two.rewards)) < 50
    (whole,) = own_rows(numbered, 1.0, KEY, 1)
    np.testing.assert_array_equal(whole.rewards, numbered.rewards)


def test_real_rows_have_no_error_and_noisy_ones_do(data: Transitions) -> None:
    own = take_rows(data, np.arange(0, 2000, 40))
    best = quality_of(data, own, PENDULUM, KEY)
    assert best["novelty"] == 0.0 and best["error"] < 1e-8 and best["median"] < 1e-8
    assert best["marginal"] > 0.7
    noisy = augmented(own, 0.1, 0)
    unit = own.observations.std(0)
    shift = (noisy.observations - own.observations) / unit
    assert shift.std() == pytest.approx(0.1, rel=0.2)
    np.testing.assert_allclose(
        noisy.next_observations - own.next_observations, shift * unit, atol=1e-5
    )
    np.testing.assert_array_equal(noisy.actions, own.actions)
    worse = quality_of(data, noisy, PENDULUM, KEY)
    assert worse["novelty"] > 0.05 and worse["error"] > 1e-4 > best["error"]
    shuffled = own._replace(next_observations=own.next_observations[::-1])
    assert quality_of(data, shuffled, PENDULUM, KEY)["error"] > 0.1


def test_noisy_rows_are_as_many_as_samples_and_near_the_seeds_own(data: Transitions) -> None:
    rows = own_rows(data, 0.1, KEY, 2)
    for own, noisy in zip(rows, with_noise(rows, SMOKE), strict=True):
        assert len(noisy.rewards) == SMOKE.samples
        unit = own.observations.std(0)
        away = (noisy.observations[:, None] - own.observations) / unit
        assert np.sqrt((away**2).mean(-1).min(1)).max() < 4 * SMOKE.noise
        assert np.isin(noisy.rewards, own.rewards).all()


@pytest.mark.slow
def test_the_smoke_run_compares_every_share(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "synther_small_data", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["returns"]
    assert [row["data"] for row in rows] == [
        f"{share} %{kind}" for share in (1, 5) for kind in ("", ", up-sampled", ", with noise")
    ]
    for plain, *others in (rows[:3], rows[3:]):
        assert "score" not in plain  # the pendulum has no reference returns
        assert "gained" not in plain
        for made in others:
            gained = np.subtract(made["return"].values, plain["return"].values)
            np.testing.assert_allclose(made["gained"].values, gained, rtol=1e-6)
    quality = report.tables["quality"]
    assert [(row["share, %"], row["rows"]) for row in quality] == [
        (share, kind) for share in (1.0, 5.0) for kind in ("samples", "rows with noise")
    ]
    assert all(0 <= value <= 1 for row in quality for value in row["marginal"].values)
    names = [claim.name for claim in report.claims]
    assert names[:3] == [
        "up-sampling 1 % of the data helps",
        "samples of 1 % do better than rows with noise",
        "replacing 5 % of the data costs nothing",
    ]
    assert len(names) == 7 and set(report.pictures) == {"returns", "quality"}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"shares": ()}, "shares"),
        ({"shares": (0.5, 0.1)}, "shares"),
        ({"shares": (0.5, 1.5)}, "shares"),
        ({"updates": 30_500}, "updates"),
        ({"noise": 0.0}, "noise"),
        ({"samples": 0}, "samples"),
    ],
)
def test_synther_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(Config(), **change))
    assert caught.value.setting == setting


def test_presets_and_stacks() -> None:
    for name in ("smoke", "cpu", "gpu", "paper"):
        check(EXPERIMENT.preset(name))
    assert EXPERIMENT.preset("cpu").shares == (0.03, 0.15, 1.0)
    assert stack([np.zeros(2), np.ones(2)]).shape == (2, 2)
