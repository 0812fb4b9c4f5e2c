"""How fast emulators are: gradient steps, rollouts and seeds, beside torch and APEBench.

Two comparisons, each at an equal network, batch and grid, in turns within one run:

- torch: our conditioned dilated ResNet, rebuilt there (`peers/torch_resnet.py`);
- APEBench: its own `Dil` network, rebuilt here (`PlainResnet`), with its own trainer and rollout.

The peers get our weights first, and what they make of a few fields is compared with ours: networks
that differ are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices, loop
from jaxrl_rollouts.compare import timing
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.peer import (
    Outputs,
    Theirs,
    Timers,
    check_interpreter,
    shaken,
    time_beside,
)
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.group_norm import GroupNorm
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.pde.emulator import FIRST_INDEX, FieldNetwork
from jaxrl_rollouts.pde.evaluation import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.operators import ResnetConfig, make_resnet
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, field_network
from jaxrl_rollouts.pde.training import TrainingConfig, make_training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.trees import PyTree

from ..catalogue import LISTINGS
from .goals import PEERS, claim_times, show_seeds

CHANNELS = 1
KINDS = {"training": "train", "rollout": "roll"}


class Comparison(NamedTuple):
    """One peer: its script, the network, and how many times as fast ours should be."""

    script: str
    network: str
    goal: float


COMPARED = {
    "torch": Comparison("torch_resnet.py", "our conditioned dilated ResNet", 2.0),
    "apebench": Comparison("apebench_run.py", "APEBench's network, Dil", 1.0),
}


@dataclass(frozen=True)
class Config:
    """What is timed. An empty `torch_python` or `apebench_python` leaves that peer out.

    Attributes:
        widths: of the networks; the rest of them is `blocks` and `dilation_factor`, the power of
            two of the widest dilation, as APEBench counts.
        blocks: of the networks.
        dilation_factor: power of two of the widest dilation, as APEBench counts.
        points: of the grid.
        batch: windows in a gradient step.
        trajectories: of the training data.
        frames: of each.
        updates: gradient steps that are timed.
        fields: rolled side by side.
        steps: of a rollout.
        repeats: rounds in which everybody is timed once.
        seeds: numbers of them that are timed side by side.
        seeds_width: width of the networks whose seeds are timed.
        torch_python: an interpreter with torch; empty leaves it out.
        torch_compile: also time what `torch.compile` makes; the faster one is compared.
        apebench_python: an interpreter with APEBench; empty leaves it out.
    """

    widths: tuple[int, ...] = (32, 64)
    blocks: int = 2
    dilation_factor: int = 3
    points: int = 64
    batch: int = 32
    trajectories: int = 256
    frames: int = 36
    updates: int = 50
    fields: int = 256
    steps: int = 25
    repeats: int = 5
    seeds: tuple[int, ...] = (1, 2, 4, 8)
    seeds_width: int = 32
    torch_python: str = ""
    torch_compile: bool = True
    apebench_python: str = ""

    def validate(self) -> None:
        at_least_one(self, "blocks", "batch", "updates", "fields", "steps", "repeats")
        for name in COMPARED:
            check_interpreter(f"{name}_python", getattr(self, f"{name}_python"), name)

    @property
    def dilations(self) -> tuple[int, ...]:
        rising = [2**i for i in range(self.dilation_factor + 1)]
        return (*rising, *rising[-2::-1])


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = timing.start_report(context, config, {f"{name}_python": name for name in COMPARED})
    peak = timing.matmul_peak()
    for name in COMPARED:
        timings = {width: time_against(config, context, name, width) for width in config.widths}
        show_against(report, config, name, timings, peak)
    width = config.seeds_width
    train = make_ours(config, width, plain=False).train
    title = f"dilated ResNet, width {width}, batch {config.batch}"
    show_seeds(report, context, title, train, config.seeds, repeats=config.repeats)
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The columns beside the "
        "rates are the share of that which the convolutions use; 100 % cannot be passed."
    )
    report.note(
        "Training is a gradient step at batch "
        f"{config.batch} on {config.points} points, one seed, a new random batch each, Adam; ours "
        "and torch also clip and average the weights. torch is eager on all cores, eager on one "
        "thread and compiled, and the fastest is compared; nothing else may run beside it: its "
        "threads wait for each other and slow down out of proportion. Rollouts are "
        f"{config.fields} fields at once, ours spread over the cores, and a step is a step of all."
    )
    timing.note_load(report, "at the end")
    return report


class PlainResnet(nn.Module):
    """PDEquinox's `DilatedResNet`, which APEBench calls `Dil`, in our layers: `[N, 2] -> [N, 1]`.

    Normalisation, convolution, then the activation (GELU's tanh form, as theirs); lifted and
    projected by convolutions of width 1; it sees the field only and nothing it is told.
    """

    width: int
    blocks: int
    dilations: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array, *_: Any) -> jax.Array:
        x = PeriodicConv(self.width, width=1)(x[:, :CHANNELS])
        for _ in range(self.blocks):
            h = x
            for dilation in self.dilations:
                h = PeriodicConv(self.width, dilation=dilation)(GroupNorm()(h))
                h = nn.gelu(h, approximate=True)
            x = x + h
        return PeriodicConv(CHANNELS, width=1)(x)


def forward_operations(config: Config, width: int, *, plain: bool) -> float:
    """Operations of one field's convolutions: 2 for every weight and grid point."""
    ends = 2 * CHANNELS * width if plain else 9 * CHANNELS * width  # 1 and 1; 3 on two, and 3
    layers = config.blocks * len(config.dilations)
    return 2.0 * config.points * (layers * 3 * width**2 + ends)


class Ours(NamedTuple):
    """One network of ours, ready to be timed; compiled at the first calls.

    Attributes:
        net, params: the raw network, with noise on all parameters.
        train: number of seeds -> a timed training.
        roll: rolls `config.fields` fields out.
    """

    net: FieldNetwork
    params: PyTree
    train: Callable[[int], loop.Trained]
    roll: Callable[[], jax.Array]

    def outputs(self, points: int) -> Outputs:
        """What it makes of two fields."""
        fields = jax.random.normal(jax.random.key(5), (2, CHANNELS, points))
        unused = jnp.zeros((CHANNELS, points)), FIRST_INDEX, jnp.zeros(0)
        said = jax.vmap(lambda field: self.net.apply(self.params, field, *unused))(fields)
        return [({"fields": fields}, said)]


def make_ours(config: Config, width: int, *, plain: bool) -> Ours:
    """The plain network (APEBench's) or the conditioned one, with its training and rollout.

    Fields are random: speed does not depend on what they say.
    """
    sizes = {"width": width, "blocks": config.blocks, "dilations": config.dilations}
    if plain:
        net = field_network(PlainResnet(**sizes), CHANNELS, config.points, conditions=0)
    else:
        net = make_resnet(ResnetConfig(**sizes), CHANNELS, config.points)
    emulator, updates = make_one_step(net, OneStepConfig()), config.updates
    budget = {"updates": updates, "per_iteration": updates, "warmup": updates // 10}
    training = make_training(emulator, TrainingConfig(**budget, batch=config.batch))
    shape = (config.trajectories, config.frames, CHANNELS, config.points)
    none = jnp.zeros((config.trajectories, 0))
    data = Fields(jax.random.normal(jax.random.key(0), shape), none)
    params = weights = shaken(net, jax.random.key(2))
    start = jax.random.normal(jax.random.key(3), (config.fields, CHANNELS, config.points))
    given = jnp.zeros((config.fields, 0))
    if (mesh := devices.mesh_for(config.fields)) is not None:  # fields are spread over the cores
        start, given = devices.shard_seeds((start, given), mesh)
        weights = devices.replicate(params, mesh)
    roll = jax.jit(
        lambda p, s, g, k: roll_emulator(emulator, p, s, g, k, config.steps)[:, : config.fields]
    )
    train = timing.trainer(training, data)
    return Ours(net, params, train, lambda: roll(weights, start, given, jax.random.key(4)))


def time_against(config: Config, context: RunContext, name: str, width: int) -> timing.Timing:
    """Training and rollout steps per second, ours and the peer's with the same network.

    Columns are those of both tables ("both") and of each ("training", "rollout").
    """
    ours = make_ours(config, width, plain=name == "apebench")
    training, first = timing.compile_columns(lambda: ours.train(1)), timing.timed(ours.roll)
    timers: Timers = {
        ("train", "ours"): lambda: config.updates / ours.train(1).run_seconds,
        ("roll", "ours"): lambda: config.steps / timing.timed(ours.roll),
    }
    names = "blocks dilations dilation_factor points batch trajectories frames updates fields steps"
    settings: dict[str, Any] = {name: getattr(config, name) for name in names.split()}
    rate, scale = TrainingConfig().rate, OneStepConfig().residual_scale
    settings |= {"width": width, "rate": rate, "scale": scale}
    work = {"train": config.updates, "roll": config.steps}
    how: dict[str, Any] = {"option": f"{name}_python", "ways": {name: {}}}
    if name == "torch":
        how = {"compiling": f"at width {width}" if config.torch_compile else ""}
    parameters, python = parameter_count(ours.params), getattr(config, f"{name}_python")
    how |= {"weights": ours.params, "outputs": ours.outputs(config.points)}
    how |= {"parameters": parameters}
    script = PEERS / COMPARED[name].script
    theirs = Theirs(python, script, name, settings, work, **how)
    timed = time_beside(context, f"{name}, width {width}", config.repeats, timers, theirs)
    both = {"width": width, "parameters": parameters, **timed.columns}
    rollout = {"compile s": first - config.steps / timed.rates.median(("roll", "ours"))}
    return replace(timed, columns={"both": both, "training": training, "rollout": rollout})


def show_against(
    report: Report, config: Config, name: str, timings: Mapping[int, timing.Timing], peak: float
) -> None:
    """Two tables, by width, of training and of rollouts beside a peer; claims and a picture."""
    rows: dict[str, list[dict]] = {kind: [] for kind in KINDS}
    for width, each in timings.items():
        each.tell(report)
        forward = forward_operations(config, width, plain=name == "apebench")
        # A gradient step is three passes: forward, gradients of inputs and of weights.
        operations = {"training": 3.0 * config.batch * forward, "rollout": config.fields * forward}
        for kind, asked in KINDS.items():
            rates = each.rates.of(asked)
            ours, *others = rates
            used = operations[kind] * rates.median(ours) / peak
            row = {**each.columns["both"], "ours": rates.median(ours), "% of peak": 100.0 * used}
            row |= {who: rates.median(who) for who in others}
            if others:
                times = COMPARED[name].goal
                claim = f"{kind}, width {width}: {times:g} times {name}"
                means = "steps per second against {best}: same network, batch and grid"
                row["ratio"] = claim_times(report, claim, rates, ours, times=times, means=means)
            rows[kind].append(row | each.columns[kind])
    for kind in KINDS:
        report.table(f"{COMPARED[name].network}: {kind} steps per second", rows[kind])
    if getattr(config, f"{name}_python"):
        draw_against(report, name, timings)


def draw_against(report: Report, name: str, timings: Mapping[int, timing.Timing]) -> None:
    """Steps per second of everybody, training beside rollouts."""
    caption = "Higher is faster; medians, same network and batch."
    size = {"width": 3.6, "title": COMPARED[name].network, "titles": tuple(KINDS), "legend": False}
    with picture(report, f"against_{name}", caption, **size) as axes:
        for ax, kind in zip(axes, KINDS.values(), strict=True):
            rates = [each.rates.of(kind) for each in timings.values()]
            everybody = list(dict.fromkeys(who for each in rates for who in each))
            thick = 0.8 / len(everybody)
            for i, who in enumerate(everybody):
                at = np.arange(len(rates)) + thick * (i - (len(everybody) - 1) / 2)
                heights = [each.median(who) if who in each else 0.0 for each in rates]
                bars = ax.bar(at, heights, 0.9 * thick, label=who)
                ax.bar_label(bars, fmt="%.3g", fontsize=7)
            ax.set_xticks(range(len(rates)), [f"width {width}" for width in timings])
        axes[0].set_ylabel("steps per second")
        axes[0].legend(fontsize=7)


TINY: dict[str, Any] = {"blocks": 1, "dilation_factor": 1, "points": 16, "batch": 4, "frames": 4}
TINY |= {"trajectories": 8, "updates": 10, "fields": 8, "steps": 5, "repeats": 2}
SMOKE = Config(widths=(8,), seeds=(1, 2), seeds_width=8, torch_compile=False, **TINY)
PRESETS = {"smoke": SMOKE, "cpu": Config()}
EXPERIMENT = LISTINGS["pde_speed"].experiment(Config, PRESETS, run)
