"""Tables, claims and pictures of `sampler_steps`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.experiments.kit.draw import curve_with_band
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..catalogue import LISTINGS
from .sampler_steps_cells import FAST, PUBLISHED, SAMPLERS, Config, Measured, with_calls

SOURCE = LISTINGS["sampler_steps"].source
SOLVER = "Lu et al. 2022 (DPM-Solver++), arXiv 2211.01095; a pilot on HalfCheetah"
NEAR = 1.25  # times the published sampler's error at the most calls
COSTS = 0.05  # of the return on its samples
DECADE = 10.0  # a panel that spans more is logarithmic
DEFAULTS = {"mlp": SyntherConfig().sampler, "unet": PgdConfig().sampler}
TITLES = {"mlp": "MLP, transitions", "unet": "U-Net, windows"}
PANELS = {
    "next_observation": "dynamics error",
    "distance": "sliced Wasserstein",
    "spread": "spread, of data's",
    "return": "return of TD3+BC",
}
CAPTION = (
    "What more calls of the network buy, by sampler. Dotted: calls of the default. Dashed: real "
    "rows in the place of samples."
)
Results = Mapping[str, Measured]  # by network


def page(report: Report, config: Config, results: Results) -> None:
    """Tables, choice, claims and picture."""
    report.table("networks", [network(net, found, config) for net, found in results.items()])
    report.table(
        "sampling: cost and quality", [r for n in results for r in rows(n, config, results[n])]
    )
    levels = [r for n in results for r in level_rows(n, config, results[n])]
    if levels:
        report.table("levels", levels)
    choices = [choice(n, config, results[n], s) for n in results for s in config.samplers]
    report.table("enough calls", [row for row in choices if row])
    agents = {net: agents_of(found) for net, found in results.items()}
    clocks = (clock_rows(cells, net=net) for net, cells in agents.items())
    add_clock(report, [row for rows in clocks for row in rows])
    for net, found in results.items():
        add_claims(report, config, net, found, agents[net])
    draw(report, config, results)
    report.note(
        f"On {config.dataset}: errors of the next observation and of the reward are squares in the "
        "data's variances, against the true simulator; the sliced Wasserstein distance is between "
        "standardised rows (for U-Nets whole windows), beside that of two draws of real ones. "
        "Spread: standard deviation of a channel as a share of the data's, mean over channels. "
        "Nearest: mean distance to the nearest real row, in standard deviations, beside that of a "
        "real row to the nearest other one."
    )
    report.note(
        f"Returns are those of TD3+BC after {config.iterations * config.updates} updates on every "
        f"seed's own samples and nothing else ({config.rows} rows, or {config.windows} windows of "
        f"{config.length} states), beside equally many real rows. Samples a second are those of "
        "all seeds, drawn while the machine did other work, too: calls are the better measure."
    )
    report.note(
        f"{PUBLISHED}: EDM's second-order sampler with S_churn 80, SynthER's and policy-guided "
        f"diffusion's; heun, euler: without churn. dpmpp-ode, {FAST}: DPM-Solver++(2M), eta 0 and "
        "1. unet-step: groups normalised over each time step by itself."
    )


def network(net: str, found: Measured, config: Config) -> dict[str, Any]:
    """How it was trained."""
    _, losses = found.trained.history.curve("loss")
    last = losses[-max(len(losses) // 10, 1) :].mean(0)  # [seeds]
    training = config.mlp_training if net == "mlp" else config.unet_training
    row: dict[str, Any] = {"net": net, "updates": training.updates, "batch": training.batch}
    return row | {"loss, last tenth": summarize(last)}


def rows(net: str, config: Config, found: Measured) -> list[dict[str, Any]]:
    """One per sampler and number of calls; returns where agents were trained."""
    samples = config.seeds_of(net) * (config.rows if net == "mlp" else config.windows) / 2  # timed
    columns = {
        "made": lambda cell: with_calls(SAMPLERS[cell.point["sampler"]], cell.point["calls"]).calls,
        "samples/s": lambda cell: samples / float(cell["seconds"]),
        "next observation": "next_observation",
        "median": "median",
        "reward": "reward",
        "sliced Wasserstein": "distance",
        "of real rows": lambda cell: float(found.real["distance"]),
        "spread": "spread",
        "nearest": "nearest",
        "of a real row": lambda cell: float(found.real["nearest"]),
    }
    table = [{"net": net} | row for row in found.grid.rows(columns)]
    for row, cell in zip(table, found.grid.values(), strict=True):
        if "return" in cell:
            row |= {"return": summarize(cell["return"])}
            row |= {"return on real rows": summarize(found.real["return"])}
    return table


def level_rows(net: str, config: Config, found: Measured) -> list[dict[str, Any]]:
    """The fast sampler at other greatest noises and crowdings of levels."""
    names = {"next observation": "next_observation", "median": "median", "reward": "reward"}
    names |= {"sliced Wasserstein": "distance", "spread": "spread"}
    return [{"net": net} | row for row in found.levels.rows(names)]


def enough_calls(calls: tuple[int, ...], errors: np.ndarray, bound: float) -> int | None:
    """Fewest of `calls` `[K]` whose mean error, of `[seeds, K]`, is at most the bound."""
    means = zip(calls, errors.mean(0), strict=True)
    return next((n for n, error in means if error <= bound), None)  # NaN is near nothing


def choice(net: str, config: Config, found: Measured, sampler: str) -> dict[str, Any]:
    """How many calls are enough; nothing where a network is not looked at."""
    cells, most = found.grid.at(sampler=sampler), config.calls[-1]
    base = found.grid.cells.get((PUBLISHED, most))
    if base is None or not cells or net == "unet-step":
        return {}
    row: dict[str, Any] = {"net": net, "sampler": sampler}
    for metric, name in (("next_observation", "mean error"), ("median", "median error")):
        errors = np.stack([cell[metric] for cell in cells.values()], 1)
        n = enough_calls(tuple(cells), errors, NEAR * base[metric].mean())
        row[f"enough calls by the {name}"] = "none" if n is None else n
    return row | {"calls of the default": DEFAULTS[net].calls}


def agents_of(found: Measured) -> dict[str, Cell]:
    """Cells whose samples an agent learned from, by name."""
    cells = {f"{s}, {n} calls": cell for (s, n), cell in found.grid.items() if "return" in cell}
    return cells | ({"real rows": found.real} if "return" in found.real else {})


def add_claims(
    report: Report, config: Config, net: str, found: Measured, agents: Mapping[str, Cell]
) -> None:
    """Whether the fast sampler's few calls, and the defaults, are enough."""
    few, most = config.few, config.calls[-1]
    grid, claim = found.grid.cells, claims(report, SOLVER)
    fast, base = grid.get((FAST, few)), grid.get((PUBLISHED, most))
    if fast is None or base is None:
        return
    against = f"of {PUBLISHED} with {most}"
    for metric, name in (("next_observation", "dynamics error"), ("median", "median error")):
        text = f"{net}: {name} of {FAST} with {few} calls is near that {against}"
        means = f"at most {NEAR:g} times it"
        claim(text, fast[metric] / base[metric], at_most=NEAR, means=means)
    if "return" in fast and "return" in base:
        text = f"{net}: agents lose nothing by {FAST} with {few} calls {against}"
        means = "return on its samples minus that on the other's, as a share of the latter's size"
        lost = (fast["return"] - base["return"]) / np.abs(base["return"])
        claim(text, lost, at_least=-COSTS, means=means, cells=agents.values())
    if net == "unet-step":
        return
    default = DEFAULTS[net]
    name = next((n for n, s in SAMPLERS.items() if with_calls(s, default.calls) == default), "")
    chosen = grid.get((name, default.calls))
    if chosen is not None and chosen is not base:
        text = f"{net}: the default, {name} with {default.calls} calls, is enough"
        means = f"dynamics error at most {NEAR:g} times that {against}"
        ratio = chosen["next_observation"] / base["next_observation"]
        claim(text, ratio, at_most=NEAR, means=means, source=SOURCE)


def draw(report: Report, config: Config, results: Results) -> None:
    nets = [net for net in TITLES if net in results]
    cells = [cell for net in nets for cell in results[net].grid.cells.values()]
    panels = [metric for metric in PANELS if any(metric in cell for cell in cells)]
    titles = [TITLES[net] for net in nets] + [""] * (len(nets) * (len(panels) - 1))
    size = {"width": 3.2, "height": 1.9, "sharex": True}
    with picture(report, "steps", CAPTION, titles=titles, columns=len(nets), **size) as axes:
        for i, ax in enumerate(axes):
            net, metric = nets[i % len(nets)], panels[i // len(nets)]
            found = results[net]
            for sampler, shade in zip(config.samplers, PALETTE, strict=False):
                cells = found.grid.at(sampler=sampler).trained
                cells = {n: cell for n, cell in cells.items() if metric in cell}
                if cells:
                    values = np.stack([cell[metric] for cell in cells.values()], 1)
                    curve_with_band(ax, list(cells), values, sampler, colour_name=shade)
            if metric in ("distance", "return"):
                level(ax, found.real[metric].mean())
            if metric == "spread":
                level(ax, 1.0)
            low, high = ax.dataLim.intervaly
            if metric != "return" and high > DECADE * low:
                ax.set_yscale("log")
            ax.axvline(DEFAULTS[net].calls, color="black", linestyle=":", linewidth=0.8)
            ax.set_xscale("log", base=2)
            ax.set_xticks(config.calls, [str(n) for n in config.calls])
            ax.xaxis.set_minor_locator(NullLocator())
            last = i >= len(axes) - len(nets)
            ax.set(xlabel="calls" if last else "", ylabel="" if i % len(nets) else PANELS[metric])
