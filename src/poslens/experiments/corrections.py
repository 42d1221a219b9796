"""Claims under corrections: the study's grid with one published switch thrown at a time.

Below one folder, an experiment for each: `standard`, one for each switch of the preset with the
schemes that have it, and `published`, all switches at once. A scheme that a switch does not touch
is the standard one, so it is not trained again.
"""

from dataclasses import replace
from pathlib import Path

from poslens.experiments.profiles import Profile
from poslens.experiments.published import as_published
from poslens.experiments.rates import Rates
from poslens.experiments.reproduce import Runner, Watch, reproduce_together
from poslens.model import preset
from poslens.model.published import SWITCHES

STANDARD, PUBLISHED = "standard", "published"


def corrections(profile: Profile) -> dict[str, Profile]:
    """The experiments by name, in the order they are told.

    Raises InputError for a scheme that the study's code does not have.
    """
    found: dict[str, Profile] = {STANDARD: profile}
    for switch in SWITCHES:
        schemes = tuple(name for name in profile.schemes if preset(name).only(switch))
        if schemes:
            found[switch] = as_published(replace(profile, schemes=schemes), switch=switch)
    return found | {PUBLISHED: as_published(profile)}


def run_corrections(
    profile: Profile,
    folder: Path,
    jobs: int,
    device: str = "cpu",
    rates: Rates | None = None,
    watch: Watch | None = None,
    runner: Runner | None = None,
) -> None:
    """Complete all experiments below `folder`, whole seeds first; raises what `reproduce` does."""
    for seed in profile.seeds:
        experiments = corrections(replace(profile, seeds=(seed,)))
        reproduce_together(experiments, folder, jobs, device, rates, watch, runner)
