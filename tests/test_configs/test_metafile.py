"""The model index: read by mim's own code, with measured numbers only."""
import json
from pathlib import Path

import pytest
import yaml

from experiments import Run, Store
from experiments.metafile import fill_metafile, results

ROOT = Path(__file__).resolve().parents[2]
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


def test_names_and_files_fit():
    names = [model['Name'] for model in INDEX['Models']]
    assert len(names) == len(set(names))
    collections = {collection['Name'] for collection in INDEX['Collections']}
    for model in INDEX['Models']:
        assert Path(model['Config']).stem == model['Name']
        assert (ROOT / model['Config']).is_file()
        assert model['In Collection'] in collections
    for collection in INDEX['Collections']:
        assert (ROOT / collection['README']).is_file()


def test_every_number_is_measured():
    """Results must be the means of records that are in the repository."""
    store = Store(ROOT / 'docs' / 'results' / 'runs')
    for model in INDEX['Models']:
        found = model.get('Results', [])
        count = found[0]['Metrics']['Runs'] if found else 0  # newer records may wait
        assert found == results(store, ROOT / model['Config'], count), (
            f'{model["Name"]}: run tools/analysis_tools/reproduce.py table1 --collect-only '
            '--out docs/results --metafile configs/metafile.yml')
    assert not store.records or any('Results' in model for model in INDEX['Models'])


def test_every_config_is_listed():
    files = {path for folder in ('', 'baselines', 'ablations', 'zoo')
             for path in (ROOT / 'configs' / folder).glob('*.py')}
    assert files == {ROOT / model['Config'] for model in INDEX['Models']}


def test_means_are_filled_in_and_stale_ones_taken_out(tmp_path):
    config = tmp_path / 'configs' / 'a.py'
    config.parent.mkdir()
    config.write_text("space = dict(type='mmcluspro.ShapesCZSL', version='shapes-v1')\n"
                      'train_cfg = dict()\n')
    index = tmp_path / 'metafile.yml'
    index.write_text(json.dumps(dict(Models=[dict(Name='a', Config='configs/a.py')])))
    store = Store(tmp_path / 'runs')
    for seed in (0, 1):
        store.save(Run.make(config, seed=seed), metrics={
            f'{world}/{name}': 10.0 * number + seed for world in ('czsl', 'czsl_open')
            for number, name in enumerate(('seen', 'unseen', 'hm', 'auc'))})

    assert fill_metafile(index, store, tmp_path) == ['a']

    entries = yaml.safe_load(index.read_text())['Models'][0]['Results']
    assert entries[1]['Dataset'] == 'shapes-v1, open world'
    assert entries[1]['Metrics'] == dict(Seen=0.5, Unseen=10.5, HM=20.5, AUC=30.5, Runs=2)

    config.write_text(config.read_text().replace('dict()', 'dict(max_epochs=2)'))
    assert fill_metafile(index, store, tmp_path) == []
    assert 'Results' not in yaml.safe_load(index.read_text())['Models'][0]
