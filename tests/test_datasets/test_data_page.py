import doctest
from pathlib import Path

from mmcluspro.datasets import names, space

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'data.md'


def test_the_examples_run():
    results = [doctest.testfile(str(PAGE), module_relative=False), doctest.testmod(names),
               doctest.testmod(space)]

    assert all(attempted for _, attempted in results)
    assert not any(failed for failed, _ in results)
