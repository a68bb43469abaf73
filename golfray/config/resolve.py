"""From a preset, a scale and layers of overrides to one configuration in which every value has an origin."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import ValidationError

from golfray.config import schema
from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import Document, Position, parse_value, parse_yaml
from golfray.config.rules import SEARCHED

HasGpu = bool | Callable[[], bool]
"""Whether this machine has a GPU, or how to find out: asked only where ``scale: auto`` needs to know."""

_BASE_SCALE = "full"
_SCALES = get_args(schema.Scale)


@dataclass(frozen=True)
class Layer:
    """Values from one source, later layers over earlier ones.

    ``values`` maps dotted paths to values; sections may also be nested mappings. ``source`` is the origin's name in
    messages (a file, ``--set``); ``positions`` has positions by the path there, which is ``prefix`` + path.
    """

    source: str
    values: Mapping[str, Any]
    positions: Mapping[str, Position] = field(default_factory=dict)
    prefix: str = ""

    @classmethod
    def from_document(cls, document: Document, at: str) -> Layer:
        """The overrides that stand under the key ``at`` of a file (dotted for deeper ones); nothing where it is absent.

        Raises :class:`ConfigError` where something else than a mapping stands there.
        """
        values: Any = document.values
        for key in at.split("."):
            values = values.get(key, {})
            if not isinstance(values, Mapping):
                raise document.error(at, f"must be a mapping of settings to values, got {shown(values)}")
        return cls(document.source, values, document.positions, f"{at}.")

    @classmethod
    def from_sets(cls, texts: Iterable[str]) -> Layer:
        """The overrides of a command line, each as :func:`parse_set` reads it; the same path twice is refused."""
        values: dict[str, Any] = {}
        for path, value in map(parse_set, texts):
            if path in values:
                raise ConfigError(f"is given twice: {shown(values[path])} and {shown(value)}", path=path, file="--set")
            values[path] = value
        return cls("--set", values)

    def error(self, path: str, message: str) -> ConfigError:
        """The error to raise about this layer's value at ``path``."""
        where = f"{self.prefix}{path}"
        position = self.positions.get(where)
        if position is None:
            return ConfigError(message, path=where, file=self.source)
        return ConfigError(message, path=where, file=position.source, line=position.line, column=position.column)

    def origin(self, path: str) -> str:
        """Source of ``path`` and, where known, its line."""
        position = self.positions.get(f"{self.prefix}{path}")
        return self.source if position is None else str(position)

    def flat(self) -> dict[str, Any]:
        """Values by the dotted path of a setting.

        Raises :class:`ConfigError` for unknown paths, a section without its settings, and paths given twice.
        """
        return dict(self._flat)

    @functools.cached_property
    def _flat(self) -> dict[str, Any]:
        # A layer never changes, and of thousands of points each lies over the same few.
        found: dict[str, Any] = {}
        self._flatten("", self.values, found)
        return found

    @functools.cached_property
    def _origins(self) -> dict[str, str]:
        return {path: self.origin(path) for path in self._flat}

    def _flatten(self, prefix: str, values: Mapping[str, Any], found: dict[str, Any]) -> None:
        for key, value in values.items():
            path = f"{prefix}{key}"
            if path in schema.section_names() and isinstance(value, Mapping):
                self._flatten(f"{path}.", value, found)
                continue
            try:
                checked = schema.check_value(path, value)
            except ConfigError as error:
                raise self.error(path, error.message) from error
            if path in found:
                raise self.error(path, f"is given twice: {shown(found[path])} and {shown(value)}")
            found[path] = checked


@dataclass(frozen=True)
class Resolved:
    """A valid configuration, the layers it came from (lowest first), and the origin of each value by dotted path."""

    config: schema.Config
    origins: dict[str, str]
    layers: tuple[Layer, ...]

    def overrides(self) -> dict[str, Any]:
        """{path: value} of what stands over the preset's own layers."""
        own = [layer for layer in self.layers if layer.source != f"presets/{self.config.preset}.yaml"]
        return {path: value for layer in own for path, value in layer.flat().items()}

    def error(self, path: str, message: str) -> ConfigError:
        """The error to raise about the value of ``path``, placed where that value was written."""
        (owner,) = [layer for layer in self.layers if path in layer.flat()][-1:]
        return owner.error(path, message)

    def with_values(self, values: Mapping[str, Any], source: str) -> Resolved:
        """The same configuration with one more layer on top, such as a trial's parameters; ``source`` names it."""
        chosen = {path: self.origins[path] for path in schema.CHOSEN_AT_START}
        return _merge(self.config.preset, self.config.scale, chosen, (*self.layers, Layer(source, values)))


def resolve(
    preset: str,
    scale: str,
    overrides: Mapping[str, Any] | Sequence[Layer] = (),
    *,
    has_gpu: HasGpu,
) -> Resolved:
    """Merge a preset's scale and ``overrides`` (lowest layer first) into one configuration.

    ``scale`` is ``full``, ``laptop`` or ``auto``, which is laptop where there is no GPU; ``origins["scale"]`` says
    which and why. Raises :class:`ConfigError`, located at the value to change, for everything that is wrong. Errors
    about ``preset`` and ``scale`` carry that path and no file: only the caller knows where they stood.
    """
    layers = (Layer("override", overrides),) if isinstance(overrides, Mapping) else tuple(overrides)
    document = load_preset(preset)
    # Before a GPU is looked for, which may take seconds: a typing mistake is answered at once.
    for layer in layers:
        layer.flat()
    chosen_scale, reason = choose_scale(scale, has_gpu)
    scales = (_BASE_SCALE,) if chosen_scale == _BASE_SCALE else (_BASE_SCALE, chosen_scale)
    below = tuple(Layer.from_document(document, f"scales.{name}") for name in scales)
    chosen = {"preset": "chosen at the start", "scale": reason}
    return _merge(preset, chosen_scale, chosen, (*below, *layers))


def preset_names() -> tuple[str, ...]:
    """Names of the presets that golfray ships."""
    folder = importlib.resources.files("golfray.config").joinpath("presets")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@functools.cache
def load_preset(name: str) -> Document:
    """The file of a preset; raises :class:`ConfigError` with the nearest name where there is none."""
    if name not in preset_names():
        raise ConfigError(f"unknown preset {shown(name)}; {did_you_mean(name, preset_names())}", path="preset")
    file = importlib.resources.files("golfray.config").joinpath("presets", f"{name}.yaml")
    return parse_yaml(file.read_text(encoding="utf-8"), f"presets/{name}.yaml")


def choose_scale(scale: str, has_gpu: HasGpu) -> tuple[str, str]:
    """The scale that ``scale`` stands for, and why; raises :class:`ConfigError` for a name that is none."""
    if scale == "auto":
        found = has_gpu() if callable(has_gpu) else has_gpu
        return ("full", "auto: a GPU was found") if found else ("laptop", "auto: no GPU was found")
    if scale not in _SCALES:
        raise ConfigError(f"must be one of auto, {', '.join(_SCALES)}, got {shown(scale)}", path="scale")
    return scale, "chosen at the start"


def parse_set(text: str) -> tuple[str, Any]:
    """Read one ``a.b=c``; ``c`` is YAML: ``1e-3``, ``true``, ``[1, 2]``, ``'text'`` mean what they do in files.

    Raises :class:`ConfigError` for a missing ``=``, an empty path or value, and invalid YAML; whether the path exists
    is seen when it is resolved.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise ConfigError(f"expected PATH=VALUE such as optimizer.matrix_lr=0.02, got {shown(text)}", file="--set")
    return path, parse_value(value, "--set", path)


def _merge(preset: str, scale: str, chosen: dict[str, str], layers: tuple[Layer, ...]) -> Resolved:
    values: dict[str, Any] = {}
    origins = dict(chosen)
    for layer in layers:
        values.update(layer._flat)
        origins.update(layer._origins)
    missing = [path for path in schema.field_paths() if path not in values]
    if missing:
        raise layers[0].error(missing[0], f"is missing: the scale {_BASE_SCALE} of a preset states every setting")
    nested: dict[str, Any] = {"preset": preset, "scale": scale}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    try:
        config = schema.Config.model_validate(nested)
    except ValidationError as error:
        raise _broken_rule(error, layers) from error
    resolved = Resolved(config, origins, layers)
    if config.export.search is not None:
        for path in resolved.overrides():
            if path in SEARCHED:
                raise resolved.error(path, "is what export.search chooses; leave it out, or set export.search to null")
    return resolved


def _broken_rule(error: ValidationError, layers: tuple[Layer, ...]) -> Exception:
    """The rule's message, placed at whichever of its values was written last: that one is most likely to be mended."""
    first = error.errors()[0]
    if first["type"] != schema.CROSS_FIELD:
        # Each value was checked when its layer was read, so this is a defect of golfray and no one's configuration.
        return AssertionError(f"a checked value was refused: {error}")
    paths: tuple[str, ...] = first["ctx"]["paths"]
    owners = {path: index for index, layer in enumerate(layers) for path in layer.flat()}
    path = max(paths, key=lambda candidate: owners[candidate])
    return layers[owners[path]].error(path, first["ctx"]["message"])
