"""A short run of tools/misc/mutate.py: no traceback, nothing accepted that a checksum covers."""
import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[2] / 'tools' / 'misc' / 'mutate.py'
spec = importlib.util.spec_from_file_location('mutate', PATH)
mutate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutate)


@pytest.mark.parametrize('name', mutate.READERS)
def test_damaged_files_are_found_out(name):
    reader, examples = mutate.READERS[name], []
    found = mutate.try_reader(reader, 24, seed=1, examples=examples)
    assert not examples, examples[:3]
    assert sum(found.values()) == 24
    # Lines of a log that cannot be read are left out: the run may have been killed.
    assert found['clean'] >= 2 or name == 'training log'


def test_a_reader_without_care_is_found_out(tmp_path):
    """The tool sees tracebacks and accepted files."""
    def make(folder):
        (folder / 'a.txt').write_text('12345678')
        return folder / 'a.txt'
    careless = mutate.Reader(make, lambda path: int(path.read_text()), guarded=True)
    found = mutate.try_reader(careless, 60, seed=0)
    assert found['traceback'] > 10 and found['accepted'] > 5 and not found['clean']


def test_the_same_seed_gives_the_same_files():
    first, second = (mutate.mutated(bytes(range(200)), np.random.default_rng(3)) for _ in range(2))
    assert first == second
