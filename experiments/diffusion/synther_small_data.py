"""Does a diffusion model help where data are few? SynthER on 3, 15 and 100 % of a dataset.

Every seed takes its own rows, fits its own diffusion model to them, replaces them by many more and
trains TD3+BC on those; beside it the same agent on the rows themselves and on as many rows with
noise added, the usual augmentation. Samples and noisy rows are looked at too: marginals,
correlations, distance to the nearest row and error in the true simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid, stacked
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig
from jaxrl_rollouts.diffusion import ResidualMlpConfig as Mlp
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, curves
from jaxrl_rollouts.offline.agents.critic_view import bootstrap_rate
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, normalised_score, sample_batch, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.study.model_based import Setting, behaviour, setting_of
from jaxrl_rollouts.offline.study.page import note_made
from jaxrl_rollouts.offline.synthetic.quality import augmented, quality_of
from jaxrl_rollouts.offline.synthetic.synther import MixedData, SyntherConfig, mixing, upsample
from jaxrl_rollouts.offline.training import train_on_rows
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.trees import stack

from ..catalogue import LISTINGS

SOURCE = LISTINGS["synther_small_data"].source
KINDS = {"rows": "", "samples": ", up-sampled", "rows with noise": ", with noise"}
JUDGED = ("samples", "rows with noise")
SHADES = {"rows": "#777777", "samples": "#0072B2", "rows with noise": "#E69F00"}
QUALITY = {name: name for name in ("marginal", "correlation", "novelty", "error")}
QUALITY["median error"] = "median"
RETURNS = "TD3+BC on a share of the data, and on samples or noisy rows in its place"
JUDGEMENT = "Left: how new samples are. Right: how wrong, in the true simulator."
Grids = Mapping[float, Grid]  # cells by kind, by share of the data


@dataclass(frozen=True)
class Config:
    """Shares of one dataset, and the budgets.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        dataset: a name or file; its environment's observation has to determine its state.
        shares: of its rows, ascending; drawn at random and anew for every seed.
        synther: the diffusion model.
        samples: drawn from it per seed and share.
        sample_batch: of them side by side.
        real_share: of real rows in a batch of samples or noisy rows; 0 replaces the data.
        agent: TD3+BC.
        updates, per_iteration, batch_size: of its training.
        evaluations: spread over the training, of so many `episodes` per seed.
        episodes: played at each evaluation, per seed.
        judged: samples per seed whose quality is measured.
        noise: of the augmented rows, in standard deviations.
    """

    seeds: int = positive(4)
    seed: int = 0
    dataset: str = "halfcheetah-mixed"
    shares: tuple[float, ...] = (0.03, 0.15, 1.0)
    synther: SyntherConfig = SyntherConfig()
    samples: int = positive(5_000_000)
    sample_batch: int = positive(10_000)
    real_share: float = 0.0
    agent: Td3BcConfig = Td3BcConfig()
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)
    batch_size: int = positive(256)
    evaluations: int = positive(10)
    episodes: int = positive(10)
    judged: int = positive(10_000)
    noise: float = 0.1

    def validate(self) -> None:
        shares = self.shares
        if not shares or list(shares) != sorted(set(shares)) or shares[0] <= 0 or shares[-1] > 1:
            raise ConfigError("shares", shares, "ascending, above 0 and at most 1")
        if self.updates % (self.per_iteration * self.evaluations):
            expected = f"a multiple of per_iteration * evaluations ({self.per_iteration} * "
            raise ConfigError("updates", self.updates, f"{expected}{self.evaluations})")
        if self.noise <= 0:
            raise ConfigError("noise", self.noise, "above 0")


def run(config: Config, context: RunContext) -> Report:
    """Every share: sample, look at the samples, train with and without them."""
    report, grids = Report.of(context, config.seeds), {}
    setting, key = setting_of(config.dataset, config.seed, context), jax.random.key(config.seed)
    for index, share in enumerate(config.shares):
        share_key = jax.random.fold_in(key, 2 + index)
        grids[share] = measure_share(share, setting, config, share_key, context)
        jax.clear_caches()  # programs of other sizes are not needed again
    page(report, config, setting, grids)
    return report


def measure_share(
    share: float, setting: Setting, config: Config, key: jax.Array, context: RunContext | None
) -> Grid:
    """What agents learn from a share of the rows and from what is made of them.

    Returns:
        Cells by kind, one of `KINDS`: `return`, and of what was made the numbers of `quality_of`.
    """
    rows_key, draw_key, look_key = jax.random.split(key, 3)
    # The same for every arm: what differs between them is the data.
    agent_keys = tuple(jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1)))
    rows = own_rows(setting.dataset.transitions, share, rows_key, config.seeds)
    name = f"{100 * share:g}-percent".replace(".", "-")
    run = {"batch": config.sample_batch, "stage": f"{name}-denoiser", "context": context}
    samples = upsample(rows, config.synther, draw_key, config.samples, **run)
    made = {"samples": samples, "rows with noise": with_noise(rows, config)}
    quality = measure_quality(rows, samples, setting.env, look_key, config)
    iterations = config.updates // config.per_iteration
    budget = {"batch_size": config.batch_size, "updates_per_iteration": config.per_iteration}
    budget |= {"iterations": iterations, "evaluate_every": iterations // config.evaluations}
    budget |= {"episodes": config.episodes, "seeds": config.seeds, "per_seed": True}

    def train_agents(kind: str, *, stage: str) -> Cell:
        """Every seed's on its own rows, or on what was made from them."""
        data, draw = stack(rows), sample_batch
        if kind in made:
            data, draw = MixedData(data, stack(made[kind])), mixing(config.real_share)
        arm = {"draw": draw, "stage": stage, "context": context}
        trained = train_on_rows(config.agent, data, setting.env, agent_keys, **budget, **arm)
        rate = bootstrap_rate(config.agent)
        return Cell.of(trained, quality.get(kind), updates=config.per_iteration, rate=rate)

    axes = {"kind": tuple(KINDS)}
    return run_grid(axes, train_agents, context, seeds=config.seeds, stage=name, clear=False)


def own_rows(data: Transitions, share: float, key: jax.Array, seeds: int) -> list[Transitions]:
    """Every seed's rows of the dataset: random, without replacement, in their order."""
    count = len(data.rewards)
    some = slice(max(round(share * count), 1))
    return [
        take_rows(data, np.sort(np.asarray(jax.random.permutation(k, count)[some])))
        for k in jax.random.split(key, seeds)
    ]


def with_noise(rows: list[Transitions], config: Config) -> list[Transitions]:
    """The usual augmentation: as many rows as there are samples, drawn anew, with noise."""
    noisy = []
    for seed, own in enumerate(rows):
        drawn = np.random.default_rng(seed).integers(0, len(own.rewards), config.samples)
        noisy.append(augmented(take_rows(own, drawn), config.noise, seed))
    return noisy


def measure_quality(
    rows: list[Transitions],
    made: list[Transitions],
    env: Environment,
    key: jax.Array,
    config: Config,
) -> dict[str, dict[str, np.ndarray]]:
    """`quality_of` by kind, `[seeds]`: of `config.judged` samples and of as many noisy rows."""
    quality: dict[str, list] = {kind: [] for kind in JUDGED}
    for seed, (real, samples) in enumerate(zip(rows, made, strict=True)):
        rng = np.random.default_rng(seed)
        own = take_rows(real, rng.integers(0, len(real.rewards), config.judged))
        drawn = take_rows(samples, rng.permutation(len(samples.rewards))[: config.judged])
        for kind, judged in zip(JUDGED, (drawn, augmented(own, config.noise, seed)), strict=True):
            quality[kind].append(quality_of(real, judged, env, jax.random.fold_in(key, seed)))
    return {kind: jax.tree.map(lambda *q: np.array(q), *quality[kind]) for kind in JUDGED}


def page(report: Report, config: Config, setting: Setting, grids: Grids) -> None:
    """Tables, claims and pictures."""
    earned = float(behaviour(setting).mean())
    report.table("returns", returns(setting.dataset.name, grids, earned))
    quality = [
        {"share, %": 100 * share, "rows": kind}
        | {column: grid[kind][name] for column, name in QUALITY.items()}
        for share, grid in grids.items()
        for kind in JUDGED
    ]
    report.table("quality", quality)
    clocks = (clock_rows(g, **{"share, %": 100 * share}) for share, g in grids.items())
    add_clock(report, [row for rows in clocks for row in rows])
    return_claims(report, config, grids)
    quality_claims(report, config, grids)
    draw(report, config, grids, earned)
    report.note(
        f"{config.dataset}, in {setting.env.name} ({setting.env.version}). Every seed has rows, a "
        f"diffusion model and samples of its own: {config.samples} samples, "
        f"{config.synther.training.updates} updates, {config.synther.sampler.steps} sampler steps; "
        f"then {config.updates} updates of TD3+BC."
    )
    report.note(
        "Errors are of the next observation against the simulator, in squared deviations of the "
        f"rows; 'rows with noise' have {config.noise:g} deviations added to both observations."
    )
    note_made(report, [setting.dataset])


def returns(dataset: str, grids: Grids, earned: float) -> list[dict[str, Any]]:
    """Of every arm, beside the behaviour's and those on plain rows."""
    table = []
    for share, grid in grids.items():
        for kind, cell in grid.items():
            row = {"data": f"{100 * share:g} %" + KINDS[kind], "return": cell["return"]}
            score = normalised_score(dataset, cell["return"])
            row |= {} if score is None else {"score": score}
            row["over the behaviour"] = cell["return"] - earned
            row |= {} if kind == "rows" else {"gained": cell["return"] - grid["rows"]["return"]}
            table.append(row)
    return table


def return_claims(report: Report, config: Config, grids: Grids) -> None:
    claim = claims(report, SOURCE, [cell for grid in grids.values() for cell in grid.values()])
    *few, most = config.shares
    for share in few:
        earned, percent = {kind: cell["return"] for kind, cell in grids[share].items()}, 100 * share
        better = {"at_least": 0.0, "means": "a higher return, seed by seed"}
        gain = earned["samples"] - earned["rows"]
        claim(f"up-sampling {percent:g} % of the data helps", gain, **better)
        gain = earned["samples"] - earned["rows with noise"]
        claim(f"samples of {percent:g} % do better than rows with noise", gain, **better)
    rows, samples = (grids[most][kind]["return"] for kind in ("rows", "samples"))
    text = f"replacing {100 * most:g} % of the data costs nothing"
    means = "return on samples minus that on rows, as a share of the latter"
    gain = (samples - rows) / max(abs(float(rows.mean())), 1e-6)
    claim(text, gain, between=(-0.1, 0.1), means=means)


def quality_claims(report: Report, config: Config, grids: Grids) -> None:
    claim, most = claims(report, SOURCE), config.shares[-1]
    for name in ("marginal", "correlation"):
        means = f"{name} score of samples from {100 * most:g} %"
        values = grids[most]["samples"][name]
        claim(f"samples have the data's {name}s", values, at_least=0.95, means=means)
    samples, noisy = ([grids[s][kind] for s in config.shares] for kind in JUDGED)
    further, error = (stacked(samples, n) / stacked(noisy, n) for n in ("novelty", "error"))
    noise = f"{config.noise:g} deviations of noise"
    text = "samples are further from the data than rows with noise"
    means = f"distance to the nearest row over that of rows with {noise}"
    claim(text, further, at_least=1.0, means=means)
    text = "samples obey the dynamics better than rows with noise"
    claim(text, error, at_most=1.0, means="error in the simulator over that of rows with noise")


def draw(report: Report, config: Config, grids: Grids, earned: float) -> None:
    titles = [f"{100 * share:g} % of the data" for share in grids]
    with picture(report, "returns", RETURNS, titles=titles, sharey=True) as axes:
        for ax, grid in zip(axes, grids.values(), strict=True):
            for kind, shade in SHADES.items():
                curves(ax, {kind: grid[kind]}, "return", colour_name=shade)
            level(ax, earned, "behaviour", linestyle=":", linewidth=1.0)
        axes[0].set_ylabel("return")
    at = 100 * np.asarray(config.shares)
    panels = {"novelty": "distance to the nearest row", "error": "dynamics error"}
    with picture(report, "quality", JUDGEMENT, titles=("", ""), height=2.9) as axes:
        for ax, (name, label) in zip(axes, panels.items(), strict=True):
            for kind in JUDGED:
                values = stacked([grids[share][kind] for share in config.shares], name)
                curve_with_band(ax, at, values, kind, colour_name=SHADES[kind])
            ax.set(xscale="log", yscale="log", xlabel="share of the data, %", ylabel=label)


_TINY = SyntherConfig(
    Mlp(width=16, blocks=2, embedding=8),
    DenoiserTrainingConfig(updates=20, batch=16, per_iteration=10),
    SamplerConfig(4),
)
_QUICK = DenoiserTrainingConfig(updates=10_000, rate=1e-3, warmup=500)
PRESETS = {
    "smoke": Config(
        dataset="pendulum-mixed", seeds=2, shares=(0.01, 0.05), synther=_TINY, samples=64,
        sample_batch=50, judged=32, agent=Td3BcConfig(hidden=(16,)), updates=20, per_iteration=10,
        batch_size=16, evaluations=1, episodes=2,
    ),
    "cpu": Config(
        synther=SyntherConfig(Mlp(width=256), _QUICK, SamplerConfig(32)), samples=50_000,
        sample_batch=5000, judged=2000, updates=20_000, evaluations=4, episodes=5,
        agent=Td3BcConfig(hidden=(128, 128), actor_rate=1e-3, critic_rate=1e-3),
    ),
    "gpu": Config(
        seeds=8, synther=SyntherConfig(Mlp(width=1024)), samples=500_000, sample_batch=50_000,
        updates=200_000, evaluations=5,
    ),
    "paper": Config(
        dataset="halfcheetah-medium-replay-v2", seeds=8, sample_batch=100_000,
        synther=SyntherConfig(training=DenoiserTrainingConfig(batch=1024)),
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["synther_small_data"].experiment(Config, PRESETS, run)
