"""What a kind of case is: its inputs, how to name a case, and how to compute what it expects."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import torch

Case = dict[str, Any]

DESCRIPTIVE_FIELDS = frozenset({"label", "note"})


class Context:
    """What the cases of one file share: its sections, the data folder, and the weights that training cases left."""

    def __init__(self, sections: dict[str, list[Case]], data: pathlib.Path | None) -> None:
        self.sections, self.data = sections, data
        self.trained: dict[int, dict[str, torch.Tensor]] = {}


@dataclasses.dataclass(frozen=True)
class Section:
    """One kind of case.

    ``compute(case, context)`` returns the fields that a case may expect, as plain JSON values. ``expected(case)``
    returns what it does expect: by default all fields but the inputs. ``prepare(case, data)`` raises
    ``SelftestError`` where the data that a case needs is not there. ``widened(case, context)`` names values, by their
    place in the case, that may be off absolutely by more than the file says, and why: ({place: limit}, reason).
    """

    inputs: frozenset[str]
    describe: Callable[[Case], str]
    compute: Callable[[Case, Context], dict[str, Any]]
    expected: Callable[[Case], dict[str, Any]] = dict
    prepare: Callable[[Case, pathlib.Path | None], None] | None = None
    widened: Callable[[Case, Context], tuple[dict[str, float], str]] = lambda case, context: ({}, "")

    def wanted(self, case: Case) -> dict[str, Any]:
        """The fields of a case that are results."""
        skipped = self.inputs | DESCRIPTIVE_FIELDS
        return {name: value for name, value in self.expected(case).items() if name not in skipped}


def describe_config(case: Case) -> str:
    """A short name for a model shape, such as "9x512, vocab 1024, tied"."""
    config = case["config"]
    head = "tied" if config.get("tie_embeddings", True) else "untied"
    return f"{config['num_layers']}x{config['model_dim']}, vocab {config['vocab_size']}, {head}"
