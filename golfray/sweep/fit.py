"""Whether a point fits under the cap: the chance that it does, and what follows from it.

Size is a chance constraint: of another seed of a point, code and model are to be at most the cap with the probability
``level`` (``fit_probability`` of a space). The chance comes from the estimate's own error before a trial, and from what
seeds differ by after it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics

from golfray.sweep.size_calibration import SeedSpread
from golfray.sweep.size_estimate import SizeEstimate
from golfray.sweep.trial_record import PRESET, REPLICATE, SAMPLER

# A point that a person wrote is refused only where it would not even fit with so much less of a model than is foreseen,
# and that is so many standard deviations.
_CERTAIN_SHARE = 0.25
_CERTAIN_SD = 10.0


@dataclasses.dataclass(frozen=True)
class Fit:
    """Foreseen bytes of the model, the standard deviation of that, and what code and model are to fit under."""

    bytes_model: int
    bytes_code: int
    sd: float
    cap_bytes: int

    @property
    def bytes_total(self) -> int:
        """Code and model."""
        return self.bytes_code + self.bytes_model

    @property
    def margin(self) -> int:
        """Bytes left under the cap, negative where over."""
        return self.cap_bytes - self.bytes_total

    @property
    def probability(self) -> float:
        """That code and model are at most the cap."""
        if self.sd <= 0:
            return float(self.margin >= 0)
        return 0.5 * math.erfc(-self.margin / (self.sd * math.sqrt(2)))

    @property
    def is_certain_not_to(self) -> bool:
        """Whether no error of the estimate that can be imagined would let it fit."""
        return -self.margin > max(_CERTAIN_SHARE * self.bytes_model, _CERTAIN_SD * self.sd)

    def interval(self, level: float) -> tuple[int, int]:
        """The bytes between which the total lies with the probability ``level``, as much below as above."""
        far = statistics.NormalDist().inv_cdf(0.5 + level / 2) * self.sd
        return round(self.bytes_total - far), round(self.bytes_total + far)

    def to_metrics(self) -> dict[str, float]:
        """As the log has it, and the outcome of a point that is refused."""
        return {
            "bytes/foreseen_total": float(self.bytes_total),
            "bytes/foreseen_sd": self.sd,
            "bytes/foreseen_margin": float(self.margin),
            "fit_probability": self.probability,
        }

    def words(self) -> str:
        """For a person, such as "about 360,000 bytes, 21,000 +-14,000 over the cap of 339,000: fits ... 6.7 %"."""
        side = (
            f"{-self.margin:,} +-{self.sd:,.0f} over" if self.margin < 0 else f"{self.margin:,} +-{self.sd:,.0f} under"
        )
        return (
            f"about {self.bytes_total:,} bytes, {side} the cap of {self.cap_bytes:,}: "
            f"fits with a chance of {chance_text(self.probability)}"
        )


def chance_text(probability: float) -> str:
    """A probability in percent, with no more digits than it is worth: "70 %", "less than 0.1 %"."""
    if probability < 0.001:
        return "less than 0.1 %"
    if probability > 0.999:
        return "more than 99.9 %"
    return f"{100 * probability:.{1 if min(probability, 1 - probability) < 0.01 else 0}f} %"


def fit_of(estimate: SizeEstimate, bytes_code: int, cap_bytes: int) -> Fit:
    """The fit of a model that was not trained yet."""
    return Fit(estimate.bytes, bytes_code, estimate.relative_error * estimate.bytes, cap_bytes)


def size_reserve(bytes_model: float, spread: SeedSpread, level: float) -> float:
    """Bytes that a measured model must leave so that another seed of it fits with the probability ``level``.

    Both seeds differ from their mean, hence the root of two; the spread itself is known from few seeds, hence
    Student's distribution. 0 at a level of one half.
    """
    return student_quantile(level, spread.freedom) * math.sqrt(2) * spread.relative * bytes_model


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t with ``freedom`` degrees: expanded in 1 / freedom (Abramowitz and Stegun 26.7.5).

    Within 2 % from 2 degrees on for probabilities up to .95, better for more degrees.
    """
    z = statistics.NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def is_too_large(role: str, fit: Fit | None, fit_probability: float) -> bool:
    """Whether a point is refused for its size before it runs; ``fit`` is None where nothing is known of that.

    What the sampler suggests is refused where it would need luck; what a person asked for where nothing would help;
    the preset and its replicates never: they are what everything else is compared with.
    """
    if fit is None or role in (PRESET, REPLICATE):
        return False
    return fit.probability < 1 - fit_probability if role == SAMPLER else fit.is_certain_not_to
