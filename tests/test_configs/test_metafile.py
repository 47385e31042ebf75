"""The model index: read by mim's own code, with measured numbers only."""
import json
from pathlib import Path

import pytest
import yaml

from experiments import Run, Store
from experiments.metafile import model_index, results, write_metafile
from mmcluspro.engine.configs import config_names

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / 'tools' / 'analysis_tools'
REMEDY = ('run tools/analysis_tools/reproduce.py table1 --collect-only --out docs/results '
          '--metafile configs/metafile.yml')
INDEX = yaml.safe_load((ROOT / 'configs' / 'metafile.yml').read_text(encoding='utf-8'))


def test_the_package_of_mim_reads_it_without_complaint():
    load = pytest.importorskip('modelindex.load_model_index').load
    index = load(str(ROOT / 'model-index.yml'))
    index.build_models_with_collections()
    index.check(silent=True)
    assert not index.check_errors
    assert [model.name for model in index.models] == [model['Name'] for model in INDEX['Models']]


def test_mim_search_lists_the_models():
    search = pytest.importorskip('mim.commands.search')
    from modelindex.load_model_index import load
    frame = search.convert2df(load(str(ROOT / 'model-index.yml')))
    assert frame.loc['cluspro_shapes']['config'] == 'configs/cluspro_shapes.py'
    assert frame.loc['csp_shapes']['config'] == 'configs/methods/csp.py'


def test_it_is_made_of_the_configs():
    """All but the results, which have their records."""
    made = model_index(TOOLS / 'methods.yml', ROOT / 'configs')
    assert [model['Name'] for model in made['Models']] == [
        name.removesuffix('.py') for name in config_names()]
    listed = [{key: value for key, value in model.items() if key != 'Results'}
              for model in INDEX['Models']]
    assert dict(Collections=INDEX['Collections'], Models=listed) == made, REMEDY
    for model in made['Models']:
        assert (ROOT / model['Config']).is_file()
    for collection in made['Collections']:
        assert (ROOT / collection['README']).is_file()


def test_every_number_is_measured():
    """Results must be the means of records that are in the repository."""
    store = Store(ROOT / 'docs' / 'results' / 'runs')
    for model in INDEX['Models']:
        found = model.get('Results', [])
        count = found[0]['Metrics']['Runs'] if found else 0  # newer records may wait
        assert found == results(store, ROOT / 'configs' / f'{model["Name"]}.py', count), (
            f'{model["Name"]}: {REMEDY}')
    assert not store.records or any('Results' in model for model in INDEX['Models'])


def test_means_are_filled_in_and_stale_ones_taken_out(tmp_path, monkeypatch):
    monkeypatch.setattr('mmcluspro.engine.configs.configs_folder', lambda: tmp_path / 'configs')
    monkeypatch.setattr('mmcluspro.engine.launch.configs_folder', lambda: tmp_path / 'configs')
    config = tmp_path / 'configs' / 'a_shapes.py'
    config.parent.mkdir()
    config.write_text("space = dict(type='mmcluspro.ShapesCZSL', version='shapes-v1')\n"
                      "model = dict(backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip'), "
                      'head=dict(text=dict()))\ntrain_cfg = dict()\n')
    index, methods = config.parent / 'metafile.yml', tmp_path / 'methods.yml'
    methods.write_text(json.dumps([dict(name='A', architecture=['CLIP'], readme='README.md',
                                        methods=['a'])]))
    store = Store(tmp_path / 'runs')
    for seed in (0, 1):
        store.save(Run.make(config, seed=seed), metrics={
            f'{world}/{name}': 10.0 * number + seed for world in ('czsl', 'czsl_open')
            for number, name in enumerate(('seen', 'unseen', 'hm', 'auc'))})

    assert write_metafile(index, store, methods) == ['a_shapes']

    model = yaml.safe_load(index.read_text())['Models'][0]
    assert model['Metadata'] == {'Training Data': ['Shapes'],
                                 'Architecture': ['Vision Transformer', 'CLIP']}
    assert model['Results'][1]['Dataset'] == 'shapes-v1, open world'
    assert model['Results'][1]['Metrics'] == dict(
        Seen=0.5, Unseen=10.5, HM=20.5, AUC=30.5, Runs=2)

    config.write_text(config.read_text().replace('train_cfg = dict()', 'train_cfg = dict(a=2)'))
    assert write_metafile(index, store, methods) == []
    assert 'Results' not in yaml.safe_load(index.read_text())['Models'][0]

    methods.write_text(methods.read_text().replace('"a"]', '"b"]'))
    with pytest.raises(ValueError, match='a stands in no entry of methods.yml'):
        write_metafile(index, store, methods)
