"""The console is short, the log file whole."""
import csv
import logging
from types import SimpleNamespace

import pytest
from mmengine.config import Config

from mmcluspro.cli import main
from mmcluspro.engine.hooks import short_console
from mmcluspro.engine.hooks.console import epoch_header, epoch_row, next_commands, test_table
from mmcluspro.engine.hooks.evaluation import show_scalars
from mmcluspro.engine.runner import SafeRunner

METRICS = {f'{prefix}/{name}': 10.0 + i for prefix in ('czsl', 'czsl_open', 'predict')
           for i, name in enumerate(('seen', 'unseen', 'hm', 'auc'))}
test_table.__test__ = False


def test_rows_stand_below_their_header():
    header, row = epoch_header().strip('\n'), epoch_row(3, 1.25, METRICS)
    assert len(header) == len(row)
    assert row.split() == ['3', '1.250', '10.0', '11.0', '12.0', '13.0', '12.0', '13.0']
    assert epoch_row(3, 1.25, {}).split() == ['3', '1.250']


def test_the_summary_names_numbers_worst_pairs_files_and_commands(tmp_path):
    with (tmp_path / 'test_pairs.csv').open('w', newline='') as file:
        csv.writer(file).writerows([['name', 'images', 'accuracy'], ['wet cat', 7, 12.5]])
    more = {'predict/seen_prefer_seen': 20.0, 'predict/unseen_prefer_seen': 1.0,
            'predict/hm_prefer_seen': 2.0, 'predict/coverage_at_0.5': 40.0,
            'predict/accuracy_at_0.5': 90.0}
    text = test_table({**METRICS, **more}, 99, tmp_path)
    for words in ('test of 99 images', 'as predict will answer        10.0    11.0    12.0',
                  'with --prefer seen          20.0     1.0     2.0', 'answers 40 % of the images, '
                  '90 % of them right', 'worst pairs: wet cat 12 % of 7', 'test_pairs.csv'):
        assert words in text
    assert 'mmcluspro predict best.pth new_photos --out result.csv' in next_commands('best.pth')
    few = test_table({**METRICS, **more, 'predict/coverage_at_0.5': 0.2}, 99, tmp_path)
    assert 'answers under 1 % of the images, 90 % of them right' in few
    seen_only = test_table({**METRICS, **more}, 99, tmp_path, unseen=False)
    assert 'as predict will answer        10.0       –       –' in seen_only
    assert 'as papers report it           10.0       –       –       –' in seen_only
    assert 'mmcluspro cases best.pth' in next_commands(
        'best.pth', config='own.py')


def test_only_warnings_reach_the_console(tmp_path, capsys):
    logger = logging.Logger('test')
    for handler in (logging.StreamHandler(), logging.FileHandler(tmp_path / 'log')):
        logger.addHandler(handler)
    short_console(logger)
    logger.info('many lines')
    logger.warning('look here')
    logger.warning('a.weight is skipped since its requires_grad=False')
    assert capsys.readouterr().err == 'look here\n'
    assert len((tmp_path / 'log').read_text().splitlines()) == 3


@pytest.mark.slow
def test_a_run_has_a_short_console_and_a_whole_log(run, tmp_path, capsys):
    runner = run(tmp_path, **{
        'default_hooks.console': dict(type='mmcluspro.ConsoleHook'), 'log_level': 'INFO',
        'train_dataloader.dataset.indices': 64, 'train_cfg.max_epochs': 1})
    runner.train()
    runner.test()
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    assert len(lines) < 40, said.out
    assert 'as predict will answer' in said.out and 'epoch     loss' in said.out
    log, = tmp_path.glob('*/*.log')
    assert len(log.read_text().splitlines()) > 150


def test_numbers_of_a_test_go_to_tensorboard_and_cost_no_run():
    class Board:
        def __init__(self, error=None):
            self.error, self.got = error, {}

        def add_scalars(self, numbers, step):
            if self.error:
                raise self.error
            self.got[step] = numbers

    board = Board()
    visualizer = SimpleNamespace(_vis_backends=dict(a=Board(ValueError('closed')), b=board))
    show_scalars(visualizer, {'test/czsl/auc': 3.0}, 7)
    assert board.got == {7: {'test/czsl/auc': 3.0}}


def test_a_config_in_the_work_folder_is_not_overwritten(tmp_path):
    source = tmp_path / 'run' / 'mine.py'
    (tmp_path / 'run' / 'log').mkdir(parents=True)
    (tmp_path / 'other').mkdir()
    source.write_text('a = 1  # my comment\n')
    runner = object.__new__(SafeRunner)
    runner.cfg, runner._log_dir = Config.fromfile(source), str(tmp_path / 'run' / 'log')
    for runner._work_dir in (str(tmp_path / 'run'), str(tmp_path / 'other')):
        runner.dump_config()
    assert source.read_text() == 'a = 1  # my comment\n'
    for copy in ('run/log/mine.py', 'other/mine.py'):
        assert Config.fromfile(tmp_path / copy).a == 1


@pytest.mark.parametrize('options, words, epochs', [
    (['train_cfg.max_epochs=2', 'optim_wrapper.optimizer.lr=1e-4',
      'default_hooks.checkpoint.save_best=czsl_open/hm'],
     'The best epoch was the last: train longer, with --cfg-options train_cfg.max_epochs=4', 2),
    (['train_cfg.max_epochs=4', 'optim_wrapper.optimizer.lr=0.0'], '', 2)])
def test_training_that_still_gains_says_so_and_one_that_does_not_is_stopped(
        options, words, epochs, tmp_path, capsys):
    main(['train', 'cluspro_shapes.py', '--work-dir', str(tmp_path), '--no-test', '--patience', '1',
          '--cfg-options', *options, 'train_cfg.val_interval=1',
          'train_dataloader.dataset.indices=300',
          f'val_dataloader.dataset.indices=[{",".join(map(str, range(0, 1038, 5)))}]'])
    said = capsys.readouterr().out
    assert ('The best epoch was the last' in said) == bool(words) and words in said
    assert (tmp_path / f'epoch_{epochs}.pth').exists()
    assert not (tmp_path / f'epoch_{epochs + 1}.pth').exists()
