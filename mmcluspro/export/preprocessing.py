"""What has to happen to a picture before the graph sees it, as plain data."""
from typing import Any

# Fields of the test pipeline that change no pixel.
SILENT = ('LoadImageFromFile', 'PackInputs')


def describe(model: Any) -> tuple[dict[str, Any], list[str]]:
    """Reads the preprocessing of a model's tests.

    Args:
        model (Any): From ``load_model``, with its config in ``cfg``.

    Returns:
        tuple: The description and, in words, what it cannot say. The description has ``resize``
        (length of the short edge), ``size`` (side of the square that is cut out of the middle),
        ``interpolation`` and ``input``: what the graph takes. ``channels`` ('RGB' or 'BGR'),
        ``mean`` and ``std`` in that order are for the record: the graph normalises.
    """
    loader = model.cfg.get('test_dataloader') or {}
    steps = list(loader.get('dataset', {}).get('pipeline') or [])
    native = getattr(getattr(model.backbone, 'visual', None), 'image_size', None)
    if isinstance(native, (tuple, list)):
        native = native[0]
    found: dict[str, Any] = dict(
        input='RGB, uint8, (batch, size, size, 3)', resize=native, size=native,
        interpolation='bicubic')
    notes = []
    for step in steps:
        kind = str(step['type']).rpartition('.')[2]
        if kind == 'ResizeEdge' and step.get('edge', 'short') == 'short':
            found.update(resize=step['scale'], interpolation=step.get('interpolation', 'bilinear'))
            if found['size'] is None:
                found['size'] = step['scale']
            if step.get('backend', 'cv2') != 'pillow':
                notes.append("ResizeEdge has backend='cv2', whose pixels differ from Pillow's: "
                             'scores of pictures that Pillow resized differ a little.')
        elif kind == 'CenterCrop':
            crop = step['crop_size']
            found['size'] = crop if isinstance(crop, int) else crop[0]
        elif kind not in SILENT:
            notes.append(f'The table cannot describe {kind} of the test pipeline: do the same to '
                         'your pictures before the graph.')
    if not found['size']:
        raise ValueError(
            'The image size of the model is unknown: its test_dataloader.dataset.pipeline has '
            'neither ResizeEdge nor CenterCrop, and its backbone does not tell.')
    found['resize'] = found['resize'] or found['size']
    pixels = model.data_preprocessor
    found['channels'] = 'RGB' if pixels.to_rgb else 'BGR'
    normalise = pixels._enable_normalize
    found['mean'] = pixels.mean.flatten().tolist() if normalise else [0.0] * 3
    found['std'] = pixels.std.flatten().tolist() if normalise else [1.0] * 3
    return found, notes
