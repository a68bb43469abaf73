"""What a terminal shows after it was sent some bytes: the few control sequences that a live display uses."""

import codecs
import re

_TOKEN = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])|\x1b|[\r\n]|[^\x1b\r\n]+")
_UNFINISHED = re.compile(r"\x1b(\[\??[\d;]*)?$")


class Screen:
    """A terminal of ``width`` x ``height`` characters. ``scrolled`` are the lines that left it at the top."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.scrolled: list[str] = []
        self.rows = [""] * height
        self.row = self.column = 0
        self.cursor_shown = True
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""

    def send(self, content: bytes) -> None:
        """Take in what a program wrote, in pieces of any size; its newlines are \\r\\n, as the driver makes them."""
        text = self._rest + self._decoder.decode(content)
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        for match in _TOKEN.finditer(text.removesuffix(self._rest) if self._rest else text):
            token, letter = match[0], match[2]
            if letter is not None:
                self._control(match[1], letter, token)
            elif token == "\r":
                self.column = 0
            elif token == "\n":
                self._down()
            elif token == "\x1b":
                raise ValueError("an escape sequence that this terminal does not know")
            else:
                self._write(token)

    @property
    def lines(self) -> list[str]:
        """Everything that can be read, scrolled lines included, up to the last line with something on it."""
        lines = [line.rstrip() for line in (*self.scrolled, *self.rows)]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _control(self, number: str, letter: str, token: str) -> None:
        if letter == "m":
            return
        if letter == "A":
            self.row = max(self.row - int(number or 1), 0)
        elif letter == "K" and number == "2":
            self.rows[self.row] = ""
        elif token in ("\x1b[?25l", "\x1b[?25h"):
            self.cursor_shown = letter == "h"
        else:
            raise ValueError(f"{token!r}: a sequence that this terminal does not know")

    def _write(self, text: str) -> None:
        for character in text:
            if self.column == self.width:
                self.column = 0
                self._down()
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        if self.row + 1 < self.height:
            self.row += 1
            return
        self.scrolled.append(self.rows.pop(0))
        self.rows.append("")
