"""Steps against quality: a denoiser that is right is found right, and one that is not is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig, make_denoiser
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.sampler_steps import (
    EXPERIMENT,
    Config,
    Subject,
    enough_steps,
    floor,
    learn,
    measure,
    subjects,
)
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Dataset, take_rows
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.model_based import Setting
from jaxrl_rollouts.offline.synthetic.synther import fit_layout
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")
DATA = collect(PENDULUM, random_policy(1), None, jax.random.key(0), steps=400)
SETTING = Setting(Dataset("toy", DATA, "pendulum", Path("x"), ""), PENDULUM)


def knowing(wrong: float) -> Subject:
    """A denoiser that answers with real rows, moved by `wrong`; rows are those of the data."""
    layout = fit_layout(DATA)
    rows = layout.pack(DATA)

    def denoise(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        return rows[: len(x)] + wrong + params

    nothing = make_denoiser(Network(lambda key: jnp.zeros(()), lambda p, x, c: x))
    denoiser = nothing._replace(denoise=denoise)
    return Subject(denoiser, DenoiserTrainingConfig(), rows, 400, layout.unpack)


def test_true_transitions_make_no_error_and_moved_ones_do() -> None:
    sampler, key = SamplerConfig(4), jax.random.key(0)
    params = jnp.array([0.0, 0.3])  # of two seeds; the second is wrong by that
    found, samples = measure(knowing(0.0), params, sampler, SETTING, key)
    assert found["seconds"] > 0 and len(samples) == 2
    np.testing.assert_allclose(samples[0].actions, DATA.actions, atol=1e-4)
    assert found["next_observation"][0] < 1e-6 and found["reward"][0] < 1e-6
    assert found["next_observation"][1] > 1e-3 and found["reward"][1] > 1e-3
    # Against other real rows, drawn with replacement: near the floor, and 0.3 away from it.
    assert found["distance"][0] < 2.0 * floor(knowing(0.0), key)
    assert found["distance"][1] > found["distance"][0] + 0.1


def test_enough_steps_are_the_fewest_near_the_most() -> None:
    errors = np.array([[8.0, 2.4, 2.1, 2.0], [12.0, 2.6, 2.2, 2.0]])
    assert enough_steps((16, 32, 64, 128), errors) == 32
    assert enough_steps((16, 32, 64, 128), errors * np.array([1, 1.1, 1, 1])) == 64
    assert enough_steps((16,), errors[:, :1]) == 16


def test_both_subjects_come_back_as_their_transitions() -> None:
    both = subjects(SMOKE, DATA, "toy")
    assert set(both) == {"mlp", "unet"}
    back = both["mlp"].unpack(both["mlp"].rows)
    np.testing.assert_allclose(back.next_observations, DATA.next_observations, atol=1e-4)
    windows = both["unet"].rows
    assert windows.shape[1] == SMOKE.length
    assert len(both["unet"].unpack(windows).rewards) == len(windows) * (SMOKE.length - 1)


@pytest.mark.slow
def test_agents_learn_from_their_own_rows_only() -> None:
    subject = knowing(0.0)
    rows = [subject.unpack(subject.real(key)) for key in jax.random.split(jax.random.key(2), 3)]
    assert not np.array_equal(rows[0].actions, rows[1].actions)
    key = jax.random.key(1)
    one, two = (learn([rows[0], other], SETTING, SMOKE, key) for other in rows[1:])
    assert one.shape == (2,) and np.isfinite(one).all()
    np.testing.assert_allclose(one[0], two[0], rtol=1e-5)
    assert one[1] != two[1]
    # A seed with more rows than the others gives up its last.
    few = take_rows(rows[1], np.arange(100))
    cut = learn([rows[0], few], SETTING, SMOKE, key)
    same = learn([take_rows(rows[0], np.arange(100)), few], SETTING, SMOKE, key)
    np.testing.assert_array_equal(cut, same)


@pytest.mark.slow
def test_the_smoke_run_looks_at_every_sampler(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "sampler_steps", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["sampling: cost and quality"]
    assert [(r["net"], r["steps"], r["calls"]) for r in rows] == [
        ("mlp", 4, 7),
        ("mlp", 8, 15),
        ("unet", 4, 7),
        ("unet", 8, 15),
    ]
    assert all(len(row[name].values) == 2 for row in rows for name in ("return", "reward"))
    assert rows[0]["return on real rows"].values == rows[1]["return on real rows"].values
    assert {row["enough steps"] for row in report.tables["enough steps"]} <= {4, 8}
    assert not report.claims and set(report.pictures) == {"steps"}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"steps": (32, 16)}, "steps"),
        ({"steps": (1, 16)}, "steps"),
        ({"steps": ()}, "steps"),
        ({"churns": ()}, "churns"),
        ({"seeds": 0}, "seeds"),
        ({"updates": 0}, "updates"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Config(**change))
    assert caught.value.setting == setting
