"""What a diffusion model's sampling costs and what it gives, by the number of steps.

A residual MLP learns transitions and a temporal U-Net learns windows of one dataset whose simulator
can be set to any state. Both are sampled at every number of steps, with churn and without. What is
drawn is judged by the simulator (dynamics error), as a distribution (sliced Wasserstein distance)
and by what an agent earns that learns from it alone. The defaults are to be read off this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.ticker import NullLocator

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid, stacked
from jaxrl_rollouts.compare.timing import timed
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig, small_training
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.draw import curve_with_band
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.study.model_based import Setting, setting_of
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig
from jaxrl_rollouts.offline.synthetic.quality import dynamics_error, sliced_wasserstein
from jaxrl_rollouts.offline.synthetic.synther import fit_layout
from jaxrl_rollouts.offline.synthetic.windows import cut_windows, fit_window_layout
from jaxrl_rollouts.offline.training import train_on_rows
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.trees import PyTree, stack

from ..catalogue import LISTINGS

SOURCE = LISTINGS["sampler_steps"].source
PILOT = "pilots on the acrobot, where guidance moved returns by 20 and more"
SLACK = 20.0  # of the return, which that is
NEAR = 1.25  # times the dynamics error of the most steps that are "enough"
CHURN = SamplerConfig().churn
DEFAULTS = {"mlp": SamplerConfig().steps, "unet": PgdConfig().sampler.steps}
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


@dataclass(frozen=True)
class Config:
    """Data, networks and samplers.

    Attributes:
        dataset: its environment's observation must determine the state.
        seeds, seed: denoisers trained side by side.
        mlp, mlp_training: the network of transitions.
        unet, unet_training: that of windows.
        length: states of a window.
        steps: numbers of noise levels, ascending.
        churns: values of S_churn.
        rows, windows: drawn per seed and sampler.
        agent: TD3+BC, trained on what was drawn with the first churn and nothing else.
        iterations, updates, batch_size: of its training; updates are those of an iteration.
        episodes: it is played per seed.
    """

    dataset: str = "acrobot-broad"
    seeds: int = positive(4)
    seed: int = 0
    mlp: diffusion.ResidualMlpConfig = diffusion.ResidualMlpConfig(width=128)
    mlp_training: DenoiserTrainingConfig = small_training(20_000, 256)
    unet: diffusion.TemporalUnetConfig = diffusion.TemporalUnetConfig()
    unet_training: DenoiserTrainingConfig = small_training(10_000, 64)
    length: int = 16
    steps: tuple[int, ...] = (16, 32, 64, 128, 256)
    churns: tuple[float, ...] = (CHURN, 0.0)
    rows: int = positive(4096)
    windows: int = positive(256)
    agent: Td3BcConfig = Td3BcConfig(hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3)
    iterations: int = positive(5)
    updates: int = positive(1000)
    batch_size: int = positive(256)
    episodes: int = positive(10)

    def validate(self) -> None:
        if list(self.steps) != sorted(set(self.steps)) or min(self.steps, default=0) < 2:
            raise ConfigError("steps", self.steps, "at least one, ascending, from 2")
        if not self.churns:
            raise ConfigError("churns", self.churns, "at least one")


def run(config: Config, context: RunContext) -> Report:
    """Train, sample, judge, learn from the samples."""
    report = Report.of(context, config.seeds)
    setting, results = setting_of(config.dataset, config.seed, context), {}
    nets = subjects(config, setting.dataset.transitions, setting.dataset.name)
    for index, (net, subject) in enumerate(nets.items()):
        key = jax.random.fold_in(jax.random.key(config.seed), index)
        results[net] = measure_net(net, subject, config, setting, key, context)
        jax.clear_caches()  # programs of the other network are not needed again
    page(report, config, results)
    return report


class Subject(NamedTuple):
    """One kind of denoiser with its data."""

    denoiser: diffusion.Denoiser
    training: DenoiserTrainingConfig
    rows: jax.Array  # [N, ...], standardised, trained on
    samples: int  # drawn per seed
    unpack: Callable[[jax.Array], Transitions]

    def real(self, key: jax.Array) -> jax.Array:
        """As many training rows as are sampled, drawn with replacement."""
        return self.rows[jax.random.randint(key, (self.samples,), 0, len(self.rows))]


def subjects(config: Config, data: Transitions, source: str) -> dict[str, Subject]:
    """The MLP of transitions and the U-Net of windows."""
    layout = fit_layout(data)
    cut = cut_windows(data, config.length, 4, source=source)
    windows = fit_window_layout(cut)
    mlp = diffusion.make_residual_mlp(config.mlp, layout.features)
    unet = diffusion.make_temporal_unet(config.unet, config.length, windows.channels)
    mlp, unet = diffusion.make_denoiser(mlp), diffusion.make_denoiser(unet)
    rows, back = windows.pack(cut), windows.unpack_valid
    return {
        "mlp": Subject(mlp, config.mlp_training, layout.pack(data), config.rows, layout.unpack),
        "unet": Subject(unet, config.unet_training, rows, config.windows, back),
    }


def measure_net(
    net: str,
    subject: Subject,
    config: Config,
    setting: Setting,
    key: jax.Array,
    context: RunContext,
) -> tuple[Grid, Cell]:
    """Train a network and sample it at every churn and number of steps, as a grid.

    Agents learn from samples of the first churn. Beside the grid: what real rows in the place of
    samples give, the `distance` that no sampler goes below and agents' `return`.
    """
    # The same for every sampler: what differs between them is the number of steps.
    fit_key, look_key, learn_key, real_key = jax.random.split(key, 4)
    keys = jax.random.split(fit_key, config.seeds)
    trained = diffusion.train_denoiser(*subject[:3], keys, stage=net, context=context)

    def measured(churn: float, steps: int, stage: str) -> dict[str, Any]:
        sampler = SamplerConfig(steps, churn=churn)
        numbers, samples = measure(subject, trained.state.average, sampler, setting, look_key)
        if churn == config.churns[0]:
            run = {"stage": stage, "context": context}
            numbers["return"] = learn(samples, setting, config, learn_key, **run)
        return numbers

    def cell(*point: Any, stage: str) -> Cell:
        return Cell(measure=lambda: measured(*point, stage))

    real = [subject.unpack(subject.real(k)) for k in jax.random.split(real_key, config.seeds)]
    earned = learn(real, setting, config, learn_key, stage=f"{net}-real", context=context)
    axes = {"S_churn": config.churns, "steps": config.steps}
    grid = run_grid(axes, cell, context, seeds=config.seeds, stage=net, clear=False)
    return grid, Cell(extra={"distance": floor(subject, look_key), "return": earned})


def measure(
    subject: Subject, params: PyTree, sampler: SamplerConfig, setting: Setting, key: jax.Array
) -> tuple[dict[str, Any], list[Transitions]]:
    """Draw with every seed's weights `params`, in turn timed and judged.

    Returns:
        What was measured: `seconds` of all seeds' draws and, each `[seeds]`, `distance` (sliced
        Wasserstein, from real rows), `next_observation` and `reward` (mean squared errors in the
        simulator, in the data's variances); and every seed's transitions.
    """
    shape, denoiser = (subject.samples, *subject.rows.shape[1:]), subject.denoiser

    def draw(per_seed: tuple, shared: tuple) -> jax.Array:
        settings = {"config": sampler, "edm": denoiser.config}
        return diffusion.sample(denoiser.denoise, *per_seed, shape, **settings)

    draw_key, real_key, look_key = jax.random.split(key, 3)
    per_seed = params, jax.random.split(draw_key, len(jax.tree.leaves(params)[0]))
    drawn = map_seeds(draw, per_seed)
    seconds = timed(lambda: map_seeds(draw, per_seed))
    samples, real = [subject.unpack(rows) for rows in drawn], subject.real(real_key)
    env, scale = setting.env, setting.dataset.transitions
    errors = [dynamics_error(env, rows, scale, look_key) for rows in samples]
    return {
        "seconds": seconds,
        "distance": np.array([sliced_wasserstein(real, rows) for rows in drawn]),
        "next_observation": np.array([error.next_observation.mean() for error in errors]),
        "reward": np.array([error.reward.mean() for error in errors]),
    }, samples


def learn(
    samples: list[Transitions], setting: Setting, config: Config, key: jax.Array, **run: Any
) -> np.ndarray:
    """Train an agent per seed on its rows alone, in the stage `run`; what it earns, `[seeds]`.

    Seeds have equally many rows: as many as the one with the fewest (windows stop where an episode
    ends).
    """
    least = min(len(rows.rewards) for rows in samples)
    data = stack([take_rows(rows, np.arange(least)) for rows in samples])
    budget = {"batch_size": config.batch_size, "updates_per_iteration": config.updates}
    budget |= {"iterations": config.iterations, "episodes": config.episodes}
    seeds, keys = {"seeds": len(samples), "per_seed": True}, tuple(jax.random.split(key))
    trained = train_on_rows(config.agent, data, setting.env, keys, **seeds, **budget, **run)
    return trained.history.last("return")


def floor(subject: Subject, key: jax.Array) -> float:
    """The distance of two draws of real rows: what no sampler goes below."""
    return sliced_wasserstein(*map(subject.real, jax.random.split(key)))


def page(report: Report, config: Config, results: Results) -> None:
    """Tables, choice, claims and picture."""
    sampling = [row for net in results for row in rows(net, config, *results[net])]
    report.table("sampling: cost and quality", sampling)
    choices = [choice(n, config, results[n][0], c) for n in results for c in config.churns]
    report.table("enough steps", choices)
    add_claims(report, config, {net: grid for net, (grid, _) in results.items()})
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
            row |= {"return": cell["return"], "return on real rows": real["return"]}
    return table


def enough_steps(steps: tuple[int, ...], errors: np.ndarray) -> int:
    """Fewest of `steps` `[K]` whose error `[seeds, K]` is within `NEAR` of that of the most."""
    mean = errors.mean(0)
    near = (n for n, e in zip(steps, mean, strict=True) if e <= NEAR * mean[-1])
    return next(near, steps[-1])  # NaN is near nothing


def choice(net: str, config: Config, grid: Grid, churn: float) -> dict[str, Any]:
    """How many steps are enough."""
    cells, most = grid.at(S_churn=churn), config.steps[-1]
    n = enough_steps(config.steps, stacked(cells.values(), "next_observation"))
    row = {"net": net, "S_churn": churn, "enough steps": n, "default": DEFAULTS[net]}
    return row | {f"times as fast as {most}": float(cells[most]["seconds"] / cells[n]["seconds"])}


def add_claims(report: Report, config: Config, grids: Mapping[str, Grid]) -> None:
    """Whether the defaults are enough, for the simulator and for agents."""
    claim, churns, most = claims(report, SOURCE), config.churns, config.steps[-1]
    defaults = {net: n for net, n in DEFAULTS.items() if n in config.steps and n != most}

    def pair(net: str, churn: float, metric: str, *steps: int) -> list[np.ndarray]:
        return [grids[net][churn, n][metric] for n in steps]

    for net, n in defaults.items() if CHURN in churns else ():
        few, many = pair(net, CHURN, "next_observation", n, most)
        means = f"dynamics error at most {NEAR:g} times that of {most} steps"
        claim(f"{net}: {n} steps, the default, are enough", few / many, at_most=NEAR, means=means)
    if CHURN in churns and {32, 128} <= set(config.steps):
        few, many = pair("unet", CHURN, "next_observation", 32, 128)
        text = "unet: 128 steps instead of 32 make fewer errors"
        means, source = "dynamics error of 32 steps over that of 128", "a pilot on the acrobot"
        claim(text, few / many, between=(1.4, 2.0), means=means, source=source)
    for net, n in defaults.items():
        few, many = pair(net, churns[0], "return", n, most)
        text = f"{net}: agents need no more than {n} steps, the default"
        means = f"return on its samples minus that on {most} steps', seed by seed"
        claim(text, few - many, at_least=-SLACK, means=means, source=PILOT)


def draw(report: Report, config: Config, results: Results) -> None:
    titles = ("MLP, transitions", "U-Net, windows", "", "", "", "")
    size = {"width": 3.2, "height": 1.9, "sharex": True}
    with picture(report, "steps", CAPTION, titles=titles, columns=2, **size) as axes:
        for i, ax in enumerate(axes):
            net, metric = list(DEFAULTS)[i % 2], list(PANELS)[i // 2]
            grid, real = results[net]
            # Agents learned from samples of the first churn only.
            churns = config.churns[:1] if metric == "return" else config.churns
            for churn, shade in zip(churns, PALETTE, strict=False):
                values = stacked(grid.at(S_churn=churn).values(), metric)
                curve_with_band(ax, config.steps, values, f"S_churn {churn:g}", colour_name=shade)
            if metric != "next_observation":
                level(ax, real[metric].mean())
            if metric != "return":
                ax.set_yscale("log")
            ax.axvline(DEFAULTS[net], color="black", linestyle=":", linewidth=0.8)
            ax.set_xscale("log", base=2)
            ax.set_xticks(config.steps, [str(n) for n in config.steps])
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set(xlabel="" if i < 4 else "steps", ylabel="" if i % 2 else PANELS[metric])


_TINY = small_training(20, 16)
PRESETS = {
    "smoke": Config(
        dataset=PENDULUM, seeds=2, length=8, steps=(4, 8), churns=(80.0,), rows=64, windows=16,
        mlp=diffusion.ResidualMlpConfig(width=16, blocks=2, embedding=16), mlp_training=_TINY,
        unet=diffusion.TemporalUnetConfig(features=8, blocks=1), unet_training=_TINY,
        agent=Td3BcConfig(hidden=(16,)), iterations=2, updates=10, batch_size=16, episodes=2,
    ),
    "cpu": Config(),
}  # fmt: skip
EXPERIMENT = LISTINGS["sampler_steps"].experiment(Config, PRESETS, run)
