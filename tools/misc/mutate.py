"""Damages a sample file of every reader, again and again, and counts what each makes of it.

    python tools/misc/mutate.py                       # 300 mutations of each reader, two minutes
    python tools/misc/mutate.py --count 10000         # the long run
    python tools/misc/mutate.py --readers checkpoint safetensors --seed 3

Columns: *clean*, a FileError that names the file; *harmless*, the content is the same; *accepted*,
read with other content; *traceback*, any other error, or no answer within ten seconds. The run
fails on a traceback, and where a file with a checksum was accepted with other content.
"""
from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutation import checkpoints, plain
from mutation import data_files as data
from mutation.reader import Reader, digest

from mmcluspro.errors import FileError

SECONDS = 10
READERS: dict[str, Reader] = {
    'checkpoint': Reader(checkpoints.make_checkpoint, checkpoints.read_checkpoint_file, True,
                         checkpoints.types_of_checkpoint),
    **{f'checkpoint {name}': Reader(checkpoints.make_newest(config),
                                    checkpoints.read_checkpoint_file, True,
                                    checkpoints.types_of_newest(config))
       for name, config in (('TOMCAT', 'tomcat_shapes'),
                            ('MSCI', 'msci_shapes'), ('CPF', 'cpf_shapes'),
                            ('ClusPro+', 'cluspro_plus_shapes'))},
    'published file': Reader(checkpoints.make_published, checkpoints.read_checkpoint_file, True),
    'safetensors': Reader(checkpoints.make_safetensors, checkpoints.read_clip),
    'CLIP weights': Reader(checkpoints.make_pickle, checkpoints.read_clip, True),
    'TorchScript': Reader(checkpoints.make_torchscript, checkpoints.read_clip, True),
    'DINO weights': Reader(checkpoints.make_dino, checkpoints.read_dino, True),
    'metadata': Reader(data.make_metadata, data.read_rows, True, data.types_of_metadata),
    'metadata conversion': Reader(data.make_old_metadata, data.convert, False,
                                  data.types_of_metadata),
    'VAW-CZSL pairs': Reader(data.make_dataset('train_pairs.txt', '+'),
                             data.read_dataset('VAWCZSL')),
    'VAW-CZSL metadata': Reader(data.make_dataset('*.t7', '+'), data.read_dataset('VAWCZSL'),
                                True),
    'Clothing16K pairs': Reader(data.make_dataset('test_pairs.txt'),
                                data.read_dataset('Clothing16K')),
    'AO-CLEVr metadata': Reader(data.make_dataset('*.t7'), data.read_dataset('AOCLEVr'), True),
    'AO-CLEVr pickles': Reader(data.make_ao_clevr, data.read_ao_clevr),
    'table': Reader(data.make_table, data.read_csv_table),
    'pairs': Reader(data.make_pairs, data.read_pair_file),
    'pair list': Reader(data.make_pair_list, data.read_pair_file),
    'predictions to review': Reader(data.make_predictions, data.read_predictions),
    'reviewed .csv': Reader(data.make_reviewed, data.read_reviewed_file),
    'reviewed .json': Reader(data.make_label_studio, data.read_reviewed_file),
    'group column': Reader(data.make_group_column, data.read_group_column),
    **{f'image {suffix}': Reader(data.make_image(suffix), data.read_image)
       for suffix in ('.png', '.jpg', '.gif', '.webp', '.bmp', '.tif')},
    **{f'word vectors {name[1:]}': Reader(data.make_vectors(f'v{name}'), data.read_vectors,
                                         name.endswith('z'))
       for name in ('.txt', '.bin', '.txt.gz', '.bin.gz', '.npz')},
    'feature facts': Reader(plain.make_features('features.json'), plain.read_features, True),
    'feature names': Reader(plain.make_features('names.json'), plain.read_features, True),
    'feature shard': Reader(plain.make_features('00000-*.npy'), plain.read_features, True),
    'exported table': Reader(plain.make_exported_table, plain.read_exported_table, True),
    'exported table ClusPro+': Reader(plain.make_plus_table, plain.read_exported_table, True),
    'curves': Reader(plain.make_curves, plain.read_curve_file, True),
    'prototype images': Reader(plain.make_prototype_images, plain.read_prototype_image_file, True),
    'test numbers': Reader(plain.make_run('test_metrics.json'), plain.read_run_folder),
    'training log': Reader(plain.make_run('1/vis_data/scalars.json'), plain.read_run_folder),
    'tables YAML': Reader(plain.make_yaml, plain.read_yaml),
    'records': Reader(plain.make_record, plain.read_record),
}


def mutated(content: bytes, generator: np.random.Generator) -> bytes:
    """A damaged copy: flipped bits, cut, inserted, removed, swapped, doubled or blank bytes."""
    size = len(content)
    start, end = sorted(generator.integers(0, size + 1, 2).tolist())
    end = min(end, start + int(generator.integers(1, 200)))
    kind = int(generator.integers(9))
    damaged = bytearray(content)
    if kind <= 2:
        for place in generator.integers(0, size, int(generator.integers(1, 5))).tolist():
            damaged[place] ^= 1 << int(generator.integers(8))
    elif kind == 3:
        del damaged[start:]
    elif kind == 4:
        damaged[start:start] = generator.bytes(int(generator.integers(1, 40)))
    elif kind == 5:
        del damaged[start:end]
    elif kind == 6:
        middle = int(generator.integers(start, size + 1))
        damaged = bytearray(content[:start] + content[middle:] + content[start:middle])
    elif kind == 7:
        damaged[end:end] = content[start:end]
    else:
        blank = [b'\0', b'"', b' ', b'\n', b'[', b'9', b'\xff', b'-'][int(generator.integers(8))]
        damaged[start:end] = blank * (end - start)
    return bytes(damaged)


def try_reader(reader: Reader, count: int, seed: int,
               examples: list[str] | None = None) -> Counter[str]:
    """Reads ``count`` damaged files; returns the number of each outcome.

    Args:
        reader (Reader): Whose sample is damaged.
        count (int): Mutations.
        seed (int): The same seed gives the same files.
        examples (list[str], optional): Gets a line for each traceback, and for each file that
            was accepted although a checksum covers it.
    """
    generator = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / 'a').mkdir()
        path = reader.make(Path(folder) / 'a')
        content, expected = path.read_bytes(), digest(reader.read(path))
        for number in range(count):
            use_types = reader.types is not None and number % 3 == 2
            if use_types and reader.types is not None:
                other = Path(folder) / 'b'
                shutil.rmtree(other, ignore_errors=True)
                other.mkdir()
                target = reader.types(other, generator)
            else:
                damaged = mutated(content, generator)
                if damaged == content:
                    found['harmless'] += 1
                    continue
                target = path
                target.write_bytes(damaged)
            outcome, line = _outcome(reader, target, expected)
            # With a sound container the change is what the file says: no checksum covers it.
            guarded = reader.guarded and not use_types
            outcome = 'typed' if outcome == 'accepted' and use_types else outcome
            found[outcome] += 1
            if examples is not None and (outcome == 'traceback'
                                         or outcome == 'accepted' and guarded):
                examples.append(f'mutation {number}: {line}')
    return found


def _outcome(reader: Reader, path: Path, expected: str) -> tuple[str, str]:
    def too_long(*_: object) -> None:
        raise TimeoutError(f'no answer within {SECONDS} seconds')

    # Its own seconds, not those of a busy machine.
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            got = digest(reader.read(path))
    except FileError as error:
        if path.name in str(error) or path.parent.name in str(error):
            return 'clean', ''
        return 'traceback', f'the message does not name the file: {error}'
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return 'traceback', (f'{type(error).__name__}: {str(error)[:120]} '
                             f'({Path(frame.filename).name}:{frame.lineno})')
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ('harmless', '') if got == expected else ('accepted', 'other content')


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--count', type=int, default=300, help='mutations of each reader')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--readers', nargs='+', choices=READERS, default=list(READERS))
    args = parser.parse_args(argv)
    if hasattr(cv2, 'setLogLevel'):
        cv2.setLogLevel(0)  # it says on stderr what is wrong with each picture
    print('| reader | checksum | mutations | clean | harmless | accepted | other types, accepted '
          '| traceback |\n|---|---|---|---|---|---|---|---|')
    faults = 0
    total: Counter[str] = Counter()
    for name in args.readers:
        reader, examples = READERS[name], list[str]()
        found = try_reader(reader, args.count, args.seed, examples)
        total += found
        faults += found['traceback'] + (found['accepted'] if reader.guarded else 0)
        print(f'| {name} | {"yes" if reader.guarded else "no"} | {args.count} | {found["clean"]} | '
              f'{found["harmless"]} | {found["accepted"]} | {found["typed"]} | '
              f'{found["traceback"]} |', flush=True)
        for line in examples[:5]:
            print(f'    {line}', file=sys.stderr)
    print(f'| all | | {sum(total.values())} | ' + ' | '.join(
        str(total[name]) for name in ('clean', 'harmless', 'accepted', 'typed', 'traceback'))
        + ' |')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
