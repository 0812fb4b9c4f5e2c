"""A peer's run of a cell of the suite `fields`: `neuralop.models.FNO` in the place of our FNO.

    python -m jaxrl_rollouts.experiments.benchmarks.fields_peer PYTHON   # that has neuraloperator

Width, modes, layers, data, units, steps, batches, Adam with its warm-up and cosine, clipping,
moving average and scores are those of our cell; layers and their first weights are theirs. Ours
keeps the weights of the lowest validation error, theirs the last. Rows go into the suite's table.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.pde.evaluation import compare, high_correlation_times
from jaxrl_rollouts.pde.fitting import untrained
from jaxrl_rollouts.pde.report import WINDOWS
from jaxrl_rollouts.pde.split import split_files, with_validation
from jaxrl_rollouts.pde.train_command import TrainConfig, held_out
from jaxrl_rollouts.pde.training_fields import parted
from jaxrl_rollouts.pde.units import standardised
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.record.provenance import code_commit
from jaxrl_rollouts.sweep.bench import find_suite, place_of
from jaxrl_rollouts.sweep.suite import read_suite
from jaxrl_rollouts.sweep.table import DIGITS, merged, read_table, write_table

from .peer import PEERS, Peer, Theirs

DATASET, PEER, OURS = "ks22", "neuraloperator", "fno"


def measured(python: str, config: TrainConfig) -> tuple[str, dict[str, list[float]], float]:
    """Digest of the training data, every seed's metrics as the suite calls them, seconds."""
    train, test = split_files(config)
    training, u = parted(with_validation(config, train)[0], "never")
    own: Any = untrained(config.objective, config.network, training, u)
    trained: Any = SimpleNamespace(emulator=own)
    data = held_out(config, trained, test, None)  # type: ignore[arg-type]
    fields, net = standardised(training, u, own.units, own.conditions), config.network
    settings = {"rate": config.lr, "updates": config.steps, "warmup": min(500, config.steps // 10)}
    settings |= {"batch": config.batch, "steps": data.steps, "scale": own.scale, "threads": 1}
    settings |= {"trajectories": 1, "frames": 2, "channels": own.width, "space": own.grid}
    settings |= {"width": net.width, "layers": net.layers, "modes": net.modes, "weights": ""}
    found, seconds = dict[str, list[float]](), 0.0
    with TemporaryDirectory() as folder:
        named = {"fields": np.asarray(fields.fields), "start": np.asarray(data.opening())}
        np.savez(f"{folder}/fields.npz", **named)  # type: ignore[arg-type]
        settings |= {"folder": folder, "index": 0}
        with Peer(Theirs(python, PEERS / "neuralop_fno.py", PEER, settings, {})) as peer:
            for seed in range(config.seeds):
                start = peer.ask({"kind": "start", "seed": seed, **settings})
                seconds += peer.ask({"kind": "train"})["seconds"]
                rolled = jnp.asarray(np.load(f"{folder}/rolled.npy"))
                result = compare(rolled, data.truth(), data)
                one = {"parameters": start["parameters"], "nrmse_1": result.nrmse[0].mean()}
                one |= {"vrmse_1": result.vrmse[0].mean()}
                one |= {f"vrmse_{a}_{b}": result.vrmse[a:b].mean() for a, b in WINDOWS}
                correlation = np.asarray(result.correlation)[None]
                one |= {"time": high_correlation_times(correlation, data.dt)[1][0]}
                for metric, value in one.items():
                    found.setdefault(metric, []).append(float(value))
    return hashlib.sha256(np.ascontiguousarray(u).data).hexdigest()[:12], found, seconds


def main(python: str) -> None:
    """Train and score theirs, and put its rows into the table."""
    path = find_suite("fields")
    suite, table = read_suite(path), place_of(path, "evidence", ".csv")
    words = suite.cell(DATASET, OURS).task(Path.cwd()).arguments[1:]
    config = parse_run(load_experiment(suite.job), words)[1]
    sha256, found, seconds = measured(python, config)
    about = {"dataset": DATASET, "method": PEER, "settings": suite.cell(DATASET, PEER).settings}
    about |= {"sha256": sha256, "seconds": f"{seconds:.0f}", "step": str(config.steps)}
    about |= {"commit": code_commit()[:12]}
    new = [
        {**about, "metric": metric, "seed": str(seed), "value": f"{value:.{DIGITS}g}"}
        for metric, values in found.items()
        for seed, value in enumerate(values)
    ]
    write_table(table, merged(read_table(table), new))


if __name__ == "__main__":
    main(sys.argv[1])
