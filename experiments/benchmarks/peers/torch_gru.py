"""The gradient of torch's GRU over one tape, eager; timed by `speed`."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch
from serving import serve


class Study:
    """`nn.GRU` of equal widths, and its inputs `[length, 1, width]`."""

    def __init__(self, s: SimpleNamespace) -> None:
        torch.manual_seed(0)
        self.calls, self.gru = s.calls, torch.nn.GRU(s.width, s.width)
        self.inputs = torch.randn(s.length, 1, s.width, requires_grad=True)

    def describe(self) -> dict[str, Any]:
        count = sum(p.numel() for p in self.gru.parameters())
        return {"parameters": count, "torch": torch.__version__}

    def seconds(self, kind: str, threads: int) -> float:
        """Of gradients of the outputs' squares, by weights and inputs."""
        torch.set_num_threads(threads)
        begin = time.perf_counter()
        for _ in range(self.calls):
            self.gru.zero_grad()
            self.gru(self.inputs)[0].square().sum().backward()
        return time.perf_counter() - begin


if __name__ == "__main__":
    serve(Study)
