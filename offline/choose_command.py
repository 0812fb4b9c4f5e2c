"""`jaxrl-rollouts choose RUN...`: which of these policies to deploy, from the log alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.plugins import Command

if TYPE_CHECKING:
    from .choosing.choice import Choice
    from .data import Dataset
    from .saved_policies import SavedPolicy

TRIALS = 3


def choose(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    data: str = "",
    estimators: tuple[Literal["models", "fqe", "is", "dr", "dice"], ...] = ("models", "fqe"),
    preset: Literal["smoke", "small", "long"] = "small",
    level: float = 0.9,
    trials: int = TRIALS,
    discount: float | None = None,
    undiscounted: bool = False,
    best: bool = False,
    seed: int = 0,
    models: Path | None = None,
    truth: int = 0,
    environment: str = "",
    out: Path = Path("choose.json"),
) -> None:
    """Say which of several trained policies are better than the log they come from, without a
    simulator: deploy, try first, undecided or do not deploy, with a reason for each.

    This is off-policy evaluation. A policy's value is the discounted sum of rewards from the
    start states of the log's episodes. It is estimated in world models that no training has used,
    each fitted to half of the episodes, and by fitted Q evaluation. As a check, the values of
    behaviour clones of parts of the log are estimated too. Their errors widen the intervals; if
    they are too large there is no verdict. Takes minutes: every estimator is fitted first.

    Args:
        runs: folders of runs, or of their policies, of which all training seeds are compared; or
            policy files of DOPE (.npz), or of D4RL, of which the behaviour policy is used.
        data: the log: a file or a name, as for `run offline`. Left out: the runs' dataset.
        estimators: models (any policy), fqe (policies without a memory), is (importance sampling),
            dr (doubly robust, with fqe) and dice (density ratio, no memory). is and dr need
            policies with a density (SAC, CQL and methods on them); all estimators then evaluate
            sampled actions. The first of models and fqe gives the interval and the verdict, or fqe
            if the models fail the check and it passes.
        preset: preset of the estimators' networks: smoke (a test run), small, long.
        level: level of the intervals.
        trials: number of policies to recommend for a test in the true environment.
        discount: discount factor; left out, that of the trainings.
        undiscounted: sum rewards without discount, over the longest episode; models only.
        best: compare the policies of the best evaluations, if a simulator selected them.
        seed: random seed.
        models: folder that stores the fitted world models for the next call.
        truth: then evaluate each policy for so many episodes in the data's environment, and score
            the estimates by DOPE's metrics: error, rank correlation, regret@1, coverage.
        environment: environment of `truth`; left out, the one that the data declare.
        out: the JSON file to write, with a table .csv and a picture .png beside it.
    """
    if not runs:
        raise ConfigError("RUN", "nothing", "folders of one run or several")
    if out.suffix != ".json" or not out.parent.is_dir():
        raise ConfigError("--out", str(out), "a name that ends in .json, in an existing folder")
    if undiscounted and (discount is not None or set(estimators) != {"models"}):
        raise ConfigError("--undiscounted", True, "neither --discount nor estimators but models")
    # These load jax, which `--help` should not wait for.
    from .choosing.choose import choose as of
    from .choosing.dope import ENDINGS, read_dope_policy
    from .choosing.verdict import REJECT, UNKNOWN
    from .logs import log_of
    from .matching import take_bounds
    from .saved_policies import read_policy

    saved = [
        read_dope_policy(run) if run.suffix in ENDINGS else read_policy(run, best=best)
        for run in runs
    ]
    log = log_of(data, runs)
    low, high = (saved[0].facts.get(name) for name in ("action_low", "action_high"))
    if low is not None and high is not None:  # a log without bounds has those it was learned with
        log = take_bounds(log, low, high, f"the policy {runs[0].name}")
    given: dict[str, Any] = {"config": preset, "models": models, "level": level, "seed": seed}
    print(f"{log.name}: fitting {', '.join(estimators)} and clones of the data ...", flush=True)
    found = of(saved, log, estimators, discount=1.0 if undiscounted else discount, **given)
    print(found)
    if trials and found.verdict not in (UNKNOWN, REJECT):
        names, value = found.trials(trials)
        print(f"With {len(names)} trials: {', '.join(names)}; expected best of them {value:.4g}.")
    if truth:
        found = _against(
            found, saved, log, truth, environment, bool({"is", "dr"} & set(estimators))
        )
    print(f"numbers: {found.save(out)}\npicture: {out.with_suffix('.png')}")


def _against(
    found: Choice,
    saved: Sequence[SavedPolicy],
    log: Dataset,
    episodes: int,
    environment: str,
    sampled: bool,
) -> Choice:
    """The choice with the policies' true values; they and the scores are printed."""
    from .choosing.truth import scored, true_values

    given: dict[str, Any] = {"environment": environment or None, "sampled": sampled}
    true = true_values(saved, log, episodes, discount=found.discount, **given)
    for row, value in zip(found.table, true, strict=True):
        inside = "inside" if row.low <= value <= row.high else "outside"
        print(f"{row.policy}: true {value:.4g}, {inside} [{row.low:.4g}, {row.high:.4g}]")
    metrics = scored(found, true)
    print(
        f"against {episodes} episodes each: "
        + ", ".join(f"{k} {v:.3g}" for k, v in metrics.items())
    )
    return replace(found, true=tuple(true.tolist()), scores=metrics)


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `choose ...`; raises `UserError` for bad input."""
    call(choose, arguments or ["--help"], prog)


COMMAND = Command(
    "choose", "Which of several policies to deploy, from the log alone, without a simulator.", main
)
