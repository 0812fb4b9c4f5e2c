"""Students of SynthER and of windows, and rows that are drawn anew inside the training loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    DistilConfig,
    Flow,
    FlowConfig,
    GuidanceConfig,
    JumpConfig,
    ResidualMlpConfig,
    TemporalUnetConfig,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.synthetic.pgd import guided_windows
from jaxrl_rollouts.offline.synthetic.refresh import (
    RefreshConfig,
    RefreshData,
    RefreshState,
    make_refreshed,
)
from jaxrl_rollouts.offline.synthetic.synther import (
    SyntherConfig,
    fit_layout,
    generate,
    make_synther,
    upsample,
)
from jaxrl_rollouts.offline.synthetic.windows import (
    cut_windows,
    distil_windows,
    fit_window_models,
)

KEY = jax.random.key(0)
DATA = collect(PENDULUM, random_policy(1), None, KEY, steps=400)
LAYOUT = fit_layout(DATA)
TRAINING = DenoiserTrainingConfig(updates=4, batch=8, per_iteration=2)
TAUGHT = DistilConfig(FlowConfig(loss="consistency", segments=2, steps=2), TRAINING, JumpConfig(2))
SMALL = SyntherConfig(ResidualMlpConfig(width=8, blocks=1, embedding=8), TRAINING, student=TAUGHT)


def constant(value: float) -> Flow:
    """Draws rows of one standardised value, whatever it starts from."""

    def average(params: Any, x: jax.Array, t: Any, s: Any, condition: Any = None) -> jax.Array:
        t = jnp.asarray(t)
        return (x - value - params) / (t[:, None] if t.ndim else t)

    return Flow(None, average, None, FlowConfig())  # type: ignore[arg-type]


def learner_of(model: Flow, **settings: Any) -> Any:
    config = RefreshConfig(**{"rows": 32, "updates": 4, "batch_size": 8} | settings)
    return make_refreshed(config, Td3BcConfig(hidden=(8,)), model, LAYOUT)


def test_rows_in_the_loop_are_the_models() -> None:
    learner = learner_of(constant(0.5))
    data = RefreshData(DATA, jnp.float32(0.25))
    rows = learner.imagine(learner.init(KEY, data), KEY, data)
    expected = LAYOUT.unpack(jnp.full((32, LAYOUT.features), 0.75))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), rows, expected)


def test_an_update_draws_anew_and_learns_from_it_without_compiling_again() -> None:
    learner = learner_of(constant(0.0))
    update = jax.jit(learner.update)
    state, seen = learner.init(KEY, RefreshData(DATA, jnp.float32(0.0))), []
    for moved in (0.0, 1.0):  # the model's weights are data
        after, metrics = update(state, RefreshData(DATA, jnp.float32(moved)))
        seen.append((float(metrics["synthetic_reward"]), after))
    reward = np.asarray(DATA.rewards)
    np.testing.assert_allclose(seen[0][0], reward.mean(), rtol=1e-4)
    np.testing.assert_allclose(seen[1][0], reward.mean() + reward.std(), rtol=1e-2)
    assert update._cache_size() == 1 and isinstance(after, RefreshState)
    actors = [jax.tree.leaves(after.agent.actor)[0] for _, after in seen]
    assert float(jnp.abs(actors[0] - actors[1]).max()) > 0
    # Only real rows: the model may say what it likes.
    learner = learner_of(constant(0.0), real_ratio=1.0)
    update, state = jax.jit(learner.update), learner.init(KEY, RefreshData(DATA, jnp.float32(0.0)))
    both = [update(state, RefreshData(DATA, jnp.float32(m)))[0].agent.actor for m in (0.0, 1.0)]
    jax.tree.map(np.testing.assert_array_equal, *both)


def test_settings_of_a_refresh_are_checked() -> None:
    with pytest.raises(ConfigError, match="updates"):
        learner_of(constant(0.0), updates=3)  # TD3's actor moves every second
    with pytest.raises(ConfigError, match="rows"):
        learner_of(constant(0.0), rows=0)


@pytest.mark.slow
def test_synthers_student_draws_in_its_jumps() -> None:
    synther = make_synther(SMALL, LAYOUT.features)
    assert synther.student is not None and SMALL.drawn_by == JumpConfig(2)
    params = synther.student.init(KEY)
    rows = generate(synther.student, params, KEY, LAYOUT, 30, config=SMALL.drawn_by, batch=16)
    assert rows.observations.shape == (30, 3) and bool(jnp.isfinite(rows.rewards).all())
    made = upsample([DATA, DATA], SMALL, KEY, 20)
    assert len(made) == 2 and made[0].rewards.shape == (20,)
    assert not np.array_equal(made[0].actions, made[1].actions)


@pytest.mark.slow
def test_windows_are_distilled_and_guided_in_jumps() -> None:
    network = TemporalUnetConfig(features=16, blocks=2)
    windows, keys = cut_windows(DATA, 8, 4), jax.random.split(KEY, 2)
    teacher = fit_window_models(windows, network, TRAINING, keys)
    student = distil_windows(teacher, windows, network, TAUGHT, keys)
    assert isinstance(student.denoiser, Flow) and student.layout is teacher.layout

    def gaussian(actor: jax.Array, states: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jnp.broadcast_to(actor, (*states.shape[:-1], 1))
        return mean, jnp.full_like(mean, 0.3)

    actors = jnp.array([[0.8], [-0.8]])  # one for each seed
    rule = GuidanceConfig(rule="calibrated")
    plain, guided = guided_windows(
        student, gaussian, actors, keys, 16, (0.0, 10.0), guidance=rule, sampler=JumpConfig(2)
    )
    first, last = student.layout.guided
    moved = (guided - plain)[:, :, :-1, first:last].mean((1, 2, 3))
    assert moved[0] > 0.1 and moved[1] < -0.1
