"""Table, choice and picture of what sampling costs and gives; see `diffusion_quality`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from matplotlib.ticker import NullLocator

from jaxrl_rollouts.claims import Claim
from jaxrl_rollouts.diffusion import SamplerConfig
from jaxrl_rollouts.experiment import RunContext
from jaxrl_rollouts.pictures import PALETTE, curve_with_band, figure, legend
from jaxrl_rollouts.report import Report
from jaxrl_rollouts.statistics import summarize

from ..study import StudyConfig, environment_of, load_dataset
from .diffusion_quality import (
    CHURN,
    DEFAULTS,
    NEAR,
    SOURCE,
    Found,
    Measured,
    QualityConfig,
    enough_steps,
    fit,
    floor,
    measure,
    subjects,
)


def run_quality(config: QualityConfig, context: RunContext, report: Report) -> None:
    """Train, sample, judge; adds a table, claims and a picture."""
    if not config.steps:
        return
    dataset = load_dataset(config.dataset, StudyConfig(seed=config.seed))
    env = environment_of(dataset)
    key = jax.random.key(config.seed)
    found: Found = {}
    rows = []
    for index, (name, subject) in enumerate(
        subjects(config, dataset.transitions, dataset.name).items()
    ):
        fit_key, look_key = jax.random.split(jax.random.fold_in(key, index))
        params = fit(name, subject, config, fit_key, context)
        least = floor(subject, look_key)
        for churn in config.churns:
            for steps in config.steps:
                one = measure(
                    subject, params, SamplerConfig(steps, churn=churn), env, dataset.transitions,
                    look_key,
                )  # fmt: skip
                found[name, churn, steps] = one
                rows.append(_row(name, churn, steps, one, least, config.seeds * subject.samples))
        jax.clear_caches()
    report.table("sampling: cost and quality", rows)
    _choose(report, config, found)
    _draw(report, config, found)
    report.note(
        f"Quality is on {dataset.name} ({env.name}): errors of the next observation and of the "
        "reward are squares in the data's variances, against the true simulator; the sliced "
        "Wasserstein distance is between standardised rows (for the U-Net whole windows), beside "
        "that of two draws of real ones."
    )


def _row(
    name: str, churn: float, steps: int, one: Measured, least: float, samples: int
) -> dict[str, Any]:
    return {
        "net": name, "S_churn": churn, "steps": steps, "calls": 2 * steps - 1,
        "samples/s": samples / one.seconds, "sliced Wasserstein": summarize(one.distance),
        "of real rows": least, "next observation": summarize(one.next_observation),
        "reward": summarize(one.reward),
    }  # fmt: skip


def _errors(config: QualityConfig, found: Found, name: str, churn: float) -> np.ndarray:
    """Of the next observation, `[seeds, steps]`."""
    return np.stack([found[name, churn, n].next_observation for n in config.steps], 1)


def _choose(report: Report, config: QualityConfig, found: Found) -> None:
    """How many steps are enough, and whether the defaults are."""
    rows = []
    most = config.steps[-1]
    for name, default in DEFAULTS.items():
        for churn in config.churns:
            errors = _errors(config, found, name, churn)
            n = enough_steps(config.steps, errors)
            fast, slow = found[name, churn, n].seconds, found[name, churn, most].seconds
            rows.append(
                {"net": name, "S_churn": churn, "enough steps": n, "default": default,
                 f"times as fast as {most}": slow / fast}
            )  # fmt: skip
        if CHURN not in config.churns or default not in config.steps or default == most:
            continue
        errors = _errors(config, found, name, CHURN)
        at = config.steps.index(default)
        report.claim(
            Claim.at_most(
                f"{name}: {default} steps, the default, are enough",
                values=errors[:, at] / errors[:, -1], threshold=NEAR, source=SOURCE,
                expected=f"dynamics error at most {NEAR:g} times that of {most} steps",
            )
        )  # fmt: skip
    report.table("enough steps", rows)
    if CHURN in config.churns and {32, 128} <= set(config.steps):
        few, many = (found["unet", CHURN, n].next_observation for n in (32, 128))
        report.claim(
            Claim.between(
                "unet: 128 steps instead of 32 make fewer errors", values=few / many, low=1.4,
                high=2.0, source="a pilot on the acrobot",
                expected="dynamics error of 32 steps over that of 128",
            )
        )  # fmt: skip


def _draw(report: Report, config: QualityConfig, found: Found) -> None:
    made, axes = figure(
        2, 2, width=3.2, height=2.1, sharex=True,
        titles=("MLP, transitions", "U-Net, windows", "", ""),
    )  # fmt: skip
    for column, name in enumerate(DEFAULTS):
        for churn, shade in zip(config.churns, PALETTE, strict=False):
            cells = [found[name, churn, n] for n in config.steps]
            for row, values in enumerate(
                ([c.next_observation for c in cells], [c.distance for c in cells])
            ):
                ax = axes[2 * row + column]
                curve_with_band(
                    ax, config.steps, np.stack(values, 1), f"S_churn {churn:g}", colour_name=shade
                )
                ax.set_xscale("log", base=2)
                ax.set_yscale("log")
        axes[column].axvline(DEFAULTS[name], color="black", linestyle=":", linewidth=0.8)
        axes[2 + column].axvline(DEFAULTS[name], color="black", linestyle=":", linewidth=0.8)
        axes[2 + column].set_xlabel("steps")
    axes[0].set_ylabel("dynamics error")
    axes[2].set_ylabel("sliced Wasserstein")
    for ax in axes:
        ax.set_xticks(config.steps, [str(n) for n in config.steps])
        ax.xaxis.set_minor_locator(NullLocator())
    legend(made, axes)
    report.picture(
        "steps", made, "What more steps buy; cost is proportional to them. Dotted: the default."
    )
