"""Draws the contact sheet of Shapes: attributes by rows, objects by columns.

    python tools/visualization/shapes_sheet.py docs/images/shapes.png

Each object has two columns. Versions from v2 on show a pair in its own look, twice; before, the
modes of attribute and object alternate.
"""
import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from mmcluspro.datasets.shapes import IMAGE_SIZE, draw_image, get_version


def draw_sheet(version: str, rows: int, columns: int, zoom: int) -> np.ndarray:
    """RGB sheet (H, W, 3); without partners attribute mode (row + column) % 2, object mode
    column % 2."""
    spec = get_version(version)
    cells = []
    for i, attribute in enumerate(spec.attributes[:rows]):
        line = []
        for j in range(min(columns, 2 * len(spec.objects))):
            obj, wanted = spec.objects[j // 2], ((i + j) % 2, j % 2)
            # Modes are drawn with the picture: take the first that has the wanted ones.
            for number in range(200):
                image, *modes = draw_image(attribute, obj, ('sheet', i, j, number), spec.look)
                if spec.look.partner is not None or tuple(modes) == wanted:
                    break
            line.append(np.pad(image, ((0, 1), (0, 1), (0, 0)), constant_values=255))
        cells.append(np.concatenate(line, axis=1))
    return np.concatenate(cells).repeat(zoom, axis=0).repeat(zoom, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path)
    parser.add_argument('--version', default='shapes-v2')
    parser.add_argument('--rows', type=int, default=12)
    parser.add_argument('--columns', type=int, default=24)
    parser.add_argument('--zoom', type=int, default=1)
    args = parser.parse_args()
    sheet = draw_sheet(args.version, args.rows, args.columns, args.zoom)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # Sensor noise does not compress; 255 colours are enough to look at.
    Image.fromarray(sheet).quantize(255, dither=Image.Dither.NONE).save(args.out, optimize=True)
    print(f'{args.out}: {sheet.shape[1]} x {sheet.shape[0]}, pictures of {IMAGE_SIZE} pixels')


if __name__ == '__main__':
    main()
