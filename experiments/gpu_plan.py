"""What a tour of one GPU runs, in which order, how long that takes and how much memory it needs.

The preset of `ravl_mujoco` has been run whole, with half of its episodes a look, and that of
`ks_refiner` with a third of its updates; no other has. Minutes are estimates for an H100 or the
like and may be off by three (on an H200, many runs side by side, SAC's steps take twice as long as
this has): the operations of all gradient steps and rollouts, counted from the sizes of the
networks, at 10 TFLOP/s in float32 and 40 in TF32 (a sixth and a tenth of what the data sheet has),
but no gradient step faster than the operations it starts, 4 microseconds each; MuJoCo at 16,000
steps a second, as `results/speed` measured on two cores. Memory is that of states, data and of the
plan that XLA makes of a gradient step (tests compare), with room for the rollouts.

Every dataset here can be made by anyone (`jaxrl-rollouts data make`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from jaxrl_rollouts.errors import DataError, MissingExtraError, UserError

from .catalogue import GYMNAX, LISTINGS, MUJOCO, PDE

PRESET = "gpu"
# Extra -> its name in pyproject.toml and the packages that have to be there.
EXTRAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    MUJOCO: ("mujoco", ("gymnasium", "mujoco")),
    GYMNAX: ("gymnax", ("gymnax",)),
    PDE: ("pde", ("exponax",)),
}
# PDE-Refiner's finest noise is below TF32's rounding.
EXACT = {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}


@dataclass(frozen=True)
class Stop:
    """One experiment of the tour.

    Attributes:
        name: of the experiment.
        minutes: estimate, on an H100.
        gigabytes: of GPU memory, estimate.
        why: what it is worth, and where the minutes go.
        options: of the preset `gpu`, to put sets that anyone can make in place of its own.
        datasets: those sets.
        environment: variables of the run.
    """

    name: str
    minutes: float
    gigabytes: float
    why: str
    options: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None

    def arguments(self, preset: str) -> list[str]:
        """What follows `jaxrl-rollouts` to run it; other presets bring their own datasets."""
        return ["run", self.name, "--preset", preset, *(self.options if preset == PRESET else ())]

    def missing(self, preset: str) -> str:
        """What it needs and is not there, with how to get it; empty where nothing is missing."""
        from jaxrl_rollouts.offline.data import resolve

        needs = LISTINGS[self.name].needs.get(preset, ())
        datasets = tuple(need for need in needs if need not in EXTRAS)
        lacks = []
        for need in (*(need for need in needs if need in EXTRAS), *self._own(preset, datasets)):
            try:
                check_extra(need) if need in EXTRAS else resolve(need, download=False)
            except (DataError, MissingExtraError) as error:
                lacks.append(str(error))
            except UserError as error:
                lacks.append(f"{need}: {error}")
        return "; ".join(lacks)

    def _own(self, preset: str, datasets: tuple[str, ...]) -> tuple[str, ...]:
        return self.datasets if preset == PRESET else datasets


def check_extra(need: str) -> None:
    """Raise `MissingExtraError` unless the packages of an extra are installed."""
    extra, packages = EXTRAS[need]
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(need, package, extra)


_CHEETAH = tuple(f"halfcheetah-{kind}" for kind in ("random", "medium", "mixed"))
_LOCOMOTION = (*_CHEETAH, "hopper-mixed")

STOPS = (
    Stop(
        "neubay_speed", 5, 2,
        "first because it is short: what a gradient step and an imagined step cost here, by which "
        "the estimates below can be judged; half of it is the loops in Python that it is held to",
    ),
    Stop(
        "ks_refiner", 30, 3,
        "do rollouts of PDE-Refiner get longer with a network and a budget near the paper's? "
        "2 methods x 80,000 steps of 7.6 ms in float32, as an H200 took them: 20 minutes; solving, "
        "rolls, samples: 10",
        environment=EXACT,
    ),
    Stop(
        "ravl_mujoco", 50, 3,
        "do imagined rows add to critics that are as wide as published? 2 datasets x 3 methods x "
        "200,000 steps at 500 a second, as an H200 took them: 40 minutes; evaluations: 10",
        datasets=("halfcheetah-medium", "halfcheetah-mixed"),
    ),
    Stop(
        "synther_small_data", 60, 6,
        "do samples replace data with the paper's network? 3 shares x 8 seeds: 100,000 steps of "
        "80 GFLOP and 500,000 samples of 255 calls in TF32: 9 minutes a share; 3 agents of "
        "200,000 steps with their evaluations: 11",
        ("--dataset", "halfcheetah-mixed"), ("halfcheetah-mixed",),
    ),
    Stop(
        "pgd_vs_world_model", 40, 5,
        "guided windows against an ensemble, with networks that were trained long enough: 3 cases "
        "x 100,000 steps of 108 GFLOP in TF32: 14 minutes; ensembles and target policies: 6; "
        "drawing, and repeating 6 million steps in the simulator: 15",
        ("--mujoco.data", "halfcheetah-medium"), ("halfcheetah-medium",),
    ),
    Stop(
        "neubay_mujoco", 310, 10,
        "NEUBAY, its ablations, MOPO, MOBILE and RAVL: 4 datasets x 4 arms x 100,000 steps of 194 "
        "GFLOP and about 1,700 operations: 190 minutes; 12 conservative cells at 1 ms a step: 20; "
        "posteriors, rollouts and evaluations: 100",
        ("--datasets", *_LOCOMOTION), _LOCOMOTION,
    ),
    Stop(
        "ks_conditional", 40, 3,
        "one emulator for all viscosities: as `ks_refiner`, with rolls by viscosity",
        environment=EXACT,
    ),
    Stop(
        "pgd_agents", 170, 6,
        "are guided data better than a weaker regulariser? 80 cells of 100,000 steps at 0.6 ms: 80 "
        "minutes; guided windows of 20 cells: 25; denoisers of 4 datasets: 30; evaluations: 30",
        ("--datasets", "acrobot-broad", "hopper-mixed", "halfcheetah-medium", "halfcheetah-mixed"),
        ("hopper-mixed", "halfcheetah-medium", "halfcheetah-mixed"),
    ),
    Stop(
        "flow_policies", 60, 3,
        "do flows earn more than a normal policy with the published networks? 2 MuJoCo "
        "environments and a pendulum, 430,000 gradient steps of each of 3 policies at 0.6 to 2 ms: "
        "30 minutes; acting and evaluations in MuJoCo: 20; the bandit and RAVL on data: 10",
    ),
    Stop(
        "few_steps", 30, 4,
        "are rows of 4 and 8 calls as good as rows of 255 on half-cheetah? a teacher's 60,000 "
        "steps of 43 GFLOP in TF32 and 4 students of 30,000 steps: 10 minutes; TD3+BC on their "
        "rows: 10; judging rows in MuJoCo: 5",
        datasets=("halfcheetah-medium",),
    ),
    Stop(
        "planner", 75, 4,
        "does a plan of one call earn what one of 255 does on half-cheetah? 2 datasets x 100,000 "
        "steps of some 3,000 operations, its student's among them: 40 minutes; BC and TD3+BC: 10; "
        "playing with 255 calls a step: 20",
        datasets=("halfcheetah-medium",),
    ),
)  # fmt: skip


def stops_markdown() -> str:
    """The table of `docs/pages/howto/gpu_tour.md`; a test compares."""
    rows = (f"| `{s.name}` | {s.minutes:g} | {s.gigabytes:g} | {s.why} |\n" for s in STOPS)
    head = "| stop | minutes | GB | what for, and where the minutes go |\n|---|---:|---:|---|\n"
    return head + "".join(rows)
