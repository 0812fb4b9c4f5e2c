"""Time `neuralop.models.FNO` with the weights of our FNO; run by `pde_speed`.

Without positional channels, channel MLPs and normalisation it is our network of one axis or two.
Our index is one number here, so its contribution to a layer is a bias, which theirs has too.
Trained and rolled as the networks of `torch_operators` are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from neuralop.models import FNO
from serving import serve
from torch import nn
from torch.nn.functional import gelu
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch_operators import Embedding, Study, Weights


class Once:
    """GELU at every other call: without channel MLPs their block calls it twice on end."""

    again = False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.again = not self.again
        return gelu(x) if self.again else x


def values(weights: Weights, layers: int, modes: int, index: float) -> Iterator[torch.Tensor]:
    """Our weights in the order of `parts`."""

    def dense(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return weights[f"Dense_{i}/kernel"].T, weights[f"Dense_{i}/bias"]

    embedding = gelu(Embedding(weights)(torch.tensor(index)))
    yield from dense(0)
    for layer in range(layers):
        (given, told), (beside, bias) = dense(1 + 2 * layer), dense(2 + 2 * layer)
        name = f"SpectralConv_{layer}"
        mixing = torch.complex(weights[f"{name}/real"], weights[f"{name}/imaginary"])
        axes = mixing.ndim - 2
        if axes > 1:  # wavenumbers of the first axis: theirs rise from -modes
            mixing = mixing.roll(modes, 0)
        yield from (mixing.permute(axes, axes + 1, *range(axes)), given @ embedding + told + bias)
        yield beside
    for i in (1 + 2 * layers, 2 + 2 * layers):
        yield from dense(i)


def parts(net: Any) -> Iterator[torch.Tensor]:
    """Its parameters, in the order they are applied."""
    yield from net.lifting.parameters()
    for conv, beside in zip(net.fno_blocks.convs, net.fno_blocks.fno_skips, strict=True):
        yield from (conv.weight.tensor, conv.bias, *beside.parameters())
    yield from net.projection.parameters()


class Neuralop(nn.Module):
    """`(x [B, 2 C, *N], index) -> [B, C, *N]`; the index is in its biases."""

    def __init__(self, s: SimpleNamespace) -> None:
        super().__init__()
        # Of a real field's last axis they keep n // 2 + 1 wavenumbers, of the others n.
        n_modes = (*(2 * s.modes for _ in s.space[1:]), 2 * (s.modes - 1))
        how = {"lifting_channel_ratio": 0, "projection_channel_ratio": 2}
        how |= {"positional_embedding": None, "use_channel_mlp": False}
        self.net = FNO(n_modes, 2 * s.channels, s.channels, s.width, s.layers, **how)
        self.net.fno_blocks.non_linearity = Once()
        if not s.weights:
            return
        ours = list(values(Weights(s.weights), s.layers, s.modes, s.index))
        with torch.no_grad():
            for part, value in zip(parts(self.net), ours, strict=True):
                assert part.squeeze().shape == value.squeeze().shape, (part.shape, value.shape)
                part.copy_(value.reshape(part.shape))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        del index
        return self.net(x)


class FnoStudy(Study):
    """Theirs in the place of our networks."""

    def __init__(self, s: SimpleNamespace) -> None:
        super().__init__(s, Neuralop(s))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"neuraloperator": version("neuraloperator")}


class FieldsStudy(FnoStudy):
    """Theirs from its own first weights, on the fields of a file; run by `fields_peer`."""

    def __init__(self, s: SimpleNamespace) -> None:
        torch.manual_seed(s.seed)
        super().__init__(s)
        torch.manual_seed(s.seed)
        given: Any = np.load(f"{s.folder}/fields.npz")
        self.data, self.start = (torch.from_numpy(given[name]) for name in ("fields", "start"))

    def seconds(self, kind: str) -> float:  # type: ignore[override]
        """Train; then write `rolled.npy` `[steps, B, C, *N]`, of the averaged weights."""
        begin, s = time.perf_counter(), self.settings
        rise = LinearLR(self.optimiser, 1 / (s.warmup + 1), total_iters=s.warmup)
        fall = CosineAnnealingLR(self.optimiser, s.updates - s.warmup, s.rate / 100)
        rate = SequentialLR(self.optimiser, [rise, fall], [s.warmup])
        for n in range(s.updates):
            self.follow = 1 - min(0.999, (2 + n) / (11 + n))
            self.train(self.net, 1)
            rate.step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.average)
        np.save(f"{s.folder}/rolled.npy", self.use(self.net).numpy())
        return time.perf_counter() - begin


if __name__ == "__main__":
    serve(lambda s: FieldsStudy(s) if hasattr(s, "folder") else FnoStudy(s))
