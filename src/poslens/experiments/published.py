"""The grid of a profile with every scheme as in the study's released code."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from poslens.experiments.profiles import Profile
from poslens.experiments.rates import Rates
from poslens.model import preset
from poslens.model.published import Preset
from poslens.training import RunSettings


@dataclass(frozen=True)
class PublishedProfile(Profile):
    """A profile whose runs take the preset of their scheme, but for the settings in `kept`.

    `kept` names settings that were asked for otherwise: of "model", of "training", of each task.
    With `switch`, only what that switch sets of the preset.
    """

    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    switch: str | None = None

    def cell(self, scheme: str, task: str, seed: int, rates: Rates) -> RunSettings:
        """Raises InputError for a scheme that the study's code does not have."""
        run, own = super().cell(scheme, task, seed, rates), preset(scheme)
        if self.switch is not None:
            own = own.only(self.switch) or Preset({}, task={}, training={})
        return replace(
            run,
            task_settings=run.task_settings | self._free(own.task, task),
            parts=own.parts,
            model=replace(run.model, **self._free(own.model, "model")),
            training=replace(run.training, **self._free(own.training, "training")),
        )

    def _free(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return {name: values[name] for name in values if name not in self.kept.get(where, ())}


def as_published(
    profile: Profile,
    model: Iterable[str] = (),
    training: Iterable[str] = (),
    tasks: Mapping[str, Iterable[str]] | None = None,
    switch: str | None = None,
) -> PublishedProfile:
    """The profile with published schemes; it keeps its own values of the settings named."""
    kept = {"model": tuple(model), "training": tuple(training)}
    kept |= {task: tuple(names) for task, names in (tasks or {}).items()}
    values = {entry.name: getattr(profile, entry.name) for entry in fields(profile)}
    name = f"{profile.name}-{switch or 'published'}"
    return PublishedProfile(**values | {"name": name, "kept": kept, "switch": switch})
