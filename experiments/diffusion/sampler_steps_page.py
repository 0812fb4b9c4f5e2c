"""Tables, choice, claims and picture of `sampler_steps`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator

from jaxrl_rollouts.diffusion import SamplerConfig
from jaxrl_rollouts.experiments.kit.claims import claims
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, level, picture
from jaxrl_rollouts.experiments.kit.grid import Cell, Grid, stacked
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .sampler_steps_cells import CHURN, Config

SOURCE = "Karras et al. 2022 (EDM), arXiv 2206.00364, figure 2; the project's goals"
PILOT = "pilots on the acrobot, where guidance moved returns by 20 and more"
SLACK = 20.0  # of the return, which that is
NEAR = 1.25  # times the dynamics error of the most steps that are "enough"
DEFAULTS: Mapping[str, int] = {"mlp": SamplerConfig().steps, "unet": PgdConfig().sampler.steps}
TITLES = ("MLP, transitions", "U-Net, windows", "", "", "", "")
PANELS = {
    "next_observation": "dynamics error",
    "distance": "sliced Wasserstein",
    "return": "return of TD3+BC",
}
CAPTION = (
    "What more steps buy; cost is proportional to them. Dotted: the default. Dashed: real rows "
    "in the place of samples."
)
Results = Mapping[str, tuple[Grid, Cell]]  # by network: S_churn by steps, and real rows


def page(report: Report, config: Config, results: Results) -> None:
    """Everything there is to say."""
    sampling = [row for net in results for row in rows(net, config, *results[net])]
    report.table("sampling: cost and quality", sampling)
    choices = [choice(n, config, results[n][0], c) for n in results for c in config.churns]
    report.table("enough steps", choices)
    add_claims(report, config, results)
    draw(report, config, results)
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


def rows(net: str, config: Config, grid: Grid, real: Cell) -> list[dict[str, Any]]:
    """One per sampler of a network; returns where agents were trained."""
    samples = config.seeds * (config.rows if net == "mlp" else config.windows)
    columns = {
        "calls": lambda cell: 2 * cell.point["steps"] - 1,
        "samples/s": lambda cell: samples / float(cell["seconds"]),
        "sliced Wasserstein": "distance",
        "of real rows": lambda cell: float(real["distance"]),
        "next observation": "next_observation",
        "reward": "reward",
    }
    table = [{"net": net} | row for row in grid.rows(columns)]
    for row, cell in zip(table, grid.values(), strict=True):
        if "return" in cell.extra:
            row["return"], row["return on real rows"] = map(
                summarize, (cell["return"], real["return"])
            )
    return table


def enough_steps(steps: tuple[int, ...], errors: np.ndarray) -> int:
    """Fewest steps whose error is within `NEAR` of that of the most.

    Args:
        steps: ascending, `[K]`.
        errors: `[seeds, K]`; seeds are averaged.
    """
    mean = errors.mean(0)
    near = (n for n, e in zip(steps, mean, strict=True) if e <= NEAR * mean[-1])
    return next(near, steps[-1])  # NaN is near nothing


def choice(net: str, config: Config, grid: Grid, churn: float) -> dict[str, Any]:
    """How many steps are enough."""
    cells, most = grid.at(S_churn=churn), config.steps[-1]
    n = enough_steps(config.steps, stacked(cells.values(), "next_observation"))
    faster = float(cells[most]["seconds"] / cells[n]["seconds"])
    return {
        "net": net,
        "S_churn": churn,
        "enough steps": n,
        "default": DEFAULTS[net],
        f"times as fast as {most}": faster,
    }


def add_claims(report: Report, config: Config, results: Results) -> None:
    """Whether the defaults are enough, for the simulator and for agents."""
    claim, most, churns = claims(report, SOURCE), config.steps[-1], config.churns
    defaults = {n: k for n, k in DEFAULTS.items() if k in config.steps and k != most}
    for net, default in defaults.items() if CHURN in churns else ():
        few, many = (results[net][0][CHURN, n]["next_observation"] for n in (default, most))
        text = f"{net}: {default} steps, the default, are enough"
        means = f"dynamics error at most {NEAR:g} times that of {most} steps"
        claim(text, few / many, at_most=NEAR, means=means)
    if CHURN in churns and {32, 128} <= set(config.steps):
        few, many = (results["unet"][0][CHURN, n]["next_observation"] for n in (32, 128))
        text = "unet: 128 steps instead of 32 make fewer errors"
        means, source = "dynamics error of 32 steps over that of 128", "a pilot on the acrobot"
        claim(text, few / many, between=(1.4, 2.0), means=means, source=source)
    for net, default in defaults.items():
        few, many = (results[net][0][churns[0], n]["return"] for n in (default, most))
        text = f"{net}: agents need no more than {default} steps, the default"
        means = f"return on its samples minus that on {most} steps', seed by seed"
        claim(text, few - many, at_least=-SLACK, means=means, source=PILOT)


def draw(report: Report, config: Config, results: Results) -> None:
    size = {"width": 3.2, "height": 1.9, "sharex": True}
    with picture(report, "steps", CAPTION, titles=TITLES, columns=2, **size) as axes:
        for i, ax in enumerate(axes):
            net, metric = list(DEFAULTS)[i % 2], list(PANELS)[i // 2]
            grid, real = results[net]
            for churn, shade in zip(config.churns, PALETTE, strict=False):
                cells = grid.at(S_churn=churn).values()
                if metric != "return" or churn == config.churns[0]:
                    values = stacked(cells, metric)
                    label = f"S_churn {churn:g}"
                    curve_with_band(ax, config.steps, values, label, colour_name=shade)
            if metric != "next_observation":
                level(ax, real[metric].mean())
            if metric != "return":
                ax.set_yscale("log")
            ax.axvline(DEFAULTS[net], color="black", linestyle=":", linewidth=0.8)
            ax.set_xscale("log", base=2)
            ax.set_xticks(config.steps, [str(n) for n in config.steps])
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set(xlabel="" if i < 4 else "steps", ylabel="" if i % 2 else PANELS[metric])
