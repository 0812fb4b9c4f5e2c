"""The edge-of-reach problem on a plane: seen, located by an oracle, and cured by RAVL.

Model rollouts of k steps start from data that stay around the origin; the goal is away. States
reached in exactly k steps are bootstrapped from and never updated. With true dynamics nothing but
that can be wrong: base fails, base told the true value of those states (and of no others) does
not, and RAVL does not. The same again with a learned model, where MOPO has an error to penalise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.critic_view import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments import plane
from jaxrl_rollouts.offline.environments.plane import PLANE, ValueGrid, optimal_return
from jaxrl_rollouts.offline.environments.reach import Reach, measure_reach
from jaxrl_rollouts.offline.methods import scheme
from jaxrl_rollouts.offline.methods.registry import MethodConfig, Mopo, make_method
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.study import edge_of_reach
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.offline.worlds.fit import FittedWorlds, fit_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import spread_name

from ..catalogue import LISTINGS
from ..kit.colours import colour
from ..kit.draw import curves

SOURCE = LISTINGS["edge_of_reach_toy"].source
COLUMNS = {
    "return, % of optimum": "percent",
    "estimated value": "estimated_value",
    "true value": "true_value",
    "spread within reach": "spread_within",
    "spread at the edge": "spread_edge",
    "mean - min within reach": "gap_within",
    "mean - min at the edge": "gap_edge",
    "edge states in the buffer, %": lambda cell: 100.0 * cell["edge_share"],
}
IMPOSSIBLE, REACHED = "#D55E00", "#dbe9f4"
# What is trained. With true dynamics MOPO and MOBILE are base exactly.
RUNS = (
    *((method, "true") for method in ("base", "oracle patch", "ravl")),
    *((method, "learned") for method in ("base", "mopo", "ravl")),
)
# What fits into minutes on a CPU.
CPU_ENSEMBLE = EnsembleConfig(5, 3, (64, 64), weight_decay=(2.5e-5,), max_epochs=20)
CPU_ROLLOUTS = ModelBasedConfig(7, 1000, updates_per_epoch=500, batch_size=128, real_share=0.0)


@dataclass(frozen=True)
class Config(edge_of_reach.PlaneBudget):
    """Data, nets and cadence; the same for every method.

    Attributes:
        seed: of the random numbers; the same one gives the same numbers.
        learned: also train with learned dynamics.
        ensemble: the learned world model.
        rollouts: lengths and numbers of model rollouts, and updates between them.
        methods: settings of single methods.
        probes: states on which the critics are compared, within reach and at its edge.
    """

    seed: int = 0
    learned: bool = True
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    rollouts: ModelBasedConfig = field(
        default_factory=lambda: ModelBasedConfig(
            horizon=10, rollouts_per_epoch=1000, updates_per_epoch=500, real_share=0.0
        )
    )
    methods: MethodConfig = field(default_factory=lambda: MethodConfig(mopo=Mopo(2.0)))
    probes: int = positive(1024)


class PlaneData(NamedTuple):
    """What every run shares; `square` `[N, N, 2]` are the states on the maps."""

    rows: Transitions
    reach: Reach
    optimum: ValueGrid
    square: jax.Array
    fitted: FittedWorlds | None


def prepare(config: Config, context: RunContext | None) -> PlaneData:
    """Data of a random policy, its reach, the optimum, and a world model per seed."""
    data_key, fit_key = jax.random.split(jax.random.key(config.seed))
    rows, fitted = plane_random(data_key, config.rows), None
    reach = measure_reach(np.asarray(rows.observations), config.rollouts.horizon)
    optimum = jax.jit(plane.optimal_value, static_argnums=0)(config.agent.discount)
    if config.learned:
        fitted = fit_worlds(config.ensemble, rows, fit_key, seeds=config.seeds, context=context)
    return PlaneData(rows, reach, optimum, edge_of_reach.square(18.0, 109), fitted)


def train_all(config: Config, data: PlaneData, context: RunContext | None) -> Grid:
    """Every method with every kind of dynamics, all seeds side by side.

    With true dynamics the cells also hold a `map`, the value of every state of the plane.
    """
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))

    def train(name: str, kind: str, stage: str) -> Cell:
        patched, fitted = name == "oracle patch", data.fitted if kind == "learned" else None
        method = make_method("base" if patched else name, config.agent, config.methods)
        if patched:
            method = edge_of_reach.oracle_patch(method, data.reach, data.optimum)
        dynamics = fitted.dynamics(PLANE, method.disagreement) if fitted else true_dynamics(PLANE)
        learner = scheme.make_model_based(config.rollouts, method, dynamics, 2, 2)
        imagined = scheme.imagination(method, data.rows, fitted.worlds if fitted else ())
        look = edge_of_reach.critics_look(learner.agent, data.reach, config.probes)
        trained = edge_of_reach.train_on_plane(
            config, learner, imagined, keys, look, stage=stage, context=context
        )

        def measure() -> dict[str, np.ndarray]:
            states = trained.state.agent
            return {"map": edge_of_reach.value_map(learner.agent, states, data.square)}

        maps, updates = measure if kind == "true" else None, config.rollouts.updates_per_epoch
        rate = bootstrap_rate(config.agent)
        return Cell.of(trained, measure=maps, updates=updates, rate=rate)

    points = [point for point in RUNS if config.learned or point[1] == "true"]
    return run_grid(("method", "dynamics"), train, context, seeds=config.seeds, points=points)


def run(config: Config, context: RunContext) -> Report:
    """Train every run, compare, draw."""
    report, data = Report.of(context, config.seeds), prepare(config, context)
    grid = train_all(config, data, context)
    for (method, dynamics), cell in grid.items():
        name = f"{method}, {dynamics} dynamics"
        report.number(f"return: {name}", cell["percent"], "% of the optimum")
        report.number(f"estimated value: {name}", cell["estimated_value"])
    report.table("after training", grid.rows(COLUMNS))
    add_clock(report, clock_rows({", ".join(point): cell for point, cell in grid.items()}))
    discount = config.agent.discount
    starts = PLANE.observe(PLANE.reset(jax.random.key(config.seed), 4096))
    at_start = float(np.mean(optimal_return(starts, discount=discount, horizon=None)))
    best = 1.0 / (1.0 - discount)
    report.number("V* at the start states", at_start)
    report.number("highest V* anywhere", best)
    add_claims(report, grid, best)
    draw_reach(report, data)
    draw_training(report, grid, at_start)
    draw_spread(report, grid.at(dynamics="true"))
    draw_maps(report, data, grid.at(dynamics="true"))
    report.note(
        "With true dynamics the penalties of MOPO and MOBILE are zero: they are base, exactly, and "
        "are not trained a second time."
    )
    report.note(
        "Edge states: Chebyshev distance from the data in (k - 1, k]. The oracle patch replaces "
        "the bootstrapped value of those next states by V* (dynamic programming); nothing else "
        "differs from base. Estimated value: mean over critics at the start states; true value: "
        "measured discounted return of the same policy over 600 steps."
    )
    report.note(
        f"{config.epochs * config.rollouts.updates_per_epoch} updates per run, all seeds of a run "
        f"vmapped. MOPO's lambda is {config.methods.mopo.penalty}; true_dynamics sweeps it."
    )
    return report


def add_claims(report: Report, grid: Grid, best: float) -> None:
    """The paper's, with true dynamics and, where they were trained, with learned ones."""
    claim = claims(report, SOURCE)
    base, patched, ravl = (grid[name, "true"] for name in ("base", "oracle patch", "ravl"))
    # fmt: off
    claim("base fails with true dynamics", base["percent"], at_most=50, cells=[base],
          means="at most half of the optimal return")
    claim("base's values explode with true dynamics", base["estimated_value"],
          at_least=1.5 * best, cells=[base],
          means="promises at least 1.5 times what any policy can earn anywhere")
    claim("the oracle at edge states cures base", patched["percent"], at_least=95, cells=[patched],
          means="near-optimal return once edge states alone have their true value")
    claim("the patched critics are calibrated", patched["estimated_value"] / patched["true_value"],
          between=(0.85, 1.15), cells=[patched], means="estimated over true value close to 1")
    claim("RAVL is near-optimal with true dynamics", ravl["percent"], at_least=90, cells=[ravl],
          means="at least 90 % of the optimal return")
    claim("RAVL's values do not explode", ravl["estimated_value"], at_most=1.1 * best,
          cells=[ravl],
          means="no more than a policy can earn")
    claim("RAVL's critics disagree at the edge", ravl["spread_edge"] / ravl["spread_within"],
          at_least=2, means="spread at the edge at least twice the spread within reach")
    claim("RAVL's minimum is lower at the edge than base's", ravl["gap_edge"] / base["gap_edge"],
          at_least=1,
          means="mean minus minimum over critics at the edge exceeds that of two critics")
    claim("edge states are rare in the buffer", 100.0 * base["edge_share"], at_most=5,
          means="at most 5 % of the next states")
    if ("ravl", "learned") in grid:
        learned, other = grid["ravl", "learned"], grid["base", "learned"]
        claim("RAVL is near-optimal with learned dynamics", learned["percent"], at_least=90,
              cells=[learned], means="at least 90 % of the optimal return")
        claim("RAVL is better than base with learned dynamics",
              learned["percent"] - other["percent"], at_least=10, cells=[learned, other],
              means="by at least 10 points of the optimal return")
    # fmt: on


def draw_training(report: Report, grid: Grid, best_at_start: float) -> None:
    """Return and promised value over training, with true and with learned dynamics."""
    kinds = list(dict.fromkeys(dynamics for _, dynamics in grid))
    titles = [f"{what}: {kind} dynamics" for kind in kinds for what in ("Return", "Promised value")]
    caption = (
        "Left: return of the mean action in the true environment. Right: what the critics promise "
        "at the start states; above the dashed line it is more than any policy can earn. Lines: "
        f"interquartile mean over seeds, bands: {spread_name(report.seeds)}."
    )
    with picture(report, "training", caption, titles=titles, columns=2, sharex=True) as axes:
        for kind, left, right in zip(kinds, axes[::2], axes[1::2], strict=True):
            curves(left, grid.at(dynamics=kind), "percent")
            curves(right, grid.at(dynamics=kind), "estimated_value")
            left.set(ylabel="return, % of optimum", ylim=(-3, 106))
            level(left, 100, linewidth=0.9)
            level(right, best_at_start, "optimum", linewidth=0.9)
            right.set(yscale="log", ylabel="value at the start")
        for ax in axes[:-2]:
            ax.set_xlabel("")


def draw_spread(report: Report, grid: Grid) -> None:
    """Disagreement of the critics within reach and at the edge, and how rare edge states are."""
    caption = (
        "With true dynamics: critics disagree more at the edge of reach (solid) than within reach "
        "(dotted); only with many diverse critics does their minimum feel it."
    )
    disagreement = {
        "spread": "Critics' standard deviation",
        "gap": "Mean minus minimum over critics",
    }
    titles = (*disagreement.values(), "Edge states among next states")
    with picture(report, "spread", caption, titles=titles, width=3.0) as axes:
        for ax, metric in zip(axes, disagreement, strict=False):
            curves(ax, grid, f"{metric}_edge")
            for method, cell in grid.items():
                within, shade = f"{metric}_within", colour(method)
                curves(ax, {"_": cell}, within, colour_name=shade, linestyle=":")
            ax.set_yscale("log")
        curves(axes[2], grid, "edge_share", scale=100)
        axes[2].set_ylabel("% of the buffer")
        for line, text in (("-", "at the edge"), (":", "within reach")):
            axes[0].plot([], [], color="black", linestyle=line, label=text)


def _plane_axes(ax: Axes, data: PlaneData, *, outline: str = "black") -> np.ndarray:
    """The square, the goal and the two outlines of the edge; returns what both axes go along."""
    axis, k = np.asarray(data.square[:, 0, 0]), data.reach.horizon
    distance = np.asarray(data.reach.distance(data.square)).T
    ax.contour(axis, axis, distance, [k - 1, k], colors=outline, linewidths=0.8)
    star = {"marker": "*", "markeredgecolor": "black", "markersize": 11, "linestyle": ""}
    ax.plot(*plane.GOAL, color="white", label="goal (centre of the reward)", **star)
    ax.set(aspect="equal", xlim=(axis[0], axis[-1]), ylim=(axis[0], axis[-1]))
    ax.grid(visible=False)
    return axis


def draw_reach(report: Report, data: PlaneData) -> None:
    """Data, reach, edge, goal."""
    axis, k, shade = np.asarray(data.square[:, 0, 0]), data.reach.horizon, colour("data")
    kinds = {
        f"reached in fewer than {k} steps:\nvalues are corrected": REACHED,
        f"edge: reached in {k} steps only;\nbootstrapped from, never updated": IMPOSSIBLE,
    }
    caption = f"The plane: data, and where {k} model steps from them can lead."
    with picture(report, "reach", caption, legend=False, width=5.4, height=4.2) as (ax,):
        distance = np.asarray(data.reach.distance(data.square)).T
        ax.contourf(axis, axis, distance, [-1, k - 1, k], colors=list(kinds.values()))
        points = np.asarray(data.rows.observations)[::4]
        ax.plot(*points.T, ".", color=shade, markersize=1, rasterized=True)
        ax.plot([], [], "o", color=shade, markersize=3, label="data (random actions)")
        for text, fill in kinds.items():
            ax.plot([], [], color=fill, linewidth=7, label=text)
        corners = plane.START * np.array([[-1, -1, 1, 1, -1], [-1, 1, 1, -1, -1]])
        ax.plot(*corners, color="black", linewidth=1.2, label="start states")
        _plane_axes(ax, data)
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        ax.legend(fontsize=8, frameon=False, labelspacing=1.0, **beside)


def draw_maps(report: Report, data: PlaneData, grid: Grid) -> None:
    """Values over the plane: base, patched base, RAVL, and the optimum."""
    names = {"base": "base", "oracle patch": "base + oracle at the edge", "ravl": "RAVL"}
    maps = {title: np.median(grid[method]["map"], axis=0) for method, title in names.items()}
    maps["V* (exact)"] = np.asarray(data.optimum(data.square))
    palette = matplotlib.colormaps["viridis"].with_extremes(over=IMPOSSIBLE)
    style = {"cmap": palette, "norm": Normalize(0, 100), "shading": "nearest", "rasterized": True}
    caption = (
        "What the critics (their minimum, median over seeds, true dynamics) believe a state to be "
        "worth. White lines: edge of reach; star: goal."
    )
    titles, size = list(maps), {"width": 2.75, "height": 2.9, "legend": False}
    with picture(report, "q_maps", caption, titles=titles, **size) as axes:
        for ax, values in zip(axes, maps.values(), strict=True):
            axis = _plane_axes(ax, data, outline="white")
            shown = ax.pcolormesh(axis, axis, values.T, **style)
            ax.set_xlabel(f"highest: {values.max():.0f}")
        for ax in axes[1:]:
            ax.set_yticklabels([])
        bar = axes[0].figure.colorbar(shown, ax=axes, extend="max", shrink=0.85, pad=0.01)
        bar.set_label("value (orange: more than\nany policy can earn)")


EXPERIMENT = LISTINGS["edge_of_reach_toy"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2, rows=600, learned=False, epochs=2, evaluations=2, starts=8, probes=64,
            ensemble=EnsembleConfig(2, 1, (16,), weight_decay=(2.5e-5,), max_epochs=1),
            agent=SacConfig(hidden=(16,)),
            rollouts=ModelBasedConfig(4, 100, updates_per_epoch=5, batch_size=32),
        ),
        "cpu": Config(
            seeds=6,  # three on each of two cores
            epochs=200, evaluations=40, ensemble=CPU_ENSEMBLE, rollouts=CPU_ROLLOUTS,
        ),
        "paper": Config(seeds=10, rows=30_000, epochs=200),
    },
    run=run,
)  # fmt: skip
