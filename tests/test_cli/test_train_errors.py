"""What `mmcluspro train` says about mistakes: one sentence, no traceback."""
import os
import signal
import subprocess
import sys
import time

import pytest

from mmcluspro.cli import main

BASE = "_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/baseline_shapes.py'\n"


@pytest.mark.parametrize('text, flags, reason', [
    ('modle = dict(head=dict(fusion="logits"))\n', [], "sets 'modle', which no part reads. Did "
     "you mean 'model'"),
    ('train_cfg = dict(max_epochs=1\n', [], "is not valid Python: '(' was never closed in line"),
    ('optim_wrapper = dict(type="AmpOptimWrapper")\n', [], 'needs a GPU'),
    ('', ['--work-dir', 'a_file'], 'The work folder a_file cannot be used'),
    ('', ['--resume', 'nothing.pth'], 'nothing.pth does not exist'),
])
def test_a_mistake_is_said_in_words(text, flags, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a_file').write_text('')
    # Should a mistake not be found, training is short.
    short = 'train_dataloader = dict(dataset=dict(indices=8))\ntrain_cfg = dict(max_epochs=1)\n'
    (tmp_path / 'config.py').write_text(BASE + short + text)
    with pytest.raises(SystemExit) as ended:
        main(['train', 'config.py', *flags])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and reason in said and 'Traceback' not in said


def test_variables_of_a_config_are_allowed(tmp_path):
    from mmengine.config import Config

    from mmcluspro.engine.configs import check_fields
    check_fields(Config(dict(_modle=1, data_root='x', features='y', space={}, my_lr=0.1,
                             train_dataset={}, photos='z', evaluator={})))


@pytest.mark.slow
def test_sigterm_saves_and_ends_with_75_and_a_second_run_is_refused(tmp_path):
    (tmp_path / 'config.py').write_text(
        BASE + 'train_dataloader = dict(batch_size=8)\nfinal_test = False\n'
        'default_hooks = dict(logger=dict(interval=1))\n')
    start = 'import sys; from mmcluspro.cli import main; sys.exit(main())'
    command = [sys.executable, '-c', start, 'train', 'config.py', '--no-validate',
               '--log', 'full']
    options = dict(cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                   env={**os.environ, 'OMP_NUM_THREADS': '1',
                        'MMCLUSPRO_EXIT_CODE_FILE': str(tmp_path / 'code')})
    first = subprocess.Popen(command, **options)
    for line in first.stdout:
        if 'Epoch(train)' in line:
            break
    second = subprocess.run([*command, '--resume'], check=False, **options)
    assert second.returncode == 2 and (tmp_path / 'code').read_text() == '2\n'
    assert f'is in use by process {first.pid} on' in second.stderr

    first.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    _, said = first.communicate(timeout=60)
    assert (tmp_path / 'code').read_text() == '75\n'  # what tools/dist_train.sh ends with
    assert first.returncode == 75 and time.monotonic() - begin < 40
    assert 'Stopped by SIGTERM; saved ' in said and 'Traceback' not in said
    (saved, ) = (tmp_path / 'work_dirs' / 'config').glob('iter_*.pth')
    assert saved.name in said
