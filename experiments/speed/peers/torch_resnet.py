"""Time the dilated ResNet of `pde/operators/resnet.py` in torch; run by `pde_speed`.

As a careful torch user would write it: channels first, `Conv1d` with circular padding, one fused
Adam, the moving average in one foreach call, the embedding once per batch and not once per row, no
gradients in rollouts. Eager, on as many threads as asked, and compiled where that works.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from serving import serve
from torch import nn
from torch.nn.functional import gelu
from torch_study import Net, TorchStudy, Weights


class Resnet(nn.Module):
    """`(field [B, 1, N], noised [B, 1, N], index) -> [B, 1, N]`."""

    def __init__(self, weights: Weights, dilations: list[int], blocks: int) -> None:
        super().__init__()
        self.blocks, dilated = blocks, iter([1, *dilations * blocks, 1])

        def conv(name: str) -> nn.Conv1d:
            by = next(dilated)
            return weights.conv(name, padding=by, dilation=by, padding_mode="circular")

        self.embedding = weights.numbered("Embedding_0/Dense", weights.linear)
        convs = weights.numbered("PeriodicConv", conv)
        norms = weights.numbered("GroupNorm", weights.group_norm)
        self.lift, self.convs, self.project = convs[0], convs[1:-1], convs[-1]
        self.norms, self.last = norms[:-1], norms[-1]
        self.given = weights.numbered("Dense", weights.linear)
        half = self.embedding[0].in_features // 2
        self.register_buffer("angles", torch.exp(-math.log(1e4) * torch.arange(half) / half))

    def forward(
        self, field: torch.Tensor, noised: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        angles = index * self.angles
        sines = torch.cat([angles.cos(), angles.sin()])
        embedding = gelu(self.embedding[1](gelu(self.embedding[0](sines))))
        layers = list(zip(self.norms, self.given, self.convs, strict=True))
        x, depth = self.lift(torch.cat([field, noised], 1)), len(layers) // self.blocks
        for block in range(self.blocks):
            h = x
            for norm, given, conv in layers[block * depth : (block + 1) * depth]:
                scale, shift = given(embedding).chunk(2)
                h = conv(gelu(norm(h) * (1.0 + scale)[:, None] + shift[:, None]))
            x = x + h
        return self.project(gelu(self.last(x)))


class Study(TorchStudy):
    """One network, its data and its optimiser."""

    def __init__(self, s: SimpleNamespace) -> None:
        super().__init__(s, Resnet(Weights(s.weights), s.dilations, s.blocks))
        self.learner(s.rate)
        self.data = torch.randn(s.trajectories, s.frames, 1, s.points)
        self.index = torch.tensor(1000.0)

    def residual(self, net: Net, field: torch.Tensor) -> torch.Tensor:
        return net(field, torch.zeros_like(field), self.index)

    def outputs(self, **inputs: Any) -> torch.Tensor:
        return self.residual(self.net, inputs["fields"])

    def batch(self) -> torch.Tensor:
        """Random windows of two frames, `[batch, 2, 1, N]`, each moved around the circle."""
        rows, frames, _, points = self.data.shape
        batch = self.settings.batch
        row = torch.randint(rows, (batch,))
        begin = torch.randint(frames - 1, (batch,))
        windows = self.data[row[:, None], begin[:, None] + torch.arange(2)]
        by = torch.randint(points, (batch, 1))
        places = (torch.arange(points) - by) % points
        return windows.gather(-1, places[:, None, None].expand_as(windows))

    def train(self, net: Net, updates: int) -> None:
        """As `pde/training.py`: a clipped step of Adam and the average of the weights."""
        for _ in range(updates):
            windows = self.batch()
            field = windows[:, 0]
            target = (windows[:, 1] - field) / self.settings.scale
            self.descend((self.residual(net, field) - target).square().mean(), 1e-3)

    def use(self, net: Net) -> None:
        """Roll: `[steps, fields, 1, N]`."""
        s, rolled = self.settings, []
        field = self.data[:1, 0].expand(s.fields, -1, -1).contiguous()
        with torch.inference_mode():
            for _ in range(s.steps):
                field = field + s.scale * self.residual(net, field)
                rolled.append(field)
            torch.stack(rolled)


if __name__ == "__main__":
    serve(Study)
