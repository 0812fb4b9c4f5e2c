"""PDE-Refiner against an oracle network and plain numpy, and its noise."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny, wrong
from helpers_oracle import FORMS, NONE, RELEASED, C, N, field, oracle

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import Emulator, FieldNetwork, FieldShape
from jaxrl_rollouts.pde.objectives import Refiner
from jaxrl_rollouts.pde.objectives.refiner import make_schedule, sampler_weights
from jaxrl_rollouts.trees import equations


@pytest.mark.parametrize("config", FORMS)
def test_an_oracle_is_believed(config: Refiner) -> None:
    truth, u = field(1), field(2)
    emulator = config.make(oracle(truth, config), 0.3)
    step = jax.jit(emulator.step)
    for seed in range(3):
        after = step({}, jax.random.key(seed), u, NONE)
        np.testing.assert_allclose(after, u + 0.3 * truth, atol=2e-6)


@pytest.mark.parametrize("config", FORMS[:3])
@pytest.mark.parametrize("silent_below", [1, 2, 3])
def test_noise_that_nobody_takes_away_remains(config: Refiner, silent_below: int) -> None:
    """Silent in the last `n` refinements: the noise added before the first of them is left."""
    u = jnp.zeros((1, 4096))
    emulator = config.make(oracle(u, config, silent_below), 0.3)
    after = emulator.step({}, jax.random.key(0), u, NONE) / 0.3
    expected = np.sqrt(make_schedule(3, config.min_noise_variance).variance[silent_below - 1])
    assert float(after.std()) == pytest.approx(expected, rel=0.05)


def test_the_mean_of_samples_has_less_noise() -> None:
    u = jnp.zeros((1, 4096))
    stds = []
    for samples in (1, 16):
        config = Refiner(samples=samples)
        emulator = config.make(oracle(u, config, 1), 0.3)
        assert emulator.calls == 4 * samples
        stds.append(float(emulator.step({}, jax.random.key(0), u, NONE).std()))
    assert stds[0] / stds[1] == pytest.approx(4.0, rel=0.15)


def test_fewer_refinements_may_be_applied() -> None:
    """None at all is the first prediction; an oracle that only says that is right there."""
    truth, u = field(1), field(2)
    for applied, error in ((0, 0.0), (1, 8.6e-2), (3, 6.3e-4)):
        config = Refiner(min_noise_variance=4e-7, applied=applied)
        emulator = config.make(oracle(truth, config, 3 - applied + 1), 1.0)
        assert emulator.calls == applied + 1
        left = emulator.step({}, jax.random.key(0), u, NONE) - u - truth
        assert float(left.std()) == pytest.approx(error, rel=0.3, abs=1e-6)


def silent(seen: list | None = None) -> FieldNetwork:
    """A network that says zero, as one with a zero head does."""
    return FieldNetwork(lambda key: {}, lambda params, u, noised, t, c: jnp.zeros_like(u))


@pytest.mark.parametrize("config", [RELEASED, FORMS[2]])
def test_the_loss_is_the_papers(config: Refiner) -> None:
    """For a network that says zero it is the square of the target: numpy, index by index."""
    before, truth = field(2), np.asarray(field(1))
    window = jnp.stack([before, before + 0.3 * truth])
    plan = make_schedule(config.refinements, config.min_noise_variance)
    emulator = config.make(silent(), 0.3)
    found = set()
    for seed in range(12):
        key = jax.random.key(seed)
        index_key, noise_key = jax.random.split(key)
        t = int(jax.random.choice(index_key, 4, p=jnp.full(4, 0.25)))
        noise = np.asarray(jax.random.normal(noise_key, (C, N)))
        if config.form == "v":
            target = np.sqrt(plan.signal[t]) * noise - np.sqrt(1 - plan.signal[t]) * truth
        else:
            target = truth if t == 3 else noise
        expected = np.square(target).mean(1).sum()
        value, parts = emulator.loss({}, key, window, NONE)
        assert float(value) == pytest.approx(expected, rel=1e-4)
        assert float(parts["loss_first" if t == 3 else "loss_refine"]) == float(value)
        found.add(t)
    assert found == {0, 1, 2, 3}


def test_a_larger_share_of_first_predictions() -> None:
    emulator = Refiner(first_share=0.7).make(silent(), 0.3)
    window = jnp.stack([field(0), field(1)])
    _, parts = jax.vmap(emulator.loss, (None, 0, None, None))(
        {}, jax.random.split(jax.random.key(0), 2000), window, NONE
    )
    assert float((parts["loss_first"] > 0).mean()) == pytest.approx(0.7, abs=0.03)


def test_zeros_hide_the_noise_from_the_first_prediction() -> None:
    seen = FieldNetwork(lambda key: {}, lambda p, u, noised, t, c: noised)
    for first, hidden in (("zeros", True), ("noise", False)):
        config = Refiner(first=first, first_share=1 - 1e-6)
        value, _ = config.make(seen, 0.3).loss({}, jax.random.key(0), jnp.zeros((2, C, N)), NONE)
        assert (float(value) == 0.0) == hidden


def test_a_weight_on_the_first_prediction() -> None:
    window, key = jnp.stack([field(0), field(1)]), jax.random.key(3)
    for seed in range(8):
        key = jax.random.key(seed)
        plain, parts = Refiner().make(silent(), 0.3).loss({}, key, window, NONE)
        heavy, same = Refiner(first_weight=7.0).make(silent(), 0.3).loss({}, key, window, NONE)
        assert same == parts  # what is logged is not weighed
        ratio = 7.0 if float(parts["loss_first"]) > 0 else 1.0
        assert float(heavy / plain) == pytest.approx(ratio, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        *wrong(
            dict(refinements=0, samples=0, applied=4, first_share=1.0, first_weight=0.0),
            dict(min_noise_variance=0.0, max_noise_variance=1e-8, form="noise"),
            dict(min_noise_variance=1.0, max_noise_variance=1.0),
        ),
        ({"refinements": 1, "max_noise_variance": 0.1}, "max_noise_variance"),
    ],
)
def test_settings_are_checked(change: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Refiner(**change).make(silent(), 0.3)
    with pytest.raises(ConfigError, match="scale"):
        Refiner().make(silent(), 0.0)


@pytest.mark.parametrize("samples", [1, 2])
def test_stages_are_the_refiner_stopped_earlier(samples: int) -> None:
    net, key, u = oracle(field(1), RELEASED, 1), jax.random.key(2), field(0)
    config = replace(RELEASED, samples=samples)
    whole = config.make(net, 0.3)
    assert whole.stages is not None
    stages = whole.stages({}, key, u, NONE)
    assert len(stages) == config.refinements + 1
    for count, found in enumerate(stages):
        stopped = replace(config, applied=count).make(net, 0.3)
        assert stopped.calls == samples * (count + 1)
        np.testing.assert_array_equal(found, stopped.step({}, key, u, NONE))
    np.testing.assert_array_equal(stages[-1], whole.step({}, key, u, NONE))


def precisions(jaxpr: Any) -> set[Any]:
    """Of all matrix products in a program, wherever they are nested."""
    products = ("dot_general", "conv_general_dilated")
    every = (line for line in equations(jaxpr) if line.primitive.name in products)
    return {str(line.params["precision"]) for line in every}


def test_matrix_products_are_of_full_precision_unless_somebody_asks_for_less() -> None:
    """In steps and in training, also backwards; on a CPU it makes no difference."""
    net = tiny().make(FieldShape(C, N))
    window, steps = jnp.stack([field(0), field(1)]), []
    for precision in ("highest", "default"):
        emulator = Refiner(precision=precision).make(net, 0.3)
        params = jax.tree.map(lambda x: x + 0.1, emulator.init(jax.random.key(0)))
        key = jax.random.key(1)

        def loss(params: Any, emulator: Emulator = emulator, key: jax.Array = key) -> jax.Array:
            return emulator.loss(params, key, window, NONE)[0]

        programs = [
            jax.make_jaxpr(emulator.step)(params, key, field(0), NONE),
            jax.make_jaxpr(jax.grad(loss))(params),
        ]
        for program in programs:
            found = precisions(program.jaxpr)
            assert found and all(("HIGHEST" in p) == (precision == "highest") for p in found)
        steps.append(emulator.step(params, key, field(0), NONE))
    np.testing.assert_array_equal(*steps)


def test_less_than_full_precision_is_warned_about_where_it_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = oracle(field(0), RELEASED)
    coarse = replace(RELEASED, precision="default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coarse.make(net, 0.3)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.warns(UserWarning, match="default precision .*expected precision 'highest'"):
        coarse.make(net, 0.3)


def test_an_oracle_is_believed_over_two_axes() -> None:
    """As over one: the truth but for the finest noise, whatever the axes."""
    truth = jax.random.normal(jax.random.key(2), (C, 6, 8))
    u = jax.random.normal(jax.random.key(3), (C, 6, 8))
    stepped = RELEASED.make(oracle(truth, RELEASED), (0.5, 20.0)).step(
        {}, jax.random.key(4), u, NONE
    )
    scale = np.array([0.5, 20.0]).reshape(2, 1, 1)
    np.testing.assert_allclose((stepped - u) / scale, truth, atol=5e-3)


def test_the_schedule_is_geometric_in_variance() -> None:
    plan = make_schedule(3, 4e-7)
    np.testing.assert_allclose(plan.variance, [4e-7, 5.43e-5, 7.37e-3, 1.0], rtol=2e-3)
    np.testing.assert_allclose(plan.signal, [0.9999996, 0.9999453, 0.992577, 0.0], atol=1e-6)
    np.testing.assert_allclose(np.sqrt(plan.variance)[:3], [6.3e-4, 7.4e-3, 8.6e-2], rtol=0.01)
    ratios = plan.variance[1:] / plan.variance[:-1]
    np.testing.assert_allclose(ratios, ratios[0])
    plan = make_schedule(3, 1e-6, 1e-2)
    np.testing.assert_allclose(plan.variance, [1e-6, 1e-4, 1e-2, 1.0])
    np.testing.assert_allclose(
        make_schedule(3, 4e-7, 4e-7 ** (1 / 3)).variance, make_schedule(3, 4e-7).variance
    )


def test_posterior_weights_of_the_released_sampler() -> None:
    guess, noised, fresh = sampler_weights(make_schedule(3, 4e-7), "v", "ancestral")
    np.testing.assert_allclose(guess, [1.0, 0.99269, 0.99266, 0.99628], atol=2e-5)
    np.testing.assert_allclose(noised, [0.0, 0.00731, 0.00734, 0.0], atol=1e-5)
    plan = make_schedule(3, 4e-7)
    # The variance of the next noised input around the guess is that of the next index.
    variance = fresh[1:] ** 2 + noised[1:] ** 2 * (1 - plan.signal[1:])
    np.testing.assert_allclose(variance, 1 - plan.signal[:-1], rtol=1e-6)
