#!/usr/bin/env python
"""What the background tells: a model that sees only the border of the photographs.

    python tools/misc/border_only.py plantvillage --data-root data/plantvillage

Two logistic regressions, attribute and object, on the outermost tenth of each side, an outline of
32 × 32 pixels; trained on the training photographs, tested on those of seen pairs in the test. What
they are right about beyond the most frequent name cannot come from the thing in the middle.
"""
import argparse
from collections import Counter

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mmcluspro.datasets.published import PublishedCZSL, published_datasets
from mmcluspro.engine.messages import run_command

SIDE, WIDTH = 32, 3


def border(path: str) -> np.ndarray:
    """The outline of a photograph, shape (1044,), of numbers from 0 to 1."""
    with Image.open(path) as image:
        small = np.asarray(image.convert('RGB').resize((SIDE, SIDE), Image.Resampling.BOX))
    inside = np.zeros((SIDE, SIDE), bool)
    inside[WIDTH:-WIDTH, WIDTH:-WIDTH] = True
    return small[~inside].ravel() / 255


def read(kind: type[PublishedCZSL], root: str, phase: str) -> tuple[np.ndarray, dict[str, list]]:
    """Borders (N, 1044) and names of the photographs of seen pairs."""
    dataset = kind(root, phase=phase)
    infos = [info for i in range(len(dataset))
             if dataset.space.seen[(info := dataset.get_data_info(i))['pair_label']]]
    names = dict(attribute=[dataset.space.attributes[info['attr_label']] for info in infos],
                 object=[dataset.space.objects[info['obj_label']] for info in infos])
    return np.stack([border(info['img_path']) for info in infos]), names


def main(argv: list[str] | None = None) -> None:
    """Prints accuracies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('dataset', choices=published_datasets())
    parser.add_argument('--data-root', help='(default: data/<dataset>)')
    args = parser.parse_args(argv)
    kind = published_datasets()[args.dataset]
    root = args.data_root or kind.ROOT
    (pixels, names), (others, wanted) = (read(kind, root, phase) for phase in ('train', 'test'))
    for what, known in names.items():
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
        right = np.mean(model.fit(pixels, known).predict(others) == np.array(wanted[what]))
        often = Counter(known).most_common(1)[0][0]
        least = np.mean([name == often for name in wanted[what]])
        print(f'{what}: {right:.1%} from the border, {least:.1%} by the most frequent name '
              f'({len(set(known))} names, {len(others)} photographs)')


if __name__ == '__main__':
    run_command(main)
