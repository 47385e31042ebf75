"""Draws a contact sheet of a dataset in the published layout: attributes by objects.

    python tools/visualization/contact_sheet.py fashion data/fashion docs/images/fashion.jpg

Each cell is a photograph of one pair; an orange frame marks pairs that training never sees, and
an empty cell is a pair that the data set does not have.
"""
import argparse
from collections import Counter, defaultdict
from pathlib import Path

from PIL import Image, ImageDraw

from mmcluspro.datasets.layout import metadata_file, read_metadata, read_splits
from mmcluspro.datasets.published import published_datasets

CELL = (48, 64)
MARGIN = (78, 16)
FRAME = (240, 140, 0)


def draw_sheet(root: Path, split: str, rows: int, columns: int) -> Image.Image:
    """The sheet of the most frequent attributes and objects."""
    images: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in read_metadata(metadata_file(root, split)):
        images[row['attr'], row['obj']].append(row['image'])
    seen = read_splits(root, split)['train']
    colours = [name for name, _ in Counter(a for a, _ in images).most_common(rows)]
    kinds = [name for name, _ in Counter(o for _, o in images).most_common(columns)]
    sheet = Image.new('RGB', (MARGIN[0] + columns * CELL[0], MARGIN[1] + rows * CELL[1]), 'white')
    draw = ImageDraw.Draw(sheet)
    for j, kind in enumerate(kinds):
        draw.text((MARGIN[0] + j * CELL[0] + 2, 2), kind.replace('_', ' ')[:8], fill='black')
    for i, colour in enumerate(colours):
        top = MARGIN[1] + i * CELL[1]
        draw.text((4, top + CELL[1] // 2 - 6), colour.replace('_', ' '), fill='black')
        for j, kind in enumerate(kinds):
            if not images[colour, kind]:
                continue
            left = MARGIN[0] + j * CELL[0]
            with Image.open(root / 'images' / sorted(images[colour, kind])[0]) as image:
                sheet.paste(image.convert('RGB').resize((CELL[0] - 4, CELL[1] - 4)),
                            (left + 2, top + 2))
            if (colour, kind) not in seen:
                draw.rectangle((left, top, left + CELL[0] - 1, top + CELL[1] - 1), outline=FRAME,
                               width=2)
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('dataset', choices=published_datasets())
    parser.add_argument('root', type=Path, help='folder of the dataset')
    parser.add_argument('out', type=Path)
    parser.add_argument('--split', help='(default: that of the dataset)')
    parser.add_argument('--rows', type=int, default=12)
    parser.add_argument('--columns', type=int, default=16)
    args = parser.parse_args()
    sheet = draw_sheet(
        args.root, args.split or published_datasets()[args.dataset].SPLIT, args.rows, args.columns)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(args.out, quality=75)
    print(f'{args.out}: {sheet.width} x {sheet.height}')


if __name__ == '__main__':
    main()
