"""Bad input: one clear line, exit code 2, and nothing half-written."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from poslens.results import RUN_TABLES

SMOKE = ("--profile", "smoke")
TRAIN = ("train", "rope", *SMOKE)
REPRODUCE = ("reproduce", *SMOKE)
TUNE = ("tune", *SMOKE)


def listing(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder, with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def refused(poslens: Callable, tmp_path: Path) -> Callable[..., str]:
    """Runs a command that must refuse and leave everything as it was; gives its line."""

    def run(*arguments: str | Path) -> str:
        before = listing(tmp_path)
        line: str = poslens(*arguments).line
        assert listing(tmp_path) == before
        return line

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "roep", *SMOKE), "unknown scheme 'roep'; did you mean: rope"),
        (("train", "rope+alibbi", *SMOKE), "unknown scheme 'rope+alibbi'; did you mean: alibi"),
        ((*REPRODUCE, "--schemes", "rope", "abili"), "unknown scheme 'abili'; did you mean: alibi"),
        ((*TUNE, "--schemes", "sinusodial"), "unknown scheme 'sinusodial'; did you mean: sinus"),
        ((*TRAIN, "--task", "distanse"), "unknown task 'distanse': did you mean distance?"),
        (("train", "--task", "zzz"), "unknown task 'zzz': there are distance, count"),
        ((*REPRODUCE, "--tasks", "cuont"), "unknown task 'cuont': did you mean count?"),
        ((*TUNE, "--tasks", "cuont"), "unknown task 'cuont': did you mean count?"),
        (("data", "distanec"), "unknown task 'distanec': did you mean distance?"),
        (("train", "--profile", "smok"), "unknown profile 'smok'; there are: smoke, small, quick"),
        (
            ("reproduce", "--profile", "smok"),
            "unknown profile 'smok'; there are: smoke, small, quick",
        ),
        (("tune", "--profile", "smok"), "unknown profile 'smok'; there are: smoke, small, quick"),
        ((*TRAIN, "--sed", "1"), "--sed, 1; perhaps --seed or --set"),
        ((*TRAIN, "--seed"), "Missing value for argument '--seed'"),
        ((*TRAIN, "--seed", "x"), "--seed: invalid literal for int() with base 10: 'x'"),
        ((*TRAIN, "--readout", "x"), "Expected one of ('mean', 'last')"),
        (("report",), "poslens report: PATH"),
        (("list", "more"), "Unrecognized options: more"),
    ],
)
def test_names_and_options(refused: Callable, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--width", "30"), "width 30 is not divisible by 4 heads; use a multiple of 4"),
        (("--set", "rope.width=3"), "the rotary width must be even, from 2 to the head width 8"),
        (("--set", "rope.width=10"), "from 2 to the head width 8"),
        (("--set", "words=2"), "words=2 is too small: 2 triggers and a filler need at least 3"),
        (("--set", "between=0"), "between must be a whole number of at least 1, not 0"),
        (("--set", "between=-3"), "between must be a whole number of at least 1, not -3"),
        (("--set", "bewteen=3"), "distance has no setting 'bewteen'; it has: between"),
        (("--set", "rope.bas=3"), "rope has no setting 'bas'; it has: base"),
        (("--set", "alibi.base=3"), "scheme 'rope' has no part 'alibi'; it has: rope"),
        (("--set", "rope=1", "rope.base=3"), "'rope' a value and settings; choose one"),
        (("--set", "between"), "--set takes NAME=VALUE, got 'between'"),
        (("--set", "=3"), "--set takes NAME=VALUE, got '=3'"),
        (("--set", "fillers=dirty"), "use one of: clean, published"),
        (("--set", "rope.base=fast"), "rope.base is 'fast'; it takes a value of type float"),
        (("--learning-rate", "nan"), "learning_rate is nan; use a number above 0"),
        (("--weight-decay", "-1"), "weight_decay is -1.0; use a number from 0"),
        (("--warmup", "1"), "warmup is 1.0; use a share from 0 to below 1"),
        (("--fixed-set", "8"), "fixed_set 8 is smaller than batch 32"),
        (("--batch", "512"), "batch 512 is larger than the budget of 256 sequences"),
        (("--seed", "-1"), "seed is -1; use 0 or more"),
        *(
            ((f"--{name}", value), f"{name} is {value}; use 1 or more")
            for name in ("sequences", "batch", "layers", "heads", "width", "feedforward")
            for value in ("0", "-1")
        ),
        *(
            ((f"--{name}", "0"), f"{name} is 0; use 1 or more")
            for name in ("evaluations", "validation", "evaluation")
        ),
    ],
)
def test_settings_of_a_run(refused: Callable, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*TRAIN, *arguments)


def test_more_rope_heads_than_heads(refused: Callable) -> None:
    line = refused("train", "rope@9", *SMOKE, "--heads", "8")
    assert line == "RoPE can be on 1 to 8 of the heads, not on 9"
    assert "1 to 4 of the heads" in refused(*REPRODUCE, "--schemes", "rope@0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*REPRODUCE, "--jobs", "0"), "jobs is 0; use 1 or more"),
        ((*REPRODUCE, "--jobs", "-1"), "jobs is -1; use 1 or more"),
        ((*TUNE, "--jobs", "0"), "jobs is 0; use 1 or more"),
        ((*REPRODUCE, "--seeds", "-1"), "seed -1 is negative; use 0 or more"),
        ((*REPRODUCE, "--seeds", "1", "1"), "seeds name one twice"),
        (("data", "distance", "--size", "0"), "size is 0; use 1 or more"),
        (("data", "distance", "--size", "-5"), "size is -5; use 1 or more"),
        (("data", "distance", "--seed", "-1"), "seed is -1; use 0 or more"),
        (("data", "count", "--set", "words=30"), "words=30 is too small: triggers=30"),
        (("data", "count", "--set", "wrods=30"), "count has no setting 'wrods'; it has: words"),
    ],
)
def test_zero_and_negative_sizes(refused: Callable, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*arguments)


@pytest.mark.parametrize("command", [TRAIN, REPRODUCE, TUNE])
@pytest.mark.parametrize("device", ["cuda", "nonsense"])
def test_a_device_that_is_not_there(
    refused: Callable, command: tuple[str, ...], device: str
) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    line = refused(*command, "--device", device)
    assert line == f"device {device!r} is not there; this machine has: cpu"


def test_a_device_that_is_not_there_for_ablation(refused: Callable, run: Path) -> None:
    assert "device 'nonsense' is not there" in refused("ablate", run, "--device", "nonsense")


@pytest.mark.parametrize(
    ("command", "content", "words"),
    [
        ("train", "shceme = 'rope'", "study.toml has no setting 'shceme'; it has: scheme"),
        ("train", "[model]\nwidht = 8", "model has no setting 'widht'; it has: width"),
        ("train", "[training]\nbacth = 8", "training has no setting 'bacth'; it has: batch"),
        ("train", "[parts.rope]\nbas = 8.0", "rope has no setting 'bas'; it has: base"),
        ("train", "[task_settings]\nasdie = 8", "distance has no setting 'asdie'; it has: aside"),
        ("train", "seed = 'x'", "study.toml.seed is 'x'; it takes a value of type int"),
        ("train", "parts = 3", "study.toml.parts is 3; it takes a value of type dict"),
        ("train", "[training]\nbatch = 0", "batch is 0; use 1 or more"),
        ("train", "seed = -1", "seed is -1; use 0 or more"),
        ("reproduce", "sheme = 1", "study.toml has no setting 'sheme'; it has: schemes"),
        ("reproduce", "[model]\nheds = 8", "model has no setting 'heds'; it has: heads"),
        ("reproduce", "[training]\nbacth = 8", "training has no setting 'bacth'; it has: batch"),
        ("reproduce", "[tasks.count]\nlenght = 8", "count has no setting 'lenght'; it has: length"),
        ("reproduce", "[tasks.cuont]\nlength = 8", "unknown task 'cuont': did you mean count?"),
        ("reproduce", "tasks = ['count']", "study.toml.tasks is ['count']"),
        ("reproduce", "seeds = 3", "study.toml.seeds is 3; it takes a value of type tuple"),
        ("reproduce", "schemes = 'rope'", "study.toml.schemes is 'rope'"),
        ("reproduce", "schemes = ['roep']", "unknown scheme 'roep'; did you mean: rope"),
        ("reproduce", "profile = 'smok'", "unknown profile 'smok'; there are: smoke"),
        ("reproduce", "seeds = [0, 0]", "seeds name one twice"),
        *((name, "= 3", "study.toml is no TOML file (") for name in ("train", "reproduce")),
        *((name, "\xff", "study.toml is no TOML file (") for name in ("train", "reproduce")),
        *((name, None, "study.toml is missing; give a") for name in ("train", "reproduce")),
    ],
)
def test_a_toml_file_that_does_not_fit(
    refused: Callable, command: str, content: str | None, words: str
) -> None:
    if content is not None:
        Path("study.toml").write_bytes(content.encode("latin-1"))
    assert words in refused(command, "--config", "study.toml")


def test_a_folder_is_no_toml_file(refused: Callable, tmp_path: Path) -> None:
    assert "is no TOML file" in refused("train", "--config", tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "rates.csv is no table of learning rates"),
        (b"a,b\n1,2\n", "rates.csv lacks scheme, task, learning_rate"),
        (b"", "rates.csv is no table of learning rates"),
    ],
)
def test_a_table_of_learning_rates_that_is_none(
    refused: Callable, content: bytes | None, words: str
) -> None:
    if content is not None:
        Path("rates.csv").write_bytes(content)
    line = refused(*REPRODUCE, "--rates", "rates.csv")
    assert words in line
    assert line.endswith("make one with 'poslens tune'")


@pytest.mark.parametrize("command", [TRAIN, REPRODUCE, TUNE])
def test_an_output_folder_with_other_files(refused: Callable, command: tuple[str, ...]) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    for out in ("mine", "mine/notes.txt"):
        line = refused(*command, "--out", out)
        assert line.startswith(f"{out} ")
        assert "choose " in line


@pytest.mark.parametrize("command", [TRAIN, REPRODUCE, TUNE, ("data", "count")])
@pytest.mark.parametrize("where", ["file/out", "/proc/poslens/out"])
def test_an_output_folder_that_cannot_be_written(
    refused: Callable, command: tuple[str, ...], where: str
) -> None:
    """Tests may run as root, who may write everywhere else."""
    Path("file").write_text("")
    out = f"{where}/data.parquet" if command[0] == "data" else where
    line = refused(*command, "--out", out)
    assert line.startswith(f"cannot make {where} (")
    assert line.endswith("choose another folder")


def test_data_into_a_folder(refused: Callable) -> None:
    Path("folder").mkdir()
    line = refused("data", "count", "--out", "folder")
    assert line == "folder is a folder; name a file with --out"


def test_another_run_in_the_output_folder(
    refused: Callable, run: Path, small: tuple[str, ...]
) -> None:
    line = refused("train", "rope", *small, "--seed", "1", "--out", run)
    assert f"{run} holds another run (seed is 0 there, 1 here); choose another folder" in line
    line = refused("train", "alibi", *small, "--out", run)
    assert "scheme is 'rope' there, 'alibi' here" in line


def test_another_experiment_in_the_output_folder(
    poslens: Callable, refused: Callable, in_process: list[str]
) -> None:
    Path("a.toml").write_text(
        "[model]\nlayers = 1\nheads = 2\nwidth = 8\n[training]\nsequences = 64\n"
    )
    asked = (*REPRODUCE, "--schemes", "rope", "--tasks", "count", "--out", "out")
    assert poslens(*asked, "--config", "a.toml").code == 0
    Path("b.toml").write_text(Path("a.toml").read_text().replace("layers = 1", "layers = 2"))
    line = refused(*asked, "--config", "b.toml")
    assert "out holds another experiment (model.layers is 1 there, 2 here)" in line
    line = refused("tune", "--profile", "quick", "--out", "out")
    assert "out holds another experiment (profile is 'smoke' there, 'tune-quick' here)" in line
    line = refused(*TRAIN, "--out", "out")
    assert line.startswith("out exists and is not a run folder")


@pytest.mark.parametrize("command", ["ablate", "report"])
def test_a_folder_without_runs(refused: Callable, command: str) -> None:
    Path("empty").mkdir()
    Path("file").write_text("")
    for folder in ("missing", "empty", "file"):
        line = refused(command, folder)
        assert line.startswith(f"{folder} ")
        assert "give " in line or "train one first" in line


def test_ablation_of_a_run_that_was_not_trained(refused: Callable, run: Path) -> None:
    for path in run.iterdir():
        if path.name != "config.json":
            path.unlink()
    line = refused("ablate", run)
    assert f"{run / 'model.safetensors'} is missing: the run has not been trained" in line
    assert "train it first" in line


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--layers", "1"), "layer 1 is out of range; the model has 0..0"),
        (("--heads", "0", "2"), "head 2 is out of range; layer 0 has 0..1"),
        (("--heads", "-1"), "head -1 is out of range"),
        (("--layers",), "the set of layers to measure is empty; name at least one"),
        (("--heads",), "the set of heads to measure is empty; name at least one"),
        (("--seed", "0"), "seed 0 is the one that {run} was trained from; give another"),
        (("--budget", "0.001"), "too small for one variant of one sequence; give at least 0."),
        (("--targets", "head", "--methods", "none"), "'head' has no method 'none'; it has: zero,"),
        (("--targets", "position", "--methods", "zero"), "'position' has no method 'zero'; it has"),
        (("--targets", "bias"), "the scheme has no position in its attention"),
        (("--seed", "-3"), "seed -3 is negative; use 0 or more"),
        (("--precision", "0.02", "--published"), "--sets and --published are of whole models"),
        (("--layers", "0", "--sets"), "--sets and --published are of whole models"),
        (("--draws", "0"), "draws is 0; use 1 or more"),
        (("--precision", "-1"), "precision is -1; use a share above 0"),
        (("--budget", "nan"), "budget is nan; use a number of megabytes above 0"),
    ],
)
def test_an_ablation_that_cannot_be(
    refused: Callable, run: Path, asked: tuple[str, ...], words: str
) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert words.format(run=run) in refused("ablate", run, *asked)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_an_unfinished_run_is_not_ablated(refused: Callable, run: Path) -> None:
    (run / "summary.parquet").unlink()
    assert f"{run} holds no finished run; run its training again" in refused("ablate", run)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scramble(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, scramble, empty])
@pytest.mark.parametrize("command", ["ablate", "report", "train"])
def test_a_damaged_config(
    refused: Callable,
    run: Path,
    small: tuple[str, ...],
    command: str,
    damage: Callable[[Path], None],
) -> None:
    damage(run / "config.json")
    arguments = {
        **{"ablate": ("ablate", run), "report": ("report", run.parent)},
        **{"train": ("train", "rope", *small, "--out", run)},
    }
    line = refused(*arguments[command])
    assert line.startswith(f"{run / 'config.json'} is damaged (")
    assert f"delete the folder {run} and run again" in line


@pytest.mark.parametrize("damage", [truncate, scramble, empty])
def test_damaged_weights(refused: Callable, run: Path, damage: Callable[[Path], None]) -> None:
    damage(run / "model.safetensors")
    line = refused("ablate", run.parent)
    assert line.startswith(f"{run / 'model.safetensors'} is damaged (")
    assert f"delete the folder {run} and run again" in line


@pytest.mark.parametrize("damage", [truncate, scramble, empty])
@pytest.mark.parametrize("table", RUN_TABLES)
def test_a_damaged_table(
    refused: Callable, run: Path, table: str, damage: Callable[[Path], None]
) -> None:
    damage(run / f"{table}.parquet")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    what = f"the folder {run}" if table in ("summary", "curve", "labels") else "it"
    commands = [("report", run.parent)]
    if table in ("effects", "concentration", "necessity", "sufficiency", "interactions"):
        commands.append(("ablate", run))  # refused before anything is measured
    for command in commands:
        line = refused(*command)
        assert line.startswith(f"{run / table}.parquet is damaged (")
        assert line.endswith(f"delete {what} and run again")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheme": "roep"}, "unknown scheme 'roep'"),
        ({"task": "distanse"}, "unknown task 'distanse'"),
        ({"colour": 3}, "config.json has no setting 'colour'"),
        ({"seed": "x"}, "config.json.seed is 'x'; it takes a value of type int"),
    ],
)
def test_a_config_changed_by_hand(
    refused: Callable, run: Path, change: dict[str, object], words: str
) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | change))
    assert words in refused("ablate", run)


def test_a_config_of_another_shape(refused: Callable, run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["model"]["layers"] = 2
    (run / "config.json").write_text(json.dumps(config))
    line = refused("ablate", run)
    assert f"{run / 'model.safetensors'} does not fit its config.json; delete {run}" in line


def test_metrics_damaged_in_mid_training(
    refused: Callable, run: Path, small: tuple[str, ...]
) -> None:
    """A checkpoint says how long metrics.jsonl was; here it has lost its end."""
    from poslens.training import RunFolder
    from poslens.training.folder import TRAIN_STATE

    tensors, _ = RunFolder(run).load_tensors("model.safetensors")
    state = {f"model.{name}": value for name, value in tensors.items()}
    size = (run / "metrics.jsonl").stat().st_size
    notes = {"step": 8, "solved_in_a_row": 0, "loss_sum": 0.0, "loss_count": 0, "seconds": 1.0}
    RunFolder(run).save_tensors(TRAIN_STATE, state, {**notes, "metrics_bytes": size})
    (run / "summary.parquet").unlink()
    truncate(run / "metrics.jsonl")
    line = refused("train", "rope", *small, "--out", run)
    assert line.startswith(f"{run / 'metrics.jsonl'} is damaged (")
    assert f"delete the folder {run} and run again" in line


def test_a_run_without_config_is_no_run(refused: Callable, run: Path) -> None:
    (run / "config.json").unlink()
    assert "holds no runs; give a run folder" in refused("ablate", run.parent)
    assert f"{run / 'config.json'} is damaged (" in refused("report", run.parent)


def test_a_second_damaged_run_does_not_hide_behind_a_good_one(refused: Callable, run: Path) -> None:
    other = Path(shutil.copytree(run, run.with_name("rope-distance-seed1")))
    truncate(other / "curve.parquet")
    assert f"{other / 'curve.parquet'} is damaged" in refused("report", run.parent)
