"""Writes the features of a frozen backbone to disk: ``mmcluspro extract-features``."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .flags import (
    PHASES,
    add_config_options,
    add_dataset_flag,
    add_part_flag,
    make_parser,
    parsed,
)

if TYPE_CHECKING:
    import torch
    from mmengine.config import Config

EXTRACT_FEATURES = """Store the features of a frozen backbone, to train without images and backbone.

    mmcluspro extract-features frozen_cluspro_shapes.py
    mmcluspro extract-features dino_cluspro_utzappos.py --out data/features/ut_dino

    for i in 1 2 3 4; do mmcluspro extract-features CONFIG --out FOLDER --part $i/4 & done; wait

If the command is interrupted, run it again and it continues. See docs/features.md."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro extract-features``."""
    parser = make_parser('extract-features', EXTRACT_FEATURES)
    parser.add_argument('config', help='config file, or the name of a shipped one')
    parser.add_argument('--out', help="folder for the features (default: the field features of "
                        "the config's datasets)")
    parser.add_argument('--phases', nargs='+', choices=PHASES, default=PHASES,
                        help='which images (default: all three phases)')
    parser.add_argument('--batch-size', type=int, default=64, help='images per batch (default: 64)')
    parser.add_argument('--workers', type=int, default=2,
                        help='processes that read images (default: 2)')
    parser.add_argument('--shard-size', type=int, default=4096,
                        help='images per file; an interruption loses at most that many (default: '
                        '4096)')
    parser.add_argument('--dtype', choices=('float32', 'float16'), default='float32',
                        help='number format of the files; float16 halves them (default: float32)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1 (default: a GPU if there is one)')
    add_part_flag(parser, 'files')
    add_dataset_flag(parser)
    add_config_options(parser, 'override config fields')
    return parsed(parser, argv, ('batch_size', 'shard_size'))


def dataset_config(cfg: Config, phase: str, pipeline: list) -> dict:
    """A dataset of the config that reads images, without augmentation and replacements."""
    dataset = dict(cfg[f'{phase}_dataloader']['dataset'])
    if dataset.pop('features', None) is not None:
        dataset.pop('check_images', None)  # off because training needs no images; here we do
    return dict(dataset, pipeline=pipeline, test_mode=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Extracts features; after an interruption, the same command continues."""
    try:
        extract(parse_args(argv))
    except KeyboardInterrupt:
        print('\nInterrupted. Run the same command again to continue.')
        return 130
    return 0


def extract(args: argparse.Namespace, keep: bool = False) -> None:
    """Writes the features of all phases.

    Args:
        args (argparse.Namespace): Flags of ``mmcluspro extract-features``.
        keep (bool): Share features by the content of the photographs with other runs, and write
            the folder anew. Defaults to False.
    """
    import torch
    from mmengine.registry import DefaultScope

    from mmcluspro.engine.hooks.console import short_path
    from mmcluspro.engine.launch import apply_options, read_config
    from mmcluspro.features import KeptFeatures, frozen_encoder, start_folder, write_phase
    from mmcluspro.registry import DATASETS, MODELS
    from mmcluspro.utils.files import remove
    from mmcluspro.utils.progress import Progress
    device = args.device or ('cuda' if torch.cuda.is_available() else 'cpu')
    cfg = read_config(args.config, args.dataset)
    apply_options(cfg, args.cfg_options)
    missing = [phase for phase in {*args.phases, 'test'} if not cfg.get(f'{phase}_dataloader')]
    if missing:
        raise ValueError(f'{args.config} has no {missing[0]}_dataloader.')
    out = args.out or cfg.test_dataloader.dataset.get('features')
    if out is None:
        raise ValueError(f'{args.config} does not name a folder for features: give --out FOLDER.')
    pipeline = cfg.test_dataloader.dataset.pipeline
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        # A random backbone (pretrained=None) must be the same when the command continues.
        torch.manual_seed(cfg.get('randomness', {}).get('seed') or 0)
        tower, encode, facts = frozen_encoder(cfg.model.backbone)
        preprocessor = {'type': 'ClsDataPreprocessor', **cfg.model.get('data_preprocessor', {})}
        if preprocessor['type'] == 'mmcluspro.FeaturePreprocessor':
            preprocessor['type'] = 'ClsDataPreprocessor'
        prepare = MODELS.build({**preprocessor, 'type': f"mmpretrain.{preprocessor['type']}"}
                               if '.' not in preprocessor['type'] else preprocessor)
        prepare = prepare.to(device)
        tower.to(device)
        facts = dict(facts, pipeline=pipeline, preprocessor=preprocessor, dtype=args.dtype,
                     shard_size=args.shard_size)
        kept = KeptFeatures(facts) if keep else None
        if keep:  # labels, split or weights may have changed since; nothing is lost
            remove(Path(out).parent, out)
        start_folder(out, facts)

        @torch.inference_mode()
        def features(images: list) -> torch.Tensor:
            return encode(prepare(dict(inputs=images))['inputs'])

        datasets = {phase: DATASETS.build(dataset_config(cfg, phase, pipeline))
                    for phase in args.phases}
        with Progress('features', sum(map(len, datasets.values()))) as progress:
            made = sum(
                write_phase(dataset, features, out, phase, args.batch_size, args.workers, progress,
                            kept, args.part) for phase, dataset in datasets.items())
    print(f'features   of {progress.total} images in {short_path(out)}, {made} of them new')
