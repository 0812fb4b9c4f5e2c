"""What a run knows before it starts, and the programs that are kept between runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import before, main
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record import checkpoint


def test_places_are_looked_at_before_anything_is_made(tmp_path: Path) -> None:
    before.check_places(tmp_path / "a" / "b", None)
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--publish: .*is a file"):
        before.check_places(tmp_path, tmp_path / "file" / "x")
    with pytest.raises(ConfigError, match="--out: .*zero byte"):
        before.check_places(tmp_path / "a\0b", None)
    with pytest.raises(ConfigError, match="expected a name in UTF-8; .*PYTHONUTF8=1"):
        before.check_places(tmp_path / "\udcc3\udcbcnd", None)
    with pytest.raises(ConfigError, match=f"existing folder .no {tmp_path / 'none'}"):
        before.check_file(tmp_path / "none" / "x.png")
    before.check_file(tmp_path / "x.png")


def test_checkpoints_name_a_folder_that_is_no_utf_8(tmp_path: Path) -> None:
    """Whatever command reads or writes them; data files of such names are read."""
    tree, folder = {"x": np.arange(3)}, tmp_path / os.fsdecode(b"\xff")
    checkpoint.save(tmp_path / "good", 0, tree)
    (tmp_path / "good").rename(folder)
    for act in (checkpoint.save, lambda *_: checkpoint.load_newest(folder, tree)):
        with pytest.raises(ConfigError, match="folder: .*a name in UTF-8; .*PYTHONUTF8=1"):
            act(folder, 1, tree)
    assert checkpoint.steps(folder) == [0]


def test_a_name_that_cannot_be_encoded_ends_a_command_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "dispatch", lambda arguments: "\udcff".encode())
    with pytest.raises(SystemExit, match=str(ConfigError.exit_code)):
        main.main(["list"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: name: found ") and "PYTHONUTF8=1" in line


def test_minutes_in_words() -> None:
    assert [before.words(m) for m in (0.3, 12.2, 83, 150)] == [
        "a minute",
        "12 minutes",
        "83 minutes",
        "2.5 hours",
    ]


def test_the_oldest_programs_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before, "CACHE_BYTES", 100)
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(b"x" * 24)
        os.utime(tmp_path / name, (age, age))
    before.prune(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4, "there is room"
    (tmp_path / "e").write_bytes(b"x" * 24)
    before.prune(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "e"]


def test_jax_and_the_user_have_the_last_word(tmp_path: Path) -> None:
    assert before.keep_compiled({"JAXRL_ROLLOUTS_CACHE": "off"}) is None
    assert before.keep_compiled({"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}) is None
    (tmp_path / "file").touch()
    assert before.keep_compiled({"JAXRL_ROLLOUTS_CACHE": str(tmp_path / "file")}) is None


PROGRAM = """
import jax, jax.monitoring, numpy as np
from jaxrl_rollouts.cli.before import keep_compiled
keep_compiled()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
def step(x, _):
    return jax.numpy.sin(x @ x.T) @ x + 1e-3, x.sum()
start = jax.random.normal(jax.random.key(0), (9, 5))
x, sums = jax.jit(lambda x: jax.lax.scan(step, x, None, 50))(start)
print(np.asarray(x).tobytes().hex(), np.asarray(sums).tobytes().hex())
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


def test_a_kept_program_gives_the_same_bits_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    """Cold, from the cache, and from a damaged one, which says so and heals."""
    clean = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    found, programs = [], tmp_path / "programs"
    for how in ("cold", "warm", "damaged", "again"):
        for number, entry in enumerate(programs.glob("*/*-cache") if how == "damaged" else ()):
            data = entry.read_bytes()
            entry.write_bytes((data[: len(data) // 2], b"", b"x" * 9)[number % 3])
            if number % 4 == 1:
                entry.unlink()
                entry.mkdir()
                (entry / "inside").write_bytes(data)
        environment = {**clean, "JAXRL_ROLLOUTS_CACHE": str(programs)}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        bits, hits = done.stdout.splitlines()
        found.append((bits, int(hits) > 0, "is damaged, and made anew" in done.stderr))
        assert how != "cold" or list(programs.glob("*/*-cache"))
    assert len({bits for bits, _, _ in found}) == 1
    assert [hits for _, hits, _ in found] == [False, True, False, True]
    assert [said for _, _, said in found] == [False, False, True, False]


def test_without_a_home_programs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user whom its passwd does not know."""

    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert before.keep_compiled({}) is None
