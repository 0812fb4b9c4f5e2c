"""Time recurrent SAC with a GRU in torch; run by `neubay_speed`.

As a careful torch user would write it: whole episodes as a padded batch for cuDNN's (here MKL's)
fused GRU, all of one length so that nothing is padded; one pass of the actor for both losses;
critics' heads as one batched product; one fused Adam per part and the targets in one foreach call.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
from serving import serve
from torch import nn
from torch.nn.functional import huber_loss, layer_norm, leaky_relu, softplus
from torch_study import Net, TorchStudy, Weights


class Memory(nn.Module):
    """`[B, T, D] -> [B, T, width]`."""

    def __init__(self, weights: Weights, name: str, layers: int) -> None:
        super().__init__()
        self.before = weights.linear(f"{name}/before")
        width = self.before.out_features
        self.norm = weights.fill(nn.LayerNorm(width), f"{name}/norm")
        self.gru = nn.GRU(width, width, layers, batch_first=True)
        none = torch.zeros(2 * width)
        for layer in range(layers):
            cell = f"{name}/layers_{layer}/cell"
            # flax's GRU has one bias per gate, which torch's adds on the inputs'.
            values = {
                "weight_ih": torch.cat([weights[f"{cell}/i{gate}/kernel"].T for gate in "rzn"]),
                "weight_hh": torch.cat([weights[f"{cell}/h{gate}/kernel"].T for gate in "rzn"]),
                "bias_ih": torch.cat([weights[f"{cell}/i{gate}/bias"] for gate in "rzn"]),
                "bias_hh": torch.cat([none, weights[f"{cell}/hn/bias"]]),
            }
            for key, value in values.items():
                getattr(self.gru, f"{key}_l{layer}").data.copy_(value)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.gru(leaky_relu(self.norm(self.before(seen))))[0]


class Heads(nn.Module):
    """`N` networks side by side: `[R, inputs] -> [N, R, outputs]`.

    The critics' weights are stacked; the actor's are one, with two last layers for two outputs.
    """

    def __init__(self, weights: Weights, name: str, last: tuple[str, ...]) -> None:
        super().__init__()
        bias = weights[f"{name}/Dense_0/bias"]
        count = len(bias) if bias.ndim == 2 else 1

        def part(key: str, *layers: str) -> torch.Tensor:
            value = torch.cat([weights[f"{name}/{layer}/{key}"] for layer in layers], -1)
            return value.reshape(count, -1, value.shape[-1])

        dense, norms = (("Dense_0",), ("Dense_1",), last), ("LayerNorm_0", "LayerNorm_1")
        self.weights = nn.ParameterList([part("kernel", *layers) for layers in dense])
        self.biases = nn.ParameterList([part("bias", *layers) for layers in dense])
        self.scales = nn.ParameterList([part("scale", layer) for layer in norms])
        self.shifts = nn.ParameterList([part("bias", layer) for layer in norms])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.expand(self.weights[0].shape[0], *x.shape)
        for i in range(2):
            h = torch.baddbmm(self.biases[i], h, self.weights[i])
            h = leaky_relu(layer_norm(h, h.shape[-1:]) * self.scales[i] + self.shifts[i])
        return torch.baddbmm(self.biases[2], h, self.weights[2])


class Critic(nn.Module):
    def __init__(self, weights: Weights, layers: int) -> None:
        super().__init__()
        self.memory = Memory(weights, "critic/memory", layers)
        self.head = Heads(weights, "critic/head", ("Dense_2",))

    def forward(self, features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([features, actions], -1)
        return self.head(rows.flatten(0, 1)).squeeze(-1).unflatten(1, rows.shape[:2])


class Actor(nn.Module):
    def __init__(self, weights: Weights, layers: int) -> None:
        super().__init__()
        self.memory = Memory(weights, "actor/memory", layers)
        self.head = Heads(weights, "actor/head", ("Dense_2", "Dense_3"))

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.head(self.memory(seen).flatten(0, 1))[0].unflatten(0, seen.shape[:2])
        mean, log_std = outputs.chunk(2, -1)
        return mean, log_std.clamp(-5, 2)


def draw(mean: torch.Tensor, log_std: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.randn_like(mean)
    raw = mean + log_std.exp() * noise
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2 * (math.log(2) - raw - softplus(-2 * raw))
    return raw.tanh(), (density - squash).sum(-1)


class Study(TorchStudy):
    """One agent and its episodes."""

    def __init__(self, s: SimpleNamespace) -> None:
        weights = Weights(s.weights)
        self.actor, self.critic = Actor(weights, s.layers), Critic(weights, s.layers)
        super().__init__(s, nn.ModuleList([self.actor, self.critic]))
        self.target = copy.deepcopy(self.critic)
        self.log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
        self.learn_actor, self.learn_critic = (
            [
                torch.optim.Adam(part.parameters(), rate, fused=True)
                for part, rate in ((net.memory, 3e-6), (net.head, 1e-4))
            ]
            for net in (self.actor, self.critic)
        )
        self.learn_alpha = torch.optim.Adam([self.log_alpha], 1e-4)
        rows, steps = s.episodes, s.episode + 1
        self.seen = torch.randn(2 * rows, steps, s.observations)
        self.acted = torch.rand(2 * rows, steps, s.actions) * 2 - 1
        self.paid = torch.randn(2 * rows, steps)
        self.real = (torch.arange(steps) < steps // 2).expand(rows, steps)[:, :-1]

    def outputs(self, **inputs: Any) -> torch.Tensor:
        """What actor or critics make of one episode."""
        seen, acted, of = inputs["seen"][None], inputs["acted"][None], inputs["of"]
        if of == "values":
            return self.critic(self.critic.memory(seen), acted)[:, 0]
        return self.actor(seen)[("mean", "log_std").index(of)][0]

    def train(self, net: Net, updates: int) -> None:
        del net  # the actor and the critic themselves
        for _ in range(updates):
            self.step()

    def mixed(self, values: torch.Tensor) -> torch.Tensor:
        """The weighted means over real and imagined tokens, last looks left out."""
        return 0.05 * values[..., self.real].mean() + 0.95 * values[..., ~self.real].mean()

    def step(self) -> None:
        """One gradient step of critic, target, actor and temperature."""
        s = self.settings
        chosen = torch.randint(2 * s.episodes, (s.episodes,))
        seen, acted, paid = self.seen[chosen], self.acted[chosen], self.paid[chosen]
        alpha = self.log_alpha.exp().detach()
        normal = self.actor(seen)
        with torch.no_grad():
            action, log_prob = draw(*normal)
            pair = torch.randperm(s.critics)[:2]
            lowest = self.target(self.target.memory(seen), action)[pair].amin(0)
            wanted = paid[:, :-1] + 0.99 * (lowest - alpha * log_prob)[:, 1:]
        values = self.critic(self.critic.memory(seen), acted)[..., :-1]
        loss = self.mixed(huber_loss(values, wanted.expand_as(values), reduction="none"))
        self.move(self.critic, self.learn_critic, loss)
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.target.parameters()), list(self.critic.parameters()), 0.005
            )
            features = self.critic.memory(seen)
        action, log_prob = draw(*normal)
        for parameter in self.critic.parameters():
            parameter.requires_grad_(False)
        value = self.critic(features, action).mean(0)
        self.move(self.actor, self.learn_actor, self.mixed((alpha * log_prob - value)[:, :-1]))
        for parameter in self.critic.parameters():
            parameter.requires_grad_(True)
        self.learn_alpha.zero_grad(set_to_none=True)
        surprise = self.mixed((-log_prob.detach() + s.actions)[:, :-1])
        (self.log_alpha.exp() * surprise).backward()
        self.learn_alpha.step()

    def move(self, module: Any, optimisers: list, loss: torch.Tensor) -> None:
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for part, optimiser in zip((module.memory, module.head), optimisers, strict=True):
            nn.utils.clip_grad_norm_(part.parameters(), 1000.0)
            optimiser.step()


if __name__ == "__main__":
    serve(Study)
