"""What the torch peers share: how they are asked, timed and compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

Net = Callable[..., torch.Tensor]


class TorchStudy:
    """A network that is trained and used, eager or compiled; `serving.py` asks it.

    A study sets `settings` (with the `threads` to compile for) and `net`, and says how it is
    compared, trained, used and warmed up.
    """

    settings: dict[str, Any]
    net: nn.Module
    compiled: Net | None = None

    def learner(self, rate: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        """Give the network an optimiser and a moving average of its weights."""
        self.weights = list(self.net.parameters())
        self.average = [p.detach().clone() for p in self.weights]
        self.optimiser = torch.optim.Adam(self.weights, lr=rate, betas=betas, fused=True)

    def descend(self, loss: torch.Tensor, average: float = 0.0) -> None:
        """A clipped step of Adam, and one of the average by this share."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimiser.step()
        if average:
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.weights, average)

    def said(self, question: dict[str, Any]) -> torch.Tensor:
        """What the network makes of the question's rows: is it ours?"""
        raise NotImplementedError

    def learn(self, net: Net, updates: int) -> None:
        """Gradient steps."""
        raise NotImplementedError

    def use(self, net: Net, question: dict[str, Any]) -> None:
        """What else is timed."""
        raise NotImplementedError

    def warm(self, net: Net) -> None:
        """Train and use a compiled network, with the shapes that will be timed."""
        raise NotImplementedError

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        kind = question["kind"]
        if kind == "describe":
            count = sum(p.numel() for p in self.net.parameters())
            return {"parameters": count, "torch": torch.__version__}
        if kind == "apply":
            with torch.no_grad():
                return {"said": self.said(question).tolist()}
        if kind == "compile":
            return self.compile()
        net = self.compiled if question["compiled"] else self.net
        assert net is not None
        torch.set_num_threads(question["threads"])
        begin = time.perf_counter()
        if kind == "train":
            self.learn(net, question["updates"])
        else:
            self.use(net, question)
        return {"seconds": time.perf_counter() - begin}

    def compile(self) -> dict[str, Any]:
        """Compile and warm up, or say why that does not work."""
        torch.set_num_threads(self.settings["threads"])
        begin = time.perf_counter()
        compiled = torch.compile(self.net, dynamic=False)
        try:
            self.warm(compiled)
        except Exception as error:
            lines = str(error).strip().splitlines()
            return {"works": False, "why": (lines or [type(error).__name__])[0][:200]}
        self.compiled = compiled
        return {"works": True, "seconds": time.perf_counter() - begin}


def load(layers: dict[str, nn.Module], path: str) -> None:
    """Weights by the names and in the layouts of flax, where inputs come before outputs."""
    found = {k: torch.from_numpy(v) for k, v in np.load(path).items()}
    with torch.no_grad():
        for name, layer in layers.items():
            weight = found[f"{name}/{'scale' if isinstance(layer, nn.GroupNorm) else 'kernel'}"]
            layer.weight.copy_(weight.permute(*reversed(range(weight.ndim))))
            layer.bias.copy_(found[f"{name}/bias"])
