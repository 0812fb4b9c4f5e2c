"""Several processes as one: two of four devices each do what one of eight does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts import devices, processes
from jaxrl_rollouts.cli.together import Wanted, taken
from jaxrl_rollouts.errors import ConfigError, PeerError

ROOT = Path(__file__).parents[2]
RUN = ["run", "offline", "--method", "ravl", "--preset", "smoke", "--seeds", "8"]
RUN += ["--steps", "800", "--no-progress"]
TOGETHER = ["--coordinator", "here:1", "--processes", "2", "--process", "1"]


def test_the_options_are_taken_out_of_a_command_line() -> None:
    assert taken(["run", "x", "--process-all"]) == (["run", "x", "--process-all"], None)
    assert taken(["run", *TOGETHER, "x"]) == (["run", "x"], Wanted("here:1", 2, 1))
    assert taken(["run", "--distributed", "x", "--seed", "1"]) == (
        ["run", "x", "--seed", "1"],
        Wanted(),
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (TOGETHER[:2], "--processes: found None"),
        (["--process=3", *TOGETHER[:4]], "--process: found 3, expected 0 to 1"),
        (["--processes", "many"], "--processes"),
        (["--distributed", "--process", "0"], "--coordinator: found None"),
    ],
)
def test_what_is_missing_is_named(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        taken(words)


def test_alone_nobody_is_asked(tmp_path: Path) -> None:
    assert processes.first() and not processes.several()
    assert processes.agree(True, False) == (True, False)
    assert processes.own(tmp_path) is tmp_path and processes.root(tmp_path) is tmp_path
    assert processes.shared(tmp_path / "a") == tmp_path / "a"
    processes.meet("nowhere")


def test_only_what_tells_of_lost_processes_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = jax.errors.JaxRuntimeError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    with pytest.raises(jax.errors.JaxRuntimeError), processes.watched():
        raise lost
    monkeypatch.setattr(processes, "several", lambda: True)
    expected = "another process.*reset by peer.*; go on"
    with pytest.raises(PeerError, match=expected), processes.watched("go on"):
        raise lost
    with pytest.raises(jax.errors.JaxRuntimeError), processes.watched():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


def test_nothing_is_spread_that_does_not_divide() -> None:
    count = len(jax.devices())
    assert devices.mesh_along(devices.MEMBER, 2 * count + 1) is None or count == 1
    x = np.arange(6.0)
    assert devices.split(x, devices.BATCH) is x  # no mesh, no change


# What follows starts processes.


def environment(count: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={count}"
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def port() -> int:
    with socket.socket() as it:
        it.bind(("localhost", 0))
        return it.getsockname()[1]


def together(words: list[str]) -> list[list[str]]:
    where = f"localhost:{port()}"
    mine = ["--coordinator", where, "--processes", "2", "--process"]
    return [[*words, *mine, str(i)] for i in range(2)]


def command_line(words: list[str], count: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "jaxrl_rollouts", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment(count), **pipes)


def ended(started: list[subprocess.Popen], patience: float = 300) -> list[tuple[int, str]]:
    try:
        said = [one.communicate(timeout=patience)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    return [(one.returncode, text) for one, text in zip(started, said, strict=True)]


def result(out: Path) -> dict:
    (file,) = out.glob("*/report.json")
    report = json.loads(file.read_text())
    histories = {p.parent.name: p.read_text() for p in file.parent.glob("*/history.jsonl")}
    timeless = {
        name: [{k: v for k, v in row.items() if "second" not in k} for row in rows]
        for name, rows in report["tables"].items()
    }
    return {"tables": timeless, "histories": histories}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process with eight devices."""
    out = tmp_path_factory.mktemp("alone")
    ((code, text),) = ended([command_line([*RUN, "--out", str(out)], 8)])
    assert code == 0, text
    return out


@pytest.mark.slow
def test_seeds_over_two_processes_are_those_of_one(alone: Path, tmp_path: Path) -> None:
    """RAVL: report and histories to the last bit; one folder, that of the first process."""
    words = [*RUN, "--out", str(tmp_path)]
    first, second = ended([command_line(each, 4) for each in together(words)])
    assert (first[0], second[0]) == (0, 0), first[1] + second[1]
    assert "report:" in first[1] and "report:" not in second[1]
    assert result(tmp_path) == result(alone)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_one_that_ends_ends_all_and_the_run_goes_on(
    alone: Path, tmp_path: Path, how: signal.Signals
) -> None:
    """Killed: a named error of the other one. Asked to stop: both do, with a checkpoint. Then one
    process goes on where two were, and two where one was."""
    started = [command_line(each, 4) for each in together([*RUN, "--out", str(tmp_path)])]
    while not list(tmp_path.glob("*/pendulum-mixed-ravl")):
        assert started[0].poll() is None, started[0].communicate()[0]
        time.sleep(0.2)
    time.sleep(8.0)
    started[1].send_signal(how)
    first, second = ended(started)
    if how == signal.SIGKILL:
        assert first[0] == PeerError.exit_code, first[1]
        assert "another process of this run has ended" in first[1]
    else:
        assert (first[0], second[0]) == (130, 130), first[1] + second[1]
    (folder,) = tmp_path.iterdir()
    words, count = ["resume", str(folder), "--no-progress"], 8
    each = [words] if how == signal.SIGKILL else together(words)
    for code, text in ended([command_line(one, count // len(each)) for one in each]):
        assert code == 0, text
    assert result(tmp_path) == result(alone)


@pytest.mark.slow
def test_the_first_one_that_ends_is_named_by_the_others(tmp_path: Path) -> None:
    """There jax aborts; who started it says why."""
    started = [command_line(each, 4) for each in together([*RUN, "--out", str(tmp_path)])]
    while not list(tmp_path.glob("*/pendulum-mixed-ravl")):
        assert started[0].poll() is None, started[0].communicate()[0]
        time.sleep(0.2)
    started[0].kill()
    _, (code, text) = ended(started, 150)
    assert code == PeerError.exit_code, text
    assert "another process of this run has ended" in text.strip().splitlines()[-1]


PROGRAM = """
import sys
import jax, numpy as np
import jaxrl_rollouts as jr
from jaxrl_rollouts import devices, pde, processes
from jaxrl_rollouts.ensemble_config import EnsembleConfig

seen, spread = [], devices.spread
def told(state, data, per_seed, mesh):
    seen.append((mesh.axis_names[0], mesh.size))
    return spread(state, data, per_seed, mesh)
devices.spread = told

def work(run):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(600, 3)).astype(np.float32)
    y = np.stack([x[:, 0] * x[:, 1], np.sin(x[:, 2])], 1)
    small = EnsembleConfig(8, 5, hidden_dims=(16,), weight_decay=(1e-5,), max_epochs=4)
    ensemble = jr.fit_ensemble(x, y, config=small, context=run)
    t, place = np.arange(20)[:, None] * 0.3, np.linspace(0, 2 * np.pi, 32, endpoint=False)
    u = np.sin(place + t + draw.normal(size=(12, 1, 1)))
    fitted = pde.fit("refiner", pde.from_arrays(u, dt=0.1), steps=12, context=run)
    if processes.first():
        leaves = jax.tree.leaves((ensemble.elites, fitted.params))
        np.savez(sys.argv[2], *map(np.asarray, leaves))

if sys.argv[3:]:
    with processes.joined(sys.argv[3], 2, int(sys.argv[4])):
        with jr.Run.open(sys.argv[1], progress=False) as run:
            work(run)
    assert seen == [("member", 8), ("batch", 8)], seen
else:
    with jr.Run.open(sys.argv[1], progress=False) as run:
        work(run)
    assert seen == []
"""


@pytest.mark.slow
def test_members_and_a_batch_over_two_processes(tmp_path: Path) -> None:
    """An ensemble over its members, PDE-Refiner over its batch, whose sums are split."""

    def start(name: str, count: int, *who: str) -> subprocess.Popen:
        words = [str(tmp_path / name), str(tmp_path / f"{name}.npz"), *who]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, "-c", PROGRAM, *words]
        return subprocess.Popen(command, env=environment(count), **pipes)

    where = f"localhost:{port()}"
    pairs = [[start("one", 1)], [start("two", 4, where, str(i)) for i in range(2)]]
    for started in pairs:
        for code, text in ended(started):
            assert code == 0, text
    one, two = (np.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    assert one.files == two.files
    for name in one.files:
        largest = np.abs(one[name]).max() + 1e-6
        assert np.abs(two[name] - one[name]).max() < 2e-3 * largest


CLUSTERS = {
    "slurm": {"SLURM_JOB_ID": "{job}", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2",
              "SLURM_PROCID": "{i}", "SLURM_LOCALID": "{i}"},
    "open mpi": {"OMPI_MCA_orte_hnp_uri": "{job}.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_SIZE": "2",
                 "OMPI_COMM_WORLD_RANK": "{i}", "OMPI_COMM_WORLD_LOCAL_RANK": "{i}"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_says_who_works_together(cluster: str) -> None:
    job = port()  # both make their own port of it
    code = "from jaxrl_rollouts import processes as p; import jax; p.join(); "
    code += "print('met', p.agree(p.first()), jax.process_count()); p.part()"
    started = []
    for i in range(2):
        own = {k: v.format(job=job, i=i) for k, v in CLUSTERS[cluster].items()}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        words = [sys.executable, "-c", code]
        started.append(subprocess.Popen(words, env=environment(1) | own, **pipes))
    for code, text in ended(started, 120):
        assert code == 0 and "met (True,) 2" in text, text
