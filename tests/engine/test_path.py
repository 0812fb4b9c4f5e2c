"""The path from `train` to the first gradient step: which files are entered on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Files whose functions are called, without what runs when they are imported.
TRACE = """
import json, os, sys
from jaxrl_rollouts import chunks, loop, offline
from jaxrl_rollouts.offline import training

root, entered, on = os.path.realpath(sys.argv[1]), set(), True
data = offline.load("pendulum-mixed")
method = offline.recipe(
    "mopo", "smoke", data, agent={"hidden_dims": (4,)}, steps=1,
    world={"hidden_dims": (4,), "max_epochs": 1, "members": 2, "elites": 1},
    rollouts={"batch_size": 4, "every": 1, "length": 2},
)
offline.TrainResult

class Enough(Exception):
    pass

known = {}

def watch(frame, event, _):
    code = frame.f_code
    if code in known:
        return
    file = os.path.realpath(code.co_filename)
    inside = os.path.isabs(code.co_filename) and file.startswith(root + os.sep)
    rooms = ("jaxrl_rollouts", "offline", "pde")
    known[code] = inside and os.path.relpath(file, root).split(os.sep)[0] in rooms
    if on and known[code] and code.co_flags & 2:
        entered.add(os.path.relpath(file, root))

begin = loop.train_loop

def until_the_agent(*arguments, stage, **options):
    global on
    if "world" in stage:
        return begin(*arguments, stage=stage, **options)
    def stop(*_, **__):
        global on
        on = False
        raise Enough
    chunks.Chunk.run = stop
    return begin(*arguments, stage=stage, **options)

training.train_loop = until_the_agent
sys.settrace(watch)
try:
    offline.train(data, method, seeds=1, evaluations=1, episodes=1)
except Enough:
    pass
sys.settrace(None)
print(json.dumps(sorted(entered)))
"""


@pytest.fixture(scope="module")
def entered() -> list[str]:
    command = [sys.executable, "-c", TRACE, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_few_files_lie_on_the_path(entered: list[str]) -> None:
    ours = [file for file in entered if file.startswith("offline/")]
    assert {"offline/job.py", "offline/methods/mopo.py", "offline/agents/sac.py"} <= set(ours)
    assert len(ours) <= 15, ours
    assert len(entered) <= 42, entered
    rooms = ("diffusion", "recurrent", "synthetic", "neubay")
    assert not [file for file in entered if any(f"/{room}/" in file for room in rooms)]


def test_ravl_is_read_in_three_files() -> None:
    files = ("methods/ravl.py", "methods/model_based.py", "agents/sac.py")
    lines = [len((ROOT / "offline" / file).read_text("utf-8").splitlines()) for file in files]
    assert sum(lines) <= 650, dict(zip(files, lines, strict=True))
