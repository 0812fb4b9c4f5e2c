"""What `pde_speed` times: networks on one axis and two, ours and the peers', of equal weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts import devices, loop
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.group_norm import GroupNorm
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.pde.emulator import FIRST_INDEX, FieldNetwork, FieldShape
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import Mse
from jaxrl_rollouts.pde.operators import Fno, Resnet, Unet
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, field_network
from jaxrl_rollouts.pde.training import Training, make_training, over_devices
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from . import timing
from .peer import PEERS, Outputs, Theirs, Timers, check_interpreter, shaken, time_beside

SPREAD = "ours, batch over cores"
CHANNELS, SCALE = 1, 0.2  # the residual scale: speed does not depend on it


class Comparison(NamedTuple):
    """One table of networks beside a peer.

    Attributes:
        peer: whose interpreter is asked, `{peer}_python`.
        script: what runs there.
        title: of the table.
        goal: how many times as fast ours should be.
    """

    peer: str
    script: str
    title: str
    goal: float


COMPARED = {
    "torch": Comparison("torch", "torch_operators.py", "our conditioned dilated ResNet", 2.0),
    "apebench": Comparison("apebench", "apebench_run.py", "APEBench's network, Dil", 1.0),
    "plane": Comparison("torch", "torch_operators.py", "our networks in the plane", 1.0),
    "neuralop": Comparison("neuralop", "neuralop_fno.py", "FNO beside neuraloperator's", 1.0),
}
NEEDS = {"torch": "torch", "apebench": "apebench", "neuralop": "neuraloperator"}


@dataclass(frozen=True)
class Work:
    """How much is timed.

    Attributes:
        batch: windows in a gradient step.
        trajectories: of the training data.
        frames: of each.
        updates: gradient steps that are timed.
        fields: rolled side by side.
        steps: of a rollout.
    """

    batch: int = positive(32)
    trajectories: int = positive(256)
    frames: int = 36
    updates: int = positive(50)
    fields: int = positive(256)
    steps: int = positive(25)


@dataclass(frozen=True)
class Networks:
    """Networks of the plane, and the grids they are on; the FNO on one axis beside them.

    Attributes:
        points: along each of both axes.
        resnet, unet, fno: as large as experiments on flows have them, to the nearest power of two.
        line_fno: on one axis.
    """

    points: tuple[int, ...] = (32, 64)
    resnet: Resnet = Resnet(width=16, blocks=1)
    unet: Unet = Unet(hidden=16, multipliers=(1, 2, 2), blocks=1)
    fno: Fno = Fno(width=16, modes=12)
    line_fno: Fno = Fno(modes=32)


@dataclass(frozen=True)
class Config:
    """What is timed. An empty `torch_python`, say, leaves that peer out.

    Attributes:
        tables: which comparisons: torch, apebench, plane, neuralop.
        widths: of the ResNets on one axis; the rest of them is `blocks` and `dilation_factor`.
        blocks: of those.
        dilation_factor: power of two of the widest dilation, as APEBench counts.
        points: of one axis.
        line: how much is timed on one axis.
        networks: in the plane, and the FNO.
        plane: how much is timed in the plane.
        repeats: rounds in which each program is timed once.
        seeds: numbers of them that are timed side by side.
        seeds_width: width of the networks whose seeds are timed.
        torch_python: an interpreter with torch; empty leaves it out.
        torch_compile: also time what `torch.compile` makes; the faster one is compared.
        apebench_python: an interpreter with APEBench; empty leaves it out.
        neuralop_python: an interpreter with neuraloperator; empty leaves it out.
    """

    tables: tuple[str, ...] = tuple(COMPARED)
    widths: tuple[int, ...] = (32, 64)
    blocks: int = positive(2)
    dilation_factor: int = 3
    points: int = positive(64)
    line: Work = Work()
    networks: Networks = field(default_factory=Networks)
    plane: Work = Work(batch=8, trajectories=32, frames=16, updates=10, fields=16, steps=10)
    repeats: int = positive(5)
    seeds: tuple[int, ...] = (1, 2, 4, 8)
    seeds_width: int = 32
    torch_python: str = ""
    torch_compile: bool = True
    apebench_python: str = ""
    neuralop_python: str = ""

    def validate(self) -> None:
        for peer, needs in NEEDS.items():
            check_interpreter(f"{peer}_python", getattr(self, f"{peer}_python"), needs)
        if unknown := set(self.tables) - set(COMPARED):
            raise ConfigError("tables", sorted(unknown), f"of {', '.join(COMPARED)}")

    @property
    def dilations(self) -> tuple[int, ...]:
        rising = [2**i for i in range(self.dilation_factor + 1)]
        return (*rising, *rising[-2::-1])


class PlainResnet(nn.Module):
    """PDEquinox's `DilatedResNet`, which APEBench calls `Dil`, in our layers: `[N, 2] -> [N, 1]`.

    Normalisation, convolution, then the activation (GELU's tanh form, as theirs); lifted and
    projected by convolutions of width 1; it sees the field only and nothing it is told.
    """

    width: int
    blocks: int
    dilations: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array, *told: Any) -> jax.Array:
        del told
        x = PeriodicConv(self.width, width=1)(x[:, :CHANNELS])
        for _ in range(self.blocks):
            h = x
            for dilation in self.dilations:
                h = PeriodicConv(self.width, dilation=dilation)(GroupNorm()(h))
                h = nn.gelu(h, approximate=True)
            x = x + h
        return PeriodicConv(CHANNELS, width=1)(x)


class Case(NamedTuple):
    """One network on one grid: a row of the tables.

    Attributes:
        name: in claims and pictures.
        columns: how its row begins.
        net: ours.
        space: points along each axis.
        work: how much is timed.
        settings: what the peer builds besides.
        apart: names of layers whose parameters the peer does without.
    """

    name: str
    columns: dict[str, Any]
    net: FieldNetwork
    space: tuple[int, ...]
    work: Work
    settings: dict[str, Any]
    apart: tuple[str, ...] = ()


def cases(config: Config, compared: str) -> Iterator[Case]:
    """The rows of a table."""
    line, nets = ((config.points,), config.line), config.networks
    if compared in ("torch", "apebench"):
        for width in config.widths:
            yield resnet_case(config, width, plain=compared == "apebench")
        return
    grids = [((n, n), config.plane) for n in nets.points]
    kinds = ("resnet", "unet") if compared == "plane" else ("fno",)
    asked: list[Any] = [(kind, getattr(nets, kind), *grid) for kind in kinds for grid in grids]
    if compared == "neuralop":
        asked.insert(0, ("fno", nets.line_fno, *line))
    for kind, network, space, work in asked:
        on = " x ".join(map(str, space))
        net = network.make(FieldShape(CHANNELS, space))
        settings = {"network": kind, **vars(network)}
        called = {"resnet": "dilated ResNet", "unet": "U-Net", "fno": "FNO"}[kind]
        case = Case(f"{called}, {on}", {"network": called, "grid": on}, net, space, work, settings)
        if compared == "neuralop":
            told = tuple(f"Dense_{1 + 2 * layer}" for layer in range(network.layers))
            settings |= {"modes": network.kept(len(space))[0], "index": FIRST_INDEX}
            case = case._replace(apart=("Embedding_0", *told))
        yield case


def resnet_case(config: Config, width: int, *, plain: bool) -> Case:
    """The plain network (APEBench's) or the conditioned one on one axis."""
    sizes = {"width": width, "blocks": config.blocks, "dilations": config.dilations}
    if plain:
        net = field_network(PlainResnet(**sizes), FieldShape(CHANNELS, config.points))
    else:
        net = Resnet(**sizes).make(FieldShape(CHANNELS, config.points))
    settings = {"network": "resnet", **sizes, "dilation_factor": config.dilation_factor}
    settings["points"] = config.points
    name = f"width {width}"
    return Case(name, {"width": width}, net, (config.points,), config.line, settings)


def operations(case: Case) -> float:
    """Operations of the matrix products and convolutions that one more field costs.

    Counted in the program: what all fields share, the embedding, is not in it, nor are transforms.
    """
    params = jax.eval_shape(case.net.init, jax.random.key(0))

    def counted(fields: int) -> float:
        one = jax.ShapeDtypeStruct((fields, CHANNELS, *case.space), jnp.float32)
        apply = jax.vmap(lambda p, u: case.net.apply(p, u, u, 0.0, jnp.zeros(0)), (None, 0))
        return timing.products(jax.make_jaxpr(apply)(params, one).jaxpr)

    return counted(2) - counted(1)


class Ours(NamedTuple):
    """One network of ours, ready to be timed; compiled at the first calls.

    Attributes:
        net, params: the raw network, with noise on all parameters.
        train: number of seeds -> a timed training.
        spread: one seed's, its batch over the devices; None where there is one.
        roll: rolls `work.fields` fields out.
    """

    net: FieldNetwork
    params: PyTree
    train: Callable[[int], loop.Trained]
    spread: Callable[[], loop.Trained] | None
    roll: Callable[[], jax.Array]

    def outputs(self, space: tuple[int, ...]) -> Outputs:
        """What it makes of two fields."""
        fields = jax.random.normal(jax.random.key(5), (2, CHANNELS, *space))
        unused = jnp.zeros((CHANNELS, *space)), FIRST_INDEX, jnp.zeros(0)
        said = jax.vmap(lambda field: self.net.apply(self.params, field, *unused))(fields)
        return [({"fields": fields}, said)]


def make_ours(case: Case) -> Ours:
    """A network with its training and rollout.

    Fields are random: speed does not depend on what they say.
    """
    net, space, work = case.net, case.space, case.work
    emulator, updates = Mse().make(net, SCALE), work.updates
    budget: dict[str, Any] = {"steps": updates, "per_iteration": updates, "warmup": updates // 10}
    training = make_training(emulator, Training(**budget, batch=work.batch))
    apart = Training(**budget, batch=work.batch, shard="batch")
    shape = (work.trajectories, work.frames, CHANNELS, *space)
    none = jnp.zeros((work.trajectories, 0))
    data = Fields(jax.random.normal(jax.random.key(0), shape), none)
    params = weights = jax.jit(functools.partial(shaken, net))(jax.random.key(2))
    start = jax.random.normal(jax.random.key(3), (work.fields, CHANNELS, *space))
    given = jnp.zeros((work.fields, 0))
    if (mesh := devices.mesh_for(work.fields)) is not None:  # fields are spread over the cores
        start, given = devices.shard_seeds((start, given), mesh)
        weights = devices.replicate(params, mesh)
    roll = jax.jit(
        lambda p, s, g, k: roll_emulator(emulator, p, s, g, k, work.steps)[:, : work.fields]
    )
    train, spread = timing.trainer(training, data), None
    if (over := over_devices(apart, space[0])) is not None:
        spread = functools.partial(timing.trainer(make_training(emulator, apart), data, over), 1)
    return Ours(net, params, train, spread, lambda: roll(weights, start, given, jax.random.key(4)))


def time_case(config: Config, context: RunContext, compared: str, case: Case) -> timing.Timing:
    """Training and rollout steps per second, ours and the peer's with the same network.

    Columns are those of both tables ("both") and of each ("training", "rollout").
    """
    peer, script, title, _ = COMPARED[compared]
    ours, work = make_ours(case), case.work
    training, first = timing.compile_columns(lambda: ours.train(1)), timing.timed(ours.roll)
    timers: Timers = {
        ("train", "ours"): timing.clocked(work.updates, lambda: ours.train(1).run_seconds),
        ("roll", "ours"): timing.clocked(work.steps, lambda: timing.timed(ours.roll)),
    }
    if ours.spread is not None:
        seconds = ours.spread  # narrowed, for the closure
        seconds()  # compiles
        timers["train", SPREAD] = timing.clocked(work.updates, lambda: seconds().run_seconds)
    settings = {**vars(work), **case.settings, "space": case.space, "channels": CHANNELS}
    settings |= {"rate": Training().lr, "scale": SCALE}
    parameters = parameter_count(ours.params)
    apart = parameter_count({name: ours.params[name] for name in case.apart})
    theirs = Theirs(
        getattr(config, f"{peer}_python"),
        PEERS / script,
        NEEDS[peer],
        settings,
        {"train": work.updates, "roll": work.steps},
        option=f"{peer}_python",
        ways={peer: {}} if peer == "apebench" else None,
        called=NEEDS[peer],
        compiling=f"of {case.name}" if config.torch_compile else "",
        weights=ours.params,
        parameters=parameters - apart,
        outputs=ours.outputs(case.space),
    )
    timed = time_beside(context, f"{title}: {case.name}", config.repeats, timers, theirs)
    both = {**case.columns, "parameters": parameters}
    if apart and theirs.python:
        both["theirs"] = parameters - apart
    rollout = {"compile s": first - work.steps / timed.rates.median(("roll", "ours"))}
    columns = {"both": both | dict(timed.columns), "training": training, "rollout": rollout}
    return replace(timed, columns=columns)
