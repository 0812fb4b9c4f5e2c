"""How far do samples told anew go? Size of the denoiser, size of the networks, share of real rows.

Around one setting of `synther_small_data` one thing is varied at a time: how wide the diffusion
model is that says where, how wide the network is that says what follows, and how many real rows
are in a batch. Agents learn from samples as drawn and as told, and from the rows themselves.
"""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.offline.study.source import setting_of
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .relabel_sizes_cells import Config, measure_sizes
from .relabel_sizes_page import page
from .synther_small_data import PRESETS as SMALL_DATA
from .synther_small_data_cells import of_shares


def run(config: Config, context: RunContext) -> Report:
    """Every share of the data, and around its setting every size."""
    study = config.study
    report = Report.of(context, study.seeds)
    setting = setting_of(study.dataset, study.seed, context)
    grids = of_shares(study, lambda share, key: measure_sizes(share, setting, config, key, context))
    page(report, config, setting, grids)
    return report


PRESETS = {
    "smoke": Config(
        replace(SMALL_DATA["smoke"], shares=(0.01, 0.05), told=("model",), agents=("td3_bc",)),
        denoisers=(8, 16), networks=(8, 16), real_shares=(0.0, 0.5),
    ),
    "cpu": Config(replace(SMALL_DATA["cpu"], shares=(0.03, 1.0), told=("model",))),
}  # fmt: skip
EXPERIMENT = LISTINGS["relabel_sizes"].experiment(Config, PRESETS, run)
