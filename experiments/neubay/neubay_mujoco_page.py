"""Tables, pictures and claims of `neubay_mujoco`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import (
    FittedDataset,
    Outcome,
    Setting,
    behaviour,
    slug,
)
from jaxrl_rollouts.offline.study.neubay import Posterior
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report

from ..kit.neubay_pages import draw_horizons, draw_learning, draw_values, horizon_row, posterior_row
from ..kit.offline_pages import (
    draw_comparison,
    draw_world,
    note_environments,
    note_shared_data,
    result_rows,
    world_row,
)
from .neubay_mujoco_cells import Config

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)"
Results = Mapping[str, Mapping[str, Outcome]]


def make_report(
    report: Report, config: Config, posteriors: Mapping[str, Posterior],
    worlds: Mapping[str, FittedDataset | Setting], results: Results,
) -> None:  # fmt: skip
    """Everything but times.

    Args:
        report: where it goes.
        config: of the run.
        posteriors: dataset -> NEUBAY's ensembles.
        worlds: dataset -> the conservative methods' ensemble, or the bare setting.
        results: dataset -> arm or method -> outcome.
    """
    rows, horizons = [], []
    for name, of in results.items():
        setting = Setting(worlds[name].dataset, worlds[name].env)
        rows += result_rows(setting, of)
        arms = {arm: of[arm] for arm in config.arms(name)}
        horizons += [horizon_row(name, arm, outcome) for arm, outcome in arms.items()]
        per_iteration = config.neubay.agent.updates_per_iteration
        per_epoch = config.study.rollouts.updates_per_epoch
        shown = {m: (o, per_iteration if m in arms else per_epoch) for m, o in of.items()}
        draw_learning(report, name, setting, shown)
        draw_horizons(report, name, arms, per_iteration)
        _claims(report, config, name, setting, of)
    report.table("results", rows)
    report.table("rollouts of the last collection", horizons)
    report.table("posteriors", [posterior_row(p) for p in posteriors.values()])
    fitted = {name: world for name, world in worlds.items() if isinstance(world, FittedDataset)}
    if fitted:
        report.table("world models of the conservative methods", [*map(world_row, fitted.values())])
        draw_world(report, fitted)
    draw_comparison(report, worlds, results)
    draw_values(report, results)
    steps, ensemble = config.neubay.agent.agent.steps, config.neubay.ensemble
    report.note(
        f"{steps:,} gradient steps for everyone. NEUBAY's arms share a posterior of "
        f"{ensemble.members} layer-normalised members, of which {ensemble.elites} are rolled; the "
        f"conservative methods share an ensemble of {config.study.ensemble.members}, as their "
        f"papers have it. Both were fitted for at most {ensemble.max_epochs} epochs."
    )
    report.note(
        "markov: the same loop without a memory, shown the state only. quantile: where rollouts "
        "are cut, of the members' spread over the dataset (neubay's own is "
        f"{config.neubay.agent.level:g}). penalty: taken from imagined rewards, in mean spreads."
    )
    note_shared_data(report)
    note_environments(report, [world.env for world in worlds.values()])


def _claims(
    report: Report, config: Config, name: str, setting: Setting, of: Mapping[str, Outcome]
) -> None:
    """What the paper says of one dataset, each with its numbers."""
    own, where = of["neubay"], slug(name)
    report.claim(
        Claim.at_least(
            f"NEUBAY beats the behaviour on {where}", values=own.returns, source=SOURCE,
            threshold=float(behaviour(setting).mean()),
            expected="return above the mean of the episodes in the dataset",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_most(
            f"NEUBAY does not promise more than it earns on {where}", source=SOURCE, threshold=0.0,
            values=own.estimated_value - own.true_value,
            expected="critics' value at or below the true discounted return, without conservatism",
        )
    )  # fmt: skip
    if config.methods:
        best = max(config.methods, key=lambda method: float(np.mean(of[method].returns)))
        ours, theirs = (_score(name, o.returns) for o in (own, of[best]))
        report.claim(
            Claim.at_least(
                f"NEUBAY is on par with the best conservative method on {where}", source=SOURCE,
                values=ours - theirs, threshold=-5.0,
                expected=f"score minus that of {best}, seed by seed, at equal budget",
            )
        )  # fmt: skip
    if config.memoryless:
        report.claim(
            Claim.at_least(
                f"a memory helps on {where}", values=own.returns - of["markov"].returns,
                threshold=0.0, source=f"{SOURCE}, Markov ablation",
                expected="return minus that of the agent without a memory, seed by seed",
            )
        )  # fmt: skip
    for level in (x for x in config.levels if 0 <= x < config.neubay.agent.level):
        longer, shorter = (
            o.trained.history.curve("horizon_median")[1].mean(0)
            for o in (own, of[f"quantile {level:g}"])
        )
        report.claim(
            Claim.at_least(
                f"quantile {level:g} ends rollouts sooner on {where}", source=f"{SOURCE}, figure 1",
                values=longer / np.maximum(shorter, 1.0), threshold=2.0,
                expected="median imagined steps over training against those at "
                f"{config.neubay.agent.level:g}",
            )
        )  # fmt: skip
    for penalty in config.penalties[-1:]:
        report.claim(
            Claim.at_most(
                f"a penalty of {penalty:g} lowers what is promised on {where}", threshold=0.0,
                source=f"{SOURCE}, conservative ablation",
                values=of[f"penalty {penalty:g}"].estimated_value - own.estimated_value,
                expected="critics' value from the start minus that without a penalty",
            )
        )  # fmt: skip


def _score(name: str, returns: np.ndarray) -> np.ndarray:
    """D4RL's scale where there is one, else hundredths of the return."""
    found = normalised_score(name, returns)
    return returns / 100.0 if found is None else np.asarray(found)
