"""Datasets as tapes: start states, actions and snapshots, which MuJoCo replays to every row."""
