"""The tensors of one checkpoint under any export settings, each quantized once: what makes a search cheap."""

from __future__ import annotations

from collections.abc import Callable

import torch

from golfray.core.container import Kept, Quantized
from golfray.core.exporter import restore, storage_order, store_tensor, tensor_rule
from golfray.core.gptq import HessianFactor, factor_hessians
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import TensorRule, class_of
from golfray.sweep.export_space import CLASSES

# (name, rule, damping of GPTQ or None): what a quantized tensor depends on.
Key = tuple[str, TensorRule | None, float | None]


class NotStorable(ValueError):
    """A rule under which finite weights have no stored form; the message names the tensor."""


class ExportTensors:
    """A state dict and what it becomes under rules; ``collect`` is called once, when GPTQ is first asked for.

    ``collect()``: Hessians by name of the weight, as :func:`golfray.core.gptq.collect_hessians` has them.
    """

    def __init__(self, state: dict[str, torch.Tensor], collect: Callable[[], dict[str, torch.Tensor]]) -> None:
        self.state = state
        self.names = {kind: [name for name in state if class_of(name) == kind] for kind in CLASSES}
        self._collect = collect
        self._hessians: dict[str, torch.Tensor] | None = None
        self._keys: dict[tuple[str, ExportSettings], tuple[Key, ...]] = {}
        self._factors: dict[float, dict[str, HessianFactor]] = {}
        self._stored: dict[Key, Quantized | Kept] = {}

    def key(self, name: str, export: ExportSettings) -> Key:
        """What the tensor ``name`` depends on under ``export``; GPTQ acts on integers of layers that have inputs."""
        rule = tensor_rule(name, self.state[name], export)
        if not export.gptq or rule is None or rule.bits > 8 or name not in self.factors(export.gptq_damping):
            return name, rule, None
        return name, rule, export.gptq_damping

    def class_key(self, kind: str, export: ExportSettings) -> tuple[Key, ...]:
        """What all tensors of a class depend on."""
        if (kind, export) not in self._keys:
            self._keys[kind, export] = tuple(self.key(name, export) for name in self.names[kind])
        return self._keys[kind, export]

    def stored(self, key: Key) -> Quantized | Kept:
        """The tensor as it is stored; raises :class:`NotStorable` where :func:`store_tensor` says it cannot be."""
        if key not in self._stored:
            name, rule, damping = key
            factor = None if damping is None else self.factors(damping)[name]
            try:
                self._stored[key] = store_tensor(name, self.state[name], rule, factor)
            except ValueError as error:
                raise NotStorable(str(error)) from error
        return self._stored[key]

    def restored(self, kinds: tuple[str, ...], export: ExportSettings) -> dict[str, torch.Tensor]:
        """Weights of some classes as an artifact gives them back."""
        return {key[0]: restore(self.stored(key)) for kind in kinds for key in self.class_key(kind, export)}

    def class_tensors(self, key: tuple[Key, ...]) -> dict[str, Quantized | Kept]:
        """All tensors of a class as :func:`golfray.core.exporter.export_state` stores them, in its order."""
        parts = {part[0]: part for part in key}
        return {name: self.stored(parts[name]) for name in storage_order({part[0]: part[1] for part in key})}

    def factors(self, damping: float) -> dict[str, HessianFactor]:
        """Factors of all Hessians at one damping, by name of the weight."""
        if damping not in self._factors:
            if self._hessians is None:
                self._hessians = self._collect()
            self._factors[damping] = factor_hessians(self._hessians, damping)
        return self._factors[damping]
