"""Is guided diffusion the density it stands for? Where all is normal the answer is known.

Policy-guided diffusion aims at `p(x) pi(a|s)^lambda`. With a behaviour N(m_b, s_b^2) and a policy
N(m_p, s_p^2) that is normal with mean (m_b / s_b^2 + lambda m_p / s_p^2) v and variance
v = 1 / (1 / s_b^2 + lambda / s_p^2), per state. The denoiser is exact and nothing is trained: what
differs from the closed form is the rule's doing, or the sampler's.
"""

from __future__ import annotations

from functools import partial

from jaxrl_rollouts.experiments.kit.grid import run_grid
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .guidance_gaussian_cells import RULES, SETTINGS, Config, measure_cell
from .guidance_gaussian_page import SOURCE, page


def run(config: Config, context: RunContext) -> Report:
    """Sample every cell, compare, draw."""
    report = Report.of(context, config.seeds)
    axes = {"setting": tuple(SETTINGS), "rule": tuple(RULES), "steps": config.steps}
    # One number per row: with unrelated actions the joint rule is the other one.
    points = [("alone", r, n) for r in RULES if r != "calibrated, joint" for n in config.steps]
    # With a single action the published rule is the sign of the gradient.
    points += [("given state", r, config.steps[-1]) for r in RULES if r != "published"]
    measure = partial(measure_cell, config)
    page(report, config, run_grid(axes, measure, context, seeds=config.seeds, points=points))
    return report


EXPERIMENT = Experiment(
    name="guidance_gaussian",
    summary="is policy-guided diffusion the tempered product it stands for? normal data, exact",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(seeds=2, samples=3200, coefficients=(0.1, 1.0), steps=(16, 64)),
        "cpu": Config(),
    },
    run=run,
)
