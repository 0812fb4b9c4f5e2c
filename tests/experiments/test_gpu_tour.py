"""The tour: who is run for how long, what is skipped, and that a run which was cut goes on."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments import gpu_tour
from jaxrl_rollouts.experiments.gpu_plan import STOPS, Stop
from jaxrl_rollouts.experiments.gpu_tour import Ending, Runner, check_gpu, chosen, travel
from jaxrl_rollouts.record.interrupts import StopFlag


class Fake:
    """Runs that take as long as they are said to, on a clock of their own."""

    def __init__(self, **takes: float) -> None:
        self.takes, self.now, self.given = takes, 0.0, {}

    def skip(self, stop: Stop) -> str:
        return "" if stop.name in self.takes else "it has no data"

    def __call__(self, stop: Stop, seconds: float, grace: float) -> Ending:
        self.given[stop.name] = seconds
        needed = self.takes[stop.name]
        self.now += min(abs(needed), seconds)
        return "failed" if needed < 0 else "finished" if needed <= seconds else "cut"


def travelled(fake: Fake, seconds: float, asked: Callable[[], bool] = lambda: False) -> dict:
    stops = [Stop(name, 1, 1, "") for name in "abcd"]
    return travel(stops, fake, seconds, asked, clock=lambda: fake.now)


def test_the_time_is_shared_in_order_and_the_last_one_is_cut() -> None:
    fake = Fake(a=300.0, b=-100.0, d=5000.0)
    endings = travelled(fake, 1500.0)
    assert endings == {"a": "finished", "b": "failed", "c": "skipped", "d": "cut"}
    assert fake.given == {"a": 1440.0, "b": 1140.0, "d": 1040.0}  # a minute for the checkpoint
    assert fake.now <= 1440.0


def test_nothing_is_begun_that_would_be_cut_at_once() -> None:
    fake = Fake(a=1400.0, b=10.0)
    assert travelled(fake, 1500.0) == dict(a="finished", b="not begun", c="skipped", d="skipped")
    short = Fake(a=2.0, b=2.0)
    travelled(short, 10.0)
    assert short.given == {"a": 9.0, "b": 7.0}, "a tenth of a short budget is kept back"


def test_who_asks_to_stop_begins_nothing_more() -> None:
    fake = Fake(a=10.0, b=10.0)
    endings = travelled(fake, 1500.0, asked=lambda: fake.now > 0)
    assert endings["a"] == "finished" and endings["b"] == "not begun"


def folder_of(out: Path, name: str, stamp: str, *, finished: bool) -> Path:
    folder = out / name / f"{name}-gpu-{stamp}"
    folder.mkdir(parents=True)
    (folder / "run.json").touch()
    if finished:
        (folder / "report.json").touch()
    return folder


def test_a_run_that_was_begun_is_resumed_and_a_finished_one_is_not(tmp_path: Path) -> None:
    ks, speed = chosen(["ks_refiner"])[0], chosen(["neubay_speed"])[0]
    runner = Runner(tmp_path, "gpu", tmp_path / "published", False, StopFlag())
    new = ["run", "ks_refiner", "--preset", "gpu", "--out", str(tmp_path / "ks_refiner")]
    rest = ["--publish", str(tmp_path / "published"), "--no-progress"]
    assert runner.arguments(ks) == [*new, *rest]
    folder_of(tmp_path, "ks_refiner", "20260101-000000", finished=False)
    newer = folder_of(tmp_path, "ks_refiner", "20260102-000000", finished=False)
    assert runner.arguments(ks) == ["resume", str(newer), *rest]
    assert runner.skip(ks) == ""
    done = folder_of(tmp_path, "neubay_speed", "20260101-000000", finished=True)
    assert Runner(tmp_path, "gpu", None, True, StopFlag()).skip(speed) == f"finished in {done}"


# A program in the place of `jaxrl-rollouts run`: it makes its folder, then does as it is told.
PROGRAM = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1]) / "ks_refiner-gpu-20260101-000000"
folder.mkdir(parents=True)
(folder / "run.json").touch()
signal.signal(signal.SIGTERM, {'heard': lambda *_: sys.exit(130)}.get("BEHAVES", signal.SIG_IGN))
if "BEHAVES" == "finishes":
    (folder / "report.json").touch()
elif "BEHAVES" == "fails":
    sys.exit(3)
else:
    (folder / "ready").touch()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("behaves", "ending"),
    [("finishes", "finished"), ("fails", "failed"), ("heard", "cut"), ("deaf", "cut")],
)
def test_a_run_ends_by_itself_or_is_asked_to_and_then_killed(
    behaves: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("BEHAVES", behaves))
    monkeypatch.setattr(gpu_tour, "PROGRAM", (sys.executable, str(program)))
    flag, waits = StopFlag(), []
    runner = Runner(tmp_path, "gpu", None, True, flag)

    def wait(child, seconds: float, asked=lambda: False) -> bool:  # noqa: ANN001
        """As long as it takes to be ready, whatever the machine does."""
        waits.append(seconds)
        while child.poll() is None and not list(tmp_path.rglob("ready")):
            time.sleep(0.01)
        return gpu_tour_wait(child, 1.0 if behaves == "deaf" else 30.0, lambda: len(waits) == 1)

    gpu_tour_wait = gpu_tour._wait
    monkeypatch.setattr(gpu_tour, "_wait", wait)
    assert runner(chosen(["ks_refiner"])[0], 100.0, 7.0) == ending
    assert waits == ([100.0, 7.0] if ending == "cut" else [100.0])


def test_the_plan_says_what_is_to_go_and_starts_no_backend(tmp_path: Path) -> None:
    folder_of(tmp_path, "ks_refiner", "20260101-000000", finished=True)
    folder_of(tmp_path, "ks_conditional", "20260101-000000", finished=False)
    code = (
        "import sys; from jaxrl_rollouts.cli.main import dispatch; dispatch(sys.argv[1:])\n"
        "from jax._src.xla_bridge import _backends; assert not _backends, 'jax was started'"
    )
    arguments = ["gpu-tour", "--dry-run", "--out", str(tmp_path), "--minutes", "30"]
    environment = {"JAXRL_ROLLOUTS_DATA": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    state = {m[1]: m[2] for line in lines if (m := re.match(r" ?\d+\. (\w+) .*?\): (.*)", line))}
    assert list(state) == [stop.name for stop in STOPS]
    assert state["ks_refiner"] == "finished" and state["ks_conditional"] == "begun"
    assert state["neubay_speed"] == "not begun"
    assert "data make halfcheetah-mixed" in state["synther_small_data"]
    left = [name for name, said in state.items() if said in ("begun", "not begun")]
    assert left == ["neubay_speed", "ks_conditional", "flow_policies"], "the others lack data"
    to_go = sum(stop.minutes for stop in chosen(left))
    assert f"{-(-to_go // 30):.0f} sessions of 30 minutes" in lines[-1]
    assert not list(tmp_path.glob("runs*")), "nothing was written"


def test_no_gpu_is_an_error_that_says_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["gpu-tour", "--out", str(tmp_path / "runs"), "--only", "ks_refiner"])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert re.match(r"error: gpu-tour: device: found '\d x cpu \(cpu\), as JAX_PLATFORMS=cpu", line)
    assert "expected a GPU; install jax for it: pip install -U 'jax[cuda12]'" in line
    assert not (tmp_path / "runs").exists()


def test_a_jax_that_cannot_start_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tour, "LOOK", "raise RuntimeError('no driver')")
    with pytest.raises(ConfigError, match="jax cannot start: RuntimeError: no driver"):
        check_gpu(allow_cpu=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "ks_refine"], "--only: found 'ks_refine'.*ks_refiner"),
        (["--preset", "smok"], "--preset: found 'smok'.*smoke"),
        (["--minutes", "0"], "--minutes: found 0.0, expected above 0"),
    ],
)
def test_mistyped_arguments_are_named(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cli.dispatch(["gpu-tour", *arguments])


@pytest.mark.slow
def test_a_tour_that_was_cut_goes_on_and_is_published(tmp_path: Path) -> None:
    """Real runs in processes of their own, cut every half a minute until they are done."""
    arguments = ["gpu-tour", "--preset", "smoke", "--allow-cpu", "--no-progress"]
    arguments += ["--minutes", "0.5", "--only", "ks_refiner", "--out", str(tmp_path / "runs")]
    arguments += ["--publish", str(tmp_path / "published")]
    sessions, said = 0, ""
    while "finished after" not in said and sessions < 40:
        command = [sys.executable, "-m", "jaxrl_rollouts", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said, sessions = done.stdout, sessions + 1
        assert "failed" not in said
    assert sessions > 1, "it was never cut"
    (folder,) = (tmp_path / "runs" / "ks_refiner").iterdir()
    assert (folder / "report.json").is_file()
    assert (tmp_path / "published" / "ks_refiner" / "report.json").is_file()
    again = subprocess.run([*command], capture_output=True, text=True)
    assert f"ks_refiner: finished in {folder}" in again.stdout
