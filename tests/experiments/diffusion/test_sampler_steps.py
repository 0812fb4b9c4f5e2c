"""Calls against quality: a denoiser that is right is found right, and one that is not is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig, make_denoiser
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.sampler_steps import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.sampler_steps_cells import (
    FAST,
    PUBLISHED,
    SAMPLERS,
    Config,
    Measured,
    Subject,
    apart,
    floor,
    learn,
    measure,
    nearest,
    spread,
    subjects,
    with_calls,
)
from jaxrl_rollouts.experiments.diffusion.sampler_steps_page import (
    add_claims,
    agents_of,
    choice,
    enough_calls,
)
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Dataset, take_rows
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.synther import fit_layout
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")
DATA = collect(PENDULUM, random_policy(1), None, jax.random.key(0), steps=400)
SETTING = Setting(Dataset("toy", DATA, "pendulum", Path("x"), ""), PENDULUM)


def knowing(wrong: float) -> Subject:
    """A denoiser that answers with real rows, moved by `wrong`; rows are those of the data."""
    layout = fit_layout(DATA)
    rows = layout.pack(DATA)

    def denoise(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        return rows[:: len(rows) // len(x)] + wrong + params

    nothing = make_denoiser(Network(lambda key: jnp.zeros(()), lambda p, x, c: x))
    denoiser = nothing._replace(denoise=denoise)
    return Subject(denoiser, DenoiserTrainingConfig(), rows, 400, layout.unpack)


def test_true_transitions_make_no_error_and_moved_ones_do() -> None:
    sampler, key = SamplerConfig(4), jax.random.key(0)
    params = jnp.array([0.0, 0.3])  # of two seeds; the second is wrong by that
    subject = knowing(0.0)
    found = measure(subject, params, sampler, SETTING, key)
    assert found["seconds"] > 0 and found["drawn"].shape == (2, *subject.rows.shape)
    # Both halves are every other row, for this denoiser.
    actions = subject.unpack(found["drawn"][0]).actions
    np.testing.assert_allclose(actions[200:], DATA.actions[::2], atol=1e-4)
    errors = ("next_observation", "median", "reward")
    assert all(found[name][0] < 1e-3 < found[name][1] for name in errors)
    np.testing.assert_allclose(found["spread"][0], found["spread"][1], rtol=1e-5)
    # Against other real rows, drawn with replacement: near the floor, and 0.3 away from it.
    assert found["distance"][0] < 2.0 * floor(subject, key)
    assert found["distance"][1] > found["distance"][0] + 0.1


def test_spread_and_nearest_of_what_is_known() -> None:
    rows = jax.random.normal(jax.random.key(0), (500, 4, 3)).at[..., 2].set(1.0)
    half = np.asarray(rows).copy()
    half[..., 0] *= 0.5
    assert spread(rows, np.asarray(rows)) == pytest.approx(1.0)
    assert spread(rows, half) == pytest.approx(0.75)  # a channel that never varies does not count
    # On a grid the nearest other row is a step away.
    line = jnp.arange(50.0)[:, None]
    subject = knowing(0.0)._replace(rows=line, samples=10)
    assert apart(subject, jax.random.key(0)) == pytest.approx(1.0 / float(np.std(line)), rel=0.3)
    two = jnp.concatenate([line, 1e-6 * line], 1)  # rounding, and no channel
    moved = np.asarray(two[:5]) + np.float32(0.5)
    assert nearest(two, moved) == pytest.approx(0.5 / float(np.std(line)), rel=1e-4)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("calls", [8, 31, 32, 255])
def test_samplers_take_no_more_calls_than_they_may(name: str, calls: int) -> None:
    assert 0 <= calls - with_calls(SAMPLERS[name], calls).calls <= 1
    assert replace(with_calls(SAMPLERS[name], calls), steps=128) == SAMPLERS[name]


def test_networks_are_looked_at_by_their_own_points() -> None:
    config = Config(calls=(16, 32, 255), window_calls=(32, 255), biased_calls=32, learned_calls=())
    mlp, windows, step = (config.points(net) for net in ("mlp", "unet", "unet-step"))
    assert [n for name, n in mlp if name == "euler"] == [16, 32]
    assert [n for name, n in mlp if name == FAST] == [16, 32, 255]
    assert windows == [
        (PUBLISHED, 32),
        (PUBLISHED, 255),
        ("dpmpp-ode", 32),
        (FAST, 32),
        (FAST, 255),
    ]
    assert step == [(PUBLISHED, 32), (PUBLISHED, 255), (FAST, 32), (FAST, 255)]
    assert not any(config.learns("mlp", *point) for point in mlp)
    assert EXPERIMENT.preset("cpu").learns("mlp", FAST, 32)
    assert not EXPERIMENT.preset("cpu").learns("unet-step", FAST, 32)


def test_enough_calls_are_the_fewest_within_the_bound() -> None:
    errors = np.array([[8.0, 2.4, 2.1, 2.0], [12.0, 2.6, 2.2, 2.0]])
    assert enough_calls((16, 32, 64, 128), errors, 2.5) == 32
    assert enough_calls((16, 32, 64, 128), errors, 2.3) == 64
    assert enough_calls((16, 32, 64, 128), errors, 1.9) is None
    assert enough_calls((16,), np.full((2, 1), np.nan), 2.0) is None


def test_subjects_come_back_as_their_transitions() -> None:
    made = subjects(SMOKE, DATA, "toy")
    assert list(made) == ["mlp", "unet", "unet-step"]
    back = made["mlp"].unpack(made["mlp"].rows)
    np.testing.assert_allclose(back.next_observations, DATA.next_observations, atol=1e-4)
    windows = made["unet"].rows
    assert windows.shape[1] == SMOKE.length
    assert len(made["unet"].unpack(windows).rewards) == len(windows) * (SMOKE.length - 1)
    # The two U-Nets have the same weights and are not the same function.
    one, two = (made[net].denoiser for net in ("unet", "unet-step"))
    params = one.init(jax.random.key(0))
    x = windows[:2]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, two.init(jax.random.key(0)))
    assert jnp.abs(one.denoise(params, x, 1.0) - two.denoise(params, x, 1.0)).max() > 1e-3


def measured(few: float, most: float, earned: tuple[float, float]) -> Measured:
    """Two samplers at two numbers of calls, of two seeds."""
    numbers = {(FAST, 4): (few, earned[0]), (PUBLISHED, 8): (most, earned[1])}
    cells = {
        point: Cell(extra={"next_observation": np.full(2, error), "median": np.full(2, error / 2),
                           "return": np.full(2, back)}, seeds=2)
        for point, (error, back) in numbers.items()
    }  # fmt: skip
    grid: Any = Grid(("sampler", "calls"), cells)
    return Measured(None, grid, Grid((), {}), Cell(extra={"distance": 0.1}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("few", "earned", "hold"),
    [(1.2, (-103.0, -100.0), [True] * 3), (1.3, (-106.0, -100.0), [False] * 3)],
)
def test_claims_are_bounds_on_errors_and_returns(
    tmp_path: Path, few: float, earned: tuple[float, float], hold: list[bool]
) -> None:
    folder = RunFolder.create(tmp_path, "sampler_steps", "smoke", SMOKE, "")
    report = Report.of(RunContext(folder, progress=False), 2)
    found = measured(few, 1.0, earned)
    assert set(agents_of(found)) == {f"{FAST}, 4 calls", f"{PUBLISHED}, 8 calls"}
    add_claims(report, SMOKE, "mlp", found, agents_of(found))
    assert [claim.holds for claim in report.claims] == hold
    enough = choice("mlp", SMOKE, found, FAST)
    assert enough["enough calls by the mean error"] == (4 if hold[0] else "none")
    assert not choice("mlp", SMOKE, found, "heun")  # not looked at


@pytest.mark.slow
def test_agents_learn_from_their_own_rows_only() -> None:
    subject = knowing(0.0)
    rows = [subject.unpack(subject.real(key)) for key in jax.random.split(jax.random.key(2), 3)]
    assert not np.array_equal(rows[0].actions, rows[1].actions)

    def earned(*samples: Any) -> np.ndarray:
        trained: Trained = learn([*samples], SMOKE, SETTING, jax.random.key(1), "agents", None)
        return trained.history.last("return")

    one, two = (earned(rows[0], other) for other in rows[1:])
    assert one.shape == (2,) and np.isfinite(one).all()
    np.testing.assert_allclose(one[0], two[0], rtol=1e-5)
    assert one[1] != two[1]
    # A seed with more rows than the others gives up its last.
    few = take_rows(rows[1], np.arange(100))
    same = earned(take_rows(rows[0], np.arange(100)), few)
    np.testing.assert_array_equal(earned(rows[0], few), same)


@pytest.mark.slow
def test_the_smoke_run_looks_at_every_sampler(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "sampler_steps", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["sampling: cost and quality"]
    points = [("heun-churn", 4, 3), ("heun-churn", 8, 7), ("dpmpp-sde", 4, 4), ("dpmpp-sde", 8, 8)]
    want = [(net, *point) for net in ("mlp", "unet", "unet-step") for point in points]
    assert [(r["net"], r["sampler"], r["calls"], r["made"]) for r in rows] == want
    learned = [(r["net"], r["calls"]) for r in rows if "return" in r]
    assert learned == [("mlp", 8), ("mlp", 8), ("unet", 8), ("unet", 8)]
    levels = report.tables["levels"]
    assert [r["sigma_max"] for r in levels] == [80.0, 20.0]
    # At EDM's own levels the fast sampler is what it is without them.
    assert levels[0]["median"].values == rows[2]["median"].values
    assert {row["net"] for row in report.tables["networks"]} == {"mlp", "unet", "unet-step"}
    assert len(report.claims) == 6 and set(report.pictures) == {"steps"}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"calls": (32, 16)}, "calls"),
        ({"calls": (2, 16, 32)}, "calls"),
        ({"calls": ()}, "calls"),
        ({"few": 24}, "few"),
        ({"learned_calls": (24,)}, "learned_calls"),
        ({"window_calls": (24,)}, "window_calls"),
        ({"samplers": ("ddim",)}, "samplers"),
        ({"samplers": ("heun",)}, "window_samplers"),
        ({"window_samplers": ()}, "window_samplers"),
        ({"biased": ("ddim",)}, "biased"),
        ({"window_seeds": 0}, "window_seeds"),
        ({"nets": ()}, "nets"),
        ({"seeds": 0}, "seeds"),
        ({"updates": 0}, "updates"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Config(**change))
    assert caught.value.setting == setting
