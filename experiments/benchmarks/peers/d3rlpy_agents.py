"""d3rlpy's agents: timed by `speed` on drawn rows, trained and played by `comparison` on a file's.

Run where d3rlpy is.
"""

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


def drawn(s: SimpleNamespace) -> dict[str, np.ndarray]:
    """Random rows in episodes of 1,000 steps."""
    rng, terminals = np.random.default_rng(0), np.zeros(s.rows)
    terminals[999::1000] = terminals[-1] = 1
    return {
        "observations": rng.normal(size=(s.rows, s.observations)).astype(np.float32),
        "actions": rng.uniform(-1, 1, size=(s.rows, s.actions)).astype(np.float32),
        "rewards": rng.normal(size=s.rows).astype(np.float32),
        "terminals": terminals,
    }


class Study:
    """One agent on one dataset, with one seed; SAC on drawn rows unless others are named."""

    def __init__(self, s: SimpleNamespace) -> None:
        torch.set_num_threads(s.threads)
        d3rlpy.seed(getattr(s, "seed", 0))
        self.settings, agent = s, getattr(s, "agent", "sac")
        rows = np.load(s.rows) if isinstance(s.rows, str) else drawn(s)
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        self.dataset = d3rlpy.dataset.MDPDataset(*(rows[name] for name in names if name in rows))
        encoder = d3rlpy.models.VectorEncoderFactory([s.width] * s.layers)
        nets = NETS.get(agent, ("actor_", "critic_"))
        given = {f"{name}encoder_factory": encoder for name in nets}
        given |= getattr(s, "options", None) or {"n_critics": s.critics}
        if getattr(s, "normalise", False):
            seen = rows["observations"]
            given["observation_scaler"] = StandardObservationScaler(
                mean=seen.mean(0), std=seen.std(0)
            )
        self.agent = KINDS[agent](batch_size=s.batch, **given).create(device="cpu:0")
        self.agent.build_with_dataset(self.dataset)

    def describe(self) -> dict[str, Any]:
        """Parameters are those of SAC that learn, targets left out."""
        modules = self.agent.impl.modules
        nets = [getattr(modules, name) for name in ("policy", "q_funcs") if hasattr(modules, name)]
        count = sum(p.numel() for net in nets for p in net.parameters())
        return {"parameters": count, "d3rlpy": d3rlpy.__version__, "torch": torch.__version__}

    def said(self, observations: list) -> list:
        """The actions of the policy, without noise."""
        return self.agent.predict(np.asarray(observations, np.float32)).tolist()

    def seconds(self, kind: str, threads: int = 0, updates: int = 0) -> float:
        """Of gradient steps, each on a batch drawn anew as `fit` does it."""
        if threads:
            torch.set_num_threads(threads)
        begin = time.perf_counter()
        for _ in range(updates or self.settings.updates):
            self.agent.update(self.dataset.sample_transition_batch(self.settings.batch))
        return time.perf_counter() - begin


if __name__ == "__main__":
    serve(Study)
