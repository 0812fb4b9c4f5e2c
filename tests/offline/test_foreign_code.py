"""Code of others: imported where the user names it, or where a package announces it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl_rollouts import plugins
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.sweep import bench
from jaxrl_rollouts.sweep.plan import Plan, Task, read_plan, write_plan

pytest.importorskip("gymnasium")
MODULE = """
open("ran", "a").write("x")
def make():
    return "Pendulum-v1"
"""
SMOKE = ("offline", "--preset", "smoke", "--method", "bc", "--no-progress")
NAMED = {
    "option": ("--environment", "evil:make"),
    "joined": ("--environment=evil:make",),
    "file": ("--config", "evil.yaml"),
    "joined file": ("--config=evil.yaml",),
}
FILES = {"yaml": "evil.yaml", "folder": "runs/theirs", "record": "runs/theirs/run.json"}
# Several command lines in one interpreter; what is trusted stays trusted there.
LINES = """
import contextlib, io, json, os, sys
from jaxrl_rollouts.cli import main as cli
ended = {}
for name, words in json.loads(sys.argv[1]).items():
    said, code = io.StringIO(), 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main(words)
        except SystemExit as stop:
            code = stop.code
    ended[name] = code, said.getvalue(), os.path.exists("ran"), os.path.exists("mine")
    sys.modules.pop("evil", None)
    if os.path.exists("ran"):
        os.remove("ran")
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's folder: a module beside settings, sweeps and a run that name it."""
    place = tmp_path_factory.mktemp("stranger")
    (place / "evil.py").write_text(MODULE)
    (place / "evil.yaml").write_text("environment: evil:make\n")
    for name, words in NAMED.items():
        sweep(place / name, *words)
    folder = RunFolder.at(place / "runs" / "theirs", "offline").path
    data = json.loads((folder / "run.json").read_text())
    data |= {"preset": "smoke", "config": {"environment": "evil:make"}}
    del data["digest"]
    (folder / "run.json").write_text(json.dumps(data))
    return place


def sweep(folder: Path, *words: str) -> Path:
    folder.mkdir()
    task = Task("one", {}, (*SMOKE, *words), str(folder.parent))
    write_plan(folder, Plan("offline", ("",), (task,)))
    return folder


@pytest.fixture(scope="module")
def ended(place: Path) -> dict[str, tuple[int, str, bool, bool]]:
    """Exit code, errors, whether the module ran and a run was begun, of every command line."""
    lines = {name: ["sweep", "task", name, "1"] for name in NAMED}
    run = ["run", *SMOKE, "--out", "mine", "--config"]
    lines |= {name: [*run, file] for name, file in FILES.items()}
    trust = ["--trust", "evil:make"]
    lines |= {"trusted task": ["sweep", "task", "file", "1", *trust]}
    lines |= {"trusted file": [*run, "evil.yaml", *trust]}
    environment = os.environ | {"PYTHONPATH": str(place)}  # the module can be found
    command = [sys.executable, "-c", LINES, json.dumps(lines)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [*NAMED, *FILES])
def test_neither_a_plan_nor_a_settings_file_imports_code(ended: dict, name: str) -> None:
    code, said, ran, begun = ended[name]
    assert code == 2 and not ran and not begun, said
    assert "found 'evil:make', expected no code to import but what you name" in said
    assert "--trust evil:make" in said and "Traceback" not in said


def test_what_the_user_names_is_imported(ended: dict, place: Path) -> None:
    for name in ("trusted task", "trusted file"):
        code, said, ran, _ = ended[name]
        assert code == 0 and ran, said
    (made,) = (place / "mine").iterdir()
    assert "--trust" not in json.loads((made / "run.json").read_text())["command"]


def test_a_plan_has_no_trust_of_its_own(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "sweep", "--logger", "evil:make", "--config", "evil.yaml")
    data = json.loads((folder / "plan.json").read_text().replace("--logger", "--trust"))
    del data["digest"]
    (folder / "plan.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="task one: found '--trust', expected no such"):
        read_plan(folder)


@pytest.mark.parametrize("word", ["--publish=/x", "--out", "--trust"])
def test_a_suite_has_no_options_of_its_user(tmp_path: Path, word: str) -> None:
    name, _, value = word.lstrip("-").partition("=")
    (tmp_path / "theirs.toml").write_text(
        f'question = "q"\njob = "offline"\ndatasets = ["pendulum-mixed"]\n[methods.bc]\n'
        f'[options]\n{name} = "{value or tmp_path}"\n'
    )
    with pytest.raises(ConfigError, match=f"found '--{name}', expected no such option"):
        bench.run(str(tmp_path / "theirs.toml"), table=tmp_path / "t.csv", out=tmp_path / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.toml"]


FAILING = {
    "def make(:": "SyntaxError",
    "import sys; sys.exit(0)": "SystemExit: 0",
    "raise RuntimeError('one\\ntwo')": "RuntimeError: one two",
    "def make():\n    raise SystemExit(0)": "SystemExit: 0",
    "def make():\n    raise OSError(2, 'no robot')": "FileNotFoundError: .*no robot",
    "class Gone(BaseException): ...\ndef make():\n    raise Gone": "Gone",
}


@pytest.mark.parametrize("number", range(len(FAILING)))
def test_code_that_fails_ends_in_one_line_and_never_the_process(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, says = list(FAILING.items())[number]
    monkeypatch.syspath_prepend(tmp_path)
    name = f"failing_{number}:make"
    (tmp_path / f"failing_{number}.py").write_text(text)
    monkeypatch.setattr(plugins, "_TRUSTED", {name})
    with pytest.raises(ConfigError, match=f"environment: found '{name}'.*{says}") as caught:
        make(name)
    assert "\n" not in str(caught.value) and caught.value.__cause__ is not None


def test_typed_names_are_those_of_options_that_take_code() -> None:
    typed = ["run", "a:b", "--environment", "c.d:e?x=1", "--study.env=f:g", "--out", "h:i"]
    typed += ["--trust", "j:k", "l:m", "--config=n:o", "--environments", "plane", "p:q"]
    assert list(plugins.typed(typed)) == ["c.d:e?x=1", "f:g", "j:k", "l:m", "p:q"]


def test_a_name_is_trusted_with_and_without_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_TRUSTED", set())
    plugins.trust("json:loads?max_episode_steps=3")
    plugins.check_trusted("environment", ["json:loads", "json:loads?other=1"])
    assert plugins.import_trusted("environment", "json:loads") is json.loads
    for other in ("json:dumps", "json:loads.x", "Json:loads"):
        with pytest.raises(ConfigError, match="--trust"):
            plugins.import_trusted("environment", other)


def test_a_name_is_quoted_in_what_is_to_be_typed() -> None:
    name = "$(touch ran).py:Mine"
    with pytest.raises(ConfigError) as caught:
        plugins.check_trusted("method", [name])
    assert f"--trust '{name}'" in str(caught.value)


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
broken = guest:Nothing

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
assert made.steps == 40 and made.agent.alpha == 7.0 and made.agent.hidden_dims == (32,)
assert AGENTS.name_of(made.agent) == "mine" and offline.METHODS.name_of(made) == "bold"
offline.METHODS["broken"]
"""


def test_another_package_brings_a_method_of_nine_lines_and_an_agent(tmp_path: Path) -> None:
    """And a method that cannot be imported, which is named."""
    assert len([line for line in PLUGIN.splitlines() if line]) <= 9
    info = tmp_path / "guest-1.0.dist-info"
    info.mkdir()
    (tmp_path / "guest.py").write_text(PLUGIN)
    (tmp_path / "guest_agent.py").write_text(AGENT)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", QUESTION]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "method broken: found 'guest:Nothing'" in done.stderr.splitlines()[-1], done.stderr
