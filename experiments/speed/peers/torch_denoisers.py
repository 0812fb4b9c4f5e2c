"""Time the two denoisers of `jaxrl_rollouts/diffusion` in torch; run by `diffusion_speed`.

As a careful torch user would write it: channels first, one fused Adam, the moving average in one
foreach call, no gradients while sampling. Eager, on as many threads as asked, and compiled where
that works.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from serving import serve
from torch import nn
from torch.nn.functional import interpolate, max_pool1d, pad, relu, silu
from torch_study import Net, TorchStudy, Weights


class ResidualMlp(nn.Module):
    """`(x [B, F], c_noise [B]) -> [B, F]`."""

    def __init__(self, weights: Weights, s: SimpleNamespace) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.tensor(s.frequencies))
        self.time = weights.numbered("time", weights.linear)
        self.input, self.widen = weights.linear("input"), weights.linear("widen")
        self.blocks = weights.numbered("block", weights.linear)
        self.output = weights.linear("output")

    def forward(self, x: torch.Tensor, c_noise: torch.Tensor) -> torch.Tensor:
        angle = 2.0 * math.pi * c_noise[:, None] * self.frequencies
        features = torch.cat([c_noise[:, None], angle.sin(), angle.cos()], -1)
        h = self.widen(self.input(x) + self.time[1](silu(self.time[0](features))))
        for block in self.blocks:
            h = h + block(relu(h))
        return self.output(relu(h))


class Conv(nn.Conv1d):
    """SAME padding as XLA has it: the odd zero at the end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = self.kernel_size[0]
        if width % 2:
            return super().forward(x)
        return super().forward(pad(x, (width // 2 - 1, width // 2)))


class Unet(nn.Module):
    """`(x [B, C, L], c_noise [B]) -> [B, C, L]`; layers in the order they are applied.

    flax numbers them as they are made: of `Dense(Dense(x))` the outer one is made first.
    """

    def __init__(self, weights: Weights, s: SimpleNamespace) -> None:
        super().__init__()

        def conv(name: str) -> nn.Conv1d:
            width = len(weights[f"{name}/kernel"])
            return weights.conv(name, Conv, padding=width // 2 if width % 2 else 0)

        def norm(name: str) -> nn.GroupNorm:
            return weights.group_norm(name, 8, eps=1e-6)

        self.outer, self.inner = weights.linear("Dense_0"), weights.linear("Dense_1")
        self.times = weights.numbered("Dense", weights.linear, first=2)
        self.convs = weights.numbered("Convolution", conv)
        self.norms = weights.numbered("GroupNorm", norm)
        self.scale, self.depth = s.time_scale, s.blocks
        rates = np.geomspace(1.0, 1e-4, self.inner.in_features // 2)
        self.register_buffer("rates", torch.tensor(rates).float())

    def forward(self, x: torch.Tensor, c_noise: torch.Tensor) -> torch.Tensor:
        angle = self.scale * c_noise[:, None] * self.rates
        time = silu(self.outer(silu(self.inner(torch.cat([angle.sin(), angle.cos()], -1)))))
        convs, norms, times = iter(self.convs), iter(self.norms), iter(self.times)

        def settle(x: torch.Tensor) -> torch.Tensor:
            return relu(next(norms)(x))

        def timed(x: torch.Tensor) -> torch.Tensor:
            return settle(x + next(times)(time)[..., None])

        skips, h = [], x
        for i in range(self.depth):
            h = timed(next(convs)(h))
            h = settle(next(convs)(h))
            skips.append(h)
            if i < self.depth - 1:
                h = max_pool1d(h, 2)
        for skip in reversed(skips[:-1]):
            h = timed(next(convs)(interpolate(h, skip.shape[-1])))
            h = settle(next(convs)(torch.cat([skip, h], 1)))
            h = settle(next(convs)(h))
        return next(convs)(h)


class Study(TorchStudy):
    """One denoiser, its data and its optimiser."""

    def __init__(self, s: SimpleNamespace) -> None:
        net = {"mlp": ResidualMlp, "unet": Unet}[s.net](Weights(s.weights), s)
        super().__init__(s, net)
        self.learner(s.rate, (0.9, 0.99))
        self.data = torch.randn(s.rows, *s.shape)  # a row is [F], or [C, L]

    def outputs(self, **inputs: Any) -> torch.Tensor:
        return self.net(inputs["rows"], inputs["noise"])

    def train(self, net: Net, updates: int) -> None:
        """A clipped step of Adam on EDM's loss, and the average of the weights every ten."""
        batch, rows = self.settings.batch, len(self.data)
        for update in range(updates):
            clean = self.data[torch.randint(rows, (batch,))]
            sigma = torch.exp(-1.2 + 1.2 * torch.randn(batch))
            wide, noise = sigma.reshape(-1, *[1] * (clean.ndim - 1)), torch.randn_like(clean)
            into = (wide.square() + 1.0).rsqrt()
            target = (wide * clean - noise) * into
            prediction = net(into * (clean + wide * noise), 0.25 * sigma.log())
            loss = (prediction - target).square().mean()
            self.descend(loss, 5e-3 if update % 10 == 9 else 0.0)

    def use(self, net: Net) -> None:
        """Sample by Heun's rule with churn over the noise levels it was given."""
        s = self.settings

        def slope(x: torch.Tensor, sigma: float) -> torch.Tensor:
            total = sigma**2 + 1.0
            noise = torch.full(x.shape[:1], 0.25 * math.log(sigma))
            clean = x / total + sigma / math.sqrt(total) * net(x / math.sqrt(total), noise)
            return (x - clean) / sigma

        with torch.inference_mode():
            x = s.levels[0] * torch.randn(s.samples, *s.shape)
            for raised, added, after in zip(s.raised, s.added, s.levels[1:], strict=True):
                x = x + added * torch.randn_like(x)
                first, step = slope(x, raised), after - raised
                there = x + step * first
                if after > 0:
                    there = x + step * 0.5 * (first + slope(there, after))
                x = there


if __name__ == "__main__":
    serve(Study)
