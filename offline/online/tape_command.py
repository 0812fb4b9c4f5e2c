"""`jaxrl-rollouts data make` and `data export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl_rollouts.configs import SEED, Range, unknown
from jaxrl_rollouts.errors import ConfigError, Interrupted

from ..tapes import ENVIRONMENTS, NAMES, SUFFIX

if TYPE_CHECKING:
    from jaxrl_rollouts.record.run import Run

    from .train import Online


def make(
    name: tyro.conf.Positional[str],
    out: Path | None = None,
    rows: int = 100_000,
    seed: Annotated[int, tyro.conf.arg(metavar="INT>=0")] = 0,
    steps: int = 1_000_000,
    progress: bool = True,
) -> None:
    """Make a dataset by D4RL's recipe: train SAC in MuJoCo, and write its episodes as a tape.

    After Ctrl-C the same command resumes. The datasets of one environment, seed and number of
    steps share the training.

    Args:
        name: halfcheetah, hopper or walker2d, with -random (uniform actions), -medium (the first
            policy at a third of D4RL's expert return), -medium-replay (the replay buffer until
            then), -medium-expert (half and half) or -expert (the best policy).
        out: the tape to write, NAME.tape; left out, one in the data folder.
        rows: number of transitions of the dataset.
        seed: random seed of the training and of the episodes.
        steps: environment steps of the training.
        progress: show progress.
    """
    if name not in NAMES:
        raise unknown("data make", name, NAMES)
    SEED.check("--seed", seed)
    Range(least=1).check("--rows", rows)
    # These load jax, which `data --help` should not wait for.
    from jaxrl_rollouts.record.run import Run

    from ..data.names import data_folder

    family, kind = name.split("-", 1)
    path = out or data_folder() / f"{name}-seed{seed}{SUFFIX}"
    if path.suffix != SUFFIX:
        raise ConfigError("--out", str(path), f"a file name that ends in {SUFFIX}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "random":
        _write(path, ENVIRONMENTS[family], kind, None, rows, seed)
        return
    place = data_folder() / "training" / f"{family}-{steps}-seed{seed}"
    with Run.open(place, progress=progress) as run:
        try:
            training = train(family, steps, seed, run)
        except Interrupted as error:
            at = str(error).partition(";")[0]
            raise Interrupted(f"{at}; resume with the same command") from None
        _write(path, ENVIRONMENTS[family], kind, training, rows, seed)
        _report(training, run)


def train(family: str, steps: int, seed: int, run: Run | None) -> Online:
    """SAC as published (Haarnoja et al. 2018) with an evaluation every 10,000 steps.

    Args:
        family: one of `ENVIRONMENTS`.
        steps: environment steps.
        seed: seed of the training.
        run: its folder keeps checkpoints; None trains in memory.
    """
    from ..agents.sac import SacConfig
    from .learner import OnlineConfig
    from .train import train_online

    online = OnlineConfig(looks=max(steps // 10_000, 1), tape=True)
    agent = SacConfig(hidden_dims=(256, 256))
    return train_online(ENVIRONMENTS[family], agent, steps, online=online, seed=seed, context=run)


def export(
    dataset: tyro.conf.Positional[str], out: tyro.conf.Positional[Path], infos: bool = True
) -> None:
    """Write a dataset as an HDF5 file in D4RL's layout.

    Args:
        dataset: a name such as hopper-medium-mini-v1, a tape, or any dataset that can be read.
        out: the HDF5 file to write.
        infos: also write positions and velocities, where the dataset has them.
    """
    if out.suffix not in (".hdf5", ".h5"):
        raise ConfigError("out", str(out), "a file name that ends in .hdf5")
    from ..behaviours.made import load
    from ..data import write_d4rl

    data = load(dataset)
    facts = {"name": data.name, "sha256_of_source": data.sha256}
    if data.environment:
        facts["env_id"] = data.environment
    if limit := data.attributes.get("max_episode_steps"):
        facts["max_episode_steps"] = limit
    infos_kept = data.infos if infos else None
    low, high = data.action_low, data.action_high
    write_d4rl(out, data.transitions, facts, infos_kept, action_low=low, action_high=high)
    print(f"{out}: {len(data):,} transitions of {data.name}")


def _write(
    path: Path, environment: str, kind: str, training: Online | None, rows: int, seed: int
) -> None:
    from ..data import episode_returns
    from ..environments import make as simulator_of
    from ..environments.replayed import keeping
    from ..tapes.replay import load_tape
    from ..tapes.tape import write_tape
    from .tapes import make_tape

    write_tape(path, make_tape(kind, keeping(simulator_of(environment)), training, rows, seed))
    data = load_tape(path)
    returns = episode_returns(data.transitions)
    print(f"{path}: {len(data):,} transitions, mean return {returns.mean():.1f}")
    print(f"sha256: {data.sha256}")
    print(f"inspect it with: jaxrl-rollouts data inspect {path}")


def _report(training: Online, run: Run) -> None:
    from jaxrl_rollouts.reports.text import write_pages

    from .report import online_report

    report = online_report(training, run)
    report.save(run.folder.path)
    write_pages(report, run.folder.path)
    print(f"learning curve: {run.folder.path / 'report.html'}")
