"""Time d3rlpy's SAC; run by `speed` where d3rlpy is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import d3rlpy
import numpy as np
import torch
from serving import serve


class Study:
    """One agent and its data."""

    def __init__(self, s: SimpleNamespace) -> None:
        torch.set_num_threads(s.threads)
        self.settings, rng = s, np.random.default_rng(0)
        terminals = np.zeros(s.rows)
        terminals[999::1000] = terminals[-1] = 1
        self.dataset = d3rlpy.dataset.MDPDataset(
            rng.normal(size=(s.rows, s.observations)).astype(np.float32),
            rng.uniform(-1, 1, size=(s.rows, s.actions)).astype(np.float32),
            rng.normal(size=s.rows).astype(np.float32),
            terminals,
        )
        encoder = d3rlpy.models.VectorEncoderFactory([s.width] * s.layers)
        encoders = {f"{name}_encoder_factory": encoder for name in ("actor", "critic")}
        config = d3rlpy.algos.SACConfig(batch_size=s.batch, n_critics=s.critics, **encoders)
        self.agent = config.create(device="cpu:0")
        self.agent.build_with_dataset(self.dataset)

    def describe(self) -> dict[str, Any]:
        """Parameters are those that learn, targets left out."""
        modules = self.agent.impl.modules
        nets = modules.policy, modules.q_funcs
        count = sum(p.numel() for net in nets for p in net.parameters())
        return {"parameters": count, "d3rlpy": d3rlpy.__version__, "torch": torch.__version__}

    def seconds(self, kind: str, threads: int) -> float:
        """Of gradient steps, each on a batch drawn anew as `fit` does it."""
        torch.set_num_threads(threads)
        begin = time.perf_counter()
        for _ in range(self.settings.updates):
            self.agent.update(self.dataset.sample_transition_batch(self.settings.batch))
        return time.perf_counter() - begin


if __name__ == "__main__":
    serve(Study)
