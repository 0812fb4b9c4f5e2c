"""`jaxrl-rollouts data inspect` and `data collect`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxrl_rollouts.errors import ConfigError, UserError
from jaxrl_rollouts.experiment import Command

PolicyName = Literal["random", "scripted", "mixed"]


def inspect(
    file: tyro.conf.Positional[str],
    out: Path | None = None,
    action_limit: float = 1.0,
) -> None:
    """Print what a dataset holds and what looks wrong in it: rows, episodes, returns, ranges,
    endings, suspicious rows.

    A file that could not be trained on is described as far as it can be read; the exit code is
    then 2.

    Args:
        file: an HDF5, npz or Minari dataset, or a name such as hopper-medium-v2.
        out: also draw returns and lengths into this PNG file.
        action_limit: actions beyond it are reported.
    """
    from .inspection import inspect_file
    from .views import draw_inspection, print_inspection

    found = inspect_file(file, action_limit=action_limit)
    print_inspection(found)
    if out is not None:
        draw_inspection(found, out)
        print(f"picture: {out}")
    if found.problems:
        raise UserError(found.problems[0])


def collect(
    out: Path,
    env: str = "pendulum",
    policy: PolicyName = "random",
    steps: int = 20_000,
    seed: Annotated[int, tyro.conf.arg(metavar="INT>=0")] = 0,
) -> None:
    """Make a file in D4RL's HDF5 layout by playing a policy in an environment.

    Args:
        out: the HDF5 file to write; replaced only once the new one is complete.
        env: pendulum, plane, gymnax/<name>, brax/<name> or mujoco/<Gymnasium id>.
        policy: uniform actions; the scripted swing-up (pendulum only); or episodes of mixed
            quality (pendulum only).
        steps: transitions to keep.
        seed: the same seed makes the same transitions.
    """
    # These load jax, which `data --help` should not wait for.
    import jax

    from jaxrl_rollouts.offline import collect as collecting

    from ..environments import make
    from ..environments.pendulum import SwingUp, swing_up_policy

    _check(out, steps, seed)
    environment = make(env)
    key = jax.random.key(seed)
    if policy != "random" and environment.name != "pendulum":
        raise ConfigError("--policy", policy, f"random in {environment.name}", "try --env pendulum")
    facts = {"policy": policy, "seed": seed}
    if policy == "mixed":
        from .d4rl import write_d4rl

        rows = collecting.pendulum_mixed(key, steps)
        limit = environment.max_episode_steps
        facts |= {"env_id": environment.name, "max_episode_steps": limit}
        write_d4rl(out, rows, {**facts, "environment_version": environment.version})
    else:
        scripted = policy == "scripted"
        acting = swing_up_policy if scripted else collecting.random_policy(environment.action_size)
        params = SwingUp() if scripted else None
        rows = collecting.collect_to_file(
            out, environment, acting, params, key, steps=steps, attributes=facts
        )
    ends = sum(bool(t or c) for t, c in zip(rows.terminations, rows.truncations, strict=True))
    print(f"{out}: {len(rows.rewards):,} transitions, {ends:,} episodes of {environment.name}")
    print(f"look at it with: jaxrl-rollouts data inspect {out}")


def _check(out: Path, steps: int, seed: int) -> None:
    if out.suffix not in (".hdf5", ".h5"):
        raise ConfigError("--out", str(out), "a file name that ends in .hdf5")
    if not out.parent.is_dir():
        raise ConfigError("--out", str(out), f"a file in an existing folder (no {out.parent})")
    if steps < 1:
        raise ConfigError("--steps", steps, "at least 1")
    if not 0 <= seed < 2**32:
        raise ConfigError("--seed", seed, "a whole number from 0 to 4294967295")


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `data ...`; raises `UserError` for bad input."""
    tyro.extras.subcommand_cli_from_dict(
        {"inspect": inspect, "collect": collect},
        prog=prog,
        description="Look at offline datasets, and make them.",
        args=list(arguments) or ["--help"],
    )


COMMAND = Command("data", "Look at offline datasets, and make them.", main)
