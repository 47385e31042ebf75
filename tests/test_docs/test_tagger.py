"""A project with a registry and a scope of its own: trains, predicts, exports and is served."""
import json
import sys
import urllib.request
from pathlib import Path

import pytest
from mmengine.registry import MODELS as ROOT
from PIL import Image

from mmcluspro.artefact.load import read_checkpoint
from mmcluspro.cli import main
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.demo.demo_command import parse_args, prepare
from mmcluspro.demo.server import serve

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).resolve().parents[2] / 'docs' / 'examples' / 'tagger'
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))
IMPORT = ['--import', 'tagger.czsl_head']


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A checkpoint that ``mmcluspro train`` wrote, and pictures."""
    folder = tmp_path_factory.mktemp('tagger')
    sys.path.insert(0, str(EXAMPLE))
    assert main(['train', str(EXAMPLE / 'configs' / 'tagger_shapes.py'), '--no-test',
                 '--work-dir', str(folder), '--cfg-options', 'train_cfg.max_epochs=1',
                 'train_dataloader.dataset.indices=64', 'val_dataloader.dataset.indices=32',
                 'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0',
                 'train_dataloader.persistent_workers=False',
                 'val_dataloader.persistent_workers=False']) == 0
    data = ShapesCZSL(phase='test', indices=[0, 200, 400])
    for place in range(3):
        Image.fromarray(data.get_data_info(place)['img'][..., ::-1].copy()).save(
            folder / f'{place}.png')
    (folder / 'page').mkdir()
    yield folder
    sys.path.remove(str(EXAMPLE))
    for name in [name for name in sys.modules if name.split('.')[0] == 'tagger']:
        del sys.modules[name]
    ROOT.children.pop('tagger', None)


def pictures(folder):
    return [str(folder / f'{place}.png') for place in range(3)]


def answers(folder, *words):
    out = folder / f'answers{len(words)}.json'
    assert main(['predict', str(folder / 'epoch_1.pth'), *pictures(folder), '--out', str(out),
                 '--device', 'cpu', *words]) == 0
    return [row['pairs'][0] for row in json.loads(out.read_text())]


def test_a_checkpoint_names_the_head_by_its_scope_and_only_the_user_opens_it(trained, capsys):
    with pytest.raises(SystemExit):
        answers(trained)
    said = capsys.readouterr().err
    assert "head.type is 'tagger.ScaledHead'" in said and '--import MODULE' in said
    head = read_checkpoint(trained / 'epoch_1.pth').meta['description']['model']['head']
    assert head['factor'] == 2.0 and 'noise' not in head


def test_it_predicts_is_exported_and_served(trained):
    found = answers(trained, *IMPORT)
    config = str(EXAMPLE / 'configs' / 'tagger_shapes.py')
    assert found == answers(trained, '--config', config, *IMPORT)

    pytest.importorskip('onnx')
    out = trained / 'tagger.onnx'
    assert main(['export', str(trained / 'epoch_1.pth'), '--out', str(out), *IMPORT]) == 0
    assert out.exists()  # export compares the files with the head before it keeps them

    pytest.importorskip('gradio')
    app, endpoint = prepare(parse_args([str(trained / 'epoch_1.pth'), '--device', 'cpu', *IMPORT]),
                            str(trained / 'page'))
    try:
        address = serve(app, endpoint, str(trained / 'page'), '127.0.0.1', None).rstrip('/')
        sent = urllib.request.Request(
            f'{address}/predict', Path(pictures(trained)[1]).read_bytes(),
            {'Content-Type': 'application/octet-stream'})
        with OPEN.open(sent, timeout=60) as answer:
            best = json.loads(answer.read())['pairs'][0]
    finally:
        app.close(verbose=False)
    assert (best['attribute'], best['object']) == (found[1]['attribute'], found[1]['object'])
    assert best['probability'] == pytest.approx(found[1]['probability'], abs=1e-4)
