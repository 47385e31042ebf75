import doctest
from pathlib import Path

import pytest

from mmcluspro.evaluation import margins

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'evaluation.md'


def test_examples_in_docstrings_run():
    assert doctest.testmod(margins) == (0, 3)


@pytest.mark.skipif(not PAGE.exists(), reason='installed without docs')
def test_examples_of_the_page_run():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)

    assert failed == 0 and tried >= 6
