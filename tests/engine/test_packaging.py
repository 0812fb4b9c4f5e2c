"""The wheel, installed into a fresh virtual environment, is the package of the checkout."""

from __future__ import annotations

import ast
import json
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "jaxrl_rollouts"
LINKS = {
    f"jaxrl_rollouts.{link.name}": link.resolve() for link in PACKAGE.iterdir() if link.is_symlink()
}
FOLDERS = {"jaxrl_rollouts": PACKAGE, **dict(sorted(LINKS.items()))}
OPTIONAL = {
    *("gymnax", "brax", "mujoco", "gymnasium", "minari", "exponax", "tensorboardX", "wandb", "ray"),
    *("huggingface_hub", "safetensors", "jax2onnx", "onnxruntime", "onnx"),
    *("optuna", "flatbuffers", "imageio", "scipy", "pandas", "torch", "pytest", "hypothesis"),
}

# Run as files by interpreters that have torch or APEBench and nothing of ours; never imported.
SCRIPTS = ("jaxrl_rollouts.experiments.benchmarks.peers.",)

# Imports everything public and prints what it found; run by the fresh environment, which has no
# optional package.
WALK = f"""
import importlib, json, pathlib, pkgutil, sys
for name in {sorted(OPTIONAL - {"scipy"})!r}:  # jax itself needs scipy
    sys.modules[name] = None
import jaxrl_rollouts
from importlib import metadata
names = [m.name for m in pkgutil.walk_packages(jaxrl_rollouts.__path__, 'jaxrl_rollouts.')]
for name in names:
    if not name.endswith('__main__') and '.peers.' not in name:
        importlib.import_module(name)
announced = metadata.distribution('jaxrl-rollouts').entry_points
entries = dict((g, sorted(e.name for e in announced if e.group == g)) for g in announced.groups)
for entry in metadata.distribution('jaxrl-rollouts').entry_points:
    entry.load()
typed = (pathlib.Path(jaxrl_rollouts.__file__).parent / 'py.typed').exists()
print(json.dumps(dict(file=jaxrl_rollouts.__file__, names=names, entries=entries, typed=typed)))
"""


def sources() -> Iterator[tuple[str, Path]]:
    """Module name and file of everything in the package's folders."""
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            yield name, path


SOURCES = dict(sources())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, without the network and without touching the checkout."""
    copy = tmp_path_factory.mktemp("source")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "results")
    for folder in {path.relative_to(ROOT).parts[0] for path in FOLDERS.values()}:
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignore)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return copy / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment with the wheel; dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    target = Path(paths["purelib"])
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index"]
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    # A path file appends: the wheel's package comes first, and the path files in there, an
    # editable install of this checkout among them, are not followed.
    (target / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def test_fresh_install_imports_everything_public(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed, "-c", WALK], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["file"]).is_relative_to(installed.parents[1])
    assert set(found["names"]) | {"jaxrl_rollouts"} == set(SOURCES)
    assert found["typed"]
    project = PROJECT["project"]
    assert found["entries"]["console_scripts"] == sorted(project["scripts"])
    for group, entries in project["entry-points"].items():
        assert found["entries"][group] == sorted(entries)


def test_the_installed_command_answers(installed: Path, tmp_path: Path) -> None:
    command = installed.parent / "jaxrl-rollouts"
    done = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True)
    # Installed code has no repository: a digest of its files says which code it is.
    want = re.escape(PROJECT["project"]["version"]) + r" \(files-[0-9a-f]{8}\)\n"
    assert done.returncode == 0 and re.fullmatch(want, done.stdout)


def test_wheel_holds_the_modules_of_the_checkout_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py")
    }
    assert modules == set(SOURCES)
    tops = {name.split("/")[0] for name in names}
    version = PROJECT["project"]["version"]
    assert tops == {"jaxrl_rollouts", f"jaxrl_rollouts-{version}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def imports(name: str, path: Path, *, top_level: bool) -> Iterator[str]:
    """Absolute names of what a module imports; `top_level` leaves out what functions import."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    lazy: set[ast.AST] = set()
    typed: set[ast.AST] = set()  # what only type checkers import
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy |= set(ast.walk(node))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typed |= {inner for line in node.body for inner in ast.walk(line)}
    for node in ast.walk(tree):
        if node in typed or (top_level and node in lazy):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            start = ".".join(base) if node.level else ""
            module = ".".join(part for part in (start, node.module) if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def home(name: str) -> str:
    """Which of the four packages a module belongs to."""
    parts = name.split(".")
    known = len(parts) > 1 and ".".join(parts[:2]) in FOLDERS
    return parts[1] if known else "engine"


MAY_NOT = {
    "engine": {"offline", "pde", "experiments"},
    "offline": {"pde", "experiments"},
    "pde": {"offline", "experiments"},
    "experiments": set(),
}


def test_reading_direction() -> None:
    wrong = {
        name: module
        for name, path in SOURCES.items()
        # The library's face names every package and loads none.
        for module in imports(name, path, top_level=name == "jaxrl_rollouts")
        if module.startswith("jaxrl_roll") and home(module) in MAY_NOT[home(name)]
    }
    assert not wrong


def arrows(sources: Mapping[str, Path]) -> dict[str, set[str]]:
    """Which of our modules each module imports, also inside functions."""
    found = {}
    for name, path in sources.items():
        asked = {
            m if m in sources else m.rpartition(".")[0]
            for m in imports(name, path, top_level=False)
        }
        found[name] = {m for m in asked if m in sources and m != name}
    return found


def room(name: str, path: Path) -> str:
    """A module's folder; what lies in a package's own folder is a room by itself."""
    folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return name if folder in FOLDERS else folder


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups that can each be reached from all of themselves: sets of more than one."""

    def reach(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for other in graph.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    reached = {name: reach(name) for name in graph}
    groups = {
        frozenset(b for b in reached[a] if a in reached.get(b, ()))
        for a in graph
        if a in reached[a]
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def test_no_circles_between_files_or_between_rooms() -> None:
    files = arrows(SOURCES)
    assert circles(files) == []
    rooms: dict[str, set[str]] = {}
    for name, others in files.items():
        here = room(name, SOURCES[name])
        rooms.setdefault(here, set())
        # A package's face lists names of its rooms and is not one of them.
        rooms[here] |= {room(o, SOURCES[o]) for o in others if o not in FOLDERS} - {here}
    assert circles(rooms) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_optional_packages_are_imported_lazily() -> None:
    eager = {
        name: module
        for name, path in SOURCES.items()
        for module in imports(name, path, top_level=True)
        if module.split(".")[0] in OPTIONAL and not name.startswith(SCRIPTS)
    }
    assert not eager


def test_scripts_for_other_interpreters_import_nothing_of_ours_and_are_not_imported() -> None:
    scripts = {name for name in SOURCES if name.startswith(SCRIPTS)}
    assert len(scripts) >= 3
    for name, path in SOURCES.items():
        used = set(imports(name, path, top_level=False))
        assert not used & scripts
        if name in scripts:
            assert not any(module.startswith("jaxrl_rollouts") for module in used)


def test_the_import_scan_sees_all_forms(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("import a.b\nfrom . import c\nfrom ..d import e\ndef f():\n    import lazy\n")
    name = "jaxrl_rollouts.offline.data.m"
    now = set(imports(name, path, top_level=True))
    assert now == {"a.b", "jaxrl_rollouts.offline.data.c", "jaxrl_rollouts.offline.d.e"}
    assert set(imports(name, path, top_level=False)) == now | {"lazy"}
    assert home("jaxrl_rollouts.pde.x") == "pde" and home("jaxrl_rollouts.loop.pde") == "engine"


def test_nothing_in_the_package_names_a_private_path() -> None:
    files = [*SOURCES.values(), ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "CHANGELOG.md"]
    words = ["/" + "work/", "/" + "tmp/v", "/" + "root/", "/" + "home/"]
    found = [(f.name, w) for f in files for w in words if w in f.read_text(encoding="utf-8")]
    assert not found
