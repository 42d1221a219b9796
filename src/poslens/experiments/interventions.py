"""Intervene in what makes the leading head, and train again: does the deposit move or vanish?

Below one folder, an experiment for each of `claims.interventions.INTERVENTIONS`: RoPE on distance,
whose heads learn their positional gains, all with the same budget.
"""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from poslens import results
from poslens.claims.interventions import CONTROL, INTERVENTIONS, chosen
from poslens.experiments.profiles import Profile, select
from poslens.experiments.rates import Rates
from poslens.experiments.reproduce import Runner, Watch, reproduce, reproduce_together
from poslens.results import Tables
from poslens.training import RunSettings

SCHEME, TASK = "rope", "distance"
# What each intervention sets of the part `gain`, the head aside.
GAINS: dict[str, dict[str, Any]] = {
    CONTROL: {},
    "lower": {"start": 0.25},
    "higher": {"start": 4.0},
    "tied": {"tied": 0.25},
    "off": {"start": 0.0, "fixed": True},
    "bases": {},
}
SCHEMES = {"bases": "rope-bases"}
NEVER = 2.0  # a share of the ceiling that is not reached: budgets are used up alike


@dataclass(frozen=True)
class Intervened(Profile):
    """A profile of one scheme whose heads learn their gains; `gains` sets them by seed.

    Learning rates are RoPE's.
    """

    gains: dict[int, dict[str, Any]] = field(default_factory=dict)

    def cell(self, scheme: str, task: str, seed: int, rates: Rates) -> RunSettings:
        run = super().cell(SCHEME, task, seed, rates)
        return replace(run, scheme=scheme, parts={"gain": self.gains[seed]})


def intervened(profile: Profile, name: str, control: Tables | None = None) -> Intervened:
    """One intervention's experiment. `control` are the control runs, whose heads it chooses by."""
    profile = select(profile, (), (TASK,), ())
    gains = {}
    for seed in profile.seeds:
        head = None if control is None else chosen(name, control, seed)
        gains[seed] = GAINS[name] | ({} if head is None else {"head": head})
    values = {entry.name: getattr(profile, entry.name) for entry in fields(profile)}
    training = {TASK: replace(profile.training[TASK], solved=NEVER)}
    own = {"schemes": (SCHEMES.get(name, SCHEME),), "training": training, "gains": gains}
    return Intervened(**values | own | {"name": f"{profile.name}-{name}"})


def run_interventions(
    profile: Profile,
    folder: Path,
    jobs: int,
    device: str = "cpu",
    rates: Rates | None = None,
    watch: Watch | None = None,
    runner: Runner | None = None,
) -> None:
    """Complete all experiments below `folder`, the control first; raises what `reproduce` does."""
    told = (jobs, device, rates, watch, runner)
    reproduce(intervened(profile, CONTROL), folder / CONTROL, *told)
    control = results.read(folder / CONTROL)
    others = [name for name in INTERVENTIONS if name != CONTROL]
    experiments = {name: intervened(profile, name, control) for name in others}
    reproduce_together(experiments, folder, *told)
