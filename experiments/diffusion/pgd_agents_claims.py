"""What `pgd_agents` claims: sources against each other, at the default and at their best."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import slug
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report

from .pgd_agents_best import Grid, best_by_others, sweep
from .pgd_agents_config import Config

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356; Lu et al. 2023 (SynthER), arXiv 2303.06614"
PILOT = "a pilot of two seeds on the acrobot"


def add_claims(report: Report, config: Config, name: str, agent: str, grid: Grid) -> None:
    """What is expected of one agent on one dataset; the acrobot's are bands of a pilot."""
    have = {source: sweep(grid, config, agent, source) for source in config.sources}
    where, pilot = f"{agent}, {slug(name)}", name == "acrobot-broad" and agent == "td3_bc"

    def at_least(what: str, values: np.ndarray, least: float, source: str, expected: str) -> None:
        report.claim(
            Claim.at_least(
                f"{where}: {what}", values=values, threshold=least, source=source,
                expected=f"{expected}, by {least:g} or more, seed by seed",
            )
        )  # fmt: skip

    if {"guided", "unguided"} <= set(have):
        at_least(
            "guided beats unguided at the default", have["guided"][0] - have["unguided"][0],
            20.0 if pilot else 0.0, PILOT if pilot else SOURCE, "return above that on unguided",
        )  # fmt: skip
    if {"guided", "real"} <= set(have):
        at_least(
            "guided beats real at the default", have["guided"][0] - have["real"][0],
            10.0 if pilot else 0.0, PILOT if pilot else SOURCE, "return above that on real data",
        )  # fmt: skip
        best = {k: best_by_others(have[k]) for k in ("guided", "real")}
        at_least(
            "guided beats real, best against best", best["guided"] - best["real"], 0.0, SOURCE,
            "the same with each source's own best regulariser",
        )  # fmt: skip
        if len(have["real"]) > 1:
            at_least(
                "a weaker regulariser on real data does what guidance does",
                best_by_others(have["real"][1:]) - have["guided"][0], 0.0, PILOT,
                "best other regulariser on real data against guided data at the default",
            )  # fmt: skip
    if pilot and {"unguided", "real"} <= set(have):
        at_least(
            "unguided is no better than real", have["real"][0] - have["unguided"][0], 0.0, PILOT,
            "return on real data above that on unguided at the default",
        )  # fmt: skip
    scores = {
        k: normalised_score(name, v[0]) for k, v in have.items() if k in ("synther", "real")
    }  # fmt: skip
    if len(scores) == 2 and scores["real"] is not None and scores["synther"] is not None:
        at_least(
            "SynthER's data are as good as the real ones", scores["synther"] - scores["real"],
            -5.0, SOURCE, "score on SynthER's data above that on real ones at the default",
        )  # fmt: skip
