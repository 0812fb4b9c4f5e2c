"""What `sampler_steps` measures: denoisers of transitions and of windows under every sampler.

Networks: `mlp`, of transitions; `unet`, of windows; `unet-step`, the same but with groups
normalised over each time step by itself, as policy-guided diffusion's public code has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.compare.timing import timed
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig, small_training
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.quality import (
    dynamics_error,
    novelty,
    sliced_wasserstein,
)
from jaxrl_rollouts.offline.synthetic.synther import fit_layout
from jaxrl_rollouts.offline.synthetic.windows import cut_windows, fit_window_layout
from jaxrl_rollouts.offline.training import train_on_rows
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree, stack

SAMPLERS: Mapping[str, SamplerConfig] = {
    "heun-churn": SamplerConfig(method="heun", churn=80.0),
    "heun": SamplerConfig(method="heun", churn=0.0),
    "euler": SamplerConfig(method="euler", churn=0.0),
    "dpmpp-ode": SamplerConfig(method="dpmpp_2m"),
    "dpmpp-sde": SamplerConfig(method="dpmpp_2m", eta=1.0),
}
PUBLISHED, FAST = "heun-churn", "dpmpp-sde"
NETS = ("mlp", "unet", "unet-step")
LOOKED = 128  # rows of a seed whose nearest real row is looked for


@dataclass(frozen=True)
class Config:
    """Data, networks and samplers.

    Attributes:
        dataset: its environment's observation must determine the state.
        seeds, seed: denoisers of transitions trained side by side.
        window_seeds: those of windows.
        nets: out of `NETS`; of `unet-step` only `learned` samplers are looked at, with `few` calls
            and the most.
        mlp, mlp_training: the network of transitions.
        unet, unet_training: that of windows.
        length: states of a window.
        samplers: out of `SAMPLERS`.
        calls: of the network at most, ascending; Heun makes one fewer where they are even.
        window_samplers, window_calls: out of these, those that windows are drawn with.
        biased, biased_calls: deterministic samplers that are looked at with so many calls at most.
        few: of these, what the fast sampler is to need.
        levels: `(sigma_max, rho)` at which the fast sampler draws transitions, too; the first are
            EDM's.
        level_calls: with so many calls.
        rows, windows: drawn per seed and sampler, in two halves.
        learned, learned_calls: samplers and calls whose samples agents learn from.
        agent: TD3+BC, trained on what was drawn and nothing else.
        iterations, updates, batch_size: of its training; updates are those of an iteration.
        episodes: it is played per seed.
    """

    dataset: str = "acrobot-broad"
    seeds: int = positive(4)
    seed: int = 0
    window_seeds: int = positive(4)
    nets: tuple[str, ...] = NETS
    mlp: diffusion.ResidualMlpConfig = diffusion.ResidualMlpConfig(width=128)
    mlp_training: DenoiserTrainingConfig = small_training(8000, 256)
    unet: diffusion.TemporalUnetConfig = diffusion.TemporalUnetConfig()
    unet_training: DenoiserTrainingConfig = small_training(4000, 32)
    length: int = 16
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    calls: tuple[int, ...] = (8, 16, 32, 64, 128, 255)
    window_samplers: tuple[str, ...] = (PUBLISHED, "dpmpp-ode", FAST)
    window_calls: tuple[int, ...] = (16, 32, 64, 255)
    biased: tuple[str, ...] = ("euler", "dpmpp-ode")
    biased_calls: int = positive(255)
    few: int = 32
    levels: tuple[tuple[float, float], ...] = ((80.0, 7.0), (20.0, 7.0), (5.0, 7.0), (80.0, 3.0))
    level_calls: tuple[int, ...] = (16, 32)
    rows: int = positive(4096)
    windows: int = positive(256)
    learned: tuple[str, ...] = (PUBLISHED, FAST)
    learned_calls: tuple[int, ...] = (32, 255)
    # Targets move ten times as fast as published: 12 000 updates are three time constants.
    agent: Td3BcConfig = Td3BcConfig(
        hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, polyak=0.05
    )
    iterations: int = positive(12)
    updates: int = positive(1000)
    batch_size: int = positive(256)
    episodes: int = positive(10)

    def validate(self) -> None:
        known = {"nets": NETS, "samplers": SAMPLERS, "biased": SAMPLERS}
        known |= dict.fromkeys(("window_samplers", "learned"), self.samplers)
        for name, names in known.items():
            found = getattr(self, name)
            if not set(found) <= set(names) or not (found or name in ("learned", "biased")):
                raise ConfigError(name, found, f"names out of {', '.join(names)}")
        if list(self.calls) != sorted(set(self.calls)) or min(self.calls, default=0) < 3:
            raise ConfigError("calls", self.calls, "at least one, ascending, from 3")
        for name in ("window_calls", "learned_calls"):
            if not set(getattr(self, name)) <= set(self.calls):
                raise ConfigError(name, getattr(self, name), f"out of calls {self.calls}")
        if self.few not in self.calls:
            raise ConfigError("few", self.few, f"out of calls {self.calls}")

    def points(self, net: str) -> list[tuple[str, int]]:
        """Samplers and calls at which a network is looked at."""
        samplers, calls = self.samplers, self.calls
        if net != "mlp":
            samplers, calls = self.window_samplers, self.window_calls
        if net == "unet-step":
            samplers = tuple(name for name in samplers if name in self.learned)
            calls = tuple(n for n in calls if n in (self.few, self.calls[-1]))
        most = dict.fromkeys(self.biased, self.biased_calls)
        return [(s, n) for s in samplers for n in calls if n <= most.get(s, n)]

    def seeds_of(self, net: str) -> int:
        """How many of a network are trained."""
        return self.seeds if net == "mlp" else self.window_seeds

    def learns(self, net: str, sampler: str, calls: int) -> bool:
        """Whether agents learn from what is drawn there."""
        return net != "unet-step" and sampler in self.learned and calls in self.learned_calls


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


class Measured(NamedTuple):
    """Of one network: its training, what it draws, what real rows in their place give."""

    trained: Trained
    grid: Grid  # by sampler and calls
    levels: Grid  # by sigma_max, rho and calls
    real: Cell


def with_calls(sampler: SamplerConfig, calls: int) -> SamplerConfig:
    """With as many steps as make at most so many network calls."""
    return replace(sampler, steps=(calls + 1) // 2 if sampler.method == "heun" else calls)


def subjects(config: Config, data: Transitions, source: str) -> dict[str, Subject]:
    """The MLP of transitions and the U-Nets of windows."""
    layout = fit_layout(data)
    cut = cut_windows(data, config.length, 4, source=source)
    windows = fit_window_layout(cut)
    mlp = diffusion.make_denoiser(diffusion.make_residual_mlp(config.mlp, layout.features))
    made = {"mlp": Subject(mlp, config.mlp_training, layout.pack(data), config.rows, layout.unpack)}
    rows, back = windows.pack(cut), windows.unpack_valid
    for net, over in (("unet", "window"), ("unet-step", "step")):
        chosen = replace(config.unet, norm_over=over)
        unet = diffusion.make_temporal_unet(chosen, config.length, windows.channels)
        denoiser = diffusion.make_denoiser(unet)
        made[net] = Subject(denoiser, config.unet_training, rows, config.windows, back)
    return {net: made[net] for net in config.nets}


def measure_net(
    net: str,
    subject: Subject,
    config: Config,
    setting: Setting,
    key: jax.Array,
    context: RunContext | None,
) -> Measured:
    """Train a network and sample it with every sampler and number of calls.

    Beside the grids: what real rows in the place of samples give, the `distance` that no sampler
    goes below, how far they are from the `nearest` other one and agents' `return`.
    """
    # The same for every sampler: what differs between them is how they sample.
    fit_key, look_key, learn_key, real_key = jax.random.split(key, 4)
    seeds = config.seeds_of(net)
    keys = jax.random.split(fit_key, seeds)
    trained = diffusion.train_denoiser(*subject[:3], keys, stage=net, context=context)

    def cell(sampler: SamplerConfig, learns: bool, stage: str) -> Cell:
        arguments = subject, trained.state.average, sampler, setting, look_key
        found = remember(context, stage, "measured", lambda: measure(*arguments))
        drawn = found.pop("drawn")
        found["nearest"] = np.array([nearest(subject.rows, rows[:LOOKED]) for rows in drawn])
        if not learns:
            return Cell(extra=found)
        samples = [subject.unpack(rows) for rows in drawn]
        return learned(config, found, samples, setting, learn_key, stage, context)

    def sampled(name: str, calls: int, *, stage: str) -> Cell:
        return cell(with_calls(SAMPLERS[name], calls), config.learns(net, name, calls), stage)

    def levelled(sigma_max: float, rho: float, calls: int, *, stage: str) -> Cell:
        chosen = replace(with_calls(SAMPLERS[FAST], calls), sigma_max=sigma_max, rho=rho)
        return cell(chosen, False, stage)

    run: dict[str, Any] = {"seeds": seeds, "clear": False}
    points = config.points(net)
    grid = run_grid(("sampler", "calls"), sampled, context, points=points, stage=net, **run)
    levels = config.levels if net == "mlp" else ()
    points = [(*level, calls) for level in levels for calls in config.level_calls]
    axes, stage = ("sigma_max", "rho", "calls"), f"{net}-levels"
    levels = run_grid(axes, levelled, context, points=points, stage=stage, **run)
    extra = {"distance": floor(subject, look_key), "nearest": apart(subject, look_key)}
    if net == "unet-step":
        return Measured(trained, grid, levels, Cell(extra=extra))
    rows = [subject.unpack(subject.real(k)) for k in jax.random.split(real_key, seeds)]
    real = learned(config, extra, rows, setting, learn_key, f"{net}-real", context)
    return Measured(trained, grid, levels, real)


def measure(
    subject: Subject, params: PyTree, sampler: SamplerConfig, setting: Setting, key: jax.Array
) -> dict[str, Any]:
    """Draw with every seed's weights `params`, in two halves of which one is timed, and judge.

    Returns:
        `drawn`, `[seeds, samples, ...]` standardised; `seconds` of all seeds' second half; and,
        each `[seeds]`, `distance` (sliced Wasserstein, from real rows), `next_observation`, its
        `median` and `reward` (squared errors in the simulator, in the data's variances), and
        `spread` (standard deviation of a channel as a share of the data's, mean over channels).
    """
    half, denoiser = -(-subject.samples // 2), subject.denoiser
    shape = half, *subject.rows.shape[1:]

    def draw(per_seed: tuple, shared: tuple) -> jax.Array:
        settings = {"config": sampler, "edm": denoiser.config}
        return diffusion.sample(denoiser.denoise, *per_seed, shape, **settings)

    *draw_keys, real_key, look_key = jax.random.split(key, 4)
    seeds, halves = len(jax.tree.leaves(params)[0]), []
    for draw_key in draw_keys:
        per_seed = params, jax.random.split(draw_key, seeds)

        def draw_half(per_seed: tuple = per_seed) -> jax.Array:
            halves.append(map_seeds(draw, per_seed))
            return halves[-1]

        seconds = timed(draw_half)  # the first compiles
    drawn = np.concatenate(halves, 1)[:, : subject.samples]
    samples, real = [subject.unpack(rows) for rows in drawn], subject.real(real_key)
    env, scale = setting.env, setting.dataset.transitions
    errors = [dynamics_error(env, rows, scale, look_key) for rows in samples]
    return {
        "drawn": drawn,
        "seconds": seconds,
        "distance": np.array([sliced_wasserstein(real, rows) for rows in drawn]),
        "next_observation": np.array([error.next_observation.mean() for error in errors]),
        "median": np.array([np.median(error.next_observation) for error in errors]),
        "reward": np.array([error.reward.mean() for error in errors]),
        "spread": np.array([spread(subject.rows, rows) for rows in drawn]),
    }


def nearest(real: jax.Array | np.ndarray, drawn: np.ndarray) -> float:
    """Mean distance to the nearest real row, in standard deviations.

    Entries that never vary in the data, as a window's last action, do not count.
    """
    rows, own = (np.asarray(x).reshape(len(x), -1) for x in (real, drawn))
    varies = rows.std(0) > 1e-4
    return float(novelty(rows[:, varies], own[:, varies]).mean())


def spread(real: jax.Array, drawn: np.ndarray) -> float:
    """Standard deviation over everything but channels, over that of the data; their mean.

    Channels that never vary in the data do not count.
    """
    own, wanted = (np.asarray(x).reshape(-1, x.shape[-1]).std(0) for x in (drawn, real))
    varies = wanted > 1e-6
    return float((own[varies] / wanted[varies]).mean())


def floor(subject: Subject, key: jax.Array) -> float:
    """The distance of two draws of real rows: what no sampler goes below."""
    return sliced_wasserstein(*map(subject.real, jax.random.split(key)))


def apart(subject: Subject, key: jax.Array) -> float:
    """How far real rows are from the nearest other one, in standard deviations."""
    count = min(LOOKED, -(-len(subject.rows) // 10))  # the others stay near
    chosen = np.asarray(jax.random.permutation(key, len(subject.rows)))[:count]
    rows = np.asarray(subject.rows)
    return nearest(np.delete(rows, chosen, 0), rows[chosen])


def learned(
    config: Config, extra: Mapping[str, Any], samples: list[Transitions], *arguments: Any
) -> Cell:
    """A cell of agents that learned from each seed's own `samples`; `arguments` are `learn`'s."""
    trained = learn(samples, config, *arguments)
    rate = bootstrap_rate(config.agent)
    return Cell.of(trained, extra, updates=config.updates, rate=rate)


def learn(
    samples: list[Transitions],
    config: Config,
    setting: Setting,
    key: jax.Array,
    stage: str,
    context: RunContext | None,
) -> Trained:
    """Train an agent per seed on its rows alone.

    Seeds have equally many rows: as many as the one with the fewest (windows stop where an episode
    ends).
    """
    least = min(len(rows.rewards) for rows in samples)
    data = stack([take_rows(rows, np.arange(least)) for rows in samples])
    budget: dict[str, Any] = {"batch_size": config.batch_size, "episodes": config.episodes}
    budget |= {"updates_per_iteration": config.updates, "iterations": config.iterations}
    budget |= {"seeds": len(samples), "per_seed": True, "stage": stage, "context": context}
    keys = tuple(jax.random.split(key))
    return train_on_rows(config.agent, data, setting.env, keys, **budget)
