"""What the torch peers share: layers made of our weights, how they are trained and timed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

Net = Callable[..., torch.Tensor]
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Weights(dict[str, torch.Tensor]):
    """Weights by the names of flax and in its layouts, where inputs come before outputs."""

    def __init__(self, path: str) -> None:
        super().__init__((name, torch.from_numpy(array)) for name, array in np.load(path).items())

    def fill(self, layer: Any, name: str) -> Any:
        """The layer with the weights of this name."""
        normalises = isinstance(layer, nn.GroupNorm | nn.LayerNorm)
        weight = self[f"{name}/scale" if normalises else f"{name}/kernel"]
        if not normalises:  # [*widths, inputs, outputs]
            order = (-2, -1) if isinstance(layer, TRANSPOSED) else (-1, -2)
            weight = weight.permute(*order, *range(weight.ndim - 2))
        layer.weight = nn.Parameter(weight.contiguous())
        layer.bias = nn.Parameter(self[f"{name}/bias"])
        return layer

    def linear(self, name: str) -> nn.Linear:
        return self.fill(nn.Linear(*self[f"{name}/kernel"].shape), name)

    def conv(self, name: str, kind: type[Any] = nn.Conv1d, **how: Any) -> Any:
        *widths, inputs, outputs = self[f"{name}/kernel"].shape
        return self.fill(kind(inputs, outputs, tuple(widths), **how), name)

    def group_norm(self, name: str, groups: int = 1, **how: Any) -> nn.GroupNorm:
        return self.fill(nn.GroupNorm(groups, len(self[f"{name}/bias"]), **how), name)

    def numbered(self, name: str, make: Callable[[str], nn.Module], first: int = 0) -> Any:
        """All layers of a name, in order: `name_0`, `name_1`, ..."""
        names = (f"{name}_{i}" for i in itertools.count(first))
        known = {"/".join(each.split("/")[: name.count("/") + 1]) for each in self}
        return nn.ModuleList(map(make, itertools.takewhile(known.__contains__, names)))


class TorchStudy:
    """A network that is trained and used, eager or compiled; `serving.py` asks it.

    A study says what its network makes of some inputs (`outputs`), how it is trained (`train`) and
    what else is timed (`use`).
    """

    outputs: Callable[..., torch.Tensor]
    train: Callable[[Net, int], None]
    use: Callable[[Net], None]
    compiled: Net | None = None

    def __init__(self, settings: SimpleNamespace, net: nn.Module) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(settings.threads)
        self.settings, self.net, self.weights = settings, net, list(net.parameters())

    def learner(self, rate: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        """Give the network an optimiser and a moving average of its weights."""
        self.average = [p.detach().clone() for p in self.weights]
        fused = not any(p.is_complex() for p in self.weights)  # torch has none for complex numbers
        self.optimiser = torch.optim.Adam(self.weights, lr=rate, betas=betas, fused=fused)

    def descend(self, loss: torch.Tensor, average: float = 0.0) -> None:
        """A clipped step of Adam, and one of the average by this share."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimiser.step()
        if average:
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.weights, average)

    def describe(self) -> dict[str, Any]:
        count = sum(p.numel() * (2 if p.is_complex() else 1) for p in self.weights)
        return {"parameters": count, "torch": torch.__version__}

    def said(self, **inputs: Any) -> list:
        """Lists become tensors, and one becomes lists again."""
        with torch.no_grad():
            tensors = {k: torch.tensor(v) for k, v in inputs.items() if isinstance(v, list)}
            return self.outputs(**(inputs | tensors)).tolist()

    def seconds(self, kind: str, compiled: bool, threads: int) -> float:
        """What training, or other work, takes."""
        torch.set_num_threads(threads)
        net = self.compiled if compiled else self.net
        assert net is not None
        begin = time.perf_counter()
        if kind == "train":
            self.train(net, self.settings.updates)
        else:
            self.use(net)
        return time.perf_counter() - begin

    def compile(self) -> dict[str, Any]:
        """Compile and warm up, or say why that does not work."""
        torch.set_num_threads(self.settings.threads)
        begin = time.perf_counter()
        compiled = torch.compile(self.net, dynamic=False)
        try:
            self.train(compiled, 2)
            self.use(compiled)
        except Exception as error:
            lines = str(error).strip().splitlines()
            return {"works": False, "why": (lines or [type(error).__name__])[0][:200]}
        self.compiled = compiled
        return {"works": True, "seconds": time.perf_counter() - begin}
