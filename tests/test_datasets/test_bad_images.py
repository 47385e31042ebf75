"""Image files that cannot be read: named, or left out and counted."""
import os

import numpy as np
import pytest
from mmengine.registry import DefaultScope
from PIL import Image
from torch.utils.data import DataLoader

from mmcluspro.datasets import TableCZSL
from mmcluspro.engine.messages import run_command

PIPELINE = [dict(type='mmpretrain.LoadImageFromFile'), dict(type='mmpretrain.PackInputs')]


@pytest.fixture
def photos(tmp_path):
    lines = ['image,attribute,object,split']
    for i in range(6):
        Image.fromarray(np.full((8, 8, 3), 40 * i, np.uint8)).save(tmp_path / f'{i}.png')
        lines.append(f'{i}.png,wet,cat,{"train" if i < 4 else "val"}')
    (tmp_path / 'table.csv').write_text('\n'.join(lines))
    for i in (2, 5):
        (tmp_path / f'{i}.png').write_bytes((tmp_path / f'{i}.png').read_bytes()[:50])
    return tmp_path


def make(root, phase='train', pipeline=PIPELINE, **options):
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return TableCZSL(str(root), phase, table='table.csv', pipeline=pipeline, **options)


def test_a_bad_image_is_named(photos):
    dataset = make(photos)
    assert dataset[1]['inputs'].shape == (3, 8, 8)
    with pytest.raises(ValueError, match=r"2\.png cannot be read .* on_bad_image='skip' in train"):
        dataset[2]


@pytest.mark.parametrize('workers', [0, 1])
def test_the_message_is_the_same_from_a_worker(photos, workers, capsys, monkeypatch):
    monkeypatch.delenv('MMCLUSPRO_TRACEBACK', raising=False)
    loader = DataLoader(make(photos), batch_size=4, num_workers=workers, collate_fn=list)
    with pytest.raises(SystemExit):
        run_command(lambda: list(loader))
    said = capsys.readouterr().err
    assert said.startswith(f'\nerror: The image {photos / "2.png"} cannot be read (')
    assert 'Traceback' not in said and len(said.splitlines()) == 3


@pytest.mark.parametrize('workers', [0, 2])
def test_bad_images_are_left_out_and_counted(photos, workers, monkeypatch):
    said = []
    monkeypatch.setattr('mmcluspro.datasets.czsl_dataset.print_log',
                        lambda text, *_: said.append(text))
    dataset = make(photos, on_bad_image='skip')
    for _ in range(2):
        loader = DataLoader(dataset, batch_size=2, num_workers=workers, collate_fn=list)
        samples = [sample for batch in loader for sample in batch]
        assert len(samples) == 4
        assert not any('2.png' in sample['data_samples'].img_path for sample in samples)
    if workers:  # each pass starts new workers, which know of no other
        assert int(dataset.bad_images.count) == 2
    else:
        assert int(dataset.bad_images.count) == 1
        assert len(said) == 1 and '2.png cannot be read' in said[0] and '1 so far' in said[0]


def test_validation_needs_every_image(photos):
    with pytest.raises(ValueError, match=r'5\.png cannot be read .* validation and test use'):
        make(photos, 'val', on_bad_image='skip')[1]


def test_a_decompression_bomb_is_refused_before_it_is_decoded(photos, png_bomb, monkeypatch):
    class Decoder:
        def __call__(self, results):
            assert results['img_path'].endswith('3.png'), 'the bomb was decoded'
            return results

    (photos / '1.png').write_bytes(png_bomb(30_000, 30_000).read_bytes())
    (photos / '0.png').write_bytes(png_bomb(12_000, 12_000).read_bytes())  # Pillow allows it
    dataset = make(photos, pipeline=[Decoder()])
    for place, pixels in ((1, '900,000,000 pixels'), (0, '12000 x 12000 pixels')):
        with pytest.raises(ValueError, match=rf'{place}.png cannot be read .*{pixels}.*, more'):
            dataset[place]
    assert dataset[3]['attr_label'] == 0
    monkeypatch.setenv('MMCLUSPRO_MAX_PIXELS', '63')
    with pytest.raises(ValueError, match='8 x 8 pixels, more than 63'):
        dataset[3]


def test_faults_of_the_pipeline_are_not_the_images(photos):
    class Broken:
        def __call__(self, results):
            raise ZeroDivisionError('mine')

    with pytest.raises(ZeroDivisionError, match='mine'):
        make(photos, pipeline=[Broken()], on_bad_image='skip')[0]


def test_a_wrong_value_is_named(photos):
    with pytest.raises(ValueError, match="on_bad_image must be 'error' or 'skip', got 'ignore'"):
        make(photos, on_bad_image='ignore')


def test_a_pipe_and_a_file_without_end_are_left_out(photos, monkeypatch):
    for i, name in ((0, 'pipe'), (1, 'sparse')):
        (photos / f'{i}.png').unlink()
        if name == 'pipe':
            os.mkfifo(photos / f'{i}.png')
        else:
            with open(photos / f'{i}.png', 'wb') as file:
                file.truncate(50 << 30)
    dataset = make(photos, on_bad_image='skip')
    assert dataset.prepare_data(0) is None and dataset.prepare_data(1) is None
    with pytest.raises(ValueError, match=r'0\.png cannot be read \(it is a pipe, a device'):
        make(photos)[0]
