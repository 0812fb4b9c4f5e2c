"""Tables, pictures and claims of `neubay_mujoco`."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import Setting, behaviour, slug
from jaxrl_rollouts.offline.study.neubay import ring_note
from jaxrl_rollouts.reports.report import Report

from ..kit import neubay_pages, offline_pages
from ..kit.claims import claims
from ..kit.grid import Cell, Grid
from .neubay_mujoco_cells import Config, Results

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)"


def make_report(report: Report, config: Config, results: Results) -> Report:
    """Fill `report` with everything but times."""
    grid, posteriors, worlds, settings = results
    by_dataset = {name: grid.at(dataset=name) for name in settings}
    rows, horizons = [], []
    for name, cells in by_dataset.items():
        arms = {arm: cells[arm] for arm in config.arms(name)}
        rows += offline_pages.result_rows(settings[name], cells)
        horizons += neubay_pages.horizon_rows(name, arms)
        offline_pages.draw_learning(report, settings[name], cells)
        neubay_pages.draw_horizons(report, name, arms)
        add_claims(report, config, settings[name], cells)
    report.table("results", rows)
    report.table("rollouts of the last collection", horizons)
    report.table("posteriors", [*map(neubay_pages.posterior_row, posteriors.values())])
    if worlds:
        fitted = [*map(offline_pages.world_row, worlds.values())]
        report.table("world models of the conservative methods", fitted)
        offline_pages.draw_world(report, worlds)
    offline_pages.draw_comparison(report, settings, by_dataset)
    neubay_pages.draw_values(report, by_dataset)
    ensemble = config.neubay.ensemble
    report.note(
        f"{config.steps:,} gradient steps for everyone. NEUBAY's arms share a posterior of "
        f"{ensemble.members} layer-normalised members, of which {ensemble.elites} are rolled; the "
        f"conservative methods share an ensemble of {config.study.ensemble.members}, as their "
        f"papers have it. Both were fitted for at most {ensemble.max_epochs} epochs."
    )
    report.note(
        "markov: the same loop without a memory, shown the state only. quantile: where rollouts "
        "are cut, of the members' spread over the dataset (neubay's own is "
        f"{config.neubay.agent.level:g}). penalty: taken from imagined rewards, in mean spreads."
    )
    offline_pages.note_shared_data(report)
    offline_pages.note_environments(report, settings.values())
    for name, posterior in posteriors.items():
        report.note(f"{name}: {ring_note(posterior, config.study, config.agent(name))}")
    return report


def add_claims(report: Report, config: Config, setting: Setting, cells: Grid) -> None:
    """What the paper says of one dataset, each with its numbers."""
    claim, name, neubay = claims(report, SOURCE), setting.dataset.name, cells["neubay"]
    where, full = slug(name), config.neubay.agent.level

    def score(cell: Cell) -> np.ndarray:
        """D4RL's scale where there is one, else hundredths of the return."""
        scores = normalised_score(name, cell["return"])
        return cell["return"] / 100.0 if scores is None else np.asarray(scores)

    # fmt: off
    claim(f"NEUBAY beats the behaviour on {where}", neubay["return"],
          at_least=behaviour(setting).mean(),
          means="return above the mean of the episodes in the dataset")
    claim(f"NEUBAY does not promise more than it earns on {where}",
          offline_pages.overestimation(neubay), at_most=0,
          means="critics' value at or below the true discounted return, without conservatism")
    if config.methods:
        best = max(config.methods, key=lambda method: float(np.mean(cells[method]["return"])))
        claim(f"NEUBAY is on par with the best conservative method on {where}",
              score(neubay) - score(cells[best]), at_least=-5,
              means=f"score minus that of {best}, seed by seed, at equal budget")
    if config.memoryless:
        claim(f"a memory helps on {where}", neubay["return"] - cells["markov"]["return"],
              at_least=0, source=f"{SOURCE}, Markov ablation",
              means="return minus that of the agent without a memory, seed by seed")
    for level in (x for x in config.levels if 0 <= x < full):
        longer, shorter = (cell.curve("horizon_median")[1].mean(1)
                           for cell in (neubay, cells[f"quantile {level:g}"]))
        claim(f"quantile {level:g} ends rollouts sooner on {where}",
              longer / np.maximum(shorter, 1.0), at_least=2, source=f"{SOURCE}, figure 1",
              means=f"median imagined steps over training against those at {full:g}")
    for penalty in config.penalties[-1:]:
        claim(f"a penalty of {penalty:g} lowers what is promised on {where}",
              cells[f"penalty {penalty:g}"]["estimated_value"] - neubay["estimated_value"],
              at_most=0, source=f"{SOURCE}, conservative ablation",
              means="critics' value from the start minus that without a penalty")
    # fmt: on
