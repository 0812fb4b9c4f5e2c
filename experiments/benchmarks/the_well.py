"""The Well's table of one of its sets with this library's networks, where the files are at hand.

    the-well-download --base-path . --dataset turbulent_radiative_layer_2D
    python -m jaxrl_rollouts.experiments.benchmarks.the_well datasets/turbulent_radiative_layer_2D

Four frames to the next one, parameters unseen, no augmentation, the weights with the lowest error
on `valid`, VRMSE on `test` in the data's units, as The Well has it. Sizes are theirs. Otherwise
than there: a step's change is learned instead of the next frame, by Adam with a moving average.
Their classic U-Net (batch statistics) is not among the networks here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import pde
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.fitting import Fitted
from jaxrl_rollouts.pde.metrics import vrmse
from jaxrl_rollouts.pde.report import WINDOWS

HISTORY, STEPS = 4, 30
THEIRS: Mapping[str, Any] = {"width": 128, "modes": (8, 9), "lifting": 256, "embedding": 0}
NETWORKS: Mapping[str, Any] = {
    "fno": pde.Fno(**THEIRS),
    "tfno": pde.Fno(**THEIRS, rank=1.0),
    "convnext": pde.ConvNext(width=42, stages=4, blocks=2, embedding=0, zero_padding=True),
}
# Of a step on turbulent_radiative_layer_2D, as printed (README of PolymathicAI/the_well). The FNO's
# are older than the repair of its blocks, whose output was never assigned (issue 64 there).
SET = "turbulent_radiative_layer_2D"
PRINTED = {"fno": 0.5001, "tfno": 0.5016, "convnext": 0.1956}


def scores(predict: Any, u: np.ndarray) -> dict[str, float]:
    """VRMSE of a step from every frame, and over the windows of a rollout from the first ones.

    Args:
        predict: `(frames [B, 4, C, *X], steps) -> [steps, B, C, *X]`.
        u: `[B, T, C, *X]` in the data's units.
    """
    ends = range(HISTORY, u.shape[1])
    single = [vrmse(predict(u[:, t - HISTORY : t], 1), jnp.asarray(u[None, :, t])) for t in ends]
    found = {"a step": float(np.mean(single))}
    steps = min(STEPS, u.shape[1] - HISTORY)
    after = jnp.asarray(u[:, HISTORY : HISTORY + steps]).swapaxes(0, 1)
    errors = np.asarray(vrmse(predict(u[:, :HISTORY], steps), after)).mean(1)
    for first, last in WINDOWS:
        if steps >= last:
            found[f"{first}:{last}"] = float(errors[first:last].mean())
    return found


def persistence(frames: np.ndarray, steps: int) -> np.ndarray:
    """The last frame, again and again."""
    return np.repeat(frames[None, :, -1], steps, 0)


def fitted_to(folder: Path, network: Any, **settings: Any) -> Fitted:
    """An emulator of the set in a folder."""
    sets = {split: pde.read(folder / "data" / split) for split in ("train", "valid")}
    if isinstance(network, pde.Fno):  # theirs is one of circles, whatever the boundaries are
        sets = {split: _circles(fields) for split, fields in sets.items()}
    return pde.fit(
        "mse",
        sets["train"],
        network=network,
        conditions=(),
        history=HISTORY,
        validation=sets["valid"],
        training=pde.Training(**settings, random_shift=False),
    )


def _circles(fields: FieldSet) -> FieldSet:
    return fields._replace(boundaries=("periodic",) * len(fields.boundaries))


def table(rows: Mapping[str, Mapping[str, float]], printed: Mapping[str, float]) -> str:
    """Markdown: networks down, measures across."""
    names = list(next(iter(rows.values())))
    lines = [
        f"| VRMSE | {' | '.join(names)} | a step, printed |",
        "|---" + "|--:" * (len(names) + 1) + "|",
    ]
    for name, row in rows.items():
        cells = [f"{row[measure]:.4f}" for measure in names]
        lines.append(f"| {name} | {' | '.join(cells)} | {printed.get(name, '')} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, networks: Mapping[str, Any] = NETWORKS) -> None:
    """Train and score each network, and print the table after each."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the set, with data/train, valid and test")
    parser.add_argument("--steps", type=int, default=20_000, help="gradient steps")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--only", nargs="+", choices=[*networks], default=[*networks])
    parser.add_argument("--save", type=Path, help="a folder for the emulators")
    asked = parser.parse_args(arguments)
    u = pde.read(asked.folder / "data" / "test").array()
    printed = PRINTED if asked.folder.resolve().name == SET else {}
    rows = {"persistence": scores(persistence, u)}
    settings = {"steps": asked.steps, "batch": asked.batch, "lr": asked.lr}
    settings |= {"final_lr": asked.lr / 100, "warmup": min(500, asked.steps // 10)}
    for name in asked.only:
        fitted = fitted_to(asked.folder, networks[name], **settings)
        if asked.save:
            fitted.save(asked.save / name)
        rows[name] = scores(fitted.roll, u)
        print(table(rows, printed), flush=True)


if __name__ == "__main__":
    main()
