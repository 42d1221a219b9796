"""Profiles: how large the study is run, as one dataclass each.

smoke     under a minute, everything once: for tests and to see that it works
small     three seeds of everything on short sequences: to compare many settings
quick     the default: all schemes, both tasks, one seed, a laptop with two cores, 15 minutes
standard  three seeds, longer sequences, RoPE on 2 and 4 heads too: hours on a CPU, minutes on a GPU
paper     the published sizes: a GPU
"""

from dataclasses import dataclass, replace
from typing import Any

from poslens.errors import InputError
from poslens.experiments.rates import Rates
from poslens.model import STUDY, ModelSettings, parse_scheme
from poslens.tasks import make_task
from poslens.training import RunSettings, TrainingSettings


@dataclass(frozen=True)
class Profile:
    """What `reproduce` runs: every scheme on every task from every seed.

    `tasks` maps a task to what differs from its defaults. `tuned` takes each scheme's learning rate
    from the committed table of `tune`; otherwise `training.learning_rate` serves all.
    """

    name: str
    schemes: tuple[str, ...]
    tasks: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    model: ModelSettings
    training: dict[str, TrainingSettings]
    tuned: bool

    def cells(self, rates: Rates) -> list[RunSettings]:
        """Every run of the profile, seeds outermost so that a grid cut short has whole seeds."""
        return [
            self.cell(scheme, task, seed, rates)
            for seed in self.seeds
            for task in self.tasks
            for scheme in self.schemes
        ]

    def cell(self, scheme: str, task: str, seed: int, rates: Rates) -> RunSettings:
        training = self.training[task]
        if self.tuned:
            training = replace(training, learning_rate=rates.best(scheme, task))
        return RunSettings(
            scheme, task, seed, self.tasks[task], model=self.model, training=training
        )


def select(
    profile: Profile,
    schemes: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
) -> Profile:
    """The profile with only these schemes, tasks or seeds; empty keeps the profile's own.

    Raises InputError for unknown schemes and tasks, negative seeds and anything named twice.
    """
    for scheme in schemes:
        parse_scheme(scheme)
    for task in tasks:
        if task not in profile.tasks:
            make_task(task)
            raise InputError(
                f"profile {profile.name!r} does not set task {task!r}; it has: "
                f"{', '.join(profile.tasks)}"
            )
    for seed in seeds:
        if seed < 0:
            raise InputError(f"seed {seed} is negative; use 0 or more")
    for name, chosen in (("schemes", schemes), ("tasks", tasks), ("seeds", seeds)):
        if len(set(chosen)) < len(chosen):
            raise InputError(f"{name} name one twice: {chosen}; name each once")
    kept = {task: profile.tasks[task] for task in tasks or profile.tasks}
    return replace(
        profile, schemes=schemes or profile.schemes, tasks=kept, seeds=seeds or profile.seeds
    )


SMALL = ModelSettings(layers=3, heads=8, width=64, feedforward=128)
SMALLER = ModelSettings(layers=2, heads=4, width=64, feedforward=128)
PUBLISHED = ModelSettings(layers=6, heads=16, width=256, feedforward=512)

_quick = TrainingSettings(sequences=80_000, batch=128, evaluation=2048)
_small = TrainingSettings(sequences=40_000, batch=128, evaluation=2048)
_standard = TrainingSettings(sequences=160_000, batch=128, evaluations=80)
_smoke = TrainingSettings(
    sequences=256, batch=32, evaluations=4, validation=64, evaluation=128, learning_rate=3e-3
)
# 70 % of 100,000 and of 50,000 sequences, 100 epochs, batches of 512.
_paper = TrainingSettings(
    sequences=7_000_000, batch=512, learning_rate=1e-4, weight_decay=1e-5, fixed_set=70_000
)

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "smoke",
            STUDY,
            {"distance": {"between": 6, "aside": 3}, "count": {"length": 12, "most": 8}},
            (0,),
            ModelSettings(layers=2, heads=4, width=32, feedforward=64),
            {"distance": _smoke, "count": _smoke},
            tuned=False,
        ),
        Profile(
            "small",
            (*STUDY, "rope@2"),
            {"distance": {"between": 12, "aside": 5}, "count": {"length": 24, "most": 20}},
            (0, 1, 2),
            SMALLER,
            {"distance": _small, "count": _small},
            tuned=True,
        ),
        Profile(
            "quick",
            STUDY,
            {"distance": {"between": 20, "aside": 6}, "count": {"length": 36, "most": 30}},
            (0,),
            SMALL,
            {"distance": _quick, "count": _quick},
            tuned=True,
        ),
        Profile(
            "standard",
            (*STUDY, "rope@2", "rope@4"),  # on 0 heads it is NoPE
            {"distance": {"between": 32, "aside": 9}, "count": {"length": 52, "most": 44}},
            (0, 1, 2),
            SMALL,
            {"distance": _standard, "count": _standard},
            tuned=True,
        ),
        Profile(
            "paper",
            STUDY,
            {
                "distance": {"between": 70, "aside": 25, "cut": 120, "fillers": "published"},
                "count": {"length": 120, "most": 100, "fillers": "published"},
            },
            (0, 1, 2),
            PUBLISHED,
            {"distance": _paper, "count": replace(_paper, sequences=3_500_000, fixed_set=35_000)},
            tuned=False,
        ),
    )
}


def profile_named(name: str) -> Profile:
    """Raises InputError naming the profiles there are."""
    if name not in PROFILES:
        raise InputError(f"unknown profile {name!r}; there are: {', '.join(PROFILES)}")
    return PROFILES[name]
