"""`poslens train`: one scheme on one task into a run folder."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from poslens.cli.options import (
    assignments,
    before_the_rest,
    override,
    parse,
    print_json,
    read_file,
)
from poslens.cli.progress import Bars
from poslens.experiments.profiles import Profile, profile_named
from poslens.experiments.rates import Rates
from poslens.model import ModelSettings, Preset, preset
from poslens.training import RunFolder, RunSettings, TrainingSettings, train


@dataclass(frozen=True)
class RunFile:
    """What a TOML file may set; the rest comes from the profile."""

    scheme: str = "rope"
    task: str = "distance"
    seed: int = 0
    task_settings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


STANDARD = Preset(model={}, task={}, training={})


@dataclass(frozen=True)
class Train:
    """Train one scheme on one task; a killed run continues with the same command.

    For example:
      poslens train rope --task distance
      poslens train rope@2 --task distance --seed 1 --sequences 32000
      poslens train rope --task count --set rope.base=500000 most=20
      poslens train rope --task count --published --mask-padding
      poslens train --config run.toml --out runs/mine
    """

    scheme: Annotated[str, tyro.conf.Positional] = "rope"
    """NAME, NAME@k (on the first k heads), A+B (both), or mla; 'poslens list' shows all."""
    task: str = "distance"
    """distance or count."""
    seed: int = 0
    """Seed of data, initialisation and batch order."""
    out: Path | None = None
    """Run folder [default: runs/SCHEME-TASK-seedN, below runs/published with --published]."""
    profile: str = "quick"
    """Where sizes come from unless set: smoke, quick, standard or paper."""
    config: Path | None = None
    """TOML file with any of: scheme, task, seed, [task_settings], [parts.NAME], [model],
    [training]."""
    set: tuple[str, ...] = ()
    """Settings of the task and of the scheme's parts: between=10 rope.base=500000."""
    published: bool = False
    """As the study's released code does it for this scheme (docs/published.md); file and options
    come before it: --published --final-norm is that code with a final norm."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the summary as JSON."""
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)


def run(arguments: list[str]) -> None:
    import torch

    early = before_the_rest(arguments, "profile", "config", "task", "learning-rate")
    file = read_file(RunFile, early.get("config"))
    profile = profile_named(early.get("profile", "quick"))
    file = replace(file, task=early.get("task", file.task))
    published = "--published" in arguments
    own = STANDARD
    command = parse(Train, arguments, "train", defaults(profile, own, file), published)
    if published:
        own = preset(command.scheme)
        command = parse(Train, arguments, "train", defaults(profile, own, file), published)
    settings = resolve(command, profile, own, file, "learning-rate" in early)
    torch.set_num_threads(1)
    path = command.out or Path("runs", *["published"] * published) / settings.name
    with Bars() as bars:
        folder = train(
            settings, path, command.device, lambda progress: bars.run(settings.name, progress)
        )
    show(folder, command.json)


def defaults(profile: Profile, own: Preset, file: RunFile) -> Train:
    """What options that are not given stand for: file before preset before profile."""
    sizes = profile.training.get(file.task, TrainingSettings())
    return Train(
        scheme=file.scheme,
        task=file.task,
        seed=file.seed,
        model=override(profile.model, own.model | file.model, "model"),
        training=override(sizes, own.training | file.training, "training"),
    )


def resolve(
    command: Train, profile: Profile, own: Preset, file: RunFile, rate_given: bool
) -> RunSettings:
    """The run that options, file, preset and profile together ask for."""
    given = assignments(command.set)
    task_settings = profile.tasks.get(command.task, {}) | own.task | file.task_settings
    task_settings |= {key: value for key, value in given.items() if not isinstance(value, dict)}
    parts = dict(own.parts)
    for source in (file.parts, given):
        for name, part in source.items():
            if isinstance(part, dict):
                parts[name] = parts.get(name, {}) | part
    training = command.training
    if profile.tuned and not rate_given and "learning_rate" not in file.training:
        training = replace(training, learning_rate=Rates().best(command.scheme, command.task))
    return RunSettings(
        command.scheme, command.task, command.seed, task_settings, parts, command.model, training
    )


def show(folder: RunFolder, as_json: bool) -> None:
    from poslens import results

    row = results.read(folder.path).summary.row(0, named=True)
    if as_json:
        print_json(row | {"folder": str(folder.path)})
        return
    print(
        f"{row['scheme']} on {row['task']}: accuracy {row['accuracy']:.3f} "
        f"(chance {row['chance']:.3f}, length only {row['baseline']:.3f}, "
        f"ceiling {row['ceiling']:.3f}) after {row['sequences']:,} sequences\n{folder.path}"
    )
