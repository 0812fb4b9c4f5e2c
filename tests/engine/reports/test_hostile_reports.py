"""A report.json from somebody else: what it says is not obeyed, and errors have names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.errors import DataError, UserError
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report, load_report, publish
from jaxrl_rollouts.reports.text import print_report, write_pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    report = Report("toy", "cpu", {"seeds": 3}, "jaxrl-rollouts run toy", seeds=3)
    report.number("return", [1.0, 2.0, 6.0])
    report.table("scores", [{"method": "ravl", "score": 1.0}])
    report.picture("curve", figure()[0], "A curve")
    report.note("a note")
    report.save(tmp_path / "run")
    return tmp_path / "run"


def edited(folder: Path, *path: Any, value: Any) -> Path:
    data = json.loads((folder / "report.json").read_text())
    data.pop("digest", None)  # who changes a report can make a digest, too
    *above, last = path
    place = data
    for key in above:
        place = place[key]
    place[last] = value
    (folder / "report.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "..", "", ".hidden", "a/b", "a\nb"])
def test_an_experiment_is_no_path(folder: Path, tmp_path: Path, name: str) -> None:
    edited(folder, "experiment", value=name)
    with pytest.raises(DataError, match="experiment: found .*, expected a plain name"):
        publish(folder, tmp_path / "deep" / "results")
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "..", "a/b.png", "x.html", 3])
def test_pictures_lie_beside_their_report(folder: Path, tmp_path: Path, name: Any) -> None:
    published = publish(folder, tmp_path / "results")
    (tmp_path / "secret.png").write_text("mine")
    (tmp_path / "results" / "secret.png").write_text("mine")
    edited(published, "pictures", "curve", "file", value=name)
    with pytest.raises(DataError, match=r"pictures.curve.file: found .*, expected"):
        publish(folder, tmp_path / "results")  # would remove what lay there before
    edited(folder, "pictures", "curve", "file", value=name)
    with pytest.raises(DataError, match=r"pictures.curve.file: found .*, expected"):
        load_report(folder)
    assert (tmp_path / "secret.png").exists() and (tmp_path / "results/secret.png").exists()


def test_links_are_not_published(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (folder / "curve.png").unlink()
    (folder / "curve.png").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match="a symbolic link"):
        publish(folder, tmp_path / "results")
    assert not (tmp_path / "results").exists()


WRONG = [None, 3, -1.5, "text", [], ["a"], {}, {"a": 1}, True, [[1]], {"a": {"values": "x"}}]


def test_any_entry_of_another_kind_is_named_or_printed(folder: Path) -> None:
    before = (folder / "report.json").read_text()
    refused = 0
    places: list[tuple] = [(key,) for key in json.loads(before)]
    places += [("tables", "scores", 0, "score"), ("tables", "scores", 0), ("numbers", "return")]
    for place in places:
        for value in WRONG:
            (folder / "report.json").write_text(before)
            edited(folder, *place, value=value)
            try:
                print_report(load_report(folder))
            except UserError as error:
                refused += 1
                assert str(folder / "report.json") in str(error) and "\n" not in str(error)
    assert refused > len(places) * len(WRONG) / 2


def test_a_terminal_is_not_told_anything(folder: Path, capsys: pytest.CaptureFixture) -> None:
    evil = "\x1b]0;pwn\x07\x9b2J"
    edited(folder, "notes", value=[evil])
    edited(folder, "preset", value=evil)
    edited(folder, "tables", value={evil: [{evil: evil}]})
    report = load_report(folder)
    print_report(report)
    write_pages(report, folder)
    texts = [
        capsys.readouterr().out,
        *((folder / f"report.{x}").read_text() for x in ("md", "html")),
    ]
    for text in texts:
        assert "]0;pwn" in text and not set(text) & {"\x1b", "\x07", "\x9b"}


def test_a_pipe_or_a_deep_nest_is_no_report(folder: Path) -> None:
    (folder / "report.json").write_text("[" * 200_000)
    with pytest.raises(UserError, match="no valid JSON|too deep"):
        load_report(folder)
    (folder / "report.json").unlink()
    os.mkfifo(folder / "report.json")
    with pytest.raises(DataError, match="report.json: file: found a pipe"):
        load_report(folder)
    with pytest.raises(DataError, match="report.json: file: found a pipe"):
        RunFolder.open(folder)
    (folder / "report.json").unlink()
    (folder / "run.json").unlink(missing_ok=True)
    os.mkfifo(folder / "run.json")
    with pytest.raises(DataError, match="run.json: file: found a pipe"):
        RunFolder.open(folder)


def test_a_page_fetches_no_picture_from_elsewhere(folder: Path) -> None:
    """A data file's name may read as an image of Markdown."""
    image = "![t](http://evil.example/x.png) and ![t][u]"
    edited(folder, "notes", value=[image, "[u]: http://evil.example/y.png"])
    edited(folder, "tables", value={image: [{image: image}]})
    write_pages(load_report(folder), folder)
    page = (folder / "report.html").read_text()
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert sources and all(source.startswith("data:image/") for source in sources)
