"""Tables, choice, claims and picture of `sampler_steps`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import NullLocator

from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import PALETTE, figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.draw import curve_with_band
from .sampler_steps_cells import CHURN, DEFAULTS, SOURCE, Config
from .sampler_steps_study import NEAR, Measured, enough_steps

PILOT = "pilots on the acrobot, where guidance moved returns by 20 and more"
SLACK = 20.0  # of the return, which that is


class Look(NamedTuple):
    """One sampler of one kind: what it cost, how true it was, what an agent learned from it.

    Attributes:
        measured: cost and errors.
        returns: of agents, `[seeds]`; None where none were trained.
    """

    measured: Measured
    returns: np.ndarray | None


class Real(NamedTuple):
    """The same of real rows: what no sampler goes below, and what agents earn, `[seeds]`."""

    distance: float
    returns: np.ndarray


Found = dict[tuple[str, float, int], Look]  # (kind, churn, steps)


def add_report(report: Report, config: Config, found: Found, real: dict[str, Real]) -> None:
    """Everything there is to say."""
    rows = []
    for (name, churn, steps), look in found.items():
        samples = config.seeds * (config.rows if name == "mlp" else config.windows)
        rows.append(_row(name, churn, steps, look, real[name], samples))
    report.table("sampling: cost and quality", rows)
    _choose(report, config, found)
    _agent_claims(report, config, found)
    _draw(report, config, found, real)
    report.note(
        f"On {config.dataset}: errors of the next observation and of the reward are squares in the "
        "data's variances, against the true simulator; the sliced Wasserstein distance is between "
        "standardised rows (for the U-Net whole windows), beside that of two draws of real ones."
    )
    report.note(
        f"Returns are those of TD3+BC after {config.iterations * config.updates} updates on every "
        f"seed's own samples and nothing else ({config.rows} rows, or {config.windows} windows of "
        f"{config.length} states), beside equally many real rows."
    )


def _row(
    name: str, churn: float, steps: int, look: Look, real: Real, samples: int
) -> dict[str, Any]:
    one = look.measured
    row = {
        "net": name, "S_churn": churn, "steps": steps, "calls": 2 * steps - 1,
        "samples/s": samples / one.seconds, "sliced Wasserstein": summarize(one.distance),
        "of real rows": real.distance, "next observation": summarize(one.next_observation),
        "reward": summarize(one.reward),
    }  # fmt: skip
    if look.returns is not None:
        row |= {"return": summarize(look.returns), "return on real rows": summarize(real.returns)}
    return row


def _errors(config: Config, found: Found, name: str, churn: float) -> np.ndarray:
    """Of the next observation, `[seeds, steps]`."""
    return np.stack([found[name, churn, n].measured.next_observation for n in config.steps], 1)


def _choose(report: Report, config: Config, found: Found) -> None:
    """How many steps are enough, and whether the defaults are."""
    rows = []
    most = config.steps[-1]
    for name, default in DEFAULTS.items():
        for churn in config.churns:
            errors = _errors(config, found, name, churn)
            n = enough_steps(config.steps, errors)
            fast, slow = (found[name, churn, k].measured.seconds for k in (n, most))
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
        few, many = (found["unet", CHURN, n].measured.next_observation for n in (32, 128))
        report.claim(
            Claim.between(
                "unet: 128 steps instead of 32 make fewer errors", values=few / many, low=1.4,
                high=2.0, source="a pilot on the acrobot",
                expected="dynamics error of 32 steps over that of 128",
            )
        )  # fmt: skip


def _agent_claims(report: Report, config: Config, found: Found) -> None:
    """Whether agents need more steps than the default."""
    churn, most = config.churns[0], config.steps[-1]
    for name, default in DEFAULTS.items():
        if default not in config.steps or default == most:
            continue
        few, many = (found[name, churn, n].returns for n in (default, most))
        assert few is not None and many is not None
        report.claim(
            Claim.at_least(
                f"{name}: agents need no more than {default} steps, the default",
                values=few - many, threshold=-SLACK, source=PILOT,
                expected=f"return on its samples minus that on {most} steps', seed by seed",
            )
        )  # fmt: skip


def _draw(report: Report, config: Config, found: Found, real: dict[str, Real]) -> None:
    made, axes = figure(
        3, 2, width=3.2, height=1.9, sharex=True,
        titles=("MLP, transitions", "U-Net, windows", "", "", "", ""),
    )  # fmt: skip
    for column, name in enumerate(DEFAULTS):
        error, distance, score = axes[column::2]
        for churn, shade in zip(config.churns, PALETTE, strict=False):
            looks = [found[name, churn, n] for n in config.steps]
            label = f"S_churn {churn:g}"
            for ax, values in (
                (error, [look.measured.next_observation for look in looks]),
                (distance, [look.measured.distance for look in looks]),
                (score, [look.returns for look in looks if look.returns is not None]),
            ):
                if values:
                    curve_with_band(ax, config.steps, np.stack(values, 1), label, colour_name=shade)
        distance.axhline(real[name].distance, color="black", linestyle="--", linewidth=0.8)
        score.axhline(real[name].returns.mean(), color="black", linestyle="--", linewidth=0.8)
        for ax in (error, distance):
            ax.set_yscale("log")
        score.set_xlabel("steps")
        for ax in (error, distance, score):
            ax.axvline(DEFAULTS[name], color="black", linestyle=":", linewidth=0.8)
    for ax, label in zip(
        axes[::2], ("dynamics error", "sliced Wasserstein", "return of TD3+BC"), strict=True
    ):
        ax.set_ylabel(label)
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(config.steps, [str(n) for n in config.steps])
        ax.xaxis.set_minor_locator(NullLocator())
    legend(made, axes)
    report.picture(
        "steps", made,
        "What more steps buy; cost is proportional to them. Dotted: the default. Dashed: real rows "
        "in the place of samples.",
    )  # fmt: skip
