"""What the torch peers share: how they are asked, timed and compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

Net = Callable[..., torch.Tensor]


class TorchStudy:
    """A network that is trained and used, eager or compiled; `serving.py` asks it.

    A study sets `settings` (with the `threads` to compile for) and `net`, and says how it is
    compared, trained, used and warmed up.
    """

    settings: dict[str, Any]
    net: torch.nn.Module
    compiled: Net | None = None

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
