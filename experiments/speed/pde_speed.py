"""How fast emulators are: gradient steps, rollouts and seeds, beside torch and APEBench.

Two comparisons, each at an equal network, batch and grid, in turns within one run:

- torch: our conditioned dilated ResNet, rebuilt there (`peers/torch_resnet.py`);
- APEBench: its own `Dil` network, rebuilt here (`PlainResnet`), with its own trainer and rollout.

The peers get our weights first, and what they make of a few fields is compared with ours: networks
that differ are an error. Each lives in an environment of its own:

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy
    python -m venv ape && ape/bin/pip install apebench==0.1.1
    jaxrl-rollouts run pde_speed --torch-python torch/bin/python --apebench-python ape/bin/python
"""

from __future__ import annotations

from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.timing import SOURCE, matmul_peak, note_load, show_seeds, start_report, time_seeds
from .pde_speed_cells import SCRIPTS, Config, make_ours, time_against
from .pde_speed_page import note_meaning, show_against


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    config.validate()
    report = start_report(context, config, {f"{name}_python": name for name in SCRIPTS})
    peak = matmul_peak()
    for name in SCRIPTS:
        timings = {width: time_against(config, context, name, width) for width in config.widths}
        show_against(report, config, name, timings, peak)
    width = config.seeds_width
    train = make_ours(config, width, plain=False).train
    title = f"dilated ResNet, width {width}, batch {config.batch}"
    show_seeds(report, title, time_seeds(context, title, train, config.seeds, config.repeats))
    note_meaning(report, config, peak)
    note_load(report, "at the end")
    return report


SMOKE = Config(
    widths=(8,),
    blocks=1,
    dilation_factor=1,
    points=16,
    batch=4,
    trajectories=8,
    frames=4,
    updates=10,
    fields=8,
    steps=5,
    repeats=2,
    seeds=(1, 2),
    seeds_width=8,
    torch_compile=False,
)
EXPERIMENT = Experiment(
    name="pde_speed",
    summary="benchmark: emulators' gradient steps and rollouts, beside torch's and APEBench's",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": SMOKE, "cpu": Config()},
    run=run,
)
