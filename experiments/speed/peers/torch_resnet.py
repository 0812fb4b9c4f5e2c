"""Time the dilated ResNet of `pde/operators/resnet.py` in torch; run by `pde_speed`.

`serving.py` says how it is asked. This file imports nothing of ours but what lies beside it.

As a careful torch user would write it: channels first, `Conv1d` with circular padding, one fused
Adam, the moving average in one foreach call, the embedding once per batch and not once per row, no
gradients in rollouts. Eager, on as many threads as asked, and compiled where that works.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from serving import serve
from torch import nn
from torch.nn.functional import gelu
from torch_study import Net, TorchStudy, load


class Embedding(nn.Module):
    """Two-layer perceptron of the sinusoids of a scalar."""

    def __init__(self, size: int) -> None:
        super().__init__()
        half = size // 2
        angles = torch.exp(-math.log(10_000.0) * torch.arange(half) / half)
        self.register_buffer("angles", angles)
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        angles = index * self.angles
        return self.second(gelu(self.first(torch.cat([angles.cos(), angles.sin()]))))


class Resnet(nn.Module):
    """`(field [B, 1, N], noised [B, 1, N], index) -> [B, 1, N]`."""

    def __init__(self, width: int, blocks: int, dilations: list[int], embedding: int) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int, dilation: int = 1) -> nn.Conv1d:
            return nn.Conv1d(
                inputs, outputs, 3, padding=dilation, dilation=dilation, padding_mode="circular"
            )

        self.blocks = blocks
        self.embedding = Embedding(embedding)
        self.lift, self.project = conv(2, width), conv(width, 1)
        self.convs = nn.ModuleList(conv(width, width, d) for d in dilations * blocks)
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in self.convs)
        self.given = nn.ModuleList(nn.Linear(embedding, 2 * width) for _ in self.convs)
        self.last = nn.GroupNorm(1, width)

    def forward(
        self, field: torch.Tensor, noised: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        embedding = gelu(self.embedding(index))
        x = self.lift(torch.cat([field, noised], 1))
        depth = len(self.convs) // self.blocks
        layers = list(zip(self.norms, self.given, self.convs, strict=True))
        for block in range(self.blocks):
            h = x
            for norm, given, conv in layers[block * depth : (block + 1) * depth]:
                scale, shift = given(embedding).chunk(2)
                h = conv(gelu(norm(h) * (1.0 + scale)[:, None] + shift[:, None]))
            x = x + h
        return self.project(gelu(self.last(x)))

    def layers(self) -> dict[str, nn.Module]:
        """Layers by the names their weights have."""
        first, second = self.embedding.first, self.embedding.second
        named = {"Embedding_0/Dense_0": first, "Embedding_0/Dense_1": second}
        convs, norms = [self.lift, *self.convs, self.project], [*self.norms, self.last]
        for name, layers in (("PeriodicConv", convs), ("GroupNorm", norms), ("Dense", self.given)):
            named |= {f"{name}_{i}": layer for i, layer in enumerate(layers)}
        return named


class Study(TorchStudy):
    """One network, its data and its optimiser; answers what is asked of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.manual_seed(0)
        self.settings = settings
        shape = (settings["trajectories"], settings["frames"], 1, settings["points"])
        self.data = torch.randn(shape)
        self.index = torch.tensor(1000.0)
        self.net = Resnet(*(settings[k] for k in ("width", "blocks", "dilations", "embedding")))
        load(self.net.layers(), settings["weights"])
        self.learner(settings["rate"])

    def residual(self, forward: Net, field: torch.Tensor) -> torch.Tensor:
        return forward(field, torch.zeros_like(field), self.index)

    def batch(self) -> torch.Tensor:
        """Random windows of two frames, `[batch, 2, 1, N]`, each moved around the circle."""
        rows, frames, _, points = self.data.shape
        batch = self.settings["batch"]
        row = torch.randint(rows, (batch,))
        begin = torch.randint(frames - 1, (batch,))
        windows = self.data[row[:, None], begin[:, None] + torch.arange(2)]
        by = torch.randint(points, (batch, 1))
        places = (torch.arange(points) - by) % points
        return windows.gather(-1, places[:, None, None].expand_as(windows))

    def learn(self, forward: Net, updates: int) -> None:
        """As `pde/training.py`: a clipped step of Adam and the average of the weights."""
        scale = self.settings["scale"]
        for _ in range(updates):
            windows = self.batch()
            field = windows[:, 0]
            target = (windows[:, 1] - field) / scale
            self.descend((self.residual(forward, field) - target).square().mean(), 1e-3)

    def roll(self, forward: Net, fields: int, steps: int) -> torch.Tensor:
        """`[steps, fields, 1, N]`."""
        scale = self.settings["scale"]
        field, rolled = self.data[:1, 0].expand(fields, -1, -1).contiguous(), []
        with torch.inference_mode():
            for _ in range(steps):
                field = field + scale * self.residual(forward, field)
                rolled.append(field)
            return torch.stack(rolled)

    def said(self, question: dict[str, Any]) -> torch.Tensor:
        return self.residual(self.net, torch.tensor(question["fields"]))

    def use(self, net: Net, question: dict[str, Any]) -> None:
        self.roll(net, question["fields"], question["steps"])

    def warm(self, net: Net) -> None:
        self.learn(net, 2)
        self.roll(net, self.settings["fields"], 2)


if __name__ == "__main__":
    serve(Study)
