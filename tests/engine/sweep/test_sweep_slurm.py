"""A sweep as a SLURM job array: every number of the array runs its line of the commands."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from jaxrl_rollouts.errors import ConfigError, StorageError
from jaxrl_rollouts.sweep.plan import Plan, Task
from jaxrl_rollouts.sweep.slurm import ranges, write_slurm

TASKS = tuple(Task(f"t-{n}", {"seed": n}, ("toy",), "/") for n in range(4))
PLAN = Plan("toy", ("sweep toy",), TASKS)


def test_the_script_runs_the_line_of_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.executable", "/bin/echo")
    folder = tmp_path / "a sweep"
    script = tmp_path / "my job.sh"
    lines = write_slurm(script, folder, PLAN, [1, 2, 4], ["my.envs:make"], cpus=1.5, gpus=1)
    text = script.read_text()
    for option in ("--array=1-2,4", "--cpus-per-task=2", "--gres=gpu:1", "--requeue"):
        assert f"#SBATCH {option}\n" in text
    assert len(lines.read_text().splitlines()) == len(TASKS)
    done = subprocess.run(
        ["bash", script], env={"SLURM_ARRAY_TASK_ID": "4"}, capture_output=True, text=True
    )
    said = ["-m", "jaxrl_rollouts", "sweep", "task", str(folder), "4", "--trust", "my.envs:make"]
    assert done.stdout.split() == " ".join(said).split() and not done.stderr
    assert shlex.split(lines.read_text().splitlines()[3])[1:] == said


def test_without_gpus_none_are_asked_for_and_shares_are_refused(tmp_path: Path) -> None:
    write_slurm(tmp_path / "job.sh", tmp_path, PLAN, [1], [], cpus=1, gpus=0)
    assert "gres" not in (tmp_path / "job.sh").read_text()
    with pytest.raises(ConfigError, match="--gpus: found 0.5, expected a whole number"):
        write_slurm(tmp_path / "job.sh", tmp_path, PLAN, [1], [], cpus=1, gpus=0.5)
    with pytest.raises(StorageError, match="No such file"):
        write_slurm(tmp_path / "no" / "job.sh", tmp_path, PLAN, [1], [], cpus=1, gpus=0)


def test_ranges() -> None:
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3,5,7-8" and ranges([4]) == "4"
