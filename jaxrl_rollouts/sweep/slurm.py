"""A sweep as a SLURM job array: a script for `sbatch`, and a file with one command per task."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError, StorageError
from ..record.files import write_atomically
from .plan import Plan

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array={array}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cpus}
{gpus}#SBATCH --output={log}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
# Each task of the array is a line of the file with commands. What was cut resumes from its
# checkpoints, what is finished is left alone; two minutes before the time is up a task stops.
command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {lines})
eval "exec $command"
"""


def write_slurm(
    script: Path,
    folder: Path,
    plan: Plan,
    missing: Sequence[int],
    trust: Sequence[str],
    *,
    cpus: float,
    gpus: float,
) -> Path:
    """Write the script, and beside it a file with one command per task of the plan.

    Returns:
        The file with the commands.
    """
    if gpus != int(gpus):
        raise ConfigError("--gpus", gpus, "a whole number with --slurm")
    lines = script.with_suffix(".tasks")
    head = [sys.executable, "-m", "jaxrl_rollouts", "sweep", "task", str(folder)]
    tail = ["--trust", *trust] if trust else []
    commands = [shlex.join([*head, str(n + 1), *tail]) for n in range(len(plan.tasks))]
    text = SCRIPT.format(
        name=f"{plan.experiment}-sweep",
        array=ranges(missing),
        cpus=math.ceil(cpus),
        gpus=f"#SBATCH --gres=gpu:{int(gpus)}\n" if gpus else "",
        log=shlex.quote(f"{folder}/slurm-%A_%a.log"),
        lines=shlex.quote(str(lines.resolve())),
    )
    try:
        write_atomically(lines, "\n".join(commands) + "\n")
        write_atomically(script, text)
    except OSError as error:
        raise StorageError(script, error) from error
    return lines


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as `--array` takes them: `1-3,7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
