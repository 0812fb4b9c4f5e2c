"""A small package that brings an experiment and a command, found the way any other would be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

TOY = '''
import json, time
from dataclasses import dataclass, field, replace
from typing import Literal
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.errors import ConfigError, DivergenceError, Interrupted, MissingExtraError
from jaxrl_rollouts.plugins import Command, Experiment
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.record.files import write_json_atomically

@dataclass(frozen=True)
class Agent:
    """Acts.

    Attributes:
        num_critics: How many critics.
        sizes: Widths of layers.
        memory: What remembers.
        rate: Of learning.
    """

    num_critics: int = 2
    sizes: tuple[int, ...] = (8, 8)
    memory: Literal["lru", "gru"] = "lru"
    rate: float = 1e-3

    def validate(self):
        if self.rate <= 0:
            raise ConfigError("rate", self.rate, "above 0")

@dataclass(frozen=True)
class Fancy:
    """What the fancy kind has.

    Attributes:
        bells, whistles: how many.
    """

    bells: int = 1
    whistles: int = 2

@dataclass(frozen=True)
class Config:
    """Counting.

    Attributes:
        kind: plain or fancy.
        steps: counted.
        sleep: seconds between them.
        fail: how, if at all.
    """

    seeds: int = 1
    """Runs side by side."""
    agent: Agent = field(default_factory=Agent)
    kind: str = "plain"
    fancy: Fancy = field(default_factory=Fancy)
    loud: bool = False
    """Whether it is heard."""
    steps: int = 3
    sleep: float = 0.0
    fail: str = ""

    def validate(self):
        if self.seeds < 1:
            raise ConfigError("seeds", self.seeds, "at least 1")

def run(config, context):
    if config.fail == "diverge":
        raise DivergenceError("metric loss is nan")
    if config.fail == "bug":
        raise RuntimeError("a bug")
    path = context.folder.stage("count") / "state.json"
    done = json.loads(path.read_text()) if path.exists() else 0
    for step in range(done, config.steps):
        time.sleep(config.sleep)
        write_json_atomically(path, step + 1)
        for logger in context.loggers:
            logger.log("count", step + 1, {"value": [step] * config.seeds})
        if context.stop.requested:
            raise Interrupted(f"after {step + 1}")
    report = Report.of(context, seeds=config.seeds)
    report.number("value", [config.steps] * config.seeds)
    report.number("resumed", done)
    claim = Claim.of("critics", values=[config.agent.num_critics], at_least=5,
                           source="here", expected="five")
    report.claim(replace(claim, time_constants=float(config.steps) if config.loud else None))
    from jaxrl_rollouts.reports.pictures import figure
    report.picture("empty", figure()[0], "An empty picture")
    return report

def prepare(config):
    if config.fail == "missing":
        raise MissingExtraError("counting", "abacus", "toys")
    return [f"counts to {config.steps}"]

def longer(config, times):
    return replace(config, steps=config.steps * times)

presets = {"smoke": Config(steps=1), "cpu": Config(), "slow": Config(steps=400, sleep=0.05)}
EXPERIMENT = Experiment(
    "toy", "Counts.", "nobody 2026", Config, presets, run,
    prepare="toy_plugin:prepare",
    longer="toy_plugin:longer",
    choices={"kind": ("plain", "fancy")}, minutes={"cpu": 12.0}, needs={"slow": ("patience",)},
)

def main(arguments, prog):
    print(prog, *arguments)

COMMAND = Command("say", "Says it.", main)
'''
# What stands here is listed without importing the experiment, which would fail.
LISTED = """
from jaxrl_rollouts.plugins import ExperimentInfo
LISTINGS = {
    "listed": ExperimentInfo(
        "listed", "Known from afar.", "", minutes={"cpu": 90.0, "paper": None},
        needs={"paper": ("a dataset",)}, choices={"kind": ("red", "green")}, main=True,
    )
}
"""
ENTRIES = """
[jaxrl_rollouts.experiments]
toy = toy_plugin:EXPERIMENT
listed = no_such_module:EXPERIMENT
broken = toy_plugin:NOTHING

[jaxrl_rollouts.listings]
toys = toy_listed:LISTINGS

[jaxrl_rollouts.commands]
say = toy_plugin:COMMAND
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: Any) -> Path:
    folder = tmp_path / "site"
    info = folder / "toy_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "toy_plugin.py").write_text(TOY)
    (folder / "toy_listed.py").write_text(LISTED)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_plugin", raising=False)
    return tmp_path
