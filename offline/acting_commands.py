"""`jaxrl-rollouts evaluate` and `jaxrl-rollouts export`: a trained policy, played or taken away."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from jaxrl_rollouts import plugins
from jaxrl_rollouts.cli.before import check_file
from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.configs import SEED
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.plugins import Command

if TYPE_CHECKING:
    from .environments import Environment
    from .evaluation import Evaluation
    from .saved_policies import SavedPolicy


def evaluate(
    run: tyro.conf.Positional[Path],
    environment: str = "",
    episodes: int = 100,
    seed: int = 0,
    training_seed: int | None = None,
    best: bool = False,
    sample: bool = False,
    video: Path | None = None,
    out: Path | None = None,
    trust: tuple[str, ...] = (),
) -> None:
    """Play a trained policy in an environment and print what it earns.

    Args:
        run: the folder of a run, or of one of the policies that it trained.
        environment: as for `run offline`. Left empty: the environment of the training.
        episodes: whole ones, of each training seed.
        seed: seed of the start states; the same gives the same numbers on a CPU.
        training_seed: index of the run's seed, from 0. Left out: all.
        best: the policy of the best evaluation while it was trained, and not the last one. It was
            chosen by its return in the true environment.
        sample: sample actions instead of the mean action.
        video: also write one episode of the first of these seeds as .gif or .mp4, or its last frame
            as .png.
        out: also write the numbers, every episode's too, as JSON.
        trust: code that the policy's folder names and that may be imported, FILE.py:Agent.
    """
    plugins.trust(*trust)
    # These load jax, which `--help` should not wait for.
    from jaxrl_rollouts.record.files import write_json_atomically

    from .evaluation import check_count
    from .saved_policies import read_policy

    check_count("--episodes", episodes)
    SEED.check("--seed", seed)
    check_file(out)
    saved = read_policy(run, best=best)
    env = environment_of(saved, environment)
    if video is not None:
        from .video import check_video

        check_video(video, env)
    seeds = [training_seed] if training_seed is not None else finite(saved)
    played = play(saved, env, seeds, episodes, seed, sample=sample)
    rows = table(saved, env, seeds, played)
    _print(saved, env, rows, best)
    if out is not None:
        facts = {"environment": env.name, "episodes": episodes, "seed": seed, "best": best}
        every = {name: value.tolist() for name, value in played._asdict().items()}
        policy = {k: saved.facts.get(k) for k in ("method", "dataset", "selection")}
        write_json_atomically(out, {**facts, "policy": policy, "rows": rows, "played": every})
        print(f"numbers: {out}")
    if video is not None:
        from .policy import Policy
        from .video import record

        bounds = {"action_low": env.action_low, "action_high": env.action_high}
        there = saved._replace(facts={**saved.facts, **bounds})
        earned = record(Policy(there, seeds[0], deterministic=not sample), env, video, seed)
        print(f"video:   {video}  (training seed {seeds[0]}, return {earned:.4g})")


def finite(saved: SavedPolicy) -> list[int]:
    """All training seeds but those that diverged, which are named."""
    for seed in saved.diverged:
        print(f"note: training seed {seed} diverged and is not evaluated", file=sys.stderr)
    seeds = [seed for seed in range(saved.facts["seeds"]) if seed not in saved.diverged]
    return seeds or [saved.facts["seeds"] - 1]  # `actor` says what is wrong with it


def environment_of(saved: SavedPolicy, name: str) -> Environment:
    """The environment of this name, else the one that a policy is for; it fits the policy."""
    from .environments.registry import make, make_named

    if not (name or saved.environment):
        expected = "a name, since the policy was trained without a simulator"
        raise ConfigError("--environment", name, expected)
    env = make(name) if name else make_named(saved.environment)
    saved.sees(env)
    return env


def play(
    saved: SavedPolicy,
    env: Environment,
    seeds: Sequence[int],
    episodes: int,
    seed: int,
    *,
    sample: bool = False,
) -> Evaluation:
    """Whole episodes of several training seeds, `[len(seeds), episodes]` of numpy.

    Raises:
        CheckpointError: there is no such training seed.
        ConfigError: an environment of other sizes.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl_rollouts.draws import as_key

    from .evaluation import evaluate_seeds

    actors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(saved.actor, seeds))
    fresh = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(seeds), *x.shape)), saved.start(episodes)
    )
    played = evaluate_seeds(
        saved.sees(env),
        saved.agent.policy if sample else saved.agent.greedy,
        actors,
        as_key(seed, "seed"),
        episodes,
        memory=fresh,
        discount=discount_of(saved),
    )
    return jax.tree.map(np.asarray, played)


def discount_of(saved: SavedPolicy) -> float:
    """The discount the agent was trained with."""
    return float(saved.facts["agent"].get("discount", 0.99))


def table(
    saved: SavedPolicy, env: Environment, seeds: Sequence[int], played: Evaluation
) -> list[dict[str, Any]]:
    """A row for every seed, with an interval over its episodes; and one for all, over the seeds.

    An interval over fewer than `FEWEST` is uninformative and left out.
    """
    from jaxrl_rollouts.reports.statistics import FEWEST, bootstrap_interval

    rows = []
    earned = {str(seed): returns for seed, returns in zip(seeds, played.returns, strict=True)}
    if len(seeds) > 1:
        earned["all"] = played.returns.mean(1)
    for name, returns in earned.items():
        row: dict[str, Any] = {"seed": name, "return": float(returns.mean())}
        if len(returns) >= FEWEST:
            row["low"], row["high"] = bootstrap_interval(returns, "mean")
        rows.append(row)
    columns = {"discounted": played.discounted, "length": played.lengths}
    # A score belongs to a dataset's own environment.
    score = saved.facts.get("score") if env.name == saved.environment else None
    for index, row in enumerate(rows):
        part = slice(None) if row["seed"] == "all" else index
        row |= {column: float(values[part].mean()) for column, values in columns.items()}
        if score:
            low, high = score["references"]
            row[score["label"]] = 100 * (row["return"] - low) / (high - low)
    return rows


def _print(
    saved: SavedPolicy, env: Environment, rows: Sequence[Mapping[str, Any]], best: bool
) -> None:
    from rich.console import Console
    from rich.table import Table

    from jaxrl_rollouts.reports.text import format_number

    facts = saved.facts
    shown = Table(title=f"{facts.get('method')} on {facts.get('dataset')}, played in {env.name}")
    names = [name for name in rows[0] if name not in ("low", "high")]
    heads = {"seed": "training seed", "discounted": f"discounted ({discount_of(saved):g})"}
    for name in names:
        shown.add_column(heads.get(name, name), justify="right")
        if name == "return":
            shown.add_column("95 % interval", justify="right")
    for row in rows:
        cells = []
        for name in names:
            cells.append(row[name] if name == "seed" else format_number(row[name]))
            if name == "return":
                ends = [format_number(row[end]) for end in ("low", "high") if end in row]
                cells.append(f"[{', '.join(ends)}]".replace("[", "\\[") if ends else "-")
        shown.add_row(*cells)
    console = Console()
    console.print(shown)
    console.print(
        "Intervals are bootstrapped, from five on: over episodes for a seed, over seeds for all.",
        highlight=False,
    )
    if best:
        console.print(f"Best policies: {facts.get('selection')}.", highlight=False)


def export(
    run: tyro.conf.Positional[Path],
    out: Path,
    training_seed: int = 0,
    best: bool = False,
    loader: Path | None = None,
) -> None:
    """Write a trained policy as one file that acts with jax alone (StableHLO), or as ONNX.

    Parameters, bounds and memory are inside; it takes any number of observations and runs on CPU,
    GPU and TPU. In Python: `jaxrl_rollouts.exported.load_exported(file)(observation)`.

    Args:
        run: the folder of a run, or of one of the policies that it trained.
        out: the file to write; one that ends in .onnx is for ONNX runtimes.
        training_seed: index of the run's seed, from 0.
        best: the policy of the best evaluation while it was trained, and not the last one.
        loader: also write this Python file, which reads the policy without this package.
    """
    check_file(out)
    check_file(loader)
    from .policy import load_policy

    policy = load_policy(run, training_seed, best=best)
    policy.export(out)
    print(f"{out}: {policy.facts.get('method')}, {out.stat().st_size:,} bytes")
    if out.suffix == ".onnx":
        print(f'act with: onnxruntime.InferenceSession("{out}"), input observation, output action')
        return
    module = "jaxrl_rollouts.exported"
    if loader is not None:
        from jaxrl_rollouts import exported

        shutil.copyfile(exported.__file__, loader)
        module = loader.stem
    print(f'act with: {module}.load_exported("{out}")(observation)')


def _evaluate_main(arguments: Sequence[str], prog: str) -> None:
    call(evaluate, arguments or ["--help"], prog)


def _export_main(arguments: Sequence[str], prog: str) -> None:
    call(export, arguments or ["--help"], prog)


EVALUATE = Command("evaluate", "Evaluate a trained policy and print its return.", _evaluate_main)
EXPORT = Command("export", "Export a trained policy as one file that needs only jax.", _export_main)
