"""Train d3rlpy's agents on our rows and let them act; run by `beside_others` where d3rlpy is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import d3rlpy
import numpy as np
import torch
from d3rlpy.preprocessing import StandardObservationScaler
from serving import serve

KINDS: dict[str, Any] = {
    "bc": d3rlpy.algos.BCConfig,
    "cql": d3rlpy.algos.CQLConfig,
    "iql": d3rlpy.algos.IQLConfig,
    "td3_bc": d3rlpy.algos.TD3PlusBCConfig,
    "sac": d3rlpy.algos.SACConfig,
}
NETS = {"bc": ("",), "iql": ("actor_", "critic_", "value_")}


class Study:
    """One agent on one dataset, with one seed."""

    def __init__(self, s: SimpleNamespace) -> None:
        torch.set_num_threads(s.threads)
        d3rlpy.seed(s.seed)
        self.settings, rows = s, np.load(s.rows)
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        self.dataset = d3rlpy.dataset.MDPDataset(*(rows[name] for name in names))
        encoder = d3rlpy.models.VectorEncoderFactory([s.width] * s.layers)
        nets = NETS.get(s.agent, ("actor_", "critic_"))
        given = {f"{name}encoder_factory": encoder for name in nets} | dict(s.options)
        if s.normalise:
            seen = rows["observations"]
            given["observation_scaler"] = StandardObservationScaler(
                mean=seen.mean(0), std=seen.std(0)
            )
        self.agent = KINDS[s.agent](batch_size=s.batch, **given).create(device="cpu:0")
        self.agent.build_with_dataset(self.dataset)

    def describe(self) -> dict[str, Any]:
        """How many rows a gradient step draws from; d3rlpy leaves out those cut by a time limit."""
        return {"rows": self.dataset.transition_count}

    def said(self, observations: list) -> list:
        """The actions of the policy, without noise."""
        return self.agent.predict(np.asarray(observations, np.float32)).tolist()

    def seconds(self, kind: str, updates: int) -> float:
        """Of so many gradient steps, each on a batch drawn anew as `fit` does it."""
        del kind
        begin = time.perf_counter()
        for _ in range(updates):
            self.agent.update(self.dataset.sample_transition_batch(self.settings.batch))
        return time.perf_counter() - begin


if __name__ == "__main__":
    serve(Study)
