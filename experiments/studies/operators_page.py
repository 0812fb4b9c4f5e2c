"""Tables and claims of `operators`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.pde.metrics import mean_spectrum
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .operators_cells import DriftNetConfig, Flows, speed

SOURCE = "DRIFT-Net (ICLR 2026), tables of NS-SL and NS-PwC, ablations"
PUBLISHED = (158.0, 118.0)  # training steps per second of DRIFT-Net and scOT, hardware unknown
BETTER, WORSE = 0.95, 1.1  # what counts as an effect


def make_report(
    report: Report,
    config: DriftNetConfig,
    cells: Grid,
    flows: Flows,
) -> None:
    """Everything that the page shows."""
    called = {"updates": "{}", "seconds": "{}, equal seconds", "none": "{}"}
    here = {called[m].format(name): cell for (m, name), cell in cells.items()}
    truth = np.asarray(flows.data.fields.fields)
    for start in config.starts:
        rows = flows.of(config, start)
        report.table(start, [_row(name, cell, rows, config) for name, cell in here.items()])
        amplitude = _amplitude(truth[rows])
        shells = [_shell_row(name, cell, rows, amplitude) for name, cell in here.items()]
        report.table(f"{start}, shells", shells)
    report.table("training speed", _speed_rows(config, cells))
    parts = {name: cells["updates", name] for name in ("drift", *config.parts)}
    report.table("parts of the mixer", _part_rows(config, flows, parts))
    _claims(report, config, cells, flows)
    train, test = config.train, config.test
    report.note(
        f"Vorticity of decaying flows on {train.points} x {train.points} points, solved on "
        f"{train.oversampling} times as many along each axis and cut off in Fourier space; of each "
        "start "
        f"{train.trajectories} trajectories x {train.frames} frames to train on, "
        f"{test.trajectories} x {test.frames} to test on, {test.dt[0]:g} apart; one emulator is "
        f"trained on all. Frames after the first {train.frames} of a test trajectory are later "
        "than any trained on."
    )
    report.note(
        f"As many updates: {config.training.steps} gradient steps on batches of "
        f"{config.training.batch}, mean square error of a step. As many seconds: updates in the "
        "ratio of the speeds, measured in CPU seconds of the process after each training, since "
        "other programs shared the machine; published are steps per second of unknown hardware."
    )


def one_step(cell: Cell, rows: slice) -> np.ndarray:
    """Relative L1 of a step in %, median over the steps of some trajectories, `[seeds]`."""
    return 100.0 * np.median(cell["one_step_l1", :, rows, :], (1, 2))


def rolled(cell: Cell, rows: slice, step: int) -> np.ndarray:
    """Relative L1 in % after so many steps, median over trajectories, `[seeds]`."""
    return 100.0 * np.median(cell["relative_l1", :, step - 1 : step, rows], (1, 2))


def energy_gap(cell: Cell, rows: slice) -> np.ndarray:
    """|E - E_true| / E_true in % over the last tenth, median over trajectories, `[seeds]`."""
    gap = np.abs(cell["energy", :, :, rows])
    return 100.0 * np.median(gap[:, -max(1, gap.shape[1] // 10) :], (1, 2))


def shell_errors(cell: Cell, rows: slice, amplitude: np.ndarray) -> np.ndarray:
    """Error of a step over the field's amplitude, by shell from 1 on, `[seeds, K - 1]`."""
    return cell["step_spectrum", :, rows, 1:].mean(1) / np.maximum(amplitude[1:], 1e-12)


def _steps(config: DriftNetConfig) -> list[int]:
    """After which steps rollouts are read."""
    return sorted({min(20, config.steps), min(100, config.steps)})


def _row(name: str, cell: Cell, rows: slice, config: DriftNetConfig) -> dict[str, Any]:
    trained = not cell.diverged and cell.history is not None
    row: dict[str, Any] = {
        "arm": name,
        "parameters": int(cell.extra["parameters"]) if trained else None,
        "updates": int(cell.extra["updates"]) if trained else None,
        "seconds to train": cell.seconds if trained else None,
        "one step L1 %": summarize(one_step(cell, rows)),
    }
    for step in _steps(config):
        row[f"{step} steps L1 %"] = summarize(rolled(cell, rows, step))
    return row | {
        "energy gap %": summarize(energy_gap(cell, rows)),
        "vorticity correlation, last step": summarize(cell["vorticity", :, -1:, rows].mean((1, 2))),
        "structure function": summarize(np.median(cell["structure", :, rows], 1)),
    }


def _amplitude(fields: np.ndarray) -> np.ndarray:
    """Mean amplitudes of fields by shell, `[K]`."""
    return np.asarray(mean_spectrum(fields[:, 1:], space_dims=2))


def _shell_row(name: str, cell: Cell, rows: slice, amplitude: np.ndarray) -> dict[str, Any]:
    """Thirds of the shells."""
    row: dict[str, Any] = {"arm": name}
    if cell.diverged:
        return row
    errors = shell_errors(cell, rows, amplitude)
    for part in np.array_split(np.arange(errors.shape[1]), 3):
        label = f"shells {part[0] + 1} to {part[-1] + 1}"
        row[f"{label}, error over amplitude"] = summarize(errors[:, part].mean(1))
    return row


def _speed_rows(config: DriftNetConfig, cells: Grid) -> list[dict[str, Any]]:
    drift = np.median(speed(cells["updates", "drift"]))
    rows = []
    for name in (*config.mixers, "fno"):
        rate = float(np.median(speed(cells["updates", name])))
        published = PUBLISHED[0] / PUBLISHED[1] if name == "attention" else None
        row = {"arm": name, "steps per CPU second": rate, "DRIFT's over it": float(drift / rate)}
        rows.append(row | {"published": published})
    return rows


def _part_rows(
    config: DriftNetConfig, flows: Flows, parts: Mapping[str, Cell]
) -> list[dict[str, Any]]:
    rows = []
    for name, cell in parts.items():
        size = None if cell.diverged else int(cell.extra["parameters"])
        row: dict[str, Any] = {"arm": name, "parameters": size}
        for start in config.starts:
            errors, whole = (one_step(c, flows.of(config, start)) for c in (cell, parts["drift"]))
            row[f"{start}, one step L1 %"] = summarize(errors)
            row[f"{start}, over the whole mixer's"] = summarize(errors / whole)
        rows.append(row)
    return rows


def _claims(report: Report, config: DriftNetConfig, cells: Grid, flows: Flows) -> None:
    claim = claims(report, SOURCE)
    for start in config.starts:
        rows = flows.of(config, start)
        drift = one_step(cells["updates", "drift"], rows)
        for matching in ("updates", "seconds"):
            if (matching, "attention") in cells:
                ratio = drift / one_step(cells[matching, "attention"], rows)
                means = f"relative L1 of a step over attention's; parameters, {matching} are equal"
                name = f"DRIFT beats attention: {start}, {matching}"
                claim(name, ratio, at_most=BETTER, means=means)
        errors = {part: one_step(cells["updates", part], rows) for part in config.parts}
        without = errors.pop("no low mixing", None)
        if without is None:
            continue
        means = "relative L1 of a step without low mixing over that of the whole mixer"
        claim(f"low mixing matters: {start}", without / drift, at_least=WORSE, means=means)
        if errors:
            worst = np.stack([*errors.values()]).max(0)
            means = "relative L1 of a step without low mixing over the worse of other ablations"
            name = f"low mixing matters most: {start}"
            claim(name, without / worst, at_least=1.0, means=means)
