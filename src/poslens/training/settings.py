"""What defines a run: every number that its metrics depend on."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poslens.errors import InputError
from poslens.model.transformer import ModelSettings
from poslens.settings import make_settings


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained and evaluated; sizes count sequences."""

    sequences: int = 80_000
    """Training budget, in sequences."""
    batch: int = 128
    """Sequences in one step."""
    learning_rate: float = 1e-3
    """The peak, reached after the warm-up and followed by a cosine to zero."""
    warmup: float = 0.06
    """Share of the budget over which the learning rate rises."""
    weight_decay: float = 0.01
    """AdamW's, on matrices only."""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's decay rates of its two running means."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    fixed_set: int | None = None
    """Train on that many sequences again and again; None draws fresh ones without end."""
    evaluations: int = 50
    """Evaluations during training, evenly spread."""
    validation: int = 1024
    """Held-out sequences for each of these."""
    evaluation: int = 4096
    """Held-out sequences for the final numbers and for ablation."""
    solved: float = 0.998
    """Stop early at this share of the ceiling in three evaluations in a row; above 1: never."""
    snapshots: int = 0
    """Weights kept along the way, for `poslens theory`: at step 0 and at so many steps, spaced
    geometrically, up to the end of the budget; 0 keeps none."""

    def __post_init__(self) -> None:
        """Raises InputError for values that make no sense."""
        for name in ("sequences", "batch", "evaluations", "validation", "evaluation"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.batch > self.sequences:
            raise InputError(
                f"batch {self.batch} is larger than the budget of {self.sequences} sequences; "
                "use a smaller batch"
            )
        if self.fixed_set is not None and self.fixed_set < self.batch:
            raise InputError(
                f"fixed_set {self.fixed_set} is smaller than batch {self.batch}; "
                "use a larger set or a smaller batch"
            )
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate is {self.learning_rate}; use a number above 0")
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup is {self.warmup}; use a share from 0 to below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay is {self.weight_decay}; use a number from 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas is {self.betas}; use two numbers from 0 to below 1")
        if not self.clip > 0:
            raise InputError(f"clip is {self.clip}; use a gradient norm above 0")
        if not self.solved > 0:
            raise InputError(f"solved is {self.solved}; use a share above 0")
        if self.snapshots < 0:
            raise InputError(f"snapshots is {self.snapshots}; use 0 or more")

    @property
    def steps(self) -> int:
        return self.sequences // self.batch

    @property
    def evaluate_every(self) -> int:
        """Steps between evaluations."""
        return max(1, self.steps // self.evaluations)

    @property
    def snapshot_steps(self) -> tuple[int, ...]:
        """The steps after which weights are kept, the first 0 (untrained); none without snapshots.

        The k-th of n after it is steps^(k/n), rounded: the last is the end of the budget. A budget
        of few steps has fewer of them, since those that round to the same step are one.
        """
        if not self.snapshots:
            return ()
        spaced = (self.steps ** (k / self.snapshots) for k in range(1, self.snapshots + 1))
        return tuple(sorted({0, *map(round, spaced)}))


@dataclass(frozen=True)
class RunSettings:
    """One training run: a scheme on a task from a seed.

    `task_settings` and `parts` (the scheme's encodings and attention) hold what differs from the
    defaults, by name.
    """

    scheme: str
    task: str
    seed: int = 0
    task_settings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        """Raises InputError for a negative seed."""
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; use 0 or more")

    @property
    def name(self) -> str:
        return f"{self.scheme}-{self.task}-seed{self.seed}"

    @staticmethod
    def from_json(values: dict[str, Any], path: Path) -> "RunSettings":
        """Settings read back from config.json. Raises InputError where they do not fit."""
        run: RunSettings = make_settings(RunSettings, values, str(path))
        return run
