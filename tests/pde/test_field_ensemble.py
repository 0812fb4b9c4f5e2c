"""Agreement and promises on members that part at known times."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.ensemble import (
    Member,
    Trust,
    agreement,
    calibrate,
    forecast,
    promised_time,
    valid_time,
)

POINTS, MEMBERS, GROWTH, SMALL = 32, 3, 0.3, 1e-2
X = np.arange(POINTS) / POINTS * 2 * np.pi
WAVES = np.stack([np.cos(k * X) for k in range(1, MEMBERS + 3)])  # orthogonal, without mean


class Parting:
    """A linear map: each member multiplies a wave of its own by `exp(GROWTH)` a step."""

    def __init__(self, member: int = 0) -> None:
        self.member = member

    def roll(self, fields: Any, steps: int, /, member: int | None = None) -> np.ndarray:
        own = WAVES[1 + (self.member if member is None else member)]
        start = np.asarray(fields, np.float64)  # [B, 1, X]
        amplitude = 2 * (start @ own) / POINTS
        growth = np.exp(GROWTH * np.arange(1, steps + 1)) - 1
        return (start + growth[:, None, None, None] * amplitude[..., None] * own).astype(np.float32)


def starts(sizes: Any) -> np.ndarray:
    """One large wave and a small share of every member's: `[B, 1, X]`."""
    small = np.asarray(sizes)[:, None] * WAVES[1 : MEMBERS + 1].sum(0)
    return (WAVES[0] + small)[:, None].astype(np.float32)


def known(size: float, steps: int) -> np.ndarray:
    """The agreement of any two members, after every step."""
    t, growth = np.arange(1, steps + 1), GROWTH
    shared = 1 + size**2 * (MEMBERS - 2 + 2 * np.exp(growth * t))
    return shared / (1 + size**2 * (MEMBERS - 1 + np.exp(2 * growth * t)))


GROUP = [Parting(m) for m in range(MEMBERS)]


def test_agreement_is_numpys_mean_over_pairs() -> None:
    u = np.random.default_rng(0).normal(size=(4, 2, 3, 2, 10)).astype(np.float32)
    found = agreement(u)
    for t in range(2):
        for b in range(3):
            matrix = np.corrcoef(u[:, t, b].reshape(4, -1))
            expected = matrix[np.triu_indices(4, 1)].mean()
            assert float(found[t, b]) == pytest.approx(expected, abs=1e-5)
    same = np.repeat(u[:1], 2, 0)
    np.testing.assert_allclose(agreement(same), 1.0, atol=1e-5)
    np.testing.assert_allclose(agreement(np.stack([u[0], -u[0]])), -1.0, atol=1e-5)
    noise = np.random.default_rng(1).normal(size=(2, 1, 200, 1, 400))
    assert abs(float(agreement(noise).mean())) < 4 / np.sqrt(200 * 400)


def test_a_member_that_ran_away_does_not_agree() -> None:
    u = np.random.default_rng(0).normal(size=(3, 2, 2, 1, 8)).astype(np.float32)
    u[1, 1, 0, 0, 3] = np.nan
    u[2, 1, 1, 0, 0] = np.inf
    found = np.asarray(agreement(u))
    assert np.isfinite(found).all() and (found[1] == -1).all() and (found[0] > -1).all()
    assert valid_time(np.array([[1.0], [np.nan], [1.0]])).tolist() == [1]


def test_valid_times_count_steps_before_the_first_fall() -> None:
    curves = np.array([[0.9, 0.8, 0.9], [0.7, 0.9, 0.9], [0.9, 0.9, 0.9]])
    assert valid_time(curves, 0.8).tolist() == [1, 0, 3]
    assert valid_time(curves, 0.6).tolist() == [3, 3, 3]


@pytest.mark.parametrize("level", [0.99, 0.8, 0.5])
def test_members_part_at_the_analytic_step(level: float) -> None:
    sizes, steps = [SMALL, 0.1 * SMALL], 60
    cast = forecast(GROUP, starts(sizes), steps)
    expected = np.stack([known(size, steps) for size in sizes], 1)
    np.testing.assert_allclose(cast.agreement, expected, atol=2e-5)
    np.testing.assert_array_equal(valid_time(cast.agreement, level), (expected > level).sum(0))
    # Ten times smaller differences last log(10) / GROWTH steps longer.
    times = np.asarray(valid_time(cast.agreement, level))
    assert abs(times[1] - times[0] - np.log(10) / GROWTH) <= 1
    np.testing.assert_array_equal(cast.valid_time, valid_time(cast.agreement, 0.8))
    assert cast.lengths.tolist() == [steps, steps] and cast.promised_time is None


def test_a_forecast_holds_its_members_their_mean_and_spread() -> None:
    fields = starts([SMALL, 0.05])
    cast = forecast(GROUP, fields, 7)
    assert cast.members.shape == (MEMBERS, 7, 2, 1, POINTS)
    for member, emulator in zip(cast.members, GROUP, strict=True):
        np.testing.assert_array_equal(member, emulator.roll(fields, 7))
    np.testing.assert_allclose(cast.mean, np.asarray(cast.members).mean(0), atol=1e-6)
    expected = np.sqrt(np.asarray(cast.members).var(0, ddof=1).mean((2, 3)))
    np.testing.assert_allclose(cast.spread, expected, rtol=1e-4)
    named = forecast([Member(Parting(), member=m) for m in range(MEMBERS)], fields, 7)
    np.testing.assert_array_equal(named.members, cast.members)


def test_members_of_other_step_sizes_are_compared_where_they_meet() -> None:
    class Double(Parting):
        def roll(self, fields: Any, steps: int, /, member: int | None = None) -> np.ndarray:
            return super().roll(fields, 2 * steps)[1::2]

    fields = starts([SMALL])
    cast = forecast([Parting(0), Double(1)], fields, 5, strides=(1, 2))
    np.testing.assert_array_equal(cast.members[0], Parting(0).roll(fields, 10)[1::2])
    np.testing.assert_array_equal(cast.members[1], Parting(1).roll(fields, 10)[1::2])


@pytest.mark.parametrize("level", [0.95, 0.6])
def test_rows_are_cut_where_agreement_falls(level: float) -> None:
    sizes, steps = [SMALL, 0.3 * SMALL, 0.0], 40
    trust = Trust(level, 0.1, 1.5, steps, 20)
    cut = forecast(GROUP, starts(sizes), steps, trust)
    curves = np.stack([known(size, steps) for size in sizes], 1)
    stop = np.minimum((curves >= min(level, 0.8)).sum(0) + 1, steps)
    np.testing.assert_array_equal(cut.lengths, stop)
    for row, length in enumerate(stop):
        assert np.asarray(cut.members)[:, length - 1, row].any()
        assert not np.asarray(cut.members)[:, length:, row].any()
        assert not np.asarray(cut.agreement)[length:, row].any()
    np.testing.assert_array_equal(cut.promised_time, (curves > level).sum(0))
    np.testing.assert_allclose(cut.valid_time, 1.5 * (curves > 0.8).sum(0))
    assert stop[0] < stop[1] < stop[2] == steps
    whole = forecast(GROUP, starts(sizes), steps)
    np.testing.assert_array_equal(whole.lengths, steps)


def synthetic(rng: np.random.Generator, count: int, steps: int = 400) -> tuple:
    """Agreement `exp(-t / h)` and the true time `h` times a lognormal factor."""
    scale = rng.lognormal(3.0, 0.4, count)
    curves = np.exp(-np.arange(1, steps + 1)[:, None] / scale)
    true = np.minimum(np.floor(0.5 * scale * rng.lognormal(0.0, 0.5, count)), steps).astype(int)
    return curves, true


@pytest.mark.parametrize("miss", [0.05, 0.1, 0.2])
def test_promises_are_kept_at_the_rate_that_was_asked(miss: float) -> None:
    rng, count, splits, tested = np.random.default_rng(0), 100, 200, 200
    misses = []
    for _ in range(splits):
        trust = calibrate(*synthetic(rng, count), miss)
        curves, true = synthetic(rng, tested)
        promised = np.minimum((curves > trust.level).sum(0), trust.steps)
        misses.append((true < promised).mean())
    share = np.floor(miss * (count + 1) + 1e-9) / (count + 1)
    # Misses of one split are beta-binomial; this is twice the deviation of their mean.
    deviation = np.sqrt(share * (1 - share) * (1 / count + 1 / tested) / splits)
    assert np.mean(misses) == pytest.approx(share, abs=min(0.01, 3 * deviation))


def test_the_level_is_the_smallest_that_keeps_its_misses() -> None:
    curves, true = synthetic(np.random.default_rng(1), 59)
    trust = calibrate(curves, true, 0.1)
    assert (trust.miss, trust.steps, trust.trajectories) == (0.1, 400, 59)

    def missed(level: float) -> int:
        return int((true < np.asarray((curves > level).sum(0))).sum())

    allowed = 0.1 * 60 - 1  # (misses + 1) / (n + 1) <= miss
    assert missed(trust.level) <= allowed < missed(trust.level - 1e-6)
    assert all(missed(level) <= allowed for level in np.linspace(trust.level, 1, 50))
    guess = (curves > 0.8).sum(0)
    assert trust.factor == pytest.approx(np.median(true[guess > 0] / guess[guess > 0]))
    np.testing.assert_array_equal(
        promised_time(jnp.asarray(curves), trust), valid_time(curves, trust.level)
    )
    # Nothing is promised beyond the calibration's rollouts.
    assert promised_time(np.ones((500, 2)), trust).tolist() == [400, 400]


def test_trajectories_that_stay_valid_do_not_miss() -> None:
    curves, true = np.full((10, 30), 0.9), np.full(30, 10)
    assert promised_time(curves, calibrate(curves, true, 0.1)).tolist() == [10] * 30
    # Where agreement does not depend on the error, nothing is promised.
    useless = calibrate(np.ones((10, 30)), np.zeros(30, int), 0.1)
    assert useless.level == 1.0 and promised_time(np.ones((10, 2)), useless).tolist() == [0, 0]
    assert calibrate(np.zeros((10, 30)), true, 0.1).factor == 1.0


def test_what_cannot_be_calibrated_or_rolled_is_refused() -> None:
    curves, true = synthetic(np.random.default_rng(0), 19)
    with pytest.raises(ConfigError, match="found 19, expected at least 20 for miss=0.1"):
        calibrate(curves, true, 0.1)
    with pytest.raises(ConfigError, match="miss"):
        calibrate(curves, true, 0.0)
    with pytest.raises(DataError, match="shapes"):
        calibrate(curves, true[:-1], 0.2)
    with pytest.raises(DataError, match="0 to 400 steps"):
        calibrate(curves, true + 401, 0.2)
    with pytest.raises(ConfigError, match="at least 2"):
        forecast(GROUP[:1], starts([SMALL]), 3)
    with pytest.raises(ConfigError, match="strides"):
        forecast(GROUP, starts([SMALL]), 3, strides=(1, 2))
    with pytest.raises(ValueError, match="at least 2"):
        agreement(jnp.zeros((1, 2, 3, 1, 8)))

    class Short:
        def roll(self, fields: Any, steps: int, /) -> np.ndarray:
            return Parting().roll(fields, steps)[:-1]

    with pytest.raises(DataError, match="shapes of rollouts"):
        forecast([Parting(), Short()], starts([SMALL]), 3)
