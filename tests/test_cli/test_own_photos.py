"""A folder or a CSV becomes a split and a config; the field clip reaches both towers."""
import csv
import shutil

import pytest
import timm
import torch
from mmengine.config import Config
from PIL import Image

from mmcluspro.cli.own_photos import is_photos, own_config
from mmcluspro.cli.own_routes import choose_clip, choose_route, words_for
from mmcluspro.engine.configs import merge_options
from mmcluspro.engine.launch import read_config
from mmcluspro.engine.messages import ConfigError
from mmcluspro.models.text.words import embed_names


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
    path, work_dir, stored, _ = own_config('photos', weights='openai', arch='ViT-B-32')
    said = capsys.readouterr().out
    assert work_dir == 'work_dirs/photos' and not stored and 'CLIP ViT-B-32 (openai)' in said
    assert '72 images of 9 pairs' in said
    cfg = read_config(path)
    assert cfg.model.backbone.arch == cfg.model.head.text.arch == 'ViT-B-32'
    assert cfg.model.neck.in_channels == cfg.model.head.in_channels == 512
    assert cfg.train_dataloader.dataset.on_bad_image == 'skip'
    with open(cfg.model.space.table, newline='') as file:
        rows = list(csv.DictReader(file))
    assert {row['split'] for row in rows} == {'train', 'val', 'test'} and len(rows) == 72
    assert not list(photos.glob('*.csv'))  # the user's folder is as it was


def test_a_config_and_a_split_that_were_edited_are_kept(photos, capsys):
    path = own_config('photos', weights='tiny_clip').config
    capsys.readouterr()
    own_config('photos', weights='tiny_clip')
    assert 'note' not in capsys.readouterr().out
    folder = photos.parent / 'work_dirs' / 'photos'
    for number in (1, 2):
        for file in (photos.parent / path, folder / 'table.csv'):
            with file.open('a') as opened:
                opened.write(f'# mine {number}\n')
        own_config('photos', weights='tiny_clip')
        for name in (f'photos_{number}.py', f'table_{number}.csv'):
            assert (folder / name).read_text().endswith(f'# mine {number}\n')
        said = capsys.readouterr().out
        assert f'photos_{number}.py' in said and f'table_{number}.csv' in said
    assert '# mine' not in (photos.parent / path).read_text()


def test_a_csv_with_a_split_is_taken_as_it_is(photos):
    def write(*splits):
        (photos / 'mine.csv').write_text('image,attribute,object,split\n' + ''.join(
            f'{attr}_cat/0.png,{attr},cat,{split}\n'
            for attr, split in zip(('wet', 'dry', 'old'), splits)))

    write('train', 'val', 'test')
    path, work_dir, *_ = own_config(str(photos / 'mine.csv'), weights='tiny_clip')
    assert work_dir == 'work_dirs/mine'
    assert read_config(path).model.space.table == str(photos / 'mine.csv')
    write('train', 'train', 'test')
    with pytest.raises(ValueError, match=r"mine\.csv: no image has split 'val'\. Add images"):
        own_config(str(photos / 'mine.csv'), weights='tiny_clip')


@pytest.mark.parametrize('phase_of, best', [
    (lambda attr, i: ('train', 'val', 'test')[i % 3], 'czsl/seen'),
    (lambda attr, i: 'val' if attr == 'wet' else ('train', 'test')[i % 2], 'czsl/unseen'),
    (lambda attr, i: 'val' if attr == 'wet' else ('train', 'val', 'test')[i % 3], 'czsl/auc')])
def test_validation_of_one_side_chooses_the_best_epoch_by_that_side(photos, capsys, phase_of, best):
    rows = ['image,attribute,object,split']
    for path in sorted(photos.rglob('*.png')):
        attr, obj = path.parent.name.split('_')
        name = path.relative_to(photos.parent)
        rows.append(f'{name},{attr},{obj},{phase_of(attr, int(path.stem))}')
    (photos.parent / 'more.csv').write_text('\n'.join(rows))
    cfg = read_config(own_config('more.csv', weights='tiny_clip').config)
    assert cfg.default_hooks.checkpoint.save_best == best
    assert ('validation has no others' in capsys.readouterr().out) == (best != 'czsl/auc')


def test_a_single_pair_and_missing_weights_are_named_before_training(photos, capsys):
    for folder in photos.iterdir():
        if folder.name != 'wet_cat':
            shutil.rmtree(folder)
    (photos / 'dry_cat').mkdir()
    with pytest.raises(ValueError, match='1 attribute, 1 object and 1 pair are too few: to hold'):
        own_config('photos', weights='tiny_clip')
    assert '1 folder has no image: dry_cat' in capsys.readouterr().out
    for option in (dict(weights='none.pt'), dict(weights='x/dinov2_vits14_pretrain.pth'),
                   dict(words='none.txt')):
        with pytest.raises(FileNotFoundError, match=rf'{[*option.values()][0]} .* does not exist'):
            own_config('photos', **option)


def test_the_name_of_a_file_tells_its_architecture(tmp_path, capsys):
    (tmp_path / 'ViT-L-14.pt').touch()
    field, _ = choose_clip(str(tmp_path / 'ViT-L-14.pt'))
    assert field == dict(arch='ViT-L-14', pretrained=str(tmp_path / 'ViT-L-14.pt'))
    assert choose_clip('tiny_clip')[0] is None
    assert 'knows drawn shapes' in capsys.readouterr().err


def test_what_is_no_config_is_told_apart(photos):
    assert is_photos('photos') and is_photos('labels.csv') and not is_photos('config.py')
    with pytest.raises(FileNotFoundError, match='labels.csv does not exist'):
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


def write_vectors(path, words):
    path.write_text('\n'.join(f'{word} 1 0 {place}' for place, word in enumerate(words)))


def test_dinov2_at_hand_is_found_with_its_words_and_features_are_stored(photos, capsys):
    folder = photos.parent / 'weights'
    folder.mkdir()
    (folder / 'dinov2_vitb14_reg4_pretrain.pth').touch()
    write_vectors(folder / 'glove.txt', ['wet', 'dry', 'old', 'cat', 'dog', 'car'])
    path, work_dir, stored, _ = own_config('photos')
    said = capsys.readouterr().out
    assert stored
    assert 'DINOv2-B of weights/dinov2_vitb14_reg4_pretrain.pth, which was found here' in said
    cfg = read_config(path)
    inner = cfg.model.backbone.backbone
    assert cfg.model.backbone.in_channels == 2 * 768 and inner.backbone.num_registers == 4
    assert inner.features == cfg.train_dataloader.dataset.features == str(
        photos.parent / work_dir / 'features')
    assert cfg.model.head.text.path == str(folder / 'glove.txt')
    assert cfg.model.head.text.readable is None and 'features' not in cfg.model.space


def test_words_of_names_are_found_in_other_forms(tmp_path):
    write_vectors(tmp_path / 'v.txt', ['t-shirts', 'dress', 'navy', 'cherry', 'red', 'tomate'])
    assert words_for(['Tshirts', 'Dresses', 'Navy_Qqq', 'Cherries', 'Red', 'Tomaté'],
                     tmp_path / 'v.txt') == ({
        'Tshirts': 't-shirts', 'Dresses': 'dress', 'Navy_Qqq': 'navy', 'Cherries': 'cherry',
        'Tomaté': 'tomate'}, ())


def test_a_name_without_a_vector_starts_at_the_mean_of_the_names(tmp_path):
    write_vectors(tmp_path / 'v.txt', ['navy', 'red', 'dress'])  # (1, 0, 0), (1, 0, 1), (1, 0, 2)
    found = words_for(['Red_Dress', 'Qqq', 'Navy'], tmp_path / 'v.txt')
    assert found.lost == ('Qqq', )
    got = embed_names(['Qqq'], tmp_path / 'v.txt', found.readable)
    assert got.tolist() == [[1, 0, 1]]
    with pytest.raises(ValueError, match='no word for any of the 1 names: Qqq'):
        words_for(['Qqq'], tmp_path / 'v.txt')


@pytest.mark.parametrize('name, arch, registers', [
    ('dinov2_vits14_pretrain.pth', 'small', None), ('dinov2_vits14_fp16.pt', 'small', None),
    ('dinov2_vitl14_reg4_pretrain.pth', 'large', 4)])
def test_copies_of_dinov2_files_are_known_by_their_names(tmp_path, name, arch, registers):
    (tmp_path / name).touch()
    write_vectors(tmp_path / 'v.txt', ['wet', 'cat'])
    route = choose_route(str(tmp_path / name), words=str(tmp_path / 'v.txt'), names=['wet', 'cat'])
    tower = route.fields['model']['backbone']['backbone']['backbone']
    assert route.stored and tower['arch'] == arch and tower.get('num_registers') == registers


def test_other_files_need_an_architecture(tmp_path):
    for name in ('mine.pt', 'dinov2_vits14_linear_head.pth'):
        torch.save(dict(weight=torch.zeros(2, 3)), tmp_path / name)
        with pytest.raises(ValueError, match='none that is known: .* the architecture with --arch'):
            choose_route(str(tmp_path / name))


def test_a_file_of_dinov3_is_known_by_its_keys(tmp_path):
    torch.save(timm.create_model('vit_small_patch16_dinov3', num_classes=0).state_dict(),
               tmp_path / 'mine.pt')
    write_vectors(tmp_path / 'v.txt', ['wet', 'cat'])
    route = choose_route(str(tmp_path / 'mine.pt'), words=str(tmp_path / 'v.txt'),
                         names=['wet', 'cat'])
    backbone = route.fields['model']['backbone']
    assert route.stored and backbone['in_channels'] == 768
    assert backbone['backbone']['backbone'] == dict(
        _delete_=True, type='mmcluspro.TimmVision', arch='vit_small_patch16_dinov3',
        pretrained=str(tmp_path / 'mine.pt'))


def test_missing_parts_of_the_dinov2_route_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match='dinov2_vits14_pretrain.pth .* does not exist'):
        choose_route('dinov2_vits14_pretrain.pth')
    (tmp_path / 'dinov2_vits14_pretrain.pth').touch()
    with pytest.raises(FileNotFoundError, match='Add --words FILE'):
        choose_route('dinov2_vits14_pretrain.pth')
    with pytest.raises(ValueError, match='--words is for DINOv2 and DINOv3 weights only'):
        choose_route('openai', words='v.txt')


def test_photos_that_cannot_be_read_are_named_and_left_out(photos, capsys):
    (photos / 'wet_cat' / '0.png').write_bytes(b'\x89PNG\r\n half a picture')
    (photos / 'wet_cat' / 'notes.txt').touch()
    path, *_ = own_config('photos', weights='tiny_clip')
    said = capsys.readouterr()
    assert '72 images of 9 pairs' in said.out and 'skipped (.txt 1): wet_cat/notes.txt' in said.out
    assert '1 of 72 images cannot be read and are skipped' in said.err
    assert 'wet_cat/0.png: ' in said.err
    with open(read_config(path).model.space.table, newline='') as file:
        assert 'wet_cat/0.png' not in {row['image'] for row in csv.DictReader(file)}


def test_the_name_of_a_folder_is_not_filled_in_by_the_config(photos, monkeypatch):
    """mmengine replaces {{$NAME:default}} by the environment before it reads a config."""
    monkeypatch.setenv('SECRET', 'of the environment')
    for name in ('{{$SECRET:x}}', "{{ $SECRET : x }}'+nothing+'", '{{_base_.model}}',
                 '{{fileDirname}}', 'a\'"\\b'):
        photos.rename(photos.with_name(name))
        photos = photos.with_name(name)
        path, *_ = own_config(str(photos), weights='tiny_clip')
        cfg = read_config(path)
        assert cfg.train_dataloader.dataset.data_root == str(photos)
        assert 'of the environment' not in cfg.pretty_text
