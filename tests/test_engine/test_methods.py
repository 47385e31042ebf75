"""Configs without a file: a method and a dataset, put together by name."""
import pytest
from mmengine.config import Config
from mmengine.registry import RUNNERS

from mmcluspro.engine.configs import config_names
from mmcluspro.engine.launch import find_config, read_config
from mmcluspro.engine.messages import ConfigError
from mmcluspro.utils.files import configs_folder

METHOD = """
_base_ = dict(shapes=['small.py', 'more.py'], published='../{dataset}.py', utzappos='small.py')
datasets = ('shapes', 'shapes_large', 'utzappos', 'cgqa')
_width = 3
a = dict(dataset=dataset, below=_base_.a.here + _width)
on = dict(
    shapes=dict(a=dict(here=10, both=1)),
    shapes_large=dict(a=dict(both=2), b=dict(_delete_=True, new=1)),
    published=dict(a=dict(far=True)))
variants = dict(
    wide=dict(datasets=('cgqa', ), _base_='more.py', a=dict(here=dataset),
              on=dict(cgqa=dict(a=dict(both=3)))),
    thin=dict(a=dict(dataset='none')))
"""


@pytest.fixture
def method(tmp_path):
    folder = tmp_path / 'methods'
    folder.mkdir()
    (folder / 'small.py').write_text("a = dict(here=1)\nb = dict(old=1)\n")
    (folder / 'more.py').write_text("a = dict(here=_base_.a.here + 1, more=True)\n")
    (tmp_path / 'cgqa.py').write_text('a = dict(here=5)\n')
    (folder / 'mine.py').write_text(METHOD)
    return folder / 'mine.py'


@pytest.mark.parametrize('dataset, expected', [
    ('shapes', dict(a=dict(here=10, more=True, dataset='shapes', below=5, both=1), b=dict(old=1))),
    ('shapes_large', dict(
        a=dict(here=10, more=True, dataset='shapes_large', below=5, both=2), b=dict(new=1))),
    ('utzappos', dict(a=dict(here=1, dataset='utzappos', below=4, far=True), b=dict(old=1))),
    ('cgqa', dict(a=dict(here=5, dataset='cgqa', below=8, far=True)))])
def test_bases_then_fields_then_what_differs(method, dataset, expected):
    cfg = read_config(method, dataset)
    assert cfg.to_dict() == expected
    assert cfg.filename.endswith(f'mine_{dataset}.py')


def test_a_variant_changes_its_method(method):
    wide = read_config(method.with_name('mine_wide.py'), 'cgqa').to_dict()
    assert wide == dict(a=dict(here='cgqa', dataset='cgqa', below=8, far=True, more=True, both=3))
    thin = read_config(method.with_name('mine_thin_shapes.py')).a
    assert (thin.dataset, thin.below, thin.both) == ('none', 5, 1)
    with pytest.raises(ConfigError, match='mine wide has no settings for shapes, only for cgqa'):
        read_config(method.with_name('mine_wide_shapes.py'))


def test_a_dataset_that_is_not_listed_is_refused(method):
    with pytest.raises(ConfigError, match='mine has no settings for fashion, only for shapes, '):
        read_config(method, 'fashion')
    with pytest.raises(ValueError, match='no dataset imagenet. Those of the configs: cgqa, '):
        read_config(method, 'imagenet')
    method.write_text(METHOD.replace('datasets =', '_those ='))
    with pytest.raises(ConfigError, match='mine.py has no settings for fashion: its _base_ names '):
        read_config(method, 'fashion')


def test_a_method_without_a_dataset_names_its_configs():
    with pytest.raises(ConfigError, match='oadis_tokens.py is a method. Give a dataset .--dataset'
                       '., or one of the names oadis_cgqa_tokens.py.'):
        read_config('oadis_tokens.py')


@pytest.mark.parametrize('name, dataset', [
    ('csp_cgqa.py', None), ('csp.py', 'cgqa'), ('csp', 'cgqa'), ('configs/csp_cgqa.py', None),
    ('configs/baselines/csp_cgqa.py', None), ('cge_utzappos_finetuned.py', None),
    ('cge_finetuned', 'utzappos'), ('cluspro', 'utzappos')])
def test_all_names_of_a_config_mean_the_same(name, dataset, monkeypatch):
    monkeypatch.chdir(configs_folder().parent)
    cfg = read_config(name, dataset)
    assert find_config(name, dataset).name in config_names()
    stem = find_config(name, dataset).stem
    assert cfg.to_dict() == read_config(f'{stem}.py').to_dict()
    assert cfg.train_dataloader.dataset.type == (
        'mmcluspro.CGQA' if 'cgqa' in stem else 'mmcluspro.UTZappos')


def test_an_own_config_stands_on_a_name(tmp_path, monkeypatch):
    own = tmp_path / 'own.py'
    own.write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/csp_shapes.py'\n"
                   "custom_imports = dict(imports=['own_parts'])\n"
                   'train_cfg = dict(max_epochs=_base_.train_cfg.max_epochs + 1)\n')
    (tmp_path / 'own_parts.py').write_text('')
    monkeypatch.syspath_prepend(tmp_path)
    cfg, plain = read_config(own), read_config('csp_shapes.py')
    assert cfg.train_cfg.max_epochs == plain.train_cfg.max_epochs + 1
    assert cfg.model == plain.model and cfg.filename == str(own)


def test_a_config_put_together_is_one_config_when_it_is_written(tmp_path):
    cfg = read_config('oadis_utzappos.py')
    cfg.dump(tmp_path / 'copy.py')
    assert Config.fromfile(tmp_path / 'copy.py').to_dict() == cfg.to_dict()


def test_a_runner_completes_what_mmengine_read(tmp_path):
    cfg = Config.fromfile(configs_folder() / 'cluspro_shapes.py')
    assert 'space' not in cfg.model and 'in_channels' not in cfg.model.neck
    cfg.merge_from_dict(dict(work_dir=str(tmp_path), launcher='none', log_level='WARNING'))
    head = RUNNERS.build(cfg).model.head
    assert len(head.space.pairs) > 50 and head.bank('attr').dim == 64


def test_widths_and_space_are_filled_in():
    """Counted by hand: CLIP ViT-L/14 and DINO are 768 wide, the tiny CLIP 64, fashion_clip 256."""
    for name, width in dict(cluspro_utzappos=768, cluspro_shapes=64, cluspro_fashion=256,
                            dino_cluspro_cgqa=768, frozen_cluspro_shapes=64).items():
        cfg = read_config(f'{name}.py')
        assert cfg.model.neck.in_channels == cfg.model.head.in_channels == width, name
        data = cfg.train_dataloader.dataset
        assert {key: data[key] for key in cfg.model.space} == cfg.model.space.to_dict(), name
    head = read_config('kg_sp_utzappos.py').model.head
    assert head.in_channels == 1024  # what its neck makes of 512
