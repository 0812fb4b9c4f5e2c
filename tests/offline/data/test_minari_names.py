"""Minari's names of columns, references and bad episodes."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from helpers_data import PLAN, save_minari

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.data import inspect, load

REFERENCES = {"ref_min_score": 0.0, "ref_max_score": 8.0}


def dataset_space(name):
    import minari

    return minari.load_dataset(name).observation_space


@pytest.mark.filterwarnings("ignore")
def test_minari_keeps_names_order_and_references(store):
    import gymnasium
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    box, rng = gymnasium.spaces.Box(-9, 9, (2,), np.float32), np.random.default_rng(0)
    inner = gymnasium.spaces.Dict(b=box, a=gymnasium.spaces.Discrete(3))
    space = gymnasium.spaces.Dict(where=inner, goal=gymnasium.spaces.Tuple((box,)))
    b, goal = (rng.normal(size=(5, 2)).astype(np.float32) for _ in range(2))
    a = np.array([0, 1, 2, 1, 0])
    seen = {"where": {"b": b, "a": a}, "goal": (goal,)}
    step = {"rewards": [1.0] * 4, "terminations": [False] * 4, "infos": {}}
    step |= {"truncations": [False] * 3 + [True], "actions": np.zeros((4, 1), np.float32)}
    acts = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    minari.create_dataset_from_buffers(
        "toy/parts-v0",
        [EpisodeBuffer(observations=seen, **step)],
        observation_space=space,
        action_space=acts,
    )
    file = store / "toy" / "parts-v0" / "data" / "metadata.json"
    assert load("toy/parts-v0").attributes.get("ref_max_score") is None
    # Minari stores references only for an environment that Gymnasium can make.
    file.write_text(json.dumps(json.loads(file.read_text()) | REFERENCES))
    for dataset in (load("toy/parts-v0"), load(minari.load_dataset("toy/parts-v0"))):
        # in the order of the dataset's own space, which Minari sorts when it reads it
        assert list(dataset_space("toy/parts-v0").spaces) == ["goal", "where"]
        where = ("where.a[0]", "where.a[1]", "where.a[2]", "where.b[0]", "where.b[1]")
        assert dataset.columns == ("goal.0[0]", "goal.0[1]", *where)
        expected = np.concatenate([goal, np.eye(3)[a], b], 1)
        np.testing.assert_array_equal(dataset.transitions.observations, expected[:-1])
        found = inspect(dataset)
        assert (found.normalised_return, found.score_label) == (50.0, "Minari score")
        assert dataset.benchmark == "minari"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("observations", "actions", "says"),
    [
        ("Text", "Box", "observation_space: found a Text space in part x"),
        ("image", "Box", r"a Box space of shape \(4, 4, 3\) in part x"),
        ("Box", "Dict", "action_space: found a Dict space.*actions of several parts"),
        ("Box", "whole", "action_space: found Box of int64.*discrete actions are not"),
    ],
)
def test_minari_spaces_are_refused_by_their_own_names(store, observations, actions, says):
    from gymnasium import spaces

    from jaxrl_rollouts.offline.data.minari import check_spaces

    made = {
        "Text": spaces.Text(3),
        "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "Box": spaces.Box(-1, 1, (2,), np.float32),
        "whole": spaces.Box(-5, 5, (1,), np.int64),
        "Dict": spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32)),
    }
    seen = spaces.Dict(x=made[observations]) if observations != "Box" else made["Box"]
    with pytest.raises(DataError, match=says):
        check_spaces("toy", seen, made[actions])


@pytest.mark.filterwarnings("ignore")
def test_a_bad_minari_episode_is_named_and_can_be_left_out(store):
    import minari

    save_minari("toy/bad-v0", PLAN)
    with h5py.File(store / "toy" / "bad-v0" / "data" / "main_data.hdf5", "a") as file:
        short = file["episode_1/observations"][:-1]
        del file["episode_1/observations"]
        file["episode_1/observations"] = short
    with pytest.raises(DataError, match=r"episode_1/obs.*filter_episodes\(lambda.*id != 1\)"):
        load("toy/bad-v0")
    kept = minari.load_dataset("toy/bad-v0").filter_episodes(lambda episode: episode.id != 1)
    assert len(load(kept)) == 19 - PLAN[1][0]
