"""Time recurrent SAC with a GRU in torch; run by `neubay_speed`.

`serving.py` says how it is asked. This file imports nothing of ours but what lies beside it.

As a careful torch user would write it: whole episodes as a padded batch for cuDNN's (here MKL's)
fused GRU, all of one length so that nothing is padded; one pass of the actor for both losses;
critics' heads as one batched product; one fused Adam per part and the targets in one foreach call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from serving import serve
from torch import nn
from torch.nn.functional import huber_loss, layer_norm, leaky_relu, softplus
from torch_study import Net, TorchStudy


class Memory(nn.Module):
    """`[B, T, D] -> [B, T, width]`."""

    def __init__(self, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.before, self.norm = nn.Linear(inputs, width), nn.LayerNorm(width)
        self.gru = nn.GRU(width, width, layers, batch_first=True)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.gru(leaky_relu(self.norm(self.before(seen))))[0]


class Heads(nn.Module):
    """`N` networks side by side: `[R, inputs] -> [N, R, outputs]`."""

    def __init__(self, count: int, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        sizes = [(inputs, width), (width, width), (width, outputs)]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for a, b in sizes:
            bound = 1 / math.sqrt(a)
            self.weights.append(nn.Parameter(torch.empty(count, a, b).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.zeros(count, 1, b)))
        for _ in range(2):
            self.scales.append(nn.Parameter(torch.ones(count, 1, width)))
            self.shifts.append(nn.Parameter(torch.zeros(count, 1, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.expand(self.weights[0].shape[0], *x.shape)
        for i in range(2):
            h = torch.baddbmm(self.biases[i], h, self.weights[i])
            h = leaky_relu(layer_norm(h, h.shape[-1:]) * self.scales[i] + self.shifts[i])
        return torch.baddbmm(self.biases[2], h, self.weights[2])


class Critic(nn.Module):
    def __init__(self, s: dict[str, Any]) -> None:
        super().__init__()
        self.memory = Memory(s["observations"], s["width"], s["layers"])
        self.head = Heads(s["critics"], s["width"] + s["actions"], s["width"], 1)

    def forward(self, features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([features, actions], -1)
        return self.head(rows.flatten(0, 1)).squeeze(-1).unflatten(1, rows.shape[:2])


class Actor(nn.Module):
    def __init__(self, s: dict[str, Any]) -> None:
        super().__init__()
        self.memory = Memory(s["observations"], s["width"], s["layers"])
        self.head = Heads(1, s["width"], s["width"], 2 * s["actions"])

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.memory(seen)
        mean, log_std = (
            self.head(features.flatten(0, 1))[0].unflatten(0, seen.shape[:2]).chunk(2, -1)
        )
        return mean, log_std.clamp(-5, 2)


def load_memory(memory: Memory, found: dict[str, torch.Tensor], name: str) -> None:
    """Weights in flax's names; its GRU has one bias per gate, which torch's adds on the inputs'."""
    memory.before.weight.copy_(found[f"{name}/before/kernel"].T)
    memory.before.bias.copy_(found[f"{name}/before/bias"])
    memory.norm.weight.copy_(found[f"{name}/norm/scale"])
    memory.norm.bias.copy_(found[f"{name}/norm/bias"])
    for layer in range(memory.gru.num_layers):
        cell, width = f"{name}/layers_{layer}/cell", memory.gru.hidden_size
        none = torch.zeros(2 * width)
        values = {
            "weight_ih": torch.cat([found[f"{cell}/i{gate}/kernel"].T for gate in "rzn"]),
            "weight_hh": torch.cat([found[f"{cell}/h{gate}/kernel"].T for gate in "rzn"]),
            "bias_ih": torch.cat([found[f"{cell}/i{gate}/bias"] for gate in "rzn"]),
            "bias_hh": torch.cat([none, found[f"{cell}/hn/bias"]]),
        }
        for key, value in values.items():
            getattr(memory.gru, f"{key}_l{layer}").copy_(value)


def load_heads(heads: Heads, found: dict[str, torch.Tensor], name: str, stacked: bool) -> None:
    """Critics' heads are stacked; the actor's is one, with two layers for its two outputs."""

    def of(layer: str, key: str) -> torch.Tensor:
        value = found[f"{name}/{layer}/{key}"]
        return value if stacked else value[None]

    for i in range(2):
        heads.weights[i].copy_(of(f"Dense_{i}", "kernel"))
        heads.biases[i].copy_(of(f"Dense_{i}", "bias")[:, None])
        heads.scales[i].copy_(of(f"LayerNorm_{i}", "scale")[:, None])
        heads.shifts[i].copy_(of(f"LayerNorm_{i}", "bias")[:, None])
    last = ["Dense_2"] if stacked else ["Dense_2", "Dense_3"]
    heads.weights[2].copy_(torch.cat([of(layer, "kernel") for layer in last], -1))
    heads.biases[2].copy_(torch.cat([of(layer, "bias") for layer in last], -1)[:, None])


def draw(mean: torch.Tensor, log_std: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.randn_like(mean)
    raw = mean + log_std.exp() * noise
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2 * (math.log(2) - raw - softplus(-2 * raw))
    return raw.tanh(), (density - squash).sum(-1)


class Study(TorchStudy):
    """One agent and its episodes; answers what is asked of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.manual_seed(0)
        s = self.settings = settings
        torch.set_num_threads(s["threads"])
        self.actor, self.critic, self.target = Actor(s), Critic(s), Critic(s)
        self.net = nn.ModuleList([self.actor, self.critic])
        self.load(s["weights"])
        self.target.load_state_dict(self.critic.state_dict())
        self.log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
        parts = [(m.memory, m.head) for m in (self.actor, self.critic)]
        rates = (3e-6, 1e-4)
        self.learn_actor, self.learn_critic = (
            [
                torch.optim.Adam(p.parameters(), r, fused=True)
                for p, r in zip(pair, rates, strict=True)
            ]
            for pair in parts
        )
        self.learn_alpha = torch.optim.Adam([self.log_alpha], 1e-4)
        rows, steps = s["episodes"], s["episode"] + 1
        self.seen = torch.randn(2 * rows, steps, s["observations"])
        self.acted = torch.rand(2 * rows, steps, s["actions"]) * 2 - 1
        self.paid = torch.randn(2 * rows, steps)
        self.real = (torch.arange(steps) < steps // 2).expand(rows, steps)[:, :-1]

    @torch.no_grad()
    def load(self, path: str) -> None:
        """Weights as `neubay_speed` writes them."""
        with np.load(path) as file:
            found = {key: torch.from_numpy(file[key]) for key in file.files}
        for name, module in (("actor", self.actor), ("critic", self.critic)):
            load_memory(module.memory, found, f"{name}/memory")
            load_heads(module.head, found, f"{name}/head", stacked=name == "critic")

    def said(self, question: dict[str, Any]) -> torch.Tensor:
        """What actor or critics make of one episode."""
        seen, acted = (torch.tensor(question[key])[None] for key in ("seen", "acted"))
        if question["of"] == "values":
            return self.critic(self.critic.memory(seen), acted)[:, 0]
        mean, log_std = self.actor(seen)
        return {"mean": mean, "log_std": log_std}[question["of"]][0]

    def learn(self, net: Net, updates: int) -> None:
        del net  # the actor and the critic themselves
        for _ in range(updates):
            self.step()

    def mixed(self, values: torch.Tensor) -> torch.Tensor:
        """The weighted means over real and imagined tokens, last looks left out."""
        return 0.05 * values[..., self.real].mean() + 0.95 * values[..., ~self.real].mean()

    def step(self) -> None:
        """One gradient step of critic, target, actor and temperature."""
        s = self.settings
        chosen = torch.randint(2 * s["episodes"], (s["episodes"],))
        seen, acted, paid = self.seen[chosen], self.acted[chosen], self.paid[chosen]
        alpha = self.log_alpha.exp().detach()
        normal = self.actor(seen)
        with torch.no_grad():
            action, log_prob = draw(*normal)
            pair = torch.randperm(s["critics"])[:2]
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
        surprise = self.mixed((-log_prob.detach() + s["actions"])[:, :-1])
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
