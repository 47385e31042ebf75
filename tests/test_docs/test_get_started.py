"""The commands of docs/get_started.md, typed one after the other."""
import json
import re
import shlex
import warnings
from pathlib import Path

import pytest

from mmcluspro.cli import main

ROOT = Path(__file__).resolve().parents[2]
# Seconds instead of minutes. The first pictures of a phase are those of seen pairs: spread out.
SHORT = {
    'train': ['train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=64',
              f'val_dataloader.dataset.indices={list(range(0, 1020, 40))}'.replace(' ', ''),
              f'test_dataloader.dataset.indices={list(range(0, 1020, 40))}'.replace(' ', '')],
}
SHORT['test'] = SHORT['train'][2:]


def commands():
    page = (ROOT / 'docs' / 'get_started.md').read_text()
    shell = re.findall(r'```bash\n(.*?)```', page, flags=re.DOTALL)
    lines = re.sub(r'\\\n\s*', '', '\n'.join(shell)).splitlines()
    return [line for line in lines if line.startswith('mmcluspro')]


@pytest.mark.slow
def test_the_commands_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, 'showwarning', warnings.showwarning)  # the command sets its own
    typed = commands()
    assert len(typed) == 5
    for line in typed:
        command, *words = shlex.split(line)[1:]
        words = [str(next(tmp_path.glob(word))) if '*' in word else word for word in words]
        given = words[words.index('--cfg-options') + 1:] if '--cfg-options' in words else []
        words = words[:words.index('--cfg-options')] if given else words
        assert main([command, *words, '--cfg-options', *given, *SHORT[command]]) == 0
    for name in ('cluspro_shapes', 'k3', 'clip_zeroshot_shapes'):
        numbers = json.loads((tmp_path / 'work_dirs' / name / 'test_metrics.json').read_text())
        assert 0 < numbers['czsl/auc'] <= 100 and 0 < numbers['czsl_open/auc'] <= 100
        assert (tmp_path / 'work_dirs' / name / 'test_curve.png').exists()
    assert (tmp_path / 'work_dirs' / 'cluspro_shapes' / 'report.html').exists()
