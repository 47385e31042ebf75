"""The config field ``data``."""
import pytest
from mmengine.config import Config
from mmengine.registry import RUNNERS

from mmcluspro.engine.configs import merge_options, place_data
from mmcluspro.engine.launch import read_config

TABLE = dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv')
PLACES = ('space', 'model.space', *(f'{phase}_dataloader.dataset' for phase in (
    'train', 'val', 'test')))


def small(**fields):
    """A config with the parts that name data."""
    old = dict(type='mmcluspro.ShapesCZSL', version='shapes-v1')
    return Config(dict(
        space=old, model=dict(type='M', space=old),
        **{f'{phase}_dataloader': dict(
            batch_size=8, dataset=dict(**old, phase=phase, pipeline=[phase], indices=4))
           for phase in ('train', 'val', 'test')},
        **fields))


def at(cfg, place):
    for name in place.split('.'):
        cfg = cfg[name]
    return cfg.to_dict()


def test_a_type_replaces_the_data_everywhere_and_keeps_the_rest():
    cfg = small(data=TABLE)

    place_data(cfg)

    assert 'data' not in cfg
    for place in PLACES:
        rest = {} if 'loader' not in place else dict(
            phase=place.split('_')[0], pipeline=[place.split('_')[0]], indices=4)
        assert at(cfg, place) == dict(TABLE, **rest), place
    assert cfg.model.type == 'M' and cfg.train_dataloader.batch_size == 8


def test_without_a_type_single_fields_change():
    cfg = small(data=dict(version='shapes-large-v1'))
    place_data(cfg)
    assert {at(cfg, place)['version'] for place in PLACES} == {'shapes-large-v1'}
    assert {at(cfg, place)['type'] for place in PLACES} == {'mmcluspro.ShapesCZSL'}


def test_what_the_labels_do_not_depend_on_goes_to_the_datasets_only():
    cfg = small(data=dict(TABLE, check_images='skip', features='there'))
    place_data(cfg)
    assert cfg.model.space.to_dict() == cfg.space.to_dict() == TABLE
    for phase in ('train', 'val', 'test'):
        dataset = cfg[f'{phase}_dataloader'].dataset
        assert (dataset.check_images, dataset.features) == ('skip', 'there')


def test_a_config_without_the_field_or_without_training_data_stays():
    cfg, plain = small(), small()
    place_data(cfg)
    assert cfg.to_dict() == plain.to_dict()
    zero_shot = small(data=dict(TABLE))
    zero_shot.train_dataloader = None
    place_data(zero_shot)
    assert zero_shot.train_dataloader is None and zero_shot.model.space.to_dict() == TABLE


def test_inside_a_wrapper():
    cfg = small(data=TABLE)
    cfg.train_dataloader.dataset = dict(
        type='RepeatDataset', times=2, dataset=cfg.train_dataloader.dataset.to_dict())
    place_data(cfg)
    outer = cfg.train_dataloader.dataset
    assert (outer.type, outer.times) == ('RepeatDataset', 2)
    assert outer.dataset.to_dict() == dict(TABLE, phase='train', pipeline=['train'], indices=4)


def test_other_options_refine_those_of_data():
    cfg = small(data=TABLE)
    place_data(cfg)
    merge_options(cfg, {'test_dataloader.dataset.table': 'b.csv', 'data.data_root': 'elsewhere'})
    assert {at(cfg, place)['data_root'] for place in PLACES} == {'elsewhere'}
    assert [at(cfg, place)['table'] for place in PLACES] == ['table.csv'] * 4 + ['b.csv']


def test_it_is_placed_on_reading(tmp_path):
    path = tmp_path / 'own.py'
    path.write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_shapes.py'\n"
                    f'data = {TABLE}')
    cfg = read_config(path)
    assert cfg.model.space.to_dict() == TABLE
    assert {**TABLE, 'phase': 'val'}.items() <= cfg.val_dataloader.dataset.to_dict().items()
    assert 'version' not in cfg.train_dataloader.dataset


def test_our_runner_places_what_nobody_placed(monkeypatch):
    seen = {}
    monkeypatch.setattr('mmengine.runner.Runner.from_cfg',
                        classmethod(lambda cls, cfg: seen.update(cfg=cfg)))
    cfg = small(data=TABLE, runner_type='mmcluspro.ResumableRunner')
    RUNNERS.build(cfg)
    assert seen['cfg'].model.space.to_dict() == TABLE and 'data' not in seen['cfg']
    assert cfg.data.to_dict() == TABLE


@pytest.mark.parametrize('data, message', [
    ('photos', "data must be a dict.*got 'photos'"),
    (dict(TABLE, pipeline=[]), 'pipeline belongs to train_dataloader.dataset')])
def test_what_is_wrong_is_named(data, message):
    with pytest.raises(ValueError, match=message):
        place_data(small(data=data))
