"""Tables of `pgd_vs_world_model`, with what it claims and draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .pgd_measured import LENGTHS, Found, Measured, Source, crossing, log_likelihood, three
from .pgd_vs_world_model_claims import broad_claims, common_claims, narrow_claims
from .pgd_vs_world_model_pictures import draw_time, draw_tradeoff


def make_report(report: Report, config: Any, results: Mapping[str, tuple[Any, Found]]) -> None:
    """Everything there is to say."""
    crossings = []
    for name, (case, found) in results.items():
        report.table(f"{name}: sources", _sources(config, found))
        report.table(f"{name}: rollout lengths", _lengths(config, found))
        crossings += _crossings(name, config, found)
        common_claims(report, config, name, found)
        report.number(f"{name}: return of the target policy", case.target.returns)
    report.table("where the ensemble's error passes guided diffusion's", crossings)
    if "broad" in results:
        broad_claims(report, config, results["broad"][1])
    if "narrow" in results:
        narrow_claims(report, config, results["narrow"][1])
    draw_tradeoff(report, config, results)
    draw_time(report, config, results)
    for name, (case, _) in results.items():
        report.note(
            f"{name}: {case.config.data}, {len(case.data.rewards)} rows, in {case.env.name} "
            f"({case.env.version})."
        )
    report.note(
        "Errors are mean squares per observation entry in deviations of the data, of every step "
        "repeated in the true simulator; what is 100 deviations off or more counts as that."
    )


def _sources(config: Any, found: Found) -> list[dict[str, Any]]:
    def row(label: str, source: Source, m: Measured) -> dict[str, Any]:
        return {
            "paths": label, "sampler steps": source.steps or None,
            "coefficient": source.coefficient if source.steps else None,
            "gap": summarize(m.gap.mean(1)),
            "log-likelihood": summarize(log_likelihood(m.gap.mean(1))),
            "error": summarize(m.error.mean(1)), "median error": summarize(m.median.mean(1)),
            "open loop, last step": summarize(m.open_loop[:, -1]),
        }  # fmt: skip

    return [row(s.rule, s, m.first(config.horizon)) for s, m in found.items()]


def _lengths(config: Any, found: Found) -> list[dict[str, Any]]:
    ensemble, unguided, guided = three(config, found)
    rows = []
    for length in sorted({h for h in LENGTHS if h <= config.long_horizon} | {config.horizon}):
        inside = length <= config.horizon
        errors = {
            "ensemble": ensemble.error[:, :length].mean(1),
            "unguided": unguided.error[:, :length].mean(1),
            "guided": guided.error[:, :length].mean(1),
        }
        row: dict[str, Any] = {"length": length}
        row |= {n: summarize(e) if inside or n == "ensemble" else None for n, e in errors.items()}
        # Beyond its window guided diffusion is taken at its window's mean, for the ratio only.
        row["ensemble / guided"] = summarize(errors["ensemble"] / errors["guided"])
        row["ensemble, open loop"] = summarize(ensemble.open_loop[:, length - 1])
        last = guided.open_loop[:, length - 1] if inside else None
        row["guided, open loop"] = None if last is None else summarize(last)
        rows.append(row)
    return rows


def _crossings(name: str, config: Any, found: Found) -> list[dict[str, Any]]:
    ensemble, rows = found[Source("ensemble")], []
    for source, m in found.items():
        if not source.steps:
            continue
        at = crossing(ensemble.error, m.error)
        middle = float(np.median(at))
        rows.append(
            {
                "case": name, "paths": source.rule, "sampler steps": source.steps,
                "coefficient": source.coefficient, "gap": summarize(m.gap.mean(1)),
                "from step": middle if np.isfinite(middle) else f"not by {config.long_horizon}",
                "seeds that cross": int(np.isfinite(at).sum()),
            }
        )  # fmt: skip
    return rows
