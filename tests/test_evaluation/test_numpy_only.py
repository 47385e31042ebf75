"""The metric alone: NumPy, and none of torch, open_clip and the OpenMMLab packages."""
import json
import subprocess
import sys

import numpy as np
import pytest

from mmcluspro.evaluation import CZSLMetric, calculate

HEAVY = ('torch', 'mmengine', 'mmcv', 'mmpretrain', 'open_clip')
CODE = """
import json, sys
for name in {missing!r}:
    sys.modules[name] = None  # as where it is not installed
from mmcluspro.evaluation import calculate, czsl_curve, standard_curve
import mmcluspro.evaluation.curve
case = json.loads(sys.argv[1])
print(json.dumps(dict(
    numbers=calculate(case['scores'], case['targets'], case['seen'], case['pairs'], topk=[1, 2]),
    heavy=[name for name in {heavy!r} if sys.modules.get(name)])))
"""


@pytest.mark.parametrize('missing', [(), HEAVY], ids=['all packages', 'numpy only'])
def test_calculate_needs_numpy_only(missing):
    rng = np.random.default_rng(0)
    case = dict(scores=rng.normal(size=(30, 9)).tolist(),
                targets=rng.integers(9, size=30).tolist(),
                seen=(np.arange(9) < 5).tolist(), pairs=rng.integers(4, size=(9, 2)).tolist())
    done = subprocess.run(
        [sys.executable, '-c', CODE.format(missing=missing, heavy=HEAVY), json.dumps(case)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['heavy'] == []
    assert found['numbers'] == calculate(**case, topk=[1, 2])
    assert CZSLMetric.calculate is calculate
