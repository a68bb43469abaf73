"""Text from a log, a rank or a file, fit for one line of a terminal.

Names, reasons and settings come from elsewhere, a study's log perhaps from somebody else: what is in them must not move
the cursor, set the title of the window, or make a line of its own.
"""

from __future__ import annotations

import re

from rich.text import Text

# Of C0 with DEL and C1 all of them, the separators of lines and paragraphs, what turns the direction of writing around,
# and halves of characters, by which Python keeps bytes that are no UTF-8.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    """``text`` with every such character but those in ``keep`` written out, as ``\\x1b`` or ``\\n``."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in keep else _written_out(found[0]), text)


def line(text: str, style: str = "") -> Text:
    """One printable line for a console."""
    return Text(printable(text), style=style)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()
