"""Provenance of a number: versions, machine, device, and compile time."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

from ..cores import cores

_PACKAGES = ("jaxrl-rollouts", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


def package_version(name: str) -> str:
    """The installed version of a distribution, or "absent"."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def current_versions() -> dict[str, str]:
    """Versions that decide whether a resumed run is bitwise the uninterrupted one."""
    versions = {name: package_version(name) for name in ("jaxrl-rollouts", "jax", "jaxlib")}
    known = {"commit": commit} if (commit := code_commit()) else {}
    return {"python": platform.python_version(), **versions, **known}


@functools.cache
def code_commit() -> str:
    """The commit of this package's code, with `+changed` where files differ from it.

    Known of a checkout, and of what pip installed from a repository; of others `files-` and the
    beginning of a digest of all modules, equal for runs of the same code.
    """
    root = Path(__file__).parents[2]
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [*command, "--dirty=+changed"], capture_output=True, text=True, timeout=10
            )
            if done.returncode == 0:
                return done.stdout.strip()
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError, LookupError, TypeError):
        origin = metadata.distribution("jaxrl-rollouts").read_text("direct_url.json")
        return json.loads(origin or "")["vcs_info"]["commit_id"][:12]
    digest, walked = hashlib.sha256(), os.walk(root / "jaxrl_rollouts", followlinks=True)
    for file in sorted(Path(place, name) for place, _, names in walked for name in names):
        if file.suffix == ".py":
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return f"files-{digest.hexdigest()[:8]}"


def provenance() -> dict[str, str | int]:
    """Versions of Python and the packages that matter, operating system, CPU and device."""
    import jax

    devices = jax.devices()
    return {
        "python": platform.python_version(),
        **{name: package_version(name) for name in _PACKAGES},
        "commit": code_commit() or "unknown",
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpu_cores": cores(),
        "device": devices[0].device_kind,
        "platform": devices[0].platform,
        "device_count": len(devices),
    }


def cpu_model() -> str:
    """The processor's name as the operating system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class Clock:
    """Context manager: `wall_seconds`, and `compile_seconds` that XLA spent compiling meanwhile."""

    def __init__(self) -> None:
        self.wall_seconds = 0.0
        self.compile_seconds = 0.0
        self._begin = 0.0
        self._running = False

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if self._running and event == _COMPILE_EVENT:
            self.compile_seconds += duration_secs

    def __enter__(self) -> Clock:
        import jax.monitoring

        # jax 0.7 cannot take a listener away again, so a stopped clock stops counting instead.
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        self._begin, self._running = time.perf_counter(), True
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_seconds, self._running = time.perf_counter() - self._begin, False
