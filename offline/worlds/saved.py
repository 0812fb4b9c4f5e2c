"""World models on disk, with the fingerprint of the data they were fitted to.

A posterior is of one dataset: its thresholds and scalers mean nothing for another, and file names
are no proof (three "medium" ensembles of a public fork were the "expert" ones
under another name). A folder holds `world.json` and one checkpoint of the worlds of all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.config_json import from_json
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.record.saved import (
    find_folder,
    load_params,
    read_facts,
    reading,
)

from ..data import Dataset
from .dynamics import WorldModelParams
from .endings import TerminationConfig, blank_ending
from .fields import FieldEnsemble
from .fit import WorldModel, make_world_model
from .thresholds import UncertaintyStats
from .written import FILE, FORMAT, fingerprint


class SavedWorlds(NamedTuple):
    """World models that were fitted before.

    Attributes:
        model: architecture, data and scalers.
        worlds: a `WorldModelParams` with a leading seed axis.
        stats: likewise; None where none was measured.
        config: settings of the ensemble.
        facts: everything in `world.json`.
    """

    model: WorldModel
    worlds: WorldModelParams
    stats: UncertaintyStats | None
    config: EnsembleConfig
    facts: Mapping[str, Any]

    __repr__ = brief


@reading(FILE, "world models")
def load_worlds(folder: str | Path, dataset: Dataset) -> SavedWorlds:
    """Read worlds for the dataset they were fitted to, and for no other."""
    folder = find_folder(folder, FILE, "world model")
    file = folder / FILE
    facts = read_facts(file, "a world-model folder", FORMAT)
    for name, here in fingerprint(dataset).items():
        if facts.get(name) != here:
            raise DataError(
                file,
                name,
                facts.get(name),
                f"{here}, as {dataset.name} has it: world models are valid only for their dataset",
            )
    given = facts.get("ensemble")
    kind = FieldEnsemble if isinstance(given, Mapping) and "network" in given else EnsembleConfig
    config = from_json(kind, given, str(file))
    given = facts.get("ending")
    ending = None if given is None else from_json(TerminationConfig, given, f"{file}: ending")
    model = make_world_model(config, dataset.with_successors, targets=facts["targets"])

    def init(key: jax.Array) -> dict[str, Any]:
        world = model.world(model.fitter.init(key))
        if ending is not None:
            inputs = 2 * facts["observation_size"] + facts["action_size"]
            world = world._replace(ending=blank_ending(ending, inputs, key))
        if not facts["levels"]:
            return {"worlds": world}
        levels = jnp.zeros((facts["levels"],))
        return {"worlds": world, "stats": UncertaintyStats(levels, levels, jnp.zeros(()))}

    loaded = load_params(folder, init, facts["seeds"])
    return SavedWorlds(model, loaded["worlds"], loaded.get("stats"), config, facts)
