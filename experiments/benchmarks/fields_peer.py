"""A peer's run of a cell of the suite `fields`: `neuralop.models.FNO` in the place of our FNO.

    python -m jaxrl_rollouts.experiments.benchmarks.fields_peer PYTHON   # that has neuraloperator

Width, modes, layers, data, units, steps, batches, Adam with its warm-up and cosine, clipping,
moving average and scores are those of our cell; layers and their first weights are theirs. Ours
keeps the weights of the lowest validation error, theirs the last. Rows go into the suite's table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.report import WINDOWS
from jaxrl_rollouts.pde.split import split_files, with_validation
from jaxrl_rollouts.pde.train_command import TrainConfig
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.record.provenance import code_commit
from jaxrl_rollouts.sweep.bench import find_suite, place_of
from jaxrl_rollouts.sweep.suite import read_suite
from jaxrl_rollouts.sweep.table import DIGITS, merged, read_table, write_table

from .peer import PEERS, Peer, Theirs

# Periodic, of one channel, without conditions.
DATASET, PEER, OURS = "ks22", "neuraloperator", "fno"


def scores(rolled: np.ndarray, truth: np.ndarray, dt: float) -> dict[str, float]:
    """Of `[T, B, C, *space]`: metrics as the suite calls them."""
    both = jnp.asarray(rolled), jnp.asarray(truth)
    vrmse, nrmse = np.asarray(metrics.vrmse(*both)), np.asarray(metrics.nrmse(*both))
    found = {"vrmse_1": vrmse[0].mean(), "nrmse_1": nrmse[0].mean()}
    found |= {f"vrmse_{first}_{last}": vrmse[first:last].mean() for first, last in WINDOWS}
    return found | {"time": metrics.correlation_horizons(metrics.correlation(*both), dt).mean()}


def measured(python: str, config: TrainConfig) -> tuple[list[dict[str, float]], float]:
    """Scores of every seed, and the seconds of all."""
    train, test = split_files(config)
    u = with_validation(config, train)[0].array()
    mean, std = u.mean(dtype=np.float64), u.std(dtype=np.float64)
    fields, given = (((x - mean) / std).astype(np.float32) for x in (u, test.array()))
    truth, net = given[:, 1:].swapaxes(0, 1), config.network
    settings = {"rate": config.lr, "updates": config.steps, "warmup": min(500, config.steps // 10)}
    settings |= {"batch": config.batch, "steps": len(truth), "space": fields.shape[3:]}
    settings |= {"width": net.width, "layers": net.layers, "modes": net.modes, "weights": ""}
    settings |= {"scale": float(np.diff(fields, axis=1).std()), "index": 0, "threads": 1}
    settings |= dict.fromkeys(("trajectories", "channels", "fields"), 1) | {"frames": 2}
    found, seconds = [], 0.0
    with TemporaryDirectory() as folder:
        np.savez(f"{folder}/fields.npz", fields=fields, start=given[:, 0])
        settings["folder"] = folder
        with Peer(Theirs(python, PEERS / "neuralop_fno.py", PEER, settings, {})) as peer:
            for seed in range(config.seeds):
                begun = peer.ask({"kind": "start", "seed": seed, **settings})
                seconds += peer.ask({"kind": "train"})["seconds"]
                one = scores(np.load(f"{folder}/rolled.npy"), truth, float(test.dt[0]))
                found.append({"parameters": begun["parameters"], **one})
    return found, seconds


def main(python: str) -> None:
    """Train and score theirs, and put its rows into the table."""
    path = find_suite("fields")
    suite, place = read_suite(path), place_of(path, "evidence", ".csv")
    words = suite.cell(DATASET, OURS).task(Path.cwd()).arguments[1:]
    config = parse_run(load_experiment(suite.job), words)[1]
    found, seconds = measured(python, config)
    rows = read_table(place)
    same = next(row for row in rows if (row["dataset"], row["method"]) == (DATASET, OURS))
    own = {"method": PEER, "settings": suite.cell(DATASET, PEER).settings}
    own |= {"seconds": f"{seconds:.0f}", "commit": code_commit()[:12]}
    new = [
        {**same, **own, "metric": metric, "seed": str(seed), "value": f"{value:.{DIGITS}g}"}
        for seed, one in enumerate(found)
        for metric, value in one.items()
    ]
    write_table(place, merged(rows, new))


if __name__ == "__main__":
    main(sys.argv[1])
