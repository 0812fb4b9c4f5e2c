"""`jaxrl-rollouts gpu-tour`: the presets for a GPU, one after the other, as long as there is time.

Every stop is an ordinary run in a process of its own, in a folder under `--out`. When the time is
up the run at work is asked to stop (SIGTERM), writes its checkpoint, and the same command goes on
with it the next time. This process leaves the GPU alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl_rollouts.cli.before import check_places, words
from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.errors import ConfigError, Interrupted, UserError
from jaxrl_rollouts.plugins import Command
from jaxrl_rollouts.record.interrupts import StopFlag

from .catalogue import LISTINGS
from .gpu_plan import PRESET, STOPS, Stop

Ending = Literal["finished", "cut", "failed"]
GRACE = 60.0  # seconds a run has to write its checkpoint, where the budget has ten times as many
PROGRAM = (sys.executable, "-m", "jaxrl_rollouts")
LOOK = """
import json, jax
devices = jax.local_devices()
stats = devices[0].memory_stats() or {}
print("DEVICE " + json.dumps({"platform": devices[0].platform, "kind": devices[0].device_kind,
      "count": len(devices), "bytes": stats.get("bytes_limit", 0)}))
"""
INSTALL = (
    "install jax for it: pip install -U 'jax[cuda12]' (NVIDIA; other GPUs: "
    "https://docs.jax.dev/en/latest/installation.html), then: nvidia-smi; the plan alone: --plan"
)


def gpu_tour(
    minutes: float = 25.0,
    out: Path = Path("runs/gpu-tour"),
    publish: Path | None = None,
    plan: Annotated[bool, tyro.conf.arg(aliases=["--dry-run"])] = False,
    only: tuple[str, ...] = (),
    preset: str = PRESET,
    allow_cpu: bool = False,
    progress: bool = True,
) -> None:
    """Run the presets for a GPU, in order of value, within a time limit.

    The same command goes on where the time was up. Run what is missing its data last: they are
    named, and left out until they are there.

    Args:
        minutes: after which the run at work is stopped with a checkpoint.
        out: folder of the runs, one in each.
        publish: also copy finished reports and pictures to this folder.
        plan: only show what would be run, about how long it takes and what is missing.
        only: names of experiments, if not all of them.
        preset: another one that all of them have (smoke).
        allow_cpu: go on without a GPU.
        progress: show the runs' progress.
    """
    stops, begin = chosen(only), time.monotonic()
    if minutes <= 0:
        raise ConfigError("--minutes", minutes, "above 0")
    for stop in stops:
        if preset not in LISTINGS[stop.name].minutes:
            raise unknown("--preset", preset, LISTINGS[stop.name].minutes)
    print(plan_text(stops, out, preset, minutes))
    if plan:
        return
    check_places(out, publish)
    print(f"\n{check_gpu(allow_cpu=allow_cpu)}", flush=True)
    with StopFlag() as flag:
        runner = Runner(out, preset, publish, progress, flag)
        left = 60.0 * minutes - (time.monotonic() - begin)
        endings = travel(stops, runner, left, lambda: flag.requested)
    if flag.requested:
        raise Interrupted("stopped the tour; go on with the same command")
    failed = [name for name, ending in endings.items() if ending == "failed"]
    if failed:
        raise UserError(f"gpu-tour: {', '.join(failed)} failed, see above; others went on")


def chosen(only: Iterable[str]) -> list[Stop]:
    """The stops of these names, all without any, in the order of the tour."""
    known = {stop.name: stop for stop in STOPS}
    for name in only:
        if name not in known:
            raise unknown("--only", name, known)
    return [stop for name, stop in known.items() if not only or name in only]


def run_folder(out: Path, name: str, preset: str) -> Path | None:
    """The newest run of an experiment under `out`."""
    runs = sorted((out / name).glob(f"{name}-{preset}-*/run.json"))
    return runs[-1].parent if runs else None


def is_finished(folder: Path | None) -> bool:
    return folder is not None and (folder / "report.json").is_file()


def plan_text(stops: Sequence[Stop], out: Path, preset: str, minutes: float) -> str:
    """What would be run, in lines; looks at files, and starts neither jax nor a run."""
    lines, total = [], 0.0
    for number, stop in enumerate(stops, start=1):
        folder = run_folder(out, stop.name, preset)
        missing = stop.missing(preset)
        state = "begun" if folder else "not begun"
        state = "finished" if is_finished(folder) else f"left out: {missing}" if missing else state
        total += 0.0 if is_finished(folder) or missing else stop.minutes
        cost = f"about {words(stop.minutes)} and {stop.gigabytes:g} GB on an H100"
        lines += [f"{number}. {stop.name} ({cost}, estimates): {state}", f"   {stop.why}"]
    if preset != PRESET:
        return "\n".join([*lines, f"Estimates are those of preset {PRESET}, not of {preset}."])
    sessions = -(-total // minutes)
    end = f"About {words(total)} to go: {sessions:.0f} sessions of {words(minutes)}."
    return "\n".join([*lines, end if total else "Nothing to go."])


@dataclass(frozen=True)
class Runner:
    """Runs a stop, or goes on with it, for some seconds.

    Attributes:
        out: folder of the runs.
        preset: that is run.
        publish: where finished reports are copied to.
        progress: whether runs show theirs.
        flag: raised when somebody asks the tour to stop.
    """

    out: Path
    preset: str
    publish: Path | None
    progress: bool
    flag: StopFlag

    def skip(self, stop: Stop) -> str:
        """Why a stop is not run; empty where it is."""
        folder = run_folder(self.out, stop.name, self.preset)
        if is_finished(folder):
            if self.publish:
                from jaxrl_rollouts.reports.report import publish

                publish(folder, self.publish)  # type: ignore[arg-type]
            return f"finished in {folder}"
        return stop.missing(self.preset)

    def __call__(self, stop: Stop, seconds: float, grace: float) -> Ending:
        """Stop it after `seconds`; it is killed `grace` seconds later."""
        arguments = self.arguments(stop)
        print(f"\n== {' '.join(['jaxrl-rollouts', *arguments])}", flush=True)
        environment = {**(stop.environment or {}), **os.environ}
        # Of its own session: Ctrl-C reaches this process only, which asks the run to stop once.
        command = [*PROGRAM, *arguments]
        child = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            cut = not _wait(child, seconds, lambda: self.flag.requested)
            if cut:
                child.send_signal(signal.SIGTERM)
                _wait(child, grace)
        finally:
            if child.poll() is None:  # what it had saved before counts
                child.kill()
                child.wait()
        if is_finished(run_folder(self.out, stop.name, self.preset)):
            return "finished"
        return "cut" if cut or child.returncode == Interrupted.exit_code else "failed"

    def arguments(self, stop: Stop) -> list[str]:
        """What follows `jaxrl-rollouts`."""
        folder = run_folder(self.out, stop.name, self.preset)
        if folder is not None:
            arguments = ["resume", str(folder)]
        else:
            arguments = [*stop.arguments(self.preset), "--out", str(self.out / stop.name)]
        arguments += ["--publish", str(self.publish)] if self.publish else []
        return arguments + ([] if self.progress else ["--no-progress"])


def _wait(child: Any, seconds: float, asked: Callable[[], bool] = lambda: False) -> bool:
    """Whether a process ended within `seconds`; stops waiting when asked."""
    end = time.monotonic() + seconds
    while child.poll() is None:
        if time.monotonic() > end or asked():
            return False
        time.sleep(0.1)
    return True


def travel(
    stops: Iterable[Stop],
    runner: Any,
    seconds: float,
    asked: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Run stops in turn until the time is up; what became of each, by name.

    Args:
        stops: in order.
        runner: `(stop, seconds, grace) -> Ending`, and `skip(stop)` says why one is not run.
        seconds: for all, the writing of the last checkpoint included.
        asked: whether to stop before.
        clock: of seconds.
    """
    grace, end = min(GRACE, seconds / 10), clock() + seconds
    endings: dict[str, str] = {}
    for stop in stops:
        if reason := runner.skip(stop):
            endings[stop.name] = "skipped"
            print(f"{stop.name}: {reason}", flush=True)
            continue
        left = end - clock() - grace
        if asked() or left < grace:  # starting would take what is left
            print(f"{stop.name}: no time left; go on with the same command", flush=True)
            endings[stop.name] = "not begun"
            continue
        begin = clock()
        endings[stop.name] = runner(stop, left, grace)
        spent = words((clock() - begin) / 60)
        print(f"{stop.name}: {endings[stop.name]} after {spent}", flush=True)
    return endings


def check_gpu(*, allow_cpu: bool = False) -> str:
    """The device that jax finds in a process of its own, on one line.

    Raises:
        ConfigError: it is no GPU.
    """
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    line = next((x for x in done.stdout.splitlines() if x.startswith("DEVICE ")), None)
    if line is None:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ConfigError("gpu-tour: device", f"jax cannot start: {last}", "a GPU", INSTALL)
    device = json.loads(line.removeprefix("DEVICE "))
    found = f"{device['count']} x {device['kind']} ({device['platform']})"
    if device["platform"] != "gpu" and not allow_cpu:
        if asked := os.environ.get("JAX_PLATFORMS"):
            found += f", as JAX_PLATFORMS={asked} says"
        elif shutil.which("nvidia-smi"):
            found += ", though nvidia-smi is there"
        raise ConfigError("gpu-tour: device", found, "a GPU", INSTALL)
    memory = f", {device['bytes'] / 1e9:.0f} GB for jax" if device["bytes"] else ""
    return f"device: {found}{memory}"


def main(arguments: Sequence[str], prog: str) -> None:
    call(gpu_tour, arguments, prog)


COMMAND = Command("gpu-tour", "run the presets for a GPU within a time limit", main)
