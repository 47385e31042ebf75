"""reproduce.py --in-process: records of trainings that leave nothing else on the disk."""
import pytest

from experiments import Run, Store, in_process

CONFIG = '''
model = dict(head=dict(k=1))
train_cfg = dict(max_epochs=1)
loader = dict(dataset=dict(features='f'))
train_dataloader = val_dataloader = test_dataloader = loader
'''


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Four runs, and stand-ins: the AUC is 10 K + seed, in the test 1 more; K = 7 fails."""
    (tmp_path / 'learn.py').write_text(CONFIG)
    reads = []

    def train(cfg, data, seed):
        if cfg.model.head.k == 7:
            raise ValueError('no space left on the moon')
        cfg.model.head.built = True  # as mmengine does with what it builds
        return 10 * cfg.model.head.k + seed

    monkeypatch.setattr(in_process, 'read_vectors_once', lambda: None)
    monkeypatch.setattr(in_process, 'read_phases', lambda cfg, phases: reads.append(phases) or dict(
        train=None, val=0, test=1))
    monkeypatch.setattr(in_process, 'train', train)
    monkeypatch.setattr(in_process, 'evaluate', lambda model, data: dict.fromkeys(
        in_process.KEPT, float(model + data)))
    return reads, [Run.make(tmp_path / 'learn.py', [f'model.head.k={k}'], seed)
                   for k in (1, 7) for seed in (0, 1)]


def test_each_run_has_a_record_and_features_are_read_once(runs, tmp_path, capsys):
    reads, todo = runs
    failed = in_process.InProcess(Store(tmp_path / 'runs'), tmp_path)(todo)

    assert failed == dict.fromkeys([run.name for run in todo[2:]], 'no space left on the moon')
    assert reads == [('train', 'val', 'test')]
    store = Store(tmp_path / 'runs')
    assert len(store.records) == 2 and not store.changes(todo[1])
    record = store.find(todo[1])
    assert record['metrics']['czsl/auc'] == 12 and record['val_metrics']['czsl/auc'] == 11
    out = capsys.readouterr().out
    assert '[2/4] learn_seed1: validation AUC 11.00' in out and '12.00' not in out
    assert '[3/4] FAILED learn-head.k=7_seed0: no space left on the moon' in out
