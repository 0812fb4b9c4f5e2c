"""`jaxrl-rollouts finetune RUN`: a run's policies, fine-tuned in a simulator.

jaxrl-rollouts finetune runs/hopper-iql-20261129-120000 --steps 20000
jaxrl-rollouts finetune runs/tanks-iql-20261129-120000 --environment tank_env:make_env
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jaxrl_rollouts.cli import runs
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .learner import OnlineConfig
from .listing import FINETUNING
from .report import online_report
from .start import start_of
from .train import FINETUNE, finetune


@dataclass(frozen=True)
class Config:
    """Fine-tuning of one run.

    Attributes:
        start: folder of the run whose policies are fine-tuned, with all training seeds.
        environment: simulator, as for `run offline`. Left empty: the run's evaluation environment.
        dataset: offline data mixed into every batch. Left empty: the run's dataset.
        steps: environment steps per seed.
        calibrated: continue as Cal-QL, if the run is of CQL.
        seed: random seed.
        online: alternation of acting and learning.
    """

    start: str = ""
    environment: str = ""
    dataset: str = ""
    steps: int = positive(20_000)
    calibrated: bool = False
    seed: int = 0
    online: OnlineConfig = field(default=FINETUNE)

    def validate(self) -> None:
        if self.online.tape:
            raise ConfigError("online.tape", True, "False: no tape is written of a fine-tuning")


MADE = re.compile(r"-\d{8}-\d{6}(-\d+)?$")  # of a run folder's name: when it was made
SMOKE = OnlineConfig(rows=50, warmup=0, update_ratio=0.2, batch_size=64, looks=1, episodes=2)


def run(config: Config, context: RunContext) -> Report:
    """Fine-tune, evaluate, report."""
    outcome = finetune(
        config.start,
        config.environment or None,
        config.steps,
        data=config.dataset or None,
        online=config.online,
        calibrated=config.calibrated,
        seed=config.seed,
        context=context,
    )
    return online_report(outcome, context)


def prepare(config: Config) -> list[str]:
    """Read the agents to fine-tune; returns no notes."""
    if not config.start:
        raise ConfigError("start", "nothing", "the folder of a run, as in `finetune RUN`")
    start_of(config.start)
    return []


EXPERIMENT = replace(
    FINETUNING.experiment(
        config_type=Config,
        presets={"smoke": Config(steps=100, online=SMOKE), "small": Config()},
        run=run,
    ),
    title=lambda config: f"{MADE.sub('', Path(config.start).name)}-finetuned",
)


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `finetune RUN ...`; raises `UserError` for bad input."""
    del prog
    first, *rest = arguments or ["--help"]
    if first.startswith("-"):
        runs.begin([FINETUNING.name, first, *rest])
        return
    runs.begin([FINETUNING.name, "--start", str(Path(first).absolute()), *rest])
