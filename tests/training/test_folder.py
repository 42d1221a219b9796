"""The run folder: same run or refused, damage named, nothing half-written."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from poslens.errors import InputError
from poslens.training import RunFolder, RunSettings, load_model, runs_below, train
from poslens.training.folder import (
    cut_back,
    first_difference,
    make_folder,
    pick_device,
    read_json,
    read_lines,
    write_text,
)


def refused(action: Callable[[], object]) -> str:
    """The one line with which an action is refused."""
    with pytest.raises(InputError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_opening_writes_the_settings_and_opening_again_accepts_them(
    tmp_path: Path, tiny: Callable[..., RunSettings]
) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.open(tiny())
    assert folder.settings() == tiny()
    folder.open(tiny())
    assert sorted(os.listdir(folder.path)) == ["config.json", "environment.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed is 0 there, 1 here"),
        ({"scheme": "alibi"}, "scheme is 'rope' there, 'alibi' here"),
        ({"parts": {"rope": {"base": 5.0}}}, "parts.rope is None there, {'base': 5.0} here"),
        ({"task_settings": {"between": 5}}, "task_settings.between is 4 there, 5 here"),
    ],
)
def test_another_run_in_the_folder_is_named(
    tmp_path: Path, tiny: Callable[..., RunSettings], change: dict[str, Any], words: str
) -> None:
    folder = RunFolder(tmp_path)
    folder.open(tiny())
    before = (tmp_path / "config.json").read_bytes()
    message = refused(lambda: folder.open(replace(tiny(), **change)))
    assert f"{tmp_path} holds another run ({words})" in message
    assert "choose another folder" in message
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_folder_with_other_files_and_a_file_are_refused(
    tmp_path: Path, tiny: Callable[..., RunSettings]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt"):
        message = refused(lambda path=path: RunFolder(path).open(tiny()))
        assert "is not a run folder; choose a folder that is new or empty" in message
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_what_a_write_killed_at_once_left_behind_is_no_obstacle(
    tmp_path: Path, tiny: Callable[..., RunSettings]
) -> None:
    (tmp_path / "config.json.tmp").write_text('{"sch')
    RunFolder(tmp_path).open(tiny())
    assert RunFolder(tmp_path).settings() == tiny()


@pytest.mark.parametrize("where", ["file/run", "/proc/poslens/run"])
def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, tiny: Callable[..., RunSettings], where: str
) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / where  # an absolute `where` stands for itself
    message = refused(lambda: train(tiny(), path))
    assert message.startswith(f"cannot make {path} (")
    assert message.endswith("choose another folder")


def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert refused(lambda: make_folder(tmp_path)) == (
        f"no permission to write to {tmp_path}; choose another folder"
    )


@pytest.mark.parametrize(
    ("found", "asked", "words"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": {"b": [1]}}, {"a": {"b": [2]}}, "a.b is [1] there, [2] here"),
        ({"a": 1, "b": 2}, {"a": 1}, "b is 2 there, None here"),
        ({"a": 1}, {"a": 1, "b": 2}, "b is None there, 2 here"),
    ],
)
def test_the_first_difference_is_told_by_its_path(found: Any, asked: Any, words: str) -> None:
    assert first_difference(found, asked) == words


def test_text_is_written_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def fail(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"", b"3"])
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    message = refused(lambda: read_json(path))
    assert f"{path} is damaged (" in message
    assert f"delete the folder {tmp_path}" in message


def test_missing_json_is_named(tmp_path: Path) -> None:
    assert "config.json is missing; give" in refused(lambda: read_json(tmp_path / "config.json"))


@pytest.mark.parametrize("content", [b'{"a": 1}\n{"a"', b"\xff\n", b"3\n"])
def test_damaged_lines_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    assert f"{path} is damaged (" in refused(lambda: read_lines(path))


def test_cutting_back_drops_what_came_after_and_names_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    cut_back(path, 0)
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    cut_back(path, 9)
    assert read_lines(path) == [{"a": 1}]
    assert "is damaged (9 of 10 bytes are left)" in refused(lambda: cut_back(path, 10))
    assert path.read_text() == '{"a": 1}\n'
    path.unlink()
    assert "(0 of 9 bytes are left)" in refused(lambda: cut_back(path, 9))
    path.write_text("garbage and more\n")
    assert "is damaged" in refused(lambda: cut_back(path, 7))


def test_tensors_and_notes_come_back_as_saved(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    tensors = {"a": torch.randn(3, 4).T, "b": torch.tensor(2.0)}
    folder.save_tensors("x.safetensors", tensors, {"loss": 0.1, "step": 3})
    loaded, notes = folder.load_tensors("x.safetensors")
    assert notes == {"loss": 0.1, "step": 3}
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_truncated_tensors_are_named(tmp_path: Path, keep: int) -> None:
    folder, path = RunFolder(tmp_path), tmp_path / "x.safetensors"
    folder.save_tensors("x.safetensors", {"a": torch.randn(8, 8)}, {})
    path.write_bytes(path.read_bytes()[:keep])
    message = refused(lambda: folder.load_tensors("x.safetensors"))
    assert f"{path} is damaged (" in message
    assert f"delete the folder {tmp_path} and run again" in message


def test_tensors_of_another_program_are_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "x.safetensors")
    assert "is damaged" in refused(lambda: RunFolder(tmp_path).load_tensors("x.safetensors"))


@pytest.mark.parametrize("name", ["cuda", "nonsense", "meta", ""])
def test_a_device_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    message = refused(lambda: pick_device(name))
    assert message.startswith(f"device {name!r} is not there; this machine has: cpu")


def test_the_processor_is_always_there() -> None:
    assert pick_device("cpu") == torch.device("cpu")


def test_runs_below_a_folder_or_the_run_itself(
    tmp_path: Path, tiny: Callable[..., RunSettings]
) -> None:
    assert "holds no runs; give a run folder" in refused(lambda: runs_below(tmp_path))
    for name in ("b", "a"):
        RunFolder(tmp_path / name).open(tiny())
    (tmp_path / "other").mkdir()
    assert runs_below(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert runs_below(tmp_path / "a") == [tmp_path / "a"]


def test_a_model_of_another_shape_than_its_config_is_named(
    tmp_path: Path, tiny: Callable[..., RunSettings]
) -> None:
    train(tiny(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["width"] = 16
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = refused(lambda: load_model(tmp_path))
    assert f"{tmp_path / 'model.safetensors'} does not fit its config.json" in message
    assert f"delete {tmp_path} and run again" in message


def test_a_run_that_was_not_trained_is_named(
    tmp_path: Path, tiny: Callable[..., RunSettings]
) -> None:
    RunFolder(tmp_path).open(tiny())
    assert "the run has not been trained; train it first" in refused(lambda: load_model(tmp_path))
