"""Methods and agents that another package announces by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PLUGIN = """
from dataclasses import dataclass
from jaxrl_rollouts.offline.methods.mopo import Mopo

@dataclass(frozen=True, kw_only=True)
class Bold(Mopo):
    name = "bold"
    penalty: float = coefficient(0.1, least=0)
""".replace("from jaxrl", "from jaxrl_rollouts.configs import coefficient\nfrom jaxrl", 1)
ENTRIES = """
[jaxrl_rollouts.methods]
bold = guest:Bold

[jaxrl_rollouts.agents]
mine = guest_agent:Mine
"""
AGENT = """
from dataclasses import dataclass
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig

@dataclass(frozen=True)
class Mine(Td3BcConfig):
    alpha: float = 7.0
"""
QUESTION = """
from jaxrl_rollouts import offline
from jaxrl_rollouts.offline.agents import AGENTS
from jaxrl_rollouts.offline.recipes import recipe
import guest, guest_agent
assert "bold" in offline.METHODS and "mine" in AGENTS
made = recipe("bold", "smoke", agent={"mine": {}})
assert made == guest.Bold(**{f: getattr(made, f) for f in vars(made)}) and made.penalty == 0.1
assert made.steps == 40 and made.agent.alpha == 7.0 and made.agent.hidden == (32,)
assert AGENTS.name_of(made.agent) == "mine" and offline.METHODS.name_of(made) == "bold"
"""


def announce(folder: Path, entries: str) -> dict[str, str]:
    """The environment of an interpreter that has another package installed."""
    info = folder / "guest-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "guest.py").write_text(PLUGIN)
    (folder / "guest_agent.py").write_text(AGENT)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    return os.environ | {"PYTHONPATH": str(folder)}


def ask(code: str, environment: dict[str, str], folder: Path) -> Any:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_another_package_brings_a_method_of_nine_lines_and_an_agent(tmp_path: Path) -> None:
    assert len([line for line in PLUGIN.splitlines() if line]) <= 9
    done = ask(QUESTION, announce(tmp_path / "site", ENTRIES), tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    environment = announce(tmp_path / "site", ENTRIES.replace("guest:Bold", "guest:Nothing"))
    code = "from jaxrl_rollouts.offline import METHODS; METHODS['bold']"
    done = ask(code, environment, tmp_path)
    assert "method bold: found 'guest:Nothing'" in done.stderr
