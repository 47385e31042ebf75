"""The error of every reader: which file, where in it, what is wrong, what to do."""
from __future__ import annotations

from pathlib import Path


class FileError(ValueError):
    """A file that is damaged, of another kind, or refused.

    Args:
        file (str | Path): The file, or what the user calls it.
        problem (str): What is wrong, without a full stop.
        remedy (str): What the user can do, a sentence.
        place (str, optional): Where in the file: a line, a row, a field. Defaults to None.
    """

    def __init__(self, file: str | Path, problem: str, remedy: str,
                 place: str | None = None) -> None:
        self.file, self.problem, self.remedy, self.place = str(file), problem, remedy, place
        where = f'{file}, {place}' if place else str(file)
        super().__init__(f'{where}: {problem}. {remedy}')

    def __reduce__(self) -> tuple:  # errors travel from dataloader workers
        return type(self), (self.file, self.problem, self.remedy, self.place)


def reason_of(error: BaseException, length: int = 160) -> str:
    """The first line of an error of another package, short, with its kind where it says little."""
    text = (str(error).strip().splitlines() or [''])[0]
    text = (text if len(text) <= length else text[:length].rstrip() + '…').rstrip('. ')
    if isinstance(error, (KeyError, IndexError)) or len(text) < 12:
        return f'{type(error).__name__} {text}'.strip()
    return text
