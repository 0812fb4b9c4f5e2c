"""Files from outside are looked at before they are believed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from jaxrl_rollouts import foreign
from jaxrl_rollouts.errors import ConfigError, DataError, printable
from jaxrl_rollouts.foreign import check_file, check_room, clean, free_memory
from jaxrl_rollouts.hdf5 import open_hdf5, plain_attributes, read_array
from jaxrl_rollouts.numpy_files import map_npy, read_npy, read_npz

RAN = "ran"  # a file that appears where code out of a file is run


def test_pipes_devices_and_folders_are_named_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    places = {"pipe": "a pipe", "empty": "0 bytes", "gone": "nothing", ".": "a folder"}
    places |= {"/dev/zero": "a device", "a\0b": "nothing"}
    for name, found in places.items():
        for read in (open_hdf5_whole, read_npz, read_npy, map_npy):
            with pytest.raises(DataError, match=f"file: found {found}, expected"):
                read(tmp_path / name)
    (tmp_path / "empty").write_text("x")
    check_file(tmp_path / "empty", "a file")


def open_hdf5_whole(path: Path) -> dict[str, np.ndarray]:
    with open_hdf5(path) as file:
        return {key: read_array(path, file, key) for key in file}


def test_sizes_are_compared_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 10**7 < free_memory() < 10**14
    check_room("x", "u", 10**6)
    monkeypatch.setattr(foreign, "free_memory", lambda: 2 * 10**9)
    with pytest.raises(DataError, match="x: u: found 3.5 GB, expected at most the 2 GB of memory"):
        check_room("x", "u", 35 * 10**8)


def test_control_characters_reach_nobody() -> None:
    evil = "\x1b]0;pwn\x07a\rb\u202ec\x9b2J\td\n"
    assert printable(evil) == "]0;pwnabc2J\td\n"
    assert str(DataError(evil, evil, evil, "x")).isprintable() is False  # tab and line feed stay
    assert "\x1b" not in str(ConfigError(evil, evil, evil, evil))
    assert clean({evil: [evil, 1, None, {"a": evil}]}) == {
        printable(evil): [printable(evil), 1, None, {"a": printable(evil)}]
    }


def virtual(path: Path, source: str) -> None:
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource(source, "rewards", (3,))
        file.create_virtual_dataset("rewards", layout)


def external(path: Path) -> None:
    with h5py.File(path, "a") as file:
        raw = [("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("rewards", (3,), "u1", external=raw)


def link(path: Path, made: object) -> None:
    with h5py.File(path, "a") as file:
        file["group/rewards"] = made


ELSEWHERE: dict[str, tuple[Callable[[Path], None], str]] = {
    "virtual, of a missing file": (lambda p: virtual(p, "gone.h5"), "rewards: found a virtual"),
    "virtual, of itself": (lambda p: virtual(p, "."), "rewards: found a virtual"),
    "raw data elsewhere": (external, "rewards: found its numbers in the file /etc/passwd"),
    "external link": (lambda p: link(p, h5py.ExternalLink("b.h5", "x")), "link to another file"),
    "soft link": (lambda p: link(p, h5py.SoftLink("/good")), "group/rewards: found a soft link"),
    "loop": (lambda p: link(p, h5py.SoftLink("/group/rewards")), "found a soft link"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_hdf5_that_leads_elsewhere(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"] = np.arange(3.0)
    assert open_hdf5_whole(path)["good"].tolist() == [0, 1, 2]
    make, says = ELSEWHERE[case]
    make(path)  # the file was good when it was last looked at
    with pytest.raises(DataError, match=says), open_hdf5(path):
        pass


def test_hard_links_in_a_circle_are_no_harm(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/b"] = 1.0
        file["a/a"] = file["a"]
    with open_hdf5(tmp_path / "a.h5") as file:
        assert read_array(tmp_path, file, "a/a/a/b") == 1.0


@pytest.mark.parametrize("chunks", [None, (10**6,)])
def test_what_was_never_written_is_not_read_as_zeros(tmp_path: Path, chunks: tuple | None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        sparse = file.create_dataset("a", (10**12,), "f4", chunks=chunks)
        if chunks:
            sparse[:10] = 1.0
    assert path.stat().st_size < 10**7
    part = "1 of 1,000,000 parts" if chunks else "nothing"
    with pytest.raises(DataError, match=f"a: found {part} written of an array"):
        open_hdf5_whole(path)


def test_what_h5py_raises_while_a_file_is_open_is_the_files_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = 1.0
        file.attrs["who\x1b"] = "me\x1b[2J"
    for error in (RuntimeError, KeyError, MemoryError):
        with pytest.raises(DataError, match="a.h5: file: found .*x.*whole HDF5"), open_hdf5(path):
            raise error("x")
    with pytest.raises(ConfigError), open_hdf5(path):
        raise ConfigError("a", 1, "2")
    with open_hdf5(path) as file:
        assert plain_attributes(file) == {"who": "me[2J"}


class Evil:
    def __reduce__(self) -> tuple:
        return open, (RAN, "w")


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", a=np.array([Evil()], object))
    np.save("a.npy", np.array([Evil()], object))
    Path(RAN).unlink(missing_ok=True)
    for read, path in ((read_npz, "a.npz"), (read_npy, "a.npy"), (map_npy, "a.npy")):
        with pytest.raises(DataError, match="Python objects, which are never loaded"):
            read(Path(path))
    assert not Path(RAN).exists()


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros((0, 3)), "c": np.float32(2)}
    arrays["d"] = np.asfortranarray(arrays["a"])
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    back = read_npz(tmp_path / "a.npz")
    for key, values in arrays.items():
        np.testing.assert_array_equal(back[key], values)
        assert back[key].dtype == values.dtype and back[key].flags.writeable
    np.save(tmp_path / "d.npy", arrays["d"])
    for read in (read_npy, map_npy):
        np.testing.assert_array_equal(read(tmp_path / "d.npy"), arrays["d"])


@pytest.mark.parametrize("shape", ["(9, 3)", "(10**4,)", "(-2,3)", "(True,6)", "(9**99, )"])
def test_headers_that_lie(tmp_path: Path, shape: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    raw = (tmp_path / "a.npy").read_bytes()
    room = 10  # of the padding behind the shape
    short, long = b"(2, 3), }" + b" " * room, f"{shape}, }}".encode()
    (tmp_path / "b.npy").write_bytes(raw.replace(short, long.ljust(len(short))))
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.write(tmp_path / "b.npy", "u.npy")
    for read, name in ((read_npy, "b.npy"), (map_npy, "b.npy"), (read_npz, "b.npz")):
        with pytest.raises(DataError, match=f"{name}: (array|u): found"):
            read(tmp_path / name)


def test_a_zip_bomb_is_weighed_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", u=np.zeros(10**7))
    assert (tmp_path / "a.npz").stat().st_size < 10**5
    monkeypatch.setattr(foreign, "free_memory", lambda: 10**8)
    with pytest.raises(DataError, match="a.npz: u: found 0.16 GB, expected at most the 0.1 GB"):
        read_npz(tmp_path / "a.npz")


def test_names_of_code_are_found_wherever_they_stand() -> None:
    data = {"a": ["hopper-medium-v2", "x.y:make"], "b": {"c": "z:f?max_episode_steps=9", "d": 1.0}}
    assert list(foreign.code_in(data)) == ["x.y:make", "z:f?max_episode_steps=9"]
    for text in ("", ":", "C:\\data", "/data/a:b", "10:30", "mujoco/Hopper-v4", "a b:c", None):
        assert list(foreign.code_in([text])) == []


def test_without_a_home_folders_are_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container may run as a user whom its passwd does not know."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    assert foreign.expanded("~/a/b") == Path.home() / "a" / "b"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert foreign.expanded("~/a/b") == Path("a/b")
    assert foreign.expanded("/a/b") == Path("/a/b")
