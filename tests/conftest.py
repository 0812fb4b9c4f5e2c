"""Settings for all tests: CPU, small datasets, hypothesis without deadlines.

The first call compiles, so a deadline would fail it.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("JAXRL_ROLLOUTS_CACHE", "off")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

from jaxrl_rollouts import starting  # noqa: E402

settings.register_profile(
    "fast",
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# Without shrinking: for `tests.mutants`, which asks whether there is a counterexample.
settings.register_profile(
    "first", parent=settings.get_profile("fast"), phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("thorough", parent=settings.get_profile("fast"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


# Started first: their files are few and long, and the last file to start decides the end.
LONG = ("tests/experiments/", "tests/offline/")


# XLA's newer emitters of fused loops make faster programs and take twice as long to compile; one
# part per program and the plain order of its operations save a tenth of the rest.
QUICK = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_enable_concurrency_optimized_scheduler=false",
)


def pytest_configure(config: pytest.Config) -> None:
    """Compile with few optimisations, here and in the programs that tests start.

    Most of the suite's time is compilation, which this divides by three or four. The slow tests
    compute for minutes: they get all optimisations, and so does everything with
    JAX_DISABLE_MOST_OPTIMIZATIONS=0.
    """
    variable = "JAX_DISABLE_MOST_OPTIMIZATIONS"
    if config.option.markexpr == "not slow" and variable not in os.environ:
        os.environ[variable] = "1"
        jax.config.update(variable.lower(), True)
        flags = " ".join((os.environ.get("XLA_FLAGS", ""), *QUICK)).strip()
        if knows(flags):
            os.environ["XLA_FLAGS"] = flags
        keep_programs()
    # One device in this process, whichever test comes first: the command line would make each
    # core one.
    jax.devices()
    # xdist would start the files with the most tests first; the longest have the fewest.
    config.option.loadscopereorder = False
    # Tracing makes millions of small objects that are no garbage: a tenth of the time went into
    # looking at them again and again.
    gc.set_threshold(50_000, 20, 50)


def keep_programs() -> None:
    """Keep what is compiled between runs, here and in the programs that tests start.

    A program's name is a digest of itself, of XLA's flags and of the versions.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    place = {"JAXRL_ROLLOUTS_CACHE": f"{cache}/jaxrl-rollouts/tests"}
    if folder := starting.keep_compiled({**os.environ, **place}):
        seconds = "jax_persistent_cache_min_compile_time_secs"
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ[seconds.upper()] = "0.1"
        jax.config.update(seconds, 0.1)


def knows(flags: str) -> bool:
    """Whether this XLA takes the flags: of those it does not know, a process dies."""
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    environment = {**os.environ, "XLA_FLAGS": flags}
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


COMPILED: list[str] = []


def count(event: str, *_: object, **__: object) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(count)


@pytest.fixture
def programs() -> Callable[[], int]:
    """How many programs have been compiled so far, those of a cache included."""
    return lambda: len(COMPILED)


@pytest.fixture
def as_users_compile() -> Iterator[None]:
    """With all optimisations: few of them round the last digits of small numbers differently."""
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)


@pytest.fixture
def hangup_is_heard() -> Iterator[None]:
    """Also under nohup, which makes tests and what they start deaf to a closed terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


# Linux lets a process have 65,530 memory mappings; a compiled program takes several.
MAPPINGS = Path("/proc/self/maps")
CROWDED = 18_000


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    """Drop the compiled programs after a file when there are many, and its garbage always.

    With those of the whole suite a process comes to Linux's limit, and the next compilation
    crashes. Of the garbage, a failed read of a checkpoint leaves futures that complain when they
    are collected: not in another file's output, nor inside its `ast.parse`, which that complaint
    breaks on Python 3.11 (CPython issue 106905). What is alive then is frozen, so that a
    collection looks at one file's objects only.
    """
    yield
    if not MAPPINGS.exists() or len(MAPPINGS.read_bytes().splitlines()) > CROWDED:
        gc.unfreeze()
        jax.clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def made_hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small `hopper-random` as a tape, and exported to D4RL's layout."""
    pytest.importorskip("mujoco")
    from jaxrl_rollouts.offline.online.tape_command import export, make

    folder = tmp_path_factory.mktemp("made")
    make("hopper-random", folder / "hopper-random.tape", rows=2000, progress=False)
    export(str(folder / "hopper-random.tape"), folder / "hopper-random.hdf5")
    return folder
