"""What `golfray doctor` finds about the corpus of a study, on the machine from which it is driven."""

from __future__ import annotations

from collections.abc import Callable

from golfray.config.sizes import count_text
from golfray.data.check_files import check_folder
from golfray.data.corpus import DEMO_RECIPE, Corpus
from golfray.data.errors import DataError
from golfray.data.kjv import find_kjv
from golfray.data.manifest import FILE_NAME
from golfray.findings import Finding, error, fine, warning


def check(corpus: Corpus, say: Callable[[str], None]) -> list[Finding]:
    """Read every file of an opened corpus that its manifest has a sum of; ``say`` is told so before.

    Tokens are not decoded, which `golfray data check` does. Raises ``OSError`` where a file cannot be read.
    """
    files, findings = check_folder(corpus.folder, say)
    if corpus.digest is None:
        what = f"no golfray {FILE_NAME} here says what its files must be, so nothing vouches for them"
        findings.append(warning("data-unvouched", corpus.folder, what, "`golfray data check` reads every token"))
    if corpus.contaminated:
        what = "validation documents are training documents too, so no score on it may be quoted"
        findings.append(
            warning("data-contaminated", corpus.folder, what, "train on other text for a score that counts")
        )
    if not any(finding.severity == "error" for finding in findings):
        shards = count_text(sum(map(len, files.whole.values())), "shard")
        digest = "" if corpus.digest is None else f", digest {corpus.digest[:12]}"
        what = f"{corpus.name}: {corpus.train_tokens:,} training tokens in {shards}{digest}"
        findings.append(fine("data", corpus.folder, what))
    return findings


def check_demo() -> list[Finding]:
    """Whether the demo corpus, which is not built yet, can be."""
    try:
        text = find_kjv()
    except DataError as problem:
        return [error("data", problem.where, problem.what, problem.remedy)]
    return [fine("data", "", f"the demo corpus {DEMO_RECIPE.name} is built from {text} when it is first needed")]
