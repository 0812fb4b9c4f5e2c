"""Time d3rlpy's SAC, TD3+BC and IQL; run by `speed` and `diffusion_speed` where d3rlpy is.

`serving.py` says how it is asked. This file imports nothing of ours but what lies beside it.
"""

from __future__ import annotations

import time
from typing import Any

import d3rlpy
import numpy as np
import torch
from serving import serve


class Study:
    """One agent and its data; answers what is asked of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        rng = np.random.default_rng(0)
        rows = settings["rows"]
        terminals = np.zeros(rows)
        terminals[999::1000] = 1
        terminals[-1] = 1
        self.dataset = d3rlpy.dataset.MDPDataset(
            rng.normal(size=(rows, settings["observations"])).astype(np.float32),
            rng.uniform(-1, 1, size=(rows, settings["actions"])).astype(np.float32),
            rng.normal(size=rows).astype(np.float32),
            terminals,
        )
        encoder = d3rlpy.models.VectorEncoderFactory([settings["width"]] * settings["layers"])
        shared: dict[str, Any] = {
            "batch_size": settings["batch"],
            "actor_encoder_factory": encoder,
            "critic_encoder_factory": encoder,
            "n_critics": settings["critics"],
        }
        kinds: dict[str, Any] = {
            "sac": d3rlpy.algos.SACConfig,
            "td3_bc": d3rlpy.algos.TD3PlusBCConfig,
            "iql": d3rlpy.algos.IQLConfig,
        }
        if settings["agent"] == "iql":
            shared["value_encoder_factory"] = encoder
        config = kinds[settings["agent"]](**shared)
        self.agent = config.create(device="cpu:0")
        self.agent.build_with_dataset(self.dataset)
        self.batch = settings["batch"]
        self.learn(20, drawn=True)

    def parameters(self) -> int:
        """Numbers in the networks that learn, targets left out."""
        modules = self.agent.impl.modules
        nets = [modules.policy, modules.q_funcs, getattr(modules, "value_func", None)]
        return sum(p.numel() for net in nets if net is not None for p in net.parameters())

    def learn(self, updates: int, *, drawn: bool) -> float:
        """Seconds of `updates` gradient steps, each on a batch drawn anew as `fit` does it.

        Without `drawn` all take the same batch: what its networks and optimisers alone take.
        """
        batch = self.dataset.sample_transition_batch(self.batch)
        begin = time.perf_counter()
        for _ in range(updates):
            if drawn:
                batch = self.dataset.sample_transition_batch(self.batch)
            self.agent.update(batch)
        return time.perf_counter() - begin

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["kind"] == "describe":
            versions = {"d3rlpy": d3rlpy.__version__, "torch": torch.__version__}
            return {"parameters": self.parameters(), **versions}
        torch.set_num_threads(question["threads"])
        return {"seconds": self.learn(question["updates"], drawn=question["drawn"])}


if __name__ == "__main__":
    serve(Study)
