"""Steps against quality: a denoiser that is right is found right, and one that is not is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig, make_denoiser
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.diffusion_quality import (
    QualityConfig,
    Subject,
    enough_steps,
    floor,
    measure,
    subjects,
)
from jaxrl_rollouts.experiments.speed.diffusion_speed import EXPERIMENT
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.synther import fit_layout

DATA = collect(PENDULUM, random_policy(1), None, jax.random.key(0), steps=400)


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
    found = measure(knowing(0.0), params, sampler, PENDULUM, DATA, key)
    assert found.seconds > 0
    assert found.next_observation[0] < 1e-6 and found.reward[0] < 1e-6
    assert found.next_observation[1] > 1e-3 and found.reward[1] > 1e-3
    # Against other real rows, drawn with replacement: near the floor, and 0.3 away from it.
    assert found.distance[0] < 2.0 * floor(knowing(0.0), key)
    assert found.distance[1] > found.distance[0] + 0.1


def test_enough_steps_are_the_fewest_near_the_most() -> None:
    errors = np.array([[8.0, 2.4, 2.1, 2.0], [12.0, 2.6, 2.2, 2.0]])
    assert enough_steps((16, 32, 64, 128), errors) == 32
    assert enough_steps((16, 32, 64, 128), errors * np.array([1, 1.1, 1, 1])) == 64
    assert enough_steps((16,), errors[:, :1]) == 16


def test_both_subjects_come_back_as_their_transitions() -> None:
    config = EXPERIMENT.preset("smoke").quality
    both = subjects(config, DATA, "toy")
    assert set(both) == {"mlp", "unet"}
    back = both["mlp"].unpack(both["mlp"].rows)
    np.testing.assert_allclose(back.next_observations, DATA.next_observations, atol=1e-4)
    windows = both["unet"].rows
    assert windows.shape[1] == config.length
    assert len(both["unet"].unpack(windows).rewards) == len(windows) * (config.length - 1)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"steps": (32, 16)}, "quality.steps"),
        ({"steps": (1, 16)}, "quality.steps"),
        ({"churns": ()}, "quality.churns"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_quality_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        QualityConfig(**change).validate()
    assert caught.value.setting == setting
