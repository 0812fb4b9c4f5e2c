"""World models on disk, with the fingerprint of the data they were fitted to.

A posterior is a statement about one dataset: its thresholds and scalers mean nothing for another,
and file names do not tell (three "medium" ensembles of a public release were the "expert" ones
under another name). A folder holds `world.json` and one checkpoint of the worlds of all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.configs import from_json, to_json
from jaxrl_rollouts.errors import CheckpointError, DataError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.folder import read_json, write_json_atomically
from jaxrl_rollouts.record.provenance import provenance

from ..data import Dataset
from .dynamics import World
from .fit import FittedWorlds, Targets, WorldModel, make_world_model
from .trust import Trust

FORMAT = 1
FILE = "world.json"


class SavedWorlds(NamedTuple):
    """World models that were fitted before.

    Attributes:
        model: architecture, data and scalers.
        worlds: a `World` with a leading seed axis.
        trust: likewise.
        facts: everything in `world.json`.
    """

    model: WorldModel
    worlds: World
    trust: Trust
    facts: Mapping[str, Any]


def fingerprint(dataset: Dataset) -> dict[str, Any]:
    """What identifies the rows a model was fitted to."""
    t = dataset.transitions
    return {
        "sha256": dataset.sha256,
        "rows": len(t.rewards),
        "observation_size": t.observations.shape[1],
        "action_size": t.actions.shape[1],
    }


def save_worlds(
    folder: Path,
    fitted: FittedWorlds,
    trust: Trust,
    dataset: Dataset,
    config: EnsembleConfig,
    targets: Targets,
) -> Path:
    """Write the worlds of all seeds and where they come from.

    Args:
        folder: made if need be.
        fitted, trust: leading axis = seeds.
        dataset: what they were fitted to.
        config, targets: as they were given to `fit_worlds`.
    """
    checkpoint.save(folder, 0, {"worlds": fitted.worlds, "trust": trust})
    record = {
        "format": FORMAT,
        "dataset": dataset.name,
        **fingerprint(dataset),
        "ensemble": to_json(config),
        "targets": targets,
        "seeds": jax.tree.leaves(trust)[0].shape[0],
        "levels": trust.levels.shape[-1],
        "versions": provenance(),
    }
    write_json_atomically(folder / FILE, record)
    return folder


def load_worlds(folder: str | Path, dataset: Dataset) -> SavedWorlds:
    """Read worlds for the dataset they were fitted to, and for no other.

    Raises:
        CheckpointError: there are none, or they cannot be read.
        DataError: they were fitted to other rows; names what differs.
    """
    folder = Path(folder)
    facts = read_json(folder / FILE, "a world-model folder")
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
        raise CheckpointError(f"{folder / FILE}: format: found {found!r}, expected {FORMAT}")
    for name, here in fingerprint(dataset).items():
        if facts.get(name) != here:
            raise DataError(
                folder / FILE,
                name,
                facts.get(name),
                f"{here}, as {dataset.name} has it: what one set taught means nothing for another",
            )
    config = from_json(EnsembleConfig, facts.get("ensemble"), str(folder / FILE))
    model = make_world_model(config, dataset.transitions, targets=facts["targets"])

    def like(key: jax.Array) -> dict[str, Any]:
        levels = jax.numpy.zeros((facts["levels"],))
        trust = Trust(levels, levels, jax.numpy.zeros(()))
        return {"worlds": model.world(model.fitter.init(key)), "trust": trust}

    keys = jax.random.split(jax.random.key(0), facts["seeds"])
    loaded = checkpoint.load_newest(folder, jax.jit(jax.vmap(like))(keys))
    if loaded is None:
        raise CheckpointError(f"{folder}: found no complete checkpoint, expected one")
    return SavedWorlds(model, loaded[1]["worlds"], loaded[1]["trust"], facts)
