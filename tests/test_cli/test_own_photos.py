"""A folder or a CSV becomes a split and a config; the field clip reaches both towers."""
import csv

import pytest
from mmengine.config import Config
from PIL import Image

from mmcluspro.cli.own_photos import choose_clip, is_photos, own_config
from mmcluspro.engine.data_field import merge_options
from mmcluspro.engine.launch import read_config
from mmcluspro.engine.messages import ConfigError


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for attr in ('wet', 'dry', 'old'):
        for obj in ('cat', 'dog', 'car'):
            folder = tmp_path / 'photos' / f'{attr}_{obj}'
            folder.mkdir(parents=True)
            for i in range(8):
                Image.new('RGB', (8, 8)).save(folder / f'{i}.png')
    return tmp_path / 'photos'


def test_a_folder_gets_a_split_and_a_config_that_loads(photos, capsys):
    path, work_dir = own_config('photos', weights='openai', arch='ViT-B-32')
    said = capsys.readouterr().out
    assert work_dir == 'work_dirs/photos' and 'CLIP ViT-B-32 (openai)' in said
    assert '72 images of 9 pairs' in said
    cfg = read_config(path)
    assert cfg.model.backbone.arch == cfg.model.head.text.arch == 'ViT-B-32'
    assert cfg.model.neck.in_channels == cfg.model.head.in_channels == 512
    assert cfg.train_dataloader.dataset.on_bad_image == 'skip'
    with open(cfg.model.space.table, newline='') as file:
        rows = list(csv.DictReader(file))
    assert {row['split'] for row in rows} == {'train', 'val', 'test'} and len(rows) == 72
    assert not list(photos.glob('*.csv'))  # the user's folder is as it was


def test_a_csv_with_a_split_is_taken_as_it_is(photos):
    (photos / 'mine.csv').write_text(
        'image,attribute,object,split\n' + ''.join(
            f'{attr}_cat/0.png,{attr},cat,{split}\n'
            for attr, split in (('wet', 'train'), ('dry', 'train'), ('old', 'train'))))
    path, work_dir = own_config(str(photos / 'mine.csv'), weights='tiny_clip')
    assert work_dir == 'work_dirs/mine'
    assert read_config(path).model.space.table == str(photos / 'mine.csv')


def test_weights_of_a_file_tell_their_architecture_or_ask(tmp_path, capsys):
    for name in ('ViT-L-14.pt', 'mine.pt'):
        (tmp_path / name).touch()
    field, _ = choose_clip(str(tmp_path / 'ViT-L-14.pt'))
    assert field == dict(arch='ViT-L-14', pretrained=str(tmp_path / 'ViT-L-14.pt'))
    with pytest.raises(ValueError, match='add --arch'):
        choose_clip(str(tmp_path / 'mine.pt'))
    assert choose_clip('tiny_clip')[0] is None
    assert 'knows drawn shapes' in capsys.readouterr().err


def test_what_is_no_config_is_told_apart(photos):
    assert is_photos('photos') and is_photos('labels.csv') and not is_photos('config.py')
    with pytest.raises(FileNotFoundError, match='There is no labels.csv'):
        own_config('labels.csv')


def test_clip_on_the_command_line_and_where_it_does_not_fit():
    cfg = read_config('cluspro_own_data.py')
    merge_options(cfg, {'clip': 'x/ViT-L-14.pt'})
    assert cfg.model.backbone.pretrained == cfg.model.head.text.pretrained == 'x/ViT-L-14.pt'
    assert cfg.model.neck.in_channels == 768 and 'clip' not in cfg
    with pytest.raises(ConfigError, match='must be a file, or a dict'):
        merge_options(cfg, {'clip.size': 3})
    other = Config(dict(model=dict(backbone=dict(type='mmpretrain.ResNet'),
                                   head=dict(text=dict(type='mmcluspro.CLIPText')))))
    with pytest.raises(ConfigError, match='model.backbone is mmpretrain.ResNet'):
        merge_options(other, {'clip': 'x'})
