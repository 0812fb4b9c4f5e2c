"""What `pgd_vs_world_model` claims: the paper's three sentences in every case, and our own."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report

from .pgd_measured import Found, Source, coefficient_at, three

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 5"


def common_claims(report: Report, config: Any, name: str, found: Found) -> None:
    ensemble, unguided, guided = three(config, found)
    about = f"at coefficient {config.reference:g} and {config.steps} steps"
    share = 0.16 if name == "broad" else 0.6
    report.claim(
        Claim.at_most(
            f"{name}: guidance brings the actions to the policy", source=SOURCE, threshold=share,
            values=guided.gap.mean(1) / unguided.gap.mean(1),
            expected=f"squared distance to its actions, a share of unguided diffusion's, {about}",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_most(
            f"{name}: guidance costs no dynamics error", source=SOURCE, threshold=1.15,
            values=guided.error.mean(1) / unguided.error.mean(1),
            expected=f"error over unguided diffusion's, {about}",
        )
    )  # fmt: skip
    own = ensemble.error[:, : config.horizon].mean(1)
    report.claim(
        Claim.at_most(
            f"{name}: guided diffusion is a third truer than the ensemble", source=SOURCE,
            values=guided.error.mean(1) / own, threshold=0.65,
            expected=f"error over the ensemble's, rollouts of {config.horizon} steps, {about}",
        )
    )  # fmt: skip


def broad_claims(report: Report, config: Any, found: Found) -> None:
    gaps = {s: m.gap.mean(1) for s, m in found.items()}
    few = [s for s in found if s.rule == "published" and s.steps == config.steps]
    strongest, middle = few[-1], min(few, key=lambda s: abs(s.coefficient - 4.0))
    ours = "our own measurement at this size"
    report.claim(
        Claim.at_least(
            "broad: without guidance the actions are the behaviour's", source=SOURCE,
            values=gaps[Source("unguided", config.steps)] / gaps[Source("data")], threshold=0.9,
            expected="squared distance to the policy's actions over that of the data's own",
        )
    )  # fmt: skip
    if strongest.coefficient >= 8.0:
        report.claim(
            Claim.at_least(
                "broad: the published rule overshoots", source=ours, threshold=2.0,
                values=gaps[strongest] / gaps[middle],
                expected=f"gap at coefficient {strongest.coefficient:g} over that at "
                f"{middle.coefficient:g}",
            )
        )  # fmt: skip
    for source in found:
        denoised = source._replace(rule="published")
        if source.rule == "published, noised" and denoised in found:
            report.claim(
                Claim.at_least(
                    f"broad: the denoised reference is the better one, {source.coefficient:g}",
                    values=gaps[source] / gaps[denoised], threshold=1.5, source=SOURCE,
                    expected="gap with the gradient at the noised sample over that at the "
                    "denoised one",
                )
            )  # fmt: skip
    if not config.many_steps:
        return
    plain = [found[Source("unguided", n)].error.mean(1) for n in (config.steps, config.many_steps)]
    report.claim(
        Claim.between(
            "broad: more sampler steps, less error", source=ours, low=1.4, high=2.0,
            values=plain[0] / plain[1],
            expected=f"unguided error at {config.steps} steps over that at {config.many_steps}",
        )
    )  # fmt: skip
    many = [s for s in found if s.rule == "published" and s.steps == config.many_steps]
    if len(many) > 1:
        at = np.array([s.coefficient for s in many])
        same = coefficient_at(
            gaps[Source("published", config.steps, config.reference)], at,
            np.stack([gaps[s] for s in many], 1),
        )  # fmt: skip
        report.claim(
            Claim.between(
                "broad: coefficient times steps is the strength", source=ours, low=0.5, high=2.0,
                values=same * config.many_steps / (config.reference * config.steps),
                expected="the product of both at equal gap, over that at the other steps",
            )
        )  # fmt: skip


def narrow_claims(report: Report, config: Any, found: Found) -> None:
    ensemble, _, guided = three(config, found)
    ours, own = "our own measurement at this size", ensemble.first(config.horizon).error
    report.claim(
        Claim.at_least(
            "narrow: the ensemble is lost where guided diffusion is not", source=ours,
            values=own.mean(1) / guided.error.mean(1), threshold=50.0,
            expected=f"error over guided diffusion's, rollouts of {config.horizon} steps",
        )
    )  # fmt: skip
    for label, error, make, threshold in (
        ("the ensemble's error explodes", own, Claim.at_least, 100.0),
        ("guided diffusion's error does not grow", guided.error, Claim.at_most, 2.0),
    ):
        growth = error[:, -1] / error[:, 0]
        expected = f"error at step {config.horizon} over that at the first"
        report.claim(
            make(
                f"narrow: {label}",
                source=ours,
                values=growth,
                threshold=threshold,
                expected=expected,
            )  # fmt: skip
        )
    many = [s for s in found if s.rule == "published" and s.steps == config.many_steps]
    if many:
        plain = found[Source("unguided", config.many_steps)].error.mean(1)
        report.claim(
            Claim.at_least(
                "narrow: strong guidance out of the data costs dynamics error", source=ours,
                values=found[many[-1]].error.mean(1) / plain, threshold=2.0,
                expected=f"error at {config.many_steps} steps and coefficient "
                f"{many[-1].coefficient:g} over unguided diffusion's",
            )
        )  # fmt: skip
