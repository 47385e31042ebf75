"""A run removes and tests its own files only, whatever the checkpoint that it resumes names."""
import shutil

import pytest
import torch

from mmcluspro.utils.safe_load import safe_load

TINY = {'train_dataloader.batch_size': 64, 'train_dataloader.dataset.indices': 128,
        'train_cfg.max_epochs': 1, 'default_hooks.checkpoint.max_keep_ckpts': 1}


@pytest.fixture(scope='module')
def original(run, tmp_path_factory):
    """One epoch, validated and saved."""
    folder = tmp_path_factory.mktemp('runs') / 'original'
    run(folder, **TINY).train()
    return folder


def names(folder):
    return sorted(path.name for path in folder.glob('*.pth'))


def change(path, **info):
    """Changes what a checkpoint says about its run."""
    content = safe_load(path)
    content['message_hub']['runtime_info'].update(info)
    content['message_hub']['resumed_keys'].update(dict.fromkeys(info, True))
    torch.save(content, path)


def resumed(run, folder, start, epochs=2):
    runner = run(folder, resume=True, load_from=str(start),
                 **{**TINY, 'train_cfg.max_epochs': epochs})
    runner.train()
    return runner


def test_a_checkpoint_names_files_without_their_folder(original):
    info = safe_load(original / 'epoch_1.pth')['message_hub']['runtime_info']
    assert info['best_ckpt'] == 'best_czsl_auc_epoch_1.pth'
    assert info['last_ckpt'] == 'epoch_1.pth'


@pytest.mark.slow
@pytest.mark.parametrize('path', [True, False])
def test_resuming_a_copy_moves_the_best_of_the_copy(run, original, tmp_path, path):
    copy, before = tmp_path / 'copy', names(original)
    shutil.copytree(original, copy)
    best = 'best_czsl_auc_epoch_1.pth'
    # Paths are what files of before held; with a score below any other, the next epoch is better.
    change(copy / 'epoch_1.pth', best_score=-1.0, best_ckpt=str(original / best) if path else best)

    runner = resumed(run, copy, copy / 'epoch_1.pth')

    assert names(original) == before
    assert names(copy) == ['best_czsl_auc_epoch_2.pth', 'epoch_2.pth']
    assert runner.message_hub.get_info('best_ckpt') == str(copy / 'best_czsl_auc_epoch_2.pth')


@pytest.mark.slow
def test_a_copy_that_does_not_improve_is_tested_with_its_own_best(run, original, tmp_path):
    copy, best = tmp_path / 'copy', 'best_czsl_auc_epoch_1.pth'
    shutil.copytree(original, copy)
    change(copy / 'epoch_1.pth', best_score=101.0, best_ckpt=str(original / best))
    runner = resumed(run, copy, copy / 'epoch_1.pth')
    assert runner.message_hub.get_info('best_ckpt') == str(copy / best)


@pytest.mark.slow
def test_a_crafted_checkpoint_removes_nothing(run, original, tmp_path):
    folder, victims = tmp_path / 'run', [tmp_path / f'victim_{i}.pth' for i in range(4)]
    (folder / 'epoch_').mkdir(parents=True)  # what a path through '..' needs
    (folder / 'epoch_0.pth').mkdir()         # mmengine removes folders, too
    for victim in victims:
        victim.write_text('mine')
    start = tmp_path / 'epoch_1.pth'
    shutil.copy(original / 'epoch_1.pth', start)
    change(start, stop_file=str(victims[0]), best_ckpt=str(victims[1]), best_score=-1.0,
           last_ckpt=str(victims[2]), keep_ckpt_ids=['/../../victim_3', 0])

    resumed(run, folder, start)

    assert all(victim.read_text() == 'mine' for victim in victims)
    assert names(folder) == ['best_czsl_auc_epoch_2.pth', 'epoch_0.pth', 'epoch_2.pth']
    log = next(folder.glob('*/*.log')).read_text()
    told = [line for line in log.splitlines() if 'no run writes' in line]
    assert len(told) == 1 and all(word in told[0] for word in (
        f"stop_file='{victims[0]}'", f"best_ckpt='{victims[1]}'", f"last_ckpt='{victims[2]}'",
        "keep_ckpt_ids=['/../../victim_3', 0]"))


@pytest.mark.slow
def test_a_link_in_the_folder_is_not_written_through(run, original, tmp_path):
    folder, victim = tmp_path / 'run', tmp_path / 'victim'
    victim.write_text('mine')
    folder.mkdir()
    (folder / 'last_checkpoint').symlink_to(victim)
    resumed(run, folder, original / 'epoch_1.pth')
    assert victim.read_text() == 'mine'
    assert (folder / 'last_checkpoint').read_text() == str(folder / 'epoch_2.pth')
