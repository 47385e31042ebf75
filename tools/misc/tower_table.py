"""Writes the table of image towers in docs/backbones.md from the installed open_clip.

    python tools/misc/tower_table.py docs/backbones.md

One row for each architecture and way of preparing pictures; nothing is built or downloaded.
"""
import argparse
import warnings
from collections import defaultdict
from pathlib import Path

import open_clip

from mmcluspro.models.clip import arch_config
from mmcluspro.models.pixels import Pixels, clip_pixels

BEGIN, END = '<!-- towers: made by tools/misc/tower_table.py -->', '<!-- /towers -->'

def rows(archs: list[str]) -> list[str]:
    """Rows of the table."""
    lines = []
    for arch in archs:
        kinds: dict[Pixels, list[str]] = defaultdict(list)
        for tag in open_clip.list_pretrained_tags_by_model(arch) or [None]:
            kinds[clip_pixels(arch, tag)].append(tag or 'none')
        config = arch_config(arch)
        text = config['text_cfg']
        words = text.get('hf_tokenizer_name') and '`[hf]` or file' or 'open_clip'
        for pixels, tags in kinds.items():
            mean, std = (' '.join(f'{value / 255:.3g}' for value in (
                found[:1] if len({*found}) == 1 else found)) for found in (pixels.mean, pixels.std))
            lines.append('| ' + ' | '.join([
                arch, ', '.join(tags), str(pixels.size), f'{pixels.resize_mode}, '
                f'{pixels.interpolation}', f'{mean} / {std}', str(config['embed_dim']),
                str(text.get('context_length', 77)), words]) + ' |')
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('page', type=Path)
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    head = ('architecture', 'tags', 'px', 'resize', 'mean / std', 'width', 'context', 'tokenizer')
    archs = [arch for arch in open_clip.list_models() if arch not in ('tiny_clip', 'fashion_clip')]
    table = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|', *rows(archs)]
    page = args.page.read_text(encoding='utf-8')
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    args.page.write_text('\n'.join([f'{before}{BEGIN}', f'Made from open_clip '
                                    f'{open_clip.__version__}.', '', *table, f'{END}{after}']),
                         encoding='utf-8')


if __name__ == '__main__':
    main()
