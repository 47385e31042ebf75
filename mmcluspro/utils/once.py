"""Reads a file once per process, as long as it does not change."""
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

Reader = TypeVar('Reader', bound=Callable[..., Any])
# A file that is younger than this may change again within the resolution of its time stamp.
SETTLED = 1_000_000_000  # nanoseconds


def once_per_file(kept: int) -> Callable[[Reader], Reader]:
    """Decorates a reader ``function(path, ...)``: the same unchanged file is read once.

    Callers share the result and must not change it. Errors are not kept.

    Args:
        kept (int): How many results are kept, the last used ones.
    """

    def decorate(function: Reader) -> Reader:
        results: OrderedDict[tuple, Any] = OrderedDict()

        @wraps(function)
        def reader(path: str | Path, *args: Any, **kwargs: Any) -> Any:
            try:
                state = Path(path).expanduser().stat()
            except OSError:
                return function(path, *args, **kwargs)  # whose message says what is missing
            key = (str(Path(path).expanduser().absolute()), state.st_ino, state.st_mtime_ns,
                   state.st_size, args, tuple(sorted(kwargs.items())))
            if key in results:
                results.move_to_end(key)
                return results[key]
            result = function(path, *args, **kwargs)
            if time.time_ns() - state.st_mtime_ns > SETTLED:
                results[key] = result
                while len(results) > kept:
                    results.popitem(last=False)
            return result

        return reader  # type: ignore[return-value]

    return decorate
