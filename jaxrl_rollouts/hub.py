"""Policies, world models, emulators and tapes on the Hugging Face Hub.

    jr.push_to_hub("runs/hopper-iql-20261129-120000", "me/hopper-iql")
    policy = jr.offline.load_policy("hf://me/hopper-iql")           # or hf://me/hopper-iql@v1

A repository holds parameters as safetensors, facts as JSON and a card, or a tape; nothing else is
fetched, and nothing of it is run. Functions that take a folder of a policy, of world models or of
an emulator, and `offline.load` for a tape, take such a name.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .cards import card
from .errors import CheckpointError, ConfigError
from .record import checkpoint
from .record.fetched import NAME, TAPE, library_of, refusals
from .record.files import read_json
from .record.tensors import PARAMS, write_tensors

KINDS = {"policy.json": "policy", "world.json": "world models", "emulator.json": "emulator"}


def push_to_hub(
    what: Any,
    name: str,
    *,
    private: bool = False,
    licence: str = "",
    message: str = "",
    token: str | None = None,
) -> str:
    """Publish a trained object on the hub, with a card of method, returns and limits.

    Args:
        what: the folder of a run, of a policy, of world models or of an emulator; a tape; or
            anything with `save(folder)`: a result of `offline.train`, an emulator.
        name: name of the repository, `owner/name`; created if it does not exist.
        private: whether it is made for the owner alone.
        licence: for the card, as the hub writes it: "apache-2.0".
        message: message of the commit.
        token: access token; None uses that of `hf auth login`.

    Returns:
        The address of the commit.

    Raises:
        ConfigError: a name of another form, or nothing to publish.
        MissingExtraError: huggingface_hub is not installed.
        StorageError: the hub refuses the upload.
    """
    if NAME.fullmatch(f"hf://{name}") is None or "@" in name:
        raise ConfigError("name", name, "owner/name")
    library = library_of(f"publishing {name}")
    with TemporaryDirectory(prefix="jaxrl-rollouts-") as place:
        source, staged = Path(place) / "saved", Path(place) / "staged"
        if isinstance(what, str | Path):
            source = Path(what)
        else:
            what.save(source)
        kinds = stage(source, staged)
        (staged / "README.md").write_text(card(source, staged, name, kinds, licence), "utf-8")
        api = library.HfApi(token=token)
        with refusals(name):
            kind = "dataset" if kinds == ["tape"] else "model"
            api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=name,
                repo_type=kind,
                folder_path=staged,
                commit_message=message or f"{', '.join(kinds)} of jaxrl-rollouts",
            )
    return str(done.commit_url)


def stage(source: Path, staged: Path) -> list[str]:
    """Copy what may be published: facts, and parameters as safetensors; its kinds."""
    staged.mkdir(parents=True)
    if source.is_file() and source.suffix == TAPE:
        shutil.copyfile(source, staged / source.name)
        return ["tape"]
    kinds: list[str] = []
    for file, kind in KINDS.items():
        for facts in sorted(source.rglob(file)):
            taken = checkpoint.steps(facts.parent)
            if not taken:
                raise CheckpointError(f"{facts.parent}: found no parameters beside {file}")
            there = staged / facts.parent.relative_to(source)
            there.mkdir(parents=True, exist_ok=True)
            read_json(facts, f"a {kind}")  # its digest is checked
            shutil.copyfile(facts, there / file)
            write_tensors(there / PARAMS, checkpoint.load_all(facts.parent / str(taken[-1])))
            kinds.append(kind)
    if not kinds:
        expected = f"a folder with {', '.join(KINDS)}, or a {TAPE} file"
        raise ConfigError("what", str(source), expected, "a run has them once it is finished")
    return list(dict.fromkeys(kinds))
