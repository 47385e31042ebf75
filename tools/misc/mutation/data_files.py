"""Samples: metadata, tables, lists of pairs, images, word vectors."""
from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from .checkpoints import wrong_types

ROWS = [dict(image=f'{a}_{o}/{i}.png', attr=a, obj=o, set=s, _image=f'Shoes/{i}.png')
        for i, (a, o, s) in enumerate((a, o, s) for a in ('wet', 'dry') for o in ('cat', 'dog')
                                      for s in ('train', 'val', 'test'))]


def make_metadata(folder: Path) -> Path:
    torch.save(ROWS, folder / 'metadata.t7')
    return folder / 'metadata.t7'


def make_old_metadata(folder: Path) -> Path:
    torch.save([{key: np.str_(value) for key, value in row.items()} for row in ROWS],
               folder / 'old.t7', _use_new_zipfile_serialization=False)
    return folder / 'old.t7'


def read_rows(path: Path) -> Any:
    from mmcluspro.datasets.layout import read_metadata, row_faults
    from mmcluspro.errors import raise_faults
    rows = read_metadata(path)
    raise_faults(row_faults(rows, path))
    return rows


def types_of_metadata(folder: Path, generator: np.random.Generator) -> Path:
    torch.save(wrong_types(json.loads(json.dumps(ROWS)), generator), folder / 'types.t7')
    return folder / 'types.t7'


SPLIT = 'compositional-split-natural'


def make_dataset(name: str, separator: str = ' ') -> Callable[[Path], Path]:
    """A file of a dataset in the published layout: metadata, or a list of pairs."""
    def make(folder: Path) -> Path:
        root = folder / 'data'
        rows = [dict(row, attr=row['attr'].replace('wet', 'light blue' if separator == '+'
                                                   else 'wet')) for row in ROWS]
        for row in rows:
            path = root / 'images' / row['image']
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (root / SPLIT).mkdir()
        for phase in ('train', 'val', 'test'):
            pairs = sorted({f'{row["attr"]}{separator}{row["obj"]}' for row in rows})
            (root / SPLIT / f'{phase}_pairs.txt').write_text('\n'.join(pairs) + '\n')
        torch.save(rows, root / f'metadata_{SPLIT}.t7')
        return next(root.rglob(name))
    return make


def read_dataset(kind: str) -> Callable[[Path], Any]:
    """All samples of the three phases, as training and test read them."""
    def read(path: Path) -> Any:
        from mmcluspro import datasets
        root = next(parent for parent in path.parents if parent.name == 'data')
        return [[(sample['name'], sample['attr_label'], sample['obj_label'], sample['pair_label'])
                 for sample in dataset.load_data_list()] + [dataset.metainfo['classes']]
                for phase in ('train', 'val', 'test')
                for dataset in [getattr(datasets, kind)(str(root), phase=phase, lazy_init=True)]]
    return read


def make_ao_clevr(folder: Path) -> Path:
    name = 'metadata_ao_clevr__UV__comp_seed_1__seen_seed_0__{}.pkl'
    for subset, phase in (('train', 'train'), ('valid', 'val'), ('test', 'test')):
        samples = tuple((row['image'], np.str_(row['attr']), row['obj']) for row in ROWS)
        (folder / name.format(subset)).write_bytes(pickle.dumps({f'{phase}_data': samples}, 2))
    return folder / name.format('train')


def read_ao_clevr(path: Path) -> Any:
    from prepare_ao_clevr import read_split
    return read_split(path.parent, 'UV', 1, 0)


def convert(path: Path) -> Any:
    from convert_metadata import read_plain
    return read_plain(path)


def make_table(folder: Path) -> Path:
    lines = ['image,attribute,object,split,note']
    lines += [f'{row["image"]},{row["attr"]},"{row["obj"]}",{row["set"]},x' for row in ROWS]
    (folder / 'table.csv').write_text('\n'.join(lines) + '\n')
    return folder / 'table.csv'


def read_csv_table(path: Path) -> Any:
    from mmcluspro.datasets.table_file import read_table, table_pairs
    rows = read_table(path)
    return rows, table_pairs(rows, path, allow_unknown=True)


def make_pairs(folder: Path) -> Path:
    lines = ('attribute,object', 'wet,big cat', '"dry",dog', 'old,"fire truck"')
    (folder / 'pairs.csv').write_text('\n'.join(lines) + '\n')
    return folder / 'pairs.csv'


def make_pair_list(folder: Path) -> Path:
    (folder / 'pairs.txt').write_text('wet cat\ndry dog\nold truck\nnew car\n')
    return folder / 'pairs.txt'


def read_pair_file(path: Path) -> Any:
    from mmcluspro.artefact.pairs import read_pairs
    return read_pairs(path)


def make_predictions(folder: Path) -> Path:
    (folder / 'result.csv').write_text(
        'image,attribute_1,object_1,probability_1\na.jpg,wet,cat,0.75\nb.jpg,dry,"big dog",0.5\n')
    return folder / 'result.csv'


def read_predictions(path: Path) -> Any:
    from mmcluspro.cli import review
    return review.read_predictions(str(path), '.')


def make_reviewed(folder: Path) -> Path:
    (folder / 'review.csv').write_text(
        "image,attribute,object,probability,check\na.jpg,wet,cat,0.75,\nb.jpg,'=dry,dog,0.5,x\n")
    return folder / 'review.csv'


def make_label_studio(folder: Path) -> Path:
    import json

    from mmcluspro.cli.review import task
    rows = (dict(image='a.jpg', attribute='wet', object='cat', probability='0.75'),
            dict(image='b.jpg', attribute='dry', object='big dog', probability='0.5'))
    tasks = [dict(task(row, '/'), annotations=task(row, '/')['predictions']) for row in rows]
    (folder / 'review.json').write_text(json.dumps(tasks))
    return folder / 'review.json'


def read_reviewed_file(path: Path) -> Any:
    from mmcluspro.cli.review import read_reviewed
    return [tuple(row) for row in read_reviewed(str(path))]


def make_group_column(folder: Path) -> Path:
    (folder / 'groups.csv').write_text(
        'image,attribute,object,split,shop\na.jpg,wet,cat,train,north\nb.jpg,dry,dog,val,south\n')
    return folder / 'groups.csv'


def read_group_column(path: Path) -> Any:
    from mmcluspro.datasets.splitting import find_groups
    from mmcluspro.datasets.table_file import read_table
    from mmcluspro.errors import FileError
    try:
        return find_groups(read_table(path), 'shop', path.parent, path)
    except FileError:
        raise
    except ValueError as error:  # about the flag, where the name of the column is damaged
        raise FileError(path, str(error), 'Name a column.') from None


def make_image(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pixels = np.random.default_rng(0).integers(0, 255, (24, 31, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f'image{suffix}')
        return folder / f'image{suffix}'
    return make


def read_image(path: Path) -> Any:
    """As the inferencer: an error of its own words is an answer."""
    from mmcluspro.artefact.images import Item, Preprocessor
    from mmcluspro.errors import FileError
    prepare = Preprocessor(dict(preparation=dict(decoder='cv2', steps=[])), None)
    image, error = prepare(Item(str(path), str(path)))
    if error is not None:
        if ':' in error and error.split(':')[0].endswith('Error'):
            raise RuntimeError(error)
        raise FileError(path, error, 'Give another image.')
    return image


WORDS = ('wet', 'cat', 'dry', 'dog', 'old')


def make_vectors(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        table = np.random.default_rng(0).normal(size=(len(WORDS), 7)).astype(np.float32)
        lines = [f'{word} ' + ' '.join(f'{value:.4f}' for value in row)
                 for word, row in zip(WORDS, table)]
        content = {
            '.txt': '\n'.join(lines).encode() + b'\n',
            '.bin': f'{len(WORDS)} 7\n'.encode() + b''.join(
                word.encode() + b' ' + row.tobytes() + b'\n' for word, row in zip(WORDS, table)),
        }
        path = folder / name
        if name.endswith('.npz'):
            np.savez(path, words=np.array(WORDS), vectors=table)
        elif name.endswith('.gz'):
            path.write_bytes(gzip.compress(content[Path(name[:-3]).suffix], mtime=0))
        else:
            path.write_bytes(content[path.suffix])
        return path
    return make


def read_vectors(path: Path) -> Any:
    from mmcluspro.models.text import load_word_vectors
    return load_word_vectors(path, [*WORDS, 'absent'])
