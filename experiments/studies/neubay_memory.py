"""What a memory is for: episodes differ in what nobody sees, and an agent may find out.

Every episode of the hidden runner has another cart and another pole. Data are of controllers of
every quality on such runners; agents are then tried on runners that were in no data. NEUBAY's
agent remembers what its actions did, its Markov ablation does not, its conservative ablation pays
for the members' disagreement. The plain runner, whose cart and pole are always the same, is the
control: there is nothing to remember.

Of the fleet every other motor is wired the wrong way round: no action is right on all machines. The
logs tell which of twelve machines each episode is of, and every member of the posterior is
fitted to one of them; agents are tried on machines that were in no data. `pooled` is the same with
members fitted to all machines at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

import jax
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import curves, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.runner import runner_fleet, runner_varied
from jaxrl_rollouts.offline.data import Transitions, episode_returns, to_device
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.environments.runner import HIDDEN_RUNNER, RUNNER, WIRED_RUNNER
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.neubay.prepare import prepare
from jaxrl_rollouts.offline.recurrent.histories import remembering
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study import neubay
from jaxrl_rollouts.offline.study.colours import COLOURS
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.offline.worlds.dynamics import World
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, fit_worlds
from jaxrl_rollouts.offline.worlds.trust import LEVELS, Trust, measure_trusts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from ..kit.draw import intervals

SOURCE = LISTINGS["neubay_memory"].source
Name = Literal["hidden", "plain", "fleet", "pooled"]
ENVIRONMENTS: dict[Name, Environment] = {
    "hidden": HIDDEN_RUNNER, "plain": RUNNER, "fleet": WIRED_RUNNER, "pooled": WIRED_RUNNER
}  # fmt: skip
BEST = 283.0  # the most an episode of the plain runner can bring
GAIN = {"hidden": 5.0, "fleet": 50.0}  # of a memory, the least that is claimed

AGENT = NeubayConfig(
    agent=RecurrentSacConfig(
        memory=MemoryConfig("lru", width=64, state=32, layers=1), head=(64, 64), critics=4,
        discount=0.98, polyak=0.03, memory_rate=1e-3, head_rate=1e-3, temperature_rate=1e-3,
        steps=20_000, real_weight=0.5,
    ),
    updates_per_iteration=100, tape=512, capacity=400_000, early_exit=20,
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Data, posterior, agent and arms.

    Attributes:
        seed: of the random numbers; the same one gives the same numbers.
        seeds: runs side by side, each with its own networks, ensemble and random numbers.
        tasks: `hidden`, and `plain` as its control; `fleet`, and `pooled` as its control.
        episodes: in the data.
        machines: of the fleet; the members are a multiple of them.
        ensemble: the world models. In the fleet all members are used, and an epoch has
            `machines` times fewer rows of each: there are so many times more.
        agent: NEUBAY's.
        penalty: of the conservative ablation, in mean spreads.
        looks, last: evaluations, and how many of the last ones are averaged.
        plays: episodes of an evaluation, each of a runner of its own.
    """

    seed: int = 0
    seeds: int = positive(6)
    tasks: tuple[Name, ...] = ("hidden", "plain")
    episodes: int = positive(100)
    machines: int = positive(12)
    ensemble: EnsembleConfig = field(
        default_factory=lambda: replace(
            NEUBAY_ENSEMBLE, members=12, elites=10, hidden=(64, 64), max_epochs=60, patience=60
        )
    )
    agent: NeubayConfig = field(default_factory=lambda: AGENT)
    penalty: float = 1.0
    looks: int = positive(20)
    last: int = positive(5)
    plays: int = positive(100)

    def validate(self) -> None:
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            expected = "at least one, each once, of " + ", ".join(get_args(Name))
            raise ConfigError("tasks", self.tasks, expected)
        if "fleet" in self.tasks and self.ensemble.members % self.machines:
            expected = f"a multiple of the {self.machines} machines"
            raise ConfigError("ensemble.members", self.ensemble.members, expected)
        if self.agent.iterations % self.looks or self.last > self.looks:
            expected = f"a divisor of {self.agent.iterations} iterations, at least {self.last}"
            raise ConfigError("looks", self.looks, expected)
        if self.penalty <= 0:
            raise ConfigError("penalty", self.penalty, "above 0; NEUBAY itself has none")
        if self.agent.markov:
            kind = self.agent.agent.memory.kind
            raise ConfigError("agent.agent.memory.kind", kind, "a memory: the ablation has none")

    @property
    def arms(self) -> dict[str, NeubayConfig]:
        """NEUBAY and its two ablations."""
        return {
            "neubay": self.agent,
            "markov": neubay.markov(self.agent),
            f"penalty {self.penalty:g}": replace(self.agent, penalty=self.penalty),
        }

    def ensemble_of(self, task: Task) -> EnsembleConfig:
        """The world models of one task, at as many gradient steps as those of all."""
        ours = self.ensemble
        if task.groups is None:
            return ours
        return replace(
            ours, elites=ours.members, max_epochs=self.machines * ours.max_epochs,
            patience=self.machines * ours.patience,
        )  # fmt: skip


class Task(NamedTuple):
    """One environment with its data, and which machine each row is of where that is used."""

    env: Environment
    data: Transitions
    groups: np.ndarray | None = None


def make_task(config: Config, name: Name, key: jax.Array) -> Task:
    """An environment to be tried in, and data of others like it."""
    env = ENVIRONMENTS[name]
    if name in ("hidden", "plain"):
        return Task(env, runner_varied(key, config.episodes, env))
    rows, groups = runner_fleet(key, config.episodes, config.machines)
    return Task(env, rows, groups if name == "fleet" else None)


def train_all(config: Config, context: RunContext | None) -> tuple[Grid, dict[str, Task]]:
    """Every arm on every task; the arms of a task share data and posteriors.

    Cells hold, besides the history, `score`: the mean return of the last evaluations.
    """
    data_key, fit_key, *keys = jax.random.split(jax.random.key(config.seed), 4)
    tasks = {name: make_task(config, name, data_key) for name in config.tasks}
    posteriors = {}

    def posterior(name: str) -> tuple[Fitter, World, Trust]:
        if name not in posteriors:
            task = tasks[name]
            fitted = fit_worlds(
                config.ensemble_of(task), task.data, fit_key, seeds=config.seeds,
                targets="observations", groups=task.groups, stage=f"{name}-world",
                context=context,
            )  # fmt: skip
            fitter, worlds = fitted.model.fitter, fitted.worlds
            trust = measure_trusts(fitter, worlds, to_device(task.data), tuple(sorted(LEVELS)))
            posteriors[name] = (fitter, worlds, trust)
        return posteriors[name]

    def train(name: str, arm: str, stage: str) -> Cell:
        settings, (env, data, groups) = config.arms[arm], tasks[name]
        rule = env.termination
        assert rule is not None  # the runner's is known
        learner, shared, per_seed, _ = prepare(
            settings, data, *posterior(name), env, rule, seeds=config.seeds, groups=groups,
            source=env.name,
        )  # fmt: skip
        trained = train_and_play(
            learner, shared, env if settings.markov else remembering(env), (keys[0], keys[1]),
            episodes=config.plays, discount=settings.agent.discount, seeds=config.seeds,
            per_seed=per_seed, iterations=settings.iterations,
            evaluate_every=settings.iterations // config.looks, stage=stage, context=context,
        )  # fmt: skip
        late = trained.history.curve("return")[1][-config.last :].mean(0)
        rate = bootstrap_rate(settings.agent)
        updates = settings.updates_per_iteration
        return Cell.of(trained, {"score": late}, updates=updates, rate=rate)

    axes = {"task": config.tasks, "arm": list(config.arms)}
    grid = run_grid(axes, train, context, seeds=config.seeds, clear=False)
    return grid, tasks


def run(config: Config, context: RunContext) -> Report:
    """Fit, train every arm on every task, try them on runners that were in no data."""
    report = Report.of(context, config.seeds)
    grid, tasks = train_all(config, context)
    columns = {
        "return, mean of the last looks": "score",
        "last return": "return",
        "estimated value": "estimated_value",
        "true value": "discounted_return",
        "median horizon": "horizon_median",
    }
    report.table("results", grid.rows(columns))
    clocks = [clock_rows(grid.at(task=name), task=name) for name in tasks]
    add_clock(report, [row for rows in clocks for row in rows])
    for name in tasks:
        add_claims(report, config, name, grid.at(task=name))
    if {"fleet", "pooled"} <= set(tasks):
        ours, pooled = (grid.at(task=name)["neubay"] for name in ("fleet", "pooled"))
        claims(report, SOURCE)(
            "fleet: members of their own machines are what it learns in",
            ours["score"] - pooled["score"],
            at_least=GAIN["fleet"],
            cells=[ours, pooled],
            means="return minus that in members of all machines, seed by seed",
        )
    draw(report, grid, tasks)
    for name, task in tasks.items():
        returns = episode_returns(task.data)
        report.note(
            f"{name}: {len(task.data.rewards):,} transitions of {len(returns)} episodes with a "
            f"mean return of {returns.mean():.0f} (the best {returns.max():.0f}); an episode of "
            f"the plain runner can bring {BEST:.0f}."
        )
    return report


def add_claims(report: Report, config: Config, name: str, grid: Grid) -> None:
    """Memory pays where something is hidden; elsewhere nothing is claimed but a control."""
    claim, penalised = claims(report, SOURCE), f"penalty {config.penalty:g}"
    ours, markov = grid["neubay"], grid["markov"]
    if name in GAIN:
        # fmt: off
        claim(f"{name}: a memory pays", ours["score"] - markov["score"], at_least=GAIN[name],
              cells=[ours, markov], means="return minus that without a memory, seed by seed")
        claim(f"{name}: the Bayesian earns more than the conservative",
              ours["score"] - grid[penalised]["score"], at_least=5, cells=[ours, grid[penalised]],
              means=f"return minus that with a penalty of {config.penalty:g}, seed by seed")
        # fmt: on
    elif name == "plain":
        low, high = -0.1 * BEST, 0.1 * BEST
        claim(
            "plain: a memory changes little",
            ours["score"] - markov["score"],
            between=(low, high),
            cells=[ours, markov],
            means="return minus that without a memory, seed by seed: there is nothing to remember",
        )


def draw(report: Report, grid: Grid, tasks: dict[str, Task]) -> None:
    """Returns while training and at the end, a column per task."""
    caption = (
        "Left: return on runners that were in no data, while training. Right: mean of the last "
        "evaluations; dots are seeds, dashed: the data's episodes."
    )
    for name, task in tasks.items():
        cells, titles = grid.at(task=name), ("While training", "At the end")
        with picture(report, name, caption, title=f"{name} runner", titles=titles) as (left, right):
            curves(left, cells, "return", colours=COLOURS)
            left.set_ylabel("return")
            scores = {arm: np.asarray(cell["score"]) for arm, cell in cells.items()}
            intervals(right, scores, xlabel="return")
            right.axvline(episode_returns(task.data).mean(), color="#777777", linestyle="--")


_SMOKE = Config(
    seeds=2, episodes=12, machines=3, looks=1, last=1, plays=4,
    ensemble=replace(NEUBAY_ENSEMBLE, members=3, elites=2, hidden=(16,), max_epochs=1),
    agent=replace(
        AGENT, rollouts=8, updates_per_iteration=2, tape=256, capacity=4000,
        agent=replace(
            AGENT.agent, memory=MemoryConfig("lru", width=8, state=4, layers=1), head=(8,),
            critics=2, steps=4,
        ),
    ),
)  # fmt: skip

_CPU = Config()
# More rows, of machines that differ more: fewer seeds, passes and steps (six time constants).
_FLEET = replace(
    _CPU, tasks=("fleet", "pooled"), seeds=4, episodes=240,
    ensemble=replace(_CPU.ensemble, max_epochs=30, patience=30),
    agent=replace(AGENT, agent=replace(AGENT.agent, steps=10_000)),
)  # fmt: skip

EXPERIMENT = LISTINGS["neubay_memory"].experiment(
    config_type=Config, presets={"smoke": _SMOKE, "cpu": _CPU, "fleet": _FLEET}, run=run
)
