"""The same port held against torch's own layers, as PDEArena builds its network from them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.operators import Unet, unet_from_pdearena

torch: Any = pytest.importorskip("torch")
nn = torch.nn
HIDDEN, MULTIPLIERS, BLOCKS, POINTS = 16, (1, 2, 2, 4), 2, 64
TIME, CONDITIONS = 250.0, (4.5, 6.25)


def layers(**named: Any) -> Any:
    """A container of layers by their names."""
    module = nn.Module()
    for name, layer in named.items():
        setattr(module, name, layer)
    return module


def conv(inputs: int, outputs: int, width: int, stride: int = 1) -> Any:
    how = {"padding": width // 2, "padding_mode": "circular"}
    return nn.Conv1d(inputs, outputs, width, stride, **how)


def residual(inputs: int, outputs: int) -> Any:
    block = layers(
        norm1=nn.GroupNorm(1, inputs),
        conv1=conv(inputs, outputs, 3),
        cond_emb=nn.Linear(4 * HIDDEN, outputs),
        norm2=nn.GroupNorm(1, outputs),
        conv2=conv(outputs, outputs, 3),
    )
    if inputs != outputs:
        block.shortcut = conv(inputs, outputs, 1)
    return layers(res=block)


def mlp() -> Any:
    return nn.Sequential(
        nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, 4 * HIDDEN)
    )


def torch_unet() -> Any:
    """All layers under PDEArena's names, none of their weights zero."""
    down, up, width, skips = [], [], HIDDEN, [HIDDEN]
    for level, factor in enumerate(MULTIPLIERS):
        for times in (factor, *[1] * (BLOCKS - 1)):
            down.append(residual(width, width * times))
            skips.append(width := width * times)
        if level < len(MULTIPLIERS) - 1:
            down.append(layers(conv=conv(width, width, 3, 2)))
            skips.append(width)
    deepest = width
    for level, factor in reversed(list(enumerate(MULTIPLIERS))):
        for share in (*[1] * BLOCKS, factor):
            up.append(residual(width + skips.pop(), width // share))
            width //= share
        if level:
            up.append(layers(conv=nn.ConvTranspose1d(width, width, 4, 2, 1)))
    unet = layers(
        time_embed=mlp(),
        pde_emb=nn.ModuleList(mlp() for _ in CONDITIONS),
        image_proj=conv(2, HIDDEN, 3),
        down=nn.ModuleList(down),
        middle=layers(res1=residual(deepest, deepest).res, res2=residual(deepest, deepest).res),
        up=nn.ModuleList(up),
        norm=nn.GroupNorm(8, HIDDEN),
        final=conv(HIDDEN, 1, 3),
    )
    with torch.no_grad():  # gains and biases of torch's layers begin at one and zero
        for name, weight in unet.named_parameters():
            if weight.ndim == 1:
                gain = "norm" in name and name.endswith("weight")
                weight.copy_(float(gain) + 0.3 * torch.randn_like(weight))
    assert all(bool((weight != 0).all()) for weight in unet.parameters())
    return unet


def forward(unet: Any, x: Any) -> Any:
    """`[1, 2, N] -> [1, 1, N]`."""
    gelu = nn.functional.gelu

    def sines(value: float) -> Any:
        angles = value * torch.exp(-math.log(10_000) * torch.arange(HIDDEN // 2) / (HIDDEN // 2))
        return torch.cat([angles.cos(), angles.sin()])[None].to(x.dtype)

    def block(part: Any, x: Any) -> Any:
        h = part.conv1(gelu(part.norm1(x))) + part.cond_emb(embedding)[..., None]
        h = part.conv2(gelu(part.norm2(h)))
        return h + (part.shortcut(x) if hasattr(part, "shortcut") else x)

    embedding = unet.time_embed(sines(TIME))
    for given, value in zip(unet.pde_emb, CONDITIONS, strict=True):
        embedding = embedding + given(sines(value))
    x = unet.image_proj(x)
    skips = [x]
    for part in unet.down:
        x = block(part.res, x) if hasattr(part, "res") else part.conv(x)
        skips.append(x)
    x = block(unet.middle.res2, block(unet.middle.res1, x))
    for part in unet.up:
        if hasattr(part, "res"):
            x = block(part.res, torch.cat([x, skips.pop()], 1))
        else:
            x = part.conv(x)
    return unet.final(gelu(unet.norm(x)))


def differences() -> dict[str, float]:
    """The largest of what two networks say, of the largest value, in single and in double."""
    torch.manual_seed(0)
    unet, config = torch_unet(), Unet(HIDDEN, MULTIPLIERS, BLOCKS, zero_upsampling=True)
    state = {name: value.detach().numpy().copy() for name, value in unet.state_dict().items()}
    assert len(state) == 280 and sum(value.size for value in state.values()) == 3_384_161
    x = torch.randn(1, 2, POINTS)
    with torch.no_grad():
        single, double = forward(unet, x), forward(unet.double(), x.double())
    single, double = single[0].numpy(), double[0].numpy()
    net = config.make(FieldShape(1, POINTS, len(CONDITIONS)))
    params = unet_from_pdearena(state, config, FieldShape(1, POINTS, len(CONDITIONS)))
    u, noised = x.numpy()[0, :1], x.numpy()[0, 1:]
    ours = np.asarray(net.apply(params, u, noised, TIME, jnp.array(CONDITIONS)))
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), (params, u, noised, CONDITIONS))
        exact = np.asarray(net.apply(*wide[:3], TIME, jnp.array(wide[3])))

    def away(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.abs(a - b).max() / np.abs(double).max())

    return {
        "largest value": float(np.abs(double).max()),
        "ours, theirs": away(ours, single),
        "ours, theirs in double": away(ours, double),
        "theirs, theirs in double": away(single, double),
        "both in double": away(exact, double),
    }


@pytest.mark.slow
def test_a_checkpoint_of_torch_says_the_same() -> None:
    """3 384 161 weights in 280 arrays on 64 points; torch itself is as far from its own double."""
    found = differences()
    assert found["ours, theirs"] < 1e-6 and found["ours, theirs in double"] < 1e-6
    assert found["theirs, theirs in double"] > 1e-8, "rounding is there, or nothing was compared"
    assert found["both in double"] < 2e-7  # the sines of the embedding are single precision
