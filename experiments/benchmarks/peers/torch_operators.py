"""Time the emulators of `pde/operators` in torch, on one axis or two; run by `pde_speed`.

As a careful torch user would write them: channels first, `Conv` with circular padding, one fused
Adam, the moving average in one foreach call, the embedding once per batch and not once per row, no
gradients in rollouts. Eager, on as many threads as asked, and compiled where that works.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from serving import serve
from torch import nn
from torch.nn.functional import gelu, pad

Net = Callable[..., torch.Tensor]

CONVS = {1: nn.Conv1d, 2: nn.Conv2d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d}


class Weights(dict[str, torch.Tensor]):
    """Weights by the names of flax and in its layouts, where inputs come before outputs."""

    def __init__(self, path: str) -> None:
        super().__init__((name, torch.from_numpy(array)) for name, array in np.load(path).items())

    def fill(self, layer: Any, name: str) -> Any:
        """The layer with the weights of this name."""
        normalises = isinstance(layer, nn.GroupNorm | nn.LayerNorm)
        weight = self[f"{name}/scale" if normalises else f"{name}/kernel"]
        if not normalises:  # [*widths, inputs, outputs]
            order = (-2, -1) if isinstance(layer, tuple(TRANSPOSED.values())) else (-1, -2)
            weight = weight.permute(*order, *range(weight.ndim - 2))
        layer.weight = nn.Parameter(weight.contiguous())
        layer.bias = nn.Parameter(self[f"{name}/bias"])
        return layer

    def linear(self, name: str) -> nn.Linear:
        return self.fill(nn.Linear(*self[f"{name}/kernel"].shape), name)

    def conv(self, name: str, kind: type[Any], **how: Any) -> Any:
        *widths, inputs, outputs = self[f"{name}/kernel"].shape
        return self.fill(kind(inputs, outputs, tuple(widths), **how), name)

    def group_norm(self, name: str, groups: int = 1, **how: Any) -> nn.GroupNorm:
        return self.fill(nn.GroupNorm(groups, len(self[f"{name}/bias"]), **how), name)

    def numbered(self, name: str, make: Callable[[str], nn.Module]) -> Any:
        """All layers of a name, in order: `name_0`, `name_1`, ..."""
        names = (f"{name}_{i}" for i in itertools.count())
        known = {"/".join(each.split("/")[: name.count("/") + 1]) for each in self}
        return nn.ModuleList(map(make, itertools.takewhile(known.__contains__, names)))


def circular(weights: Weights, name: str, axes: int, dilation: int = 1, stride: int = 1) -> Any:
    """A convolution of width 3 around the circle."""
    how = {"padding": dilation, "dilation": dilation, "stride": stride, "padding_mode": "circular"}
    return weights.conv(name, CONVS[axes], **how)


def pointwise(weights: Weights, name: str, axes: int) -> Any:
    """A `Dense` of ours over channels that come first."""
    inputs, outputs = weights[f"{name}/kernel"].shape
    layer = weights.fill(CONVS[axes](inputs, outputs, 1), name)
    layer.weight = nn.Parameter(layer.weight[(..., *(None,) * axes)].contiguous())
    return layer


class Embedding(nn.Module):
    """The index, in `[cos, sin]` and two layers: `[features]`."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layers = weights.numbered("Embedding_0/Dense", weights.linear)
        half = self.layers[0].in_features // 2
        self.register_buffer("angles", torch.exp(-math.log(1e4) * torch.arange(half) / half))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        angles = index * self.angles
        return self.layers[1](gelu(self.layers[0](torch.cat([angles.cos(), angles.sin()]))))


class Resnet(nn.Module):
    """`(x [B, 2 C, *N], index) -> [B, C, *N]`."""

    def __init__(self, weights: Weights, s: SimpleNamespace) -> None:
        super().__init__()
        self.blocks, axes = s.blocks, len(s.space)
        self.wide, dilated = (..., *(None,) * axes), iter([1, *s.dilations * s.blocks, 1])
        self.embedding = Embedding(weights)
        convs = weights.numbered(
            "PeriodicConv", lambda name: circular(weights, name, axes, next(dilated))
        )
        norms = weights.numbered("GroupNorm", weights.group_norm)
        self.lift, self.convs, self.project = convs[0], convs[1:-1], convs[-1]
        self.norms, self.last = norms[:-1], norms[-1]
        self.given = weights.numbered("Dense", weights.linear)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        embedding = gelu(self.embedding(index))
        layers = list(zip(self.norms, self.given, self.convs, strict=True))
        x, depth = self.lift(x), len(layers) // self.blocks
        for block in range(self.blocks):
            h = x
            for norm, given, conv in layers[block * depth : (block + 1) * depth]:
                scale, shift = given(embedding).chunk(2)
                h = conv(gelu(norm(h) * (1.0 + scale)[self.wide] + shift[self.wide]))
            x = x + h
        return self.project(gelu(self.last(x)))


class Block(nn.Module):
    """A residual block with the embedding added between its convolutions."""

    def __init__(self, weights: Weights, name: str, axes: int) -> None:
        super().__init__()
        self.convs = weights.numbered(f"{name}/PeriodicConv", lambda n: circular(weights, n, axes))
        self.norms = weights.numbered(f"{name}/GroupNorm", weights.group_norm)
        self.given, skip = weights.linear(f"{name}/Dense_0"), f"{name}/Dense_1"
        self.skip = pointwise(weights, skip, axes) if f"{skip}/bias" in weights else nn.Identity()
        self.wide = (..., *(None,) * axes)

    def forward(self, x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        h = self.convs[0](gelu(self.norms[0](x))) + self.given(embedding)[self.wide]
        return self.convs[1](gelu(self.norms[1](h))) + self.skip(x)


class Upsample(nn.Module):
    """Twice the points by a transposed convolution that goes around the circle."""

    def __init__(self, weights: Weights, name: str, axes: int) -> None:
        super().__init__()
        # torch pads these with zeros only: a point more at each end, and its outputs cut off.
        self.conv = weights.conv(name, TRANSPOSED[axes], stride=2, padding=3)
        self.beyond = (1, 1) * axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(pad(x, self.beyond, mode="circular"))


class Unet(nn.Module):
    """`(x [B, 2 C, *N], index) -> [B, C, *N]`."""

    def __init__(self, weights: Weights, s: SimpleNamespace) -> None:
        super().__init__()
        axes, self.levels, self.blocks = len(s.space), len(s.multipliers), s.blocks
        strides = iter([1, *(2,) * (self.levels - 1), 1])
        self.embedding = Embedding(weights)
        convs = weights.numbered(
            "PeriodicConv", lambda name: circular(weights, name, axes, stride=next(strides))
        )
        self.lift, self.halving, self.project = convs[0], convs[1:-1], convs[-1]
        self.each = weights.numbered("Block", lambda name: Block(weights, name, axes))
        self.doubling = weights.numbered(
            "PeriodicUpsample", lambda name: Upsample(weights, name, axes)
        )
        self.last = weights.group_norm("GroupNorm_0", 8)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        embedding, each = self.embedding(index), iter(self.each)
        x = self.lift(x)
        skips = [x]
        for level in range(self.levels):
            for _ in range(self.blocks):
                x = next(each)(x, embedding)
                skips.append(x)
            if level < self.levels - 1:
                x = self.halving[level](x)
                skips.append(x)
        for _ in range(2):
            x = next(each)(x, embedding)
        for level in range(self.levels):
            for _ in range(self.blocks + 1):
                x = next(each)(torch.cat([x, skips.pop()], 1), embedding)
            if level < self.levels - 1:
                x = self.doubling[level](x)
        return self.project(gelu(self.last(x)))


NETWORKS = {"resnet": Resnet, "unet": Unet}


class Study:
    """One network, its data and its optimiser; trained and rolled, eager or compiled."""

    compiled: Net | None = None
    follow = 1e-3  # how far a step moves the average of the weights

    def __init__(self, s: SimpleNamespace, net: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(s.threads)
        self.net = net or NETWORKS[s.network](Weights(s.weights), s)
        self.settings, self.weights = s, list(self.net.parameters())
        self.average = [p.detach().clone() for p in self.weights]
        fused = not any(p.is_complex() for p in self.weights)  # torch has none for complex numbers
        self.optimiser = torch.optim.Adam(self.weights, lr=s.rate, fused=fused)
        self.data = torch.randn(s.trajectories, s.frames, s.channels, *s.space)
        self.start = torch.randn(s.fields, s.channels, *s.space)
        self.index = torch.tensor(1000.0)

    def residual(self, net: Net, field: torch.Tensor) -> torch.Tensor:
        return net(torch.cat([field, torch.zeros_like(field)], 1), self.index)

    def batch(self) -> torch.Tensor:
        """Random windows of two frames, `[batch, 2, C, *N]`, each moved around every circle."""
        (rows, frames), batch = self.data.shape[:2], self.settings.batch
        row = torch.randint(rows, (batch,))
        begin = torch.randint(frames - 1, (batch,))
        windows = self.data[row[:, None], begin[:, None] + torch.arange(2)]
        for axis, points in enumerate(self.settings.space, start=3):
            by = torch.randint(points, (batch, 1))
            places = (torch.arange(points) - by) % points
            shape = [points if i == axis else 1 for i in range(1, windows.ndim)]
            windows = windows.gather(axis, places.view(batch, *shape).expand_as(windows))
        return windows

    def train(self, net: Net, updates: int) -> None:
        """As `pde/training.py`: a clipped step of Adam and the average of the weights."""
        for _ in range(updates):
            windows = self.batch()
            field = windows[:, 0]
            target = (windows[:, 1] - field) / self.settings.scale
            self.descend((self.residual(net, field) - target).square().mean())

    def use(self, net: Net) -> torch.Tensor:
        """Roll: `[steps, fields, C, *N]`."""
        s, field, rolled = self.settings, self.start, []
        with torch.inference_mode():
            for _ in range(s.steps):
                field = field + s.scale * self.residual(net, field)
                rolled.append(field)
            return torch.stack(rolled)

    def descend(self, loss: torch.Tensor) -> None:
        """A clipped step of Adam, and one of the average of the weights."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self.weights, self.follow)

    def describe(self) -> dict[str, Any]:
        count = sum(p.numel() * (2 if p.is_complex() else 1) for p in self.weights)
        return {"parameters": count, "torch": torch.__version__}

    def said(self, fields: list) -> list:
        """What the network makes of fields `[N, C, *space]`."""
        with torch.no_grad():
            return self.residual(self.net, torch.tensor(fields)).tolist()

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


if __name__ == "__main__":
    serve(Study)
