"""Windows or space over two devices: the training of one device; space in less memory on each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures import on_devices

SCRIPT = """
import json, sys, tempfile
from pathlib import Path
import jax, numpy as np
from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

def fields(*grid):
    u = np.random.default_rng(0).normal(size=(4, 8, 1, *grid)).cumsum(1)
    return pde.from_arrays(u.astype(np.float32), dt=0.1, boundaries="periodic")

def trained(network, data, shard, stream="never", batch=4):
    context = RunContext(RunFolder.at(Path(tempfile.mkdtemp()) / "run", "waves"), progress=False)
    settings = pde.Training(steps=4, batch=batch, warmup=0, per_iteration=2, shard=shard)
    given = {"network": network, "seeds": 2, "training": settings, "stream": stream}
    fitted = pde.fit("mse", data, context=context, **given)
    losses = [row.metrics["loss"].tolist() for row in fitted.history.records]
    params = [np.asarray(x).ravel().tolist() for x in jax.tree.leaves(fitted.params)]
    return {"losses": losses, "params": sum(params, []), "work": context.needs["emulator"].work}

resnet = pde.Resnet(width=16, blocks=1, dilations=(1, 2), embedding=4)
fno = pde.Fno(width=4, layers=2, modes=4, embedding=4)
line, plane = fields(512), fields(16, 12)
out = {"devices": len(jax.devices())}
for name, *given in (("resnet", resnet, line), ("fno", fno, plane)):
    out[name] = [trained(*given, shard) for shard in ("seeds", "batch", "batch", "space")]
out["streamed"] = [out["resnet"][0], trained(resnet, line, "space", stream="always")]
for shard in ("space", "batch"):
    try:
        trained(fno, fields(15, 12), shard, batch=3)
    except ConfigError as error:
        out["refused", shard] = str(error)
out["refused"] = {shard: out.pop(("refused", shard)) for shard in ("space", "batch")}
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a process with two devices trained, seeds on a device each and space over both."""
    return on_devices(SCRIPT, 2, seconds=300)


@pytest.mark.parametrize("name", ["resnet", "fno", "streamed"])
def test_space_over_two_devices_is_the_same_training(found: dict, name: str) -> None:
    assert found["devices"] == 2
    seeds, *_, space = found[name]
    np.testing.assert_allclose(space["losses"], seeds["losses"], rtol=1e-5)
    np.testing.assert_allclose(space["params"], seeds["params"], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", ["resnet", "fno"])
def test_a_batch_over_two_devices_is_the_same_training(found: dict, name: str) -> None:
    seeds, batch, again, _ = found[name]
    np.testing.assert_allclose(batch["losses"], seeds["losses"], rtol=1e-5)
    np.testing.assert_allclose(batch["params"], seeds["params"], rtol=1e-3, atol=2e-5)
    assert batch["losses"] == again["losses"] and batch["params"] == again["params"]


def test_each_device_holds_its_part_of_the_activations(found: dict) -> None:
    """Both devices together take what two devices with a seed each do; copies would take twice."""
    seeds, *_, space = found["resnet"]
    assert space["work"] < 1.5 * seeds["work"]


def test_what_does_not_divide_is_refused(found: dict) -> None:
    for shard, named in (("space", "15 points"), ("batch", "batch of 3")):
        assert "shard" in found["refused"][shard] and named in found["refused"][shard]
