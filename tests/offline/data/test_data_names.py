from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from helpers_data import PLAN, TRUNCATED, make, raw_arrays, write_raw

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import (
    CATALOGUE,
    REFERENCE_SCORES,
    data_folder,
    load,
    normalised_score,
    normalised_spread,
    reference_scores,
    resolve,
)
from jaxrl_rollouts.offline.data.catalogue import BY_STEM
from jaxrl_rollouts.offline.data.sizes import SIZES

ROOT = "https://rail.eecs.berkeley.edu/datasets/offline_rl"


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No dataset of the real user is in reach."""
    for name in ("JAXRL_ROLLOUTS_DATA", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "work" / "repository").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "repository")


def place(path: Path, attributes: dict | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_raw(path, raw_arrays(), attributes)


def test_catalogue_and_references_name_the_same_datasets():
    assert set(CATALOGUE) == set(REFERENCE_SCORES)
    assert len(CATALOGUE) == 4 * 17 + 3 * 6 + 14 + 24 + 3
    assert len({entry.url for entry in CATALOGUE.values()}) == len(CATALOGUE)
    assert all(low < high for low, high in REFERENCE_SCORES.values())
    assert set(BY_STEM.values()) == {n for n, e in CATALOGUE.items() if "/gym_mujoco/" not in e.url}


@pytest.mark.parametrize(
    ("name", "path", "steps"),
    [
        ("hopper-medium-v2", "gym_mujoco_v2/hopper_medium-v2.hdf5", 1000),
        ("ant-full-replay-v1", "gym_mujoco_v1/ant_full_replay-v1.hdf5", 1000),
        ("walker2d-medium-replay-v0", "gym_mujoco/walker_mixed.hdf5", 1000),
        ("halfcheetah-medium-expert-v0", "gym_mujoco/halfcheetah_medium_expert.hdf5", 1000),
        ("maze2d-open-v0", "maze2d/maze2d-open-sparse.hdf5", 150),
        ("maze2d-large-dense-v1", "maze2d/maze2d-large-dense-v1.hdf5", 800),
        ("pen-cloned-v0", "hand_dapg/pen-demos-v0-bc-combined.hdf5", 100),
        ("door-human-v0", "hand_dapg/door-v0_demos_clipped.hdf5", 200),
        ("hammer-expert-v1", "hand_dapg_v1/hammer-expert-v1.hdf5", 200),
        (
            "antmaze-large-play-v2",
            "ant_maze_v2/Ant_maze_hardest-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5",
            1000,
        ),
        (
            "antmaze-umaze-v1",
            "ant_maze_v1/Ant_maze_umaze_noisy_multistart_False_multigoal_False_sparse.hdf5",
            700,
        ),
        (
            "kitchen-complete-v0",
            "kitchen/mini_kitchen_microwave_kettle_light_slider-v0.hdf5",
            280,
        ),
    ],
)
def test_urls_and_limits_are_those_of_d4rl(name, path, steps):
    assert CATALOGUE[name].url == f"{ROOT}/{path}"
    assert CATALOGUE[name].max_episode_steps == steps


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("halfcheetah-medium-v2", -280.178953, 12135.0),
        ("hopper-full-replay-v1", -20.272305, 3234.3),
        ("walker2d-random-v0", 1.629008, 4592.3),
        ("ant-expert-v2", -325.6, 3879.7),
        ("antmaze-medium-diverse-v2", 0.0, 1.0),
        ("kitchen-mixed-v0", 0.0, 4.0),
        ("maze2d-umaze-v1", 23.85, 161.86),
        ("maze2d-umaze-dense-v0", 23.249793, 81.78995240126592),
        ("pen-human-v1", 96.262799, 3076.8331017826877),
        ("relocate-expert-v0", -6.425911, 4233.877797728884),
        ("halfcheetah-medium-mini-v1", -280.178953, 12135.0),
        ("hopper-medium-replay-mini-v1", -20.272305, 3234.3),
    ],
)
def test_references_are_those_of_d4rl(name, low, high):
    assert reference_scores(name) == (low, high)
    assert normalised_score(name, low) == 0
    assert normalised_score(name, high) == pytest.approx(100, rel=1e-12)
    middle = np.array([low, (low + high) / 2])
    np.testing.assert_allclose(normalised_score(name, middle), [0, 50], atol=1e-9)
    # A spread is scaled and not shifted: the spread of equal returns is zero.
    assert normalised_spread(name, 0.0) == 0
    scores = normalised_score(name, middle)
    np.testing.assert_allclose(normalised_spread(name, middle.std()), scores.std())


@pytest.mark.parametrize("name", ["mujoco/hopper/medium-v0", "neorl/x", "hopper", "x-medium", ""])
def test_no_references_no_number(name):
    assert reference_scores(name) is None
    assert normalised_score(name, 1.0) is None and normalised_spread(name, 1.0) is None


def test_data_folder_order(tmp_path, monkeypatch):
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "JAXRL_ROLLOUTS_DATA"
    monkeypatch.delenv("JAXRL_ROLLOUTS_DATA")
    assert data_folder() == Path.home() / ".jaxrl_rollouts" / "datasets"


def test_sets_are_found_in_any_of_the_named_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", os.pathsep.join(map(str, (tmp_path / "a", tmp_path))))
    there = place(tmp_path / "hopper-medium-v2.hdf5")
    assert resolve("hopper-medium-v2") == there and data_folder() == tmp_path / "a"


def test_a_path_is_itself(tmp_path):
    path = place(tmp_path / "mine.hdf5")
    assert resolve(path) == path and resolve(str(path)) == path


def test_where_d4rl_files_are_found(tmp_path):
    ours, theirs = data_folder(), tmp_path / "D4RL_DATASET_DIR"
    cached = place(theirs / "hopper_medium-v2.hdf5")
    assert resolve("hopper-medium-v2") == cached
    original = place(ours / "hopper_medium-v2.hdf5")
    assert resolve("hopper-medium-v2") == original
    plain = place(ours / "hopper-medium-v2.hdf5")
    assert resolve("hopper-medium-v2") == plain
    assert resolve("hopper-medium-v2", tmp_path / "empty") == cached


def test_d4rl_v0_is_fetched_or_found(tmp_path):
    with pytest.raises(DataError, match="fetch http"):
        resolve("halfcheetah-medium-v0", download=False)
    theirs = place(tmp_path / "D4RL_DATASET_DIR" / "halfcheetah_medium.hdf5")
    assert resolve("halfcheetah-medium-v0") == theirs


@pytest.mark.parametrize("folder", [".", "shared/data", "../shared/data"])
def test_folders_nobody_named_are_not_searched(folder):
    place(Path(folder) / "hopper-medium-v2.hdf5")
    with pytest.raises(DataError, match="fetch http"):
        resolve("hopper-medium-v2", download=False)


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("hoper-medium-v2", "hopper-medium-v2"),
        ("halfcheetah-medum", "halfcheetah-medium"),
        ("walker2d-medium-replay-v3", "walker2d-medium-replay-v"),
        ("zzzzzz", None),
        ("", None),
        ("x" * 5000, None),
    ],
)
def test_unknown_names_suggest(name, close):
    with pytest.raises(DataError) as caught:
        load(name)
    message = str(caught.value)
    assert caught.value.key == "name" and "\n" not in message
    assert (f"did you mean {close}" in message) if close else ("did you mean" not in message)


def test_the_name_brings_the_time_limit(tmp_path):
    rows = make([(100, TRUNCATED), (100, TRUNCATED)])
    arrays = raw_arrays(rows)
    del arrays["timeouts"], arrays["next_observations"]
    write_raw(tmp_path / "pen-human-v0.hdf5", arrays)
    dataset = load("pen-human-v0", data_dir=tmp_path)
    assert len(dataset) == 198 and dataset.environment == "pen-v0"
    assert np.flatnonzero(dataset.transitions.truncations).tolist() == [98, 197]
    assert dataset.attributes["format"] == "d4rl"
    with pytest.raises(ConfigError, match="action_limit"):
        load("pen-human-v0", data_dir=tmp_path, action_limit=0.0)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """An HTTP server on this machine that stands in for D4RL's; `answers` says what it sends."""
    good = write_raw(tmp_path / "good.hdf5", raw_arrays(make(PLAN))).read_bytes()
    answers = {"body": good, "length": len(good), "status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers["status"])
            if answers["length"] is not None:
                self.send_header("Content-Length", str(answers["length"]))
            self.end_headers()
            self.wfile.write(answers["body"])

        def log_message(self, *_args: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    entry = CATALOGUE["hopper-medium-v2"]
    url = f"http://127.0.0.1:{http.server_port}/hopper_medium-v2.hdf5"
    monkeypatch.setitem(CATALOGUE, "hopper-medium-v2", entry._replace(url=url))
    monkeypatch.setitem(SIZES, "hopper-medium-v2", None)  # of this one nobody knows
    monkeypatch.setenv("no_proxy", "*")
    yield answers
    http.shutdown()
    http.server_close()
    thread.join()


def test_download(server, capfd):
    data_folder().mkdir()
    old, new = (data_folder() / f".hopper-medium-v2.hdf5.{x}.part" for x in "ab")
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    with pytest.warns(
        UserWarning, match="http, which does not protect it from changes, as https failed"
    ):
        dataset = load("hopper-medium-v2")
    assert not old.exists() and new.exists()  # left by a killed download, written to by another
    new.unlink()
    assert len(dataset) == 19 and dataset.name == "hopper-medium-v2"
    assert dataset.source == data_folder() / "hopper-medium-v2.hdf5"
    assert [p.name for p in data_folder().iterdir()] == ["hopper-medium-v2.hdf5"]
    assert "hopper-medium-v2" in capfd.readouterr().err  # the progress bar
    server["status"] = 500
    assert len(load("hopper-medium-v2")) == 19  # no second download


@pytest.mark.parametrize(
    "change",
    [
        {"status": 404},
        {"length": 10**6},
        {"length": 100},
        {"length": None},
        {"length": 10**18},
        {"body": b"<html>log in</html>", "length": 19},
        {"body": b"\x89HDF\r\n\x1a\n" + bytes(100), "length": 108},
    ],
)
@pytest.mark.filterwarnings("ignore:.*fetched over http")
def test_failed_download_says_what_to_do(server, change):
    server |= change
    with pytest.raises(DataError) as caught:
        resolve("hopper-medium-v2")
    message, target = str(caught.value), data_folder() / "hopper-medium-v2.hdf5"
    assert CATALOGUE["hopper-medium-v2"].url in message and str(target) in message
    assert "\n" not in message and not list(data_folder().iterdir())


@pytest.mark.filterwarnings("ignore:.*fetched over http")
def test_a_file_of_known_size(server, monkeypatch):
    """Another size is not taken; the right one is, also from a server that does not say it."""
    whole = len(server["body"])
    monkeypatch.setitem(SIZES, "hopper-medium-v2", whole + 1)
    for length, found in ((whole, f"{whole} bytes, expected the {whole + 1} it"), (None, "of")):
        server["length"] = length
        with pytest.raises(DataError, match=f"download: found .*{found}.*; fetch http"):
            resolve("hopper-medium-v2")
    assert not list(data_folder().iterdir())
    monkeypatch.setitem(SIZES, "hopper-medium-v2", whole)
    assert len(load("hopper-medium-v2")) == 19


def test_known_sizes_are_those_of_d4rls_files():
    assert set(SIZES) < set(CATALOGUE) and len(SIZES) == 97
    assert SIZES["hopper-medium-v2"] == 152_756_557
    assert min(SIZES.values()) > 2e6 and len(set(SIZES.values())) == len(SIZES)


@pytest.mark.filterwarnings("ignore:.*fetched over http")
@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_file_that_does_not_open_is_not_put_in_place(server, cut):
    server["body"] = server["body"][: int(cut * len(server["body"]))]
    server["length"] = len(server["body"])
    with pytest.raises(DataError, match="download: found .* bytes, .*, expected an HDF5 file"):
        resolve("hopper-medium-v2")
    assert not list(data_folder().iterdir())


def test_https_is_asked_first(monkeypatch):
    asked = []

    def refuse(url, timeout):
        asked.append(url)
        raise OSError("no")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(DataError, match="fetch https://"):
        resolve("hopper-medium-v2")
    assert [url.partition(":")[0] for url in asked] == ["https", "http"]


def test_no_connection(monkeypatch):
    entry = CATALOGUE["hopper-medium-v2"]._replace(url="http://127.0.0.1:9/hopper_medium-v2.hdf5")
    monkeypatch.setitem(CATALOGUE, "hopper-medium-v2", entry)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError, match="expected a connection; fetch http://127.0.0.1:9/"):
        resolve("hopper-medium-v2")


@pytest.mark.parametrize("given", [(np.zeros((3, 2)), np.zeros((3, 1))), 3, None])
def test_what_is_no_dataset_is_refused_by_its_kind(given: object) -> None:
    kind = type(given).__name__
    with pytest.raises(DataError, match=f"data: found {kind}, expected a name, a path, a mapping"):
        load(given)
