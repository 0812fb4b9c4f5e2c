"""What PDE-Refiner's settings do on Kuramoto-Sivashinsky, one at a time.

Noise floor, number of refinements, step size, history, share of the training data and
resolution, each a small sweep around one base setting with all seeds side by side.
"""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import prepare
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .ks_ablation_cells import AblationConfig, train_settings
from .ks_ablation_page import make_report
from .ks_cells import CPU, SMOKE, SOURCE, small_domain


def run(config: AblationConfig, context: RunContext) -> Report:
    """Train and roll every setting, compare, draw."""
    cells = train_settings(config, context)
    report = Report.of(context, config.study.seeds)
    make_report(report, config, cells, prepare(config.study, context).dt)
    return report


EXPERIMENT = Experiment(
    name="ks_ablation",
    summary="noise floor, refinements, step size, history, data and resolution of PDE-Refiner",
    source=SOURCE,
    config_type=AblationConfig,
    presets={
        "smoke": AblationConfig(
            study=replace(SMOKE, steps=10), refiner=RefinerConfig(min_noise_variance=1e-6),
            noise_variances=(1e-3,), refinements=(), every=(2,), histories=(2,), shares=(0.25,),
            points=(),
        ),
        # Frames 0.4 apart: two of them are the base's step.
        "cpu": AblationConfig(
            study=replace(
                CPU, seeds=2, every=2, steps=120, sampled_steps=60,
                train=replace(small_domain(1024, 71, 0), dt=(0.4, 0.4), burn_in=200, substeps=8),
                test=replace(small_domain(256, 245, 1), dt=(0.4, 0.4), burn_in=200, substeps=8),
                training=TrainingConfig(updates=5000),
            ),
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
    },
    run=run,
)  # fmt: skip
