"""Noise of the refinements against the numbers of the paper and of the released code."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.pde.schedule import make_schedule, sampler_weights


def test_the_schedule_is_geometric_in_variance() -> None:
    plan = make_schedule(3, 4e-7)
    np.testing.assert_allclose(plan.variance, [4e-7, 5.43e-5, 7.37e-3, 1.0], rtol=2e-3)
    np.testing.assert_allclose(plan.signal, [0.9999996, 0.9999453, 0.992577, 0.0], atol=1e-6)
    np.testing.assert_allclose(np.sqrt(plan.variance)[:3], [6.3e-4, 7.4e-3, 8.6e-2], rtol=0.01)
    ratios = plan.variance[1:] / plan.variance[:-1]
    np.testing.assert_allclose(ratios, ratios[0])


def test_the_first_refinements_noise_may_be_chosen() -> None:
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
