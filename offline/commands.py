"""`jaxrl-rollouts data inspect`, `collect`, `make` and `export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from jaxrl_rollouts.cli.before import check_file
from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.configs import SEED, Range
from jaxrl_rollouts.errors import ConfigError, UserError
from jaxrl_rollouts.plugins import Command, ExperimentInfo

from .acting_commands import environment_of
from .methods import METHODS
from .online.listing import FINETUNING
from .online.tape_command import export, make
from .rehearsal.listing import CONTINUAL

if TYPE_CHECKING:
    from .data.transitions import Transitions
    from .environments import Environment
    from .evaluation import Policy
    from .saved_policies import SavedPolicy

# The main job; known without importing it.
MAIN_JOB = ExperimentInfo(
    "offline",
    "the main job: dataset -> (world model ->) RAVL, TD3+BC, IQL, ... -> evaluation",
    "",
    minutes={"smoke": 1, "small": 2, "long": None, "paper": None},
    choices={"method": tuple(METHODS)},
    main=True,
    prepare="jaxrl_rollouts.offline.main_job:prepare",
    longer="jaxrl_rollouts.offline.main_job:longer",
    arms="jaxrl_rollouts.offline.main_job:sweepable",
)
LISTINGS = {listing.name: listing for listing in (MAIN_JOB, FINETUNING, CONTINUAL)}

SCRIPTED = ("random", "scripted", "broad", "narrow", "mixed")
OF_ENVIRONMENT = {
    "pendulum": ("random", "scripted", "mixed"),
    "acrobot": ("random", "scripted", "broad", "narrow"),
}


def inspect(
    file: tyro.conf.Positional[str],
    out: Path | None = None,
    action_limit: float = 1.0,
    action_low: tuple[float, ...] = (),
    action_high: tuple[float, ...] = (),
    max_episode_steps: int | None = None,
    cut_mismatches: bool = False,
) -> None:
    """Print what a dataset holds and what looks wrong in it: rows, episodes, returns, ranges,
    endings, suspicious rows.

    A file that could not be trained on is described as far as it can be read; the exit code is
    then 2.

    Args:
        file: an HDF5, npz or Minari dataset, a tape, or a name such as hopper-medium-mini-v1.
        out: also plot returns and lengths into this PNG file.
        action_limit: actions beyond it are reported.
        action_low: lower bounds of the file's actions, one number or one for each entry; they are
            shown rescaled to [-1, 1]. Left out: what the file itself declares.
        action_high: upper bounds.
        max_episode_steps: time limit of episodes in a file that does not mark where it cut them.
        cut_mismatches: end episodes where next_observations are not the row that follows.
    """
    from .behaviours.made import is_program, load
    from .data.inspection import inspect as inspected
    from .data.inspection import inspect_file
    from .data.views import draw_inspection, print_inspection

    check_file(out)
    declared: dict[str, Any] = {"action_low": action_low or None}
    declared |= {"action_high": action_high or None}
    declared |= {"max_episode_steps": max_episode_steps, "cut_mismatches": cut_mismatches}
    if is_program(file) or file.startswith("hf://"):
        given = {key: value for key, value in declared.items() if value}
        inspection = inspected(load(file, **given), action_limit=action_limit)
    else:
        inspection = inspect_file(file, action_limit=action_limit, **declared)
    print_inspection(inspection)
    if out is not None:
        draw_inspection(inspection, out)
        print(f"picture: {out}")
    if inspection.problems:
        raise UserError(inspection.problems[0])


def collect(
    out: Path,
    environment: Annotated[str, tyro.conf.arg(aliases=["--env"])] = "",
    policy: str = "random",
    steps: int = 20_000,
    seed: Annotated[int, tyro.conf.arg(metavar="INT>=0")] = 0,
    training_seed: int = 0,
    sample: bool = False,
) -> None:
    """Make a file in D4RL's HDF5 layout by playing a policy in an environment.

    Args:
        out: the HDF5 file to write; replaced only once the new one is complete.
        environment: pendulum, plane, acrobot, runner, runner-hidden, runner-wired; any id of
            Gymnasium's or gymnax's; brax/<name>; playground/<name>; or package.module:factory.
            Left empty: what a trained policy was meant for, and else pendulum.
        policy: random (uniform actions); scripted (a swing-up; pendulum and acrobot); mixed
            (episodes of mixed quality, pendulum only); broad or narrow (acrobot only); or the
            folder of a run, or of one of the policies that it trained.
        steps: transitions to keep.
        seed: the same seed makes the same transitions.
        training_seed: index of the run's seed, from 0.
        sample: sample a trained policy's actions instead of the mean action.
    """
    # These load jax, which `data --help` should not wait for.
    import numpy as np

    from jaxrl_rollouts.devices import check_devices
    from jaxrl_rollouts.draws import as_key

    from .behaviours.acrobot import acrobot_broad, acrobot_narrow
    from .behaviours.mixed import pendulum_mixed
    from .collect import collect as play
    from .collect import write_rows

    _check(out, steps, seed)
    check_devices()
    key, trained = as_key(seed, "seed"), None
    if policy in SCRIPTED:
        env, acting, params = _scripted(policy, environment)
        facts = {"policy": policy, "seed": seed}
    else:
        env, trained = _trained(policy, environment)
        acting = trained.agent.policy if sample else trained.agent.greedy
        params = trained.actor(training_seed)
        maker = f"{trained.facts.get('method')} trained on {trained.facts.get('dataset')}"
        facts = {"policy": maker, "training_seed": training_seed, "sampled": sample, "seed": seed}
    ready = {"mixed": pendulum_mixed, "broad": acrobot_broad, "narrow": acrobot_narrow}
    if policy in ready:
        rows = ready[policy](key, steps)
    elif trained is not None:
        rows = _as_shown(env, trained, acting, params, key, steps)
    else:
        rows = play(env, acting, params, key, steps=steps)
    write_rows(out, env, rows, facts)
    ends = int(np.logical_or(rows.terminations, rows.truncations).sum())
    print(f"{out}: {len(rows.rewards):,} transitions, {ends:,} episodes of {env.name}")
    print(f"inspect it with: jaxrl-rollouts data inspect {out}")


def _scripted(policy: str, env: str) -> tuple[Environment, Policy, Any]:
    from .behaviours.acrobot import EXPERT, pump_policy
    from .collect import random_policy
    from .environments import make
    from .environments.offset import lossless
    from .environments.pendulum import SwingUp, swing_up_policy

    environment = lossless(make(env or "pendulum"))
    known = OF_ENVIRONMENT.get(environment.name, ("random",))
    if policy not in known:
        places = [name for name, policies in OF_ENVIRONMENT.items() if policy in policies]
        expected = f"{', '.join(known)} in {environment.name}"
        raise ConfigError("--policy", policy, expected, f"try --environment {' or '.join(places)}")
    if policy == "random":
        return environment, random_policy(environment.action_size), None
    if environment.name == "acrobot":
        return environment, pump_policy, EXPERT
    return environment, swing_up_policy, SwingUp()


def _trained(policy: str, env: str) -> tuple[Environment, SavedPolicy]:
    """Environment, and the policy in a folder."""
    from .saved_policies import read_policy

    if not Path(policy).exists():
        raise ConfigError("--policy", policy, f"{', '.join(SCRIPTED)}, or the folder of a run")
    trained = read_policy(policy)
    return trained.placed(environment_of(trained, env)), trained


def _as_shown(
    env: Environment, trained: SavedPolicy, acting: Policy, params: Any, key: Any, steps: int
) -> Transitions:
    """Rows of a trained policy, without the last action and reward that one with a memory sees."""
    from .collect import MAX_BATCH, collect

    batch = min(-(-steps // env.max_episode_steps), MAX_BATCH)
    start = trained.start(batch)
    rows = collect(trained.sees(env), acting, params, key, steps=steps, memory=start)
    size = env.observation_size
    return rows._replace(
        observations=rows.observations[:, :size], next_observations=rows.next_observations[:, :size]
    )


def _check(out: Path, steps: int, seed: int) -> None:
    if out.suffix not in (".hdf5", ".h5"):
        raise ConfigError("--out", str(out), "a file name that ends in .hdf5")
    check_file(out)
    Range(least=1).check("--steps", steps)
    SEED.check("--seed", seed)


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `data ...`; raises `UserError` for bad input."""
    commands = {"inspect": inspect, "collect": collect, "make": make, "export": export}
    call(commands, arguments, prog, COMMAND.summary)


COMMAND = Command("data", "Inspect, make and export offline datasets.", main)
