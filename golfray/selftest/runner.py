"""Run the cases of a vector file one after another and say how far each is off."""

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from golfray.selftest.compare import Deviation, FieldTolerances
from golfray.selftest.errors import SelftestError
from golfray.selftest.export_cases import INT8_ZLIB, QUANTIZER
from golfray.selftest.model_cases import BF16, FORWARD, INITIAL_VALUES, MUON, TRAIN
from golfray.selftest.real_text import REAL_TEXT
from golfray.selftest.sections import Case, Context, Section
from golfray.selftest.stream_cases import LOADER, LR_SCHEDULE, MOMENTUM_SCHEDULE, VALIDATION_SPLIT

FORMAT = "golfray-vectors/1"
BASELINE_VECTORS = pathlib.Path(__file__).parent / "vectors" / "baseline_vectors.json"

SECTIONS: dict[str, Section] = {
    "forward": FORWARD,
    "train": TRAIN,
    "muon": MUON,
    "bf16": BF16,
    "initial_values": INITIAL_VALUES,
    "int8_zlib": INT8_ZLIB,
    "quantizer": QUANTIZER,
    "loader": LOADER,
    "validation_split": VALIDATION_SPLIT,
    "lr_schedule": LR_SCHEDULE,
    "momentum_schedule": MOMENTUM_SCHEDULE,
    "real_text": REAL_TEXT,
}


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """One case: the value that comes closest to its tolerance, or goes furthest beyond it.

    ``error`` and ``tolerance`` are in ``measure`` ("rel", "abs", "exact"); ``message`` is empty where the case is ok.
    ``note`` says where the file's tolerance could not be applied as it stands, and what was applied.
    """

    section: str
    label: str
    ok: bool
    worst_field: str
    error: float
    tolerance: float
    measure: str
    seconds: float
    message: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class VectorFile:
    """A vector file that was read and checked: sections of known kinds, each with tolerances."""

    path: pathlib.Path
    sections: dict[str, list[Case]]
    tolerances: dict[str, FieldTolerances]


def read_vectors(path: pathlib.Path) -> VectorFile:
    """Read a file of the format ``golfray-vectors/1``.

    Every top-level key whose value is a list is a section. Raises ``SelftestError`` for a file that cannot be read, is
    not JSON or of another format, has a section of unknown kind, one without tolerances, or a case without an input.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SelftestError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SelftestError(f"{path}: is not JSON: {error}") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise SelftestError(f"{path}: format is {found!r}, this golfray reads {FORMAT!r}")
    sections = {name: value for name, value in content.items() if isinstance(value, list)}
    if not any(sections.values()):
        raise SelftestError(f"{path}: has no cases; every top-level key with a list is a section")
    limits = content.get("tol")
    if not isinstance(limits, dict):
        raise SelftestError(f"{path}: tol must map sections to tolerances, got {type(limits).__name__}")
    tolerances = {}
    for name, cases in sections.items():
        if name not in SECTIONS:
            raise SelftestError(f"{path}: unknown section {name!r}; known: {', '.join(SECTIONS)}")
        if name not in limits:
            raise SelftestError(f"{path}: tol says nothing about the section {name!r}")
        tolerances[name] = FieldTolerances(limits[name], f"{path}: tol.{name}")
        for index, case in enumerate(cases):
            if not isinstance(case, dict):
                raise SelftestError(f"{path}: {name}[{index}] must be an object, got {type(case).__name__}")
    return VectorFile(path, sections, tolerances)


def run_vectors(path: pathlib.Path | None = None, data: pathlib.Path | None = None) -> Iterator[CaseResult]:
    """Run every case of a vector file (default: the baseline vectors inside the package), in the file's order.

    ``data`` is the folder that datasets and tokenizers of the file are relative to. Raises ``SelftestError`` before
    the first case where the file or the data folder cannot be used, or later where a case is malformed.
    """
    vectors = read_vectors(path or BASELINE_VECTORS)
    if data is not None and not data.is_dir():
        raise SelftestError(f"{data}: no such folder; --data must be the folder that has the datasets")
    for name, cases in vectors.sections.items():
        prepare = SECTIONS[name].prepare
        for index, case in enumerate(cases):
            if prepare is not None:
                with_place(vectors.path, name, index, prepare, case, data)
    context = Context(vectors.sections, data)
    return (
        run_case(vectors, name, index, case, context)
        for name, cases in vectors.sections.items()
        for index, case in enumerate(cases)
    )


def with_place(path: pathlib.Path, name: str, index: int, action: Any, *arguments: Any) -> Any:
    """Do something with a case so that what is wrong with it is raised as ``SelftestError`` with its place."""
    place = f"{path}: {name}[{index}]"
    try:
        return action(*arguments)
    except SelftestError as error:
        raise SelftestError(f"{place}: {error}") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise SelftestError(f"{place}: malformed case ({type(error).__name__}: {error})") from error


def run_case(vectors: VectorFile, name: str, index: int, case: Case, context: Context) -> CaseResult:
    """Compute one case and compare every value that it expects. What core refuses to compute is a miss."""
    section, started = SECTIONS[name], time.perf_counter()

    def result(worst: Deviation, message: str, note: str = "") -> CaseResult:
        seconds = time.perf_counter() - started
        fields = (worst.field, worst.error, worst.tolerance, worst.measure)
        return CaseResult(name, label, not message, *fields, seconds, message, note)

    label = f"[{index}] " + str(case.get("label") or with_place(vectors.path, name, index, section.describe, case))
    wanted = with_place(vectors.path, name, index, section.wanted, case)
    if not wanted:
        raise SelftestError(f"{vectors.path}: {name}[{index}] expects nothing")
    try:
        computed = with_place(vectors.path, name, index, section.compute, case, context)
    except (ValueError, ArithmeticError, RuntimeError, AssertionError) as error:
        return result(Deviation("(all)", math.inf, 0.0, "exact", None, None), f"{type(error).__name__}: {error}")
    got = {field: computed[field] for field in wanted if field in computed}
    deviations = vectors.tolerances[name].compare(got, wanted)
    limits, reason = with_place(vectors.path, name, index, section.widened, case, context)
    loosened = [off for off in deviations if not off.ok and off.field in limits]
    for off in loosened:
        deviations[deviations.index(off)] = dataclasses.replace(off, tolerance=max(off.tolerance, limits[off.field]))
    note = f"{reason} ({len(loosened)} of {len(deviations)} values)" if loosened else ""
    misses = [deviation for deviation in deviations if not deviation.ok]
    worst = max(misses or deviations, key=lambda deviation: deviation.share)
    if not misses:
        return result(worst, "", note)
    message = (
        f"{len(misses)} of {len(deviations)} values off; {worst.field} is {worst.got!r}, must be {worst.expected!r}"
    )
    return result(worst, message, note)


def format_result(result: CaseResult) -> str:
    """One line for a case: verdict, section, label, largest error and its tolerance, seconds."""
    if result.error == 0.0 and result.tolerance == 0.0:
        off = "exact"
    else:
        sign = "<=" if result.ok else "> "
        off = f"{result.worst_field} {result.error:.1e} {sign} {result.tolerance:.1e} {result.measure}"
    line = f"{'ok  ' if result.ok else 'MISS'} {result.section} {result.label}: {off} ({result.seconds:.1f} s)"
    return "; ".join(part for part in (line, result.message, result.note) if part)
