"""Whether torch has compiled a model of these shapes on this machine before, which makes the first trial much shorter.

torch keeps what it compiles in a folder of this user, by a key that only tracing the model gives. What can be read
without that are the programs in it: each begins by checking the shapes of its inputs.
"""

from __future__ import annotations

import collections
import getpass
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from golfray.core.settings import RunSettings
from golfray.sweep.size import parameter_shapes

_INPUT = re.compile(r"^ +assert_size_stride\(primals_\d+, \(([\d, ]*)\)", re.MULTILINE)

Shape = tuple[int, ...]


def cache_folder() -> Path:
    """Where torch keeps compiled programs; the folder may not exist.

    torch has a function for this, but importing it makes the folder.
    """
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid_{os.getuid()}"  # a user without a name, as in a container
    user = re.sub(r'[\\/:*?"<>|]', "_", name)
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def compiled_before(settings: RunSettings, folder: Path) -> bool:
    """Whether a program in ``folder`` takes exactly the parameters and the micro-batch of ``settings``.

    Another version of torch or of the model may have made it; then the first trial compiles all the same.
    """
    wanted = collections.Counter(_input_shapes(settings))
    # Programs lie in folders of two letters, named after the hash of their text.
    return any(wanted == _program_inputs(path) for path in folder.glob("??/*.py"))


def _program_inputs(path: Path) -> collections.Counter[Shape]:
    text = path.read_text(encoding="utf-8", errors="replace")
    found = _INPUT.findall(text)
    return collections.Counter(tuple(int(size) for size in shape.split(",") if size.strip()) for shape in found)


def _input_shapes(settings: RunSettings) -> Iterator[Shape]:
    yield from (shape for shape in parameter_shapes(settings.model) if math.prod(shape))
    batch = settings.batch
    for _tokens_and_targets in range(2):
        yield batch.tokens // batch.slices // batch.seq_len, batch.seq_len
