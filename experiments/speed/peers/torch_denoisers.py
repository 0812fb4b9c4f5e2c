"""Time the two denoisers of `jaxrl_rollouts/diffusion` in torch; run by `diffusion_speed`.

`serving.py` says how it is asked. This file imports nothing of ours but what lies beside it.

As a careful torch user would write it: channels first, one fused Adam, the moving average in one
foreach call, no gradients while sampling. Eager, on as many threads as asked, and compiled where
that works.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from serving import serve
from torch import nn
from torch.nn.functional import interpolate, max_pool1d, pad, relu, silu
from torch_study import Net, TorchStudy, load


class ResidualMlp(nn.Module):
    """`(x [B, F], c_noise [B]) -> [B, F]`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        features, width, wide = (settings[k] for k in ("features", "width", "embedding"))
        frequencies = torch.tensor(settings["frequencies"])
        self.register_buffer("frequencies", frequencies)
        self.time = nn.ModuleList(
            [nn.Linear(1 + 2 * len(frequencies), wide), nn.Linear(wide, wide)]
        )
        self.input, self.widen = nn.Linear(features, wide), nn.Linear(wide, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(settings["blocks"]))
        self.output = nn.Linear(width, features)

    def forward(self, x: torch.Tensor, c_noise: torch.Tensor) -> torch.Tensor:
        angle = 2.0 * math.pi * c_noise[:, None] * self.frequencies
        found = torch.cat([c_noise[:, None], angle.sin(), angle.cos()], -1)
        h = self.widen(self.input(x) + self.time[1](silu(self.time[0](found))))
        for block in self.blocks:
            h = h + block(relu(h))
        return self.output(relu(h))

    def layers(self) -> dict[str, nn.Module]:
        """Layers by the names their weights have."""
        named = {"time_0": self.time[0], "time_1": self.time[1], "input": self.input}
        named |= {"widen": self.widen, "output": self.output}
        return named | {f"block_{i}": block for i, block in enumerate(self.blocks)}


class Conv(nn.Conv1d):
    """SAME padding as XLA has it: the odd zero at the end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = self.kernel_size[0]
        before = (width - 1) // 2
        if width == 2 * before + 1:
            return self._conv_forward(x, self.weight, self.bias)
        return super().forward(pad(x, (before, width - 1 - before)))


def conv(inputs: int, outputs: int, width: int) -> Conv:
    return Conv(inputs, outputs, width, padding=(width - 1) // 2 if width % 2 else 0)


class Unet(nn.Module):
    """`(x [B, C, L], c_noise [B]) -> [B, C, L]`; layers in the order they are applied."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        channels, wide, blocks = (settings[k] for k in ("channels", "width", "blocks"))
        self.scale = settings["time_scale"]
        half = max(wide // 8, 1)
        self.register_buffer("rates", torch.tensor(np.geomspace(1.0, 1e-4, half)).float())
        self.embedding = nn.ModuleList([nn.Linear(2 * half, wide), nn.Linear(wide, wide)])
        widths = [wide * 2**i for i in range(blocks)]
        convs, norms, times = [], [], []
        inputs = channels
        for out in widths:
            convs += [conv(inputs, out, 3), conv(out, out, 3)]
            norms += [out, out]
            times.append(out)
            inputs = out
        for out in reversed(widths[:-1]):
            convs += [conv(inputs, out, 2), conv(2 * out, out, 3), conv(out, out, 3)]
            norms += [out, out, out]
            times.append(out)
            inputs = out
        self.convs = nn.ModuleList([*convs, conv(inputs, channels, 1)])
        self.norms = nn.ModuleList(nn.GroupNorm(8, n, eps=1e-6) for n in norms)
        self.times = nn.ModuleList(nn.Linear(wide, n) for n in times)
        self.depth = blocks

    def forward(self, x: torch.Tensor, c_noise: torch.Tensor) -> torch.Tensor:
        angle = self.scale * c_noise[:, None] * self.rates
        sines = torch.cat([angle.sin(), angle.cos()], -1)
        time = silu(self.embedding[1](silu(self.embedding[0](sines))))
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

    def layers(self) -> dict[str, nn.Module]:
        """Layers by the names their weights have: flax numbers them as they are made.

        Of `Dense(Dense(x))` the outer one is made first.
        """
        named: dict[str, nn.Module] = {"Dense_0": self.embedding[1], "Dense_1": self.embedding[0]}
        named |= {f"Dense_{i + 2}": layer for i, layer in enumerate(self.times)}
        named |= {f"GroupNorm_{i}": layer for i, layer in enumerate(self.norms)}
        return named | {f"Convolution_{i}": layer for i, layer in enumerate(self.convs)}


class Study(TorchStudy):
    """One denoiser, its data and its optimiser; answers what is asked of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(settings["threads"])
        self.settings = settings
        self.shape = settings["shape"]  # of a row: [F], or [C, L]
        self.data = torch.randn(settings["rows"], *self.shape)
        self.net = {"mlp": ResidualMlp, "unet": Unet}[settings["net"]](settings)
        load(self.net.layers(), settings["weights"])
        self.learner(settings["rate"], (0.9, 0.99))

    def wide(self, sigma: torch.Tensor) -> torch.Tensor:
        return sigma.reshape(-1, *[1] * len(self.shape))

    def learn(self, net: Net, updates: int) -> None:
        """A clipped step of Adam on EDM's loss, and the average of the weights every ten."""
        batch, rows = self.settings["batch"], len(self.data)
        for update in range(updates):
            clean = self.data[torch.randint(rows, (batch,))]
            sigma = torch.exp(-1.2 + 1.2 * torch.randn(batch))
            wide, noise = self.wide(sigma), torch.randn_like(clean)
            into = (wide.square() + 1.0).rsqrt()
            wanted = (wide * clean - noise) * into
            prediction = net(into * (clean + wide * noise), 0.25 * sigma.log())
            loss = (prediction - wanted).square().mean()
            self.descend(loss, 5e-3 if update % 10 == 9 else 0.0)

    def denoise(self, net: Net, x: torch.Tensor, sigma: float) -> torch.Tensor:
        total = sigma**2 + 1.0
        noise = torch.full(x.shape[:1], 0.25 * math.log(sigma))
        return x / total + sigma / math.sqrt(total) * net(x / math.sqrt(total), noise)

    def sample(self, net: Net, count: int) -> torch.Tensor:
        """Heun with churn over the noise levels it was given."""
        levels, raised, added = (self.settings[k] for k in ("levels", "raised", "added"))
        with torch.inference_mode():
            x = levels[0] * torch.randn(count, *self.shape)
            for i in range(len(raised)):
                x = x + added[i] * torch.randn_like(x)
                slope = (x - self.denoise(net, x, raised[i])) / raised[i]
                step = levels[i + 1] - raised[i]
                there = x + step * slope
                if levels[i + 1] > 0:
                    again = (there - self.denoise(net, there, levels[i + 1])) / levels[i + 1]
                    there = x + step * 0.5 * (slope + again)
                x = there
            return x

    def said(self, question: dict[str, Any]) -> torch.Tensor:
        return self.net(*(torch.tensor(question[k]) for k in ("rows", "noise")))

    def use(self, net: Net, question: dict[str, Any]) -> None:
        self.sample(net, question["samples"])

    def warm(self, net: Net) -> None:
        self.learn(net, 2)
        self.sample(net, self.settings["samples"])


if __name__ == "__main__":
    serve(Study)
