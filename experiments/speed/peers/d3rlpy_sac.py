"""Time d3rlpy's SAC; run by `speed` in an interpreter that has d3rlpy and torch.

Reads one JSON line of settings from the standard input, trains, and answers with a line
`RESULT {...}`. This file imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    import d3rlpy
    import numpy as np
    import torch

    settings = json.loads(sys.stdin.readline())
    torch.set_num_threads(settings["threads"])
    rng = np.random.default_rng(0)
    rows = settings["rows"]
    terminals = np.zeros(rows)
    terminals[999::1000] = 1
    dataset = d3rlpy.dataset.MDPDataset(
        rng.normal(size=(rows, settings["observations"])).astype(np.float32),
        rng.uniform(-1, 1, size=(rows, settings["actions"])).astype(np.float32),
        rng.normal(size=rows).astype(np.float32),
        terminals,
    )
    encoder = d3rlpy.models.VectorEncoderFactory([settings["width"]] * settings["layers"])
    agent = d3rlpy.algos.SACConfig(
        batch_size=settings["batch"], n_critics=settings["critics"],
        actor_encoder_factory=encoder, critic_encoder_factory=encoder,
    ).create(device="cpu:0")  # fmt: skip
    agent.build_with_dataset(dataset)

    def learn(updates: int) -> float:
        begin = time.perf_counter()
        for _ in range(updates):
            agent.update(dataset.sample_transition_batch(settings["batch"]))
        return time.perf_counter() - begin

    warm = learn(20)
    seconds = learn(settings["updates"])
    result = {
        "updates_per_second": settings["updates"] / seconds,
        "first_20_updates": warm,
        "d3rlpy": d3rlpy.__version__,
        "torch": torch.__version__,
    }
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
