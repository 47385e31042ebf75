"""What an evaluation leaves in the work folder of a run, and shows in its visualizer."""
from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.logging import print_log
from mmengine.visualization import LocalVisBackend
from PIL import Image

from mmcluspro.evaluation.curve import Curve

from .curve_file import write_curves
from .curve_plot import plot_curve


def leave_curves(curves: Mapping[str, Curve], folder: str | Path, phase: str,
                 metrics: Mapping[str, Mapping[str, float]] | None = None) -> Path:
    """Writes ``<phase>_curve.png``, and its points to ``<phase>_curve.json``.

    Args:
        curves (Mapping[str, Curve]): By 'closed' and 'open'.
        folder (str | Path): Work folder of the run.
        phase (str): 'val' or 'test'.
        metrics (Mapping, optional): Reported numbers by world, see :func:`write_curves`.
            Defaults to None.

    Returns:
        Path: The picture.
    """
    picture = Path(folder) / f'{phase}_curve.png'
    plot_curve({f'{world} world': curve for world, curve in curves.items()}, picture)
    write_curves(curves, picture.with_suffix('.json'), metrics)
    return picture


def show_picture(visualizer: Any, name: str, path: str | Path, step: int) -> None:
    """Hands a picture to TensorBoard, Weights & Biases and other backends of the config.

    Args:
        visualizer (Visualizer): Of the runner.
        name (str): What they call it.
        path (str | Path): PNG file.
        step (int): Iteration.
    """
    backends = [backend for backend in getattr(visualizer, '_vis_backends', {}).values()
                # The local backend would only copy the file.
                if not isinstance(backend, LocalVisBackend)]
    if backends:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert('RGB'))
        for backend in backends:
            try:
                backend.add_image(name, pixels, step=step)
            except Exception as error:  # a picture must never cost a run
                # Weights & Biases: mmengine ends its run with the training, before the test.
                print_log(f'{type(backend).__name__} does not show {name} ({error}); the picture '
                          f'is in {path}.', 'current', logging.WARNING)
