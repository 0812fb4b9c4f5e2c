"""The guidance experiment: its closed forms, its numbers and the run from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.guidance_gaussian import (
    EXPERIMENT,
    NORMALS,
    Config,
    errors,
    measure,
    product,
)
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report


@pytest.mark.parametrize("coefficient", [0.3, 2.0])
def test_closed_forms_are_the_products_of_densities(coefficient: float) -> None:
    a = np.linspace(-8, 8, 4001)

    def moments(log_density: np.ndarray) -> tuple[float, float]:
        weight = np.exp(log_density - log_density.max())
        mean = (weight * a).sum() / weight.sum()
        return mean, np.sqrt((weight * (a - mean) ** 2).sum() / weight.sum())

    found = moments(-0.5 * a**2 - 0.5 * coefficient * (a - 1) ** 2)
    np.testing.assert_allclose(product("alone", coefficient), found, rtol=1e-6)
    ((k, s), (m, p)), state = NORMALS["given state"], 1.3
    density = -0.5 * ((a - k * state) / s) ** 2
    found = moments(density - 0.5 * coefficient * ((a - m * state) / p) ** 2)
    slope, spread = product("given state", coefficient)
    np.testing.assert_allclose((slope * state, spread), found, rtol=1e-6)


def test_errors_are_the_worst_over_coefficients() -> None:
    values = np.zeros((2, 3, 2))
    values[..., 1] = 1.0
    values[1, 2] = 0.4, 0.5
    first, spread = errors(values, (np.zeros(3), np.ones(3)))
    np.testing.assert_allclose(first, [0.0, 0.4])
    np.testing.assert_allclose(spread, [0.0, 0.5])


@pytest.mark.slow
def test_the_report_says_which_rule_is_the_product(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    folder = RunFolder.create(tmp_path, "guidance_gaussian", "smoke", config, "")
    EXPERIMENT.run(config, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    assert set(report.pictures) == {"moments", "given_state"}
    assert len(report.tables["alone"]) == 3 * 2 * 2
    holds = {claim.name: claim.holds for claim in report.claims}
    assert holds["the published rule's strength grows with the number of steps"]
    assert holds["the calibrated rule has the product's mean at every number of steps"]
    # The smoke preset's rows are what the function measures, seed by seed.
    row = next(
        r
        for r in report.tables["alone"]
        if (r["rule"], r["steps"], r["coefficient"]) == ("calibrated", 64, 1.0)
    )
    again = np.asarray(measure("alone", "calibrated", 64, config))[:, 1]
    np.testing.assert_allclose(row["mean"].values, again[:, 0], rtol=1e-5)
    np.testing.assert_allclose(again, [product("alone", 1.0)] * 2, atol=0.05)
    assert (again[0] != again[1]).all()


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"samples": 3}, "samples"),
        ({"steps": (64, 32)}, "steps"),
        ({"steps": (1,)}, "steps"),
        ({"coefficients": ()}, "coefficients"),
        ({"coefficients": (0.0, 1.0)}, "coefficients"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_guidance_settings_of_the_experiment_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Config(**change))
    assert caught.value.setting == setting
