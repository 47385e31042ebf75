"""What has to happen to a picture before the graph sees it, as plain data."""
from typing import Any

from mmcluspro.datasets.picture_file import WHITE


def describe(model: Any) -> tuple[dict[str, Any], list[str]]:
    """Reads the preprocessing of a model's tests.

    Args:
        model (Any): From ``load_model``, with its ``description``.

    Returns:
        tuple: The description and, in words, what it cannot say. The description has ``resize``
        (length of the short edge), ``size`` (side of the square that is cut out of the middle),
        ``interpolation``, ``background`` (red, green and blue behind transparent pictures, or
        None) and ``input``: what the graph takes. ``channels`` ('RGB' or 'BGR'),
        ``mean`` and ``std`` in that order are for the record: the graph normalises.
    """
    native = getattr(getattr(model.backbone, 'visual', None), 'image_size', None)
    if isinstance(native, (tuple, list)):
        native = native[0]
    found: dict[str, Any] = dict(
        input='RGB, uint8, (batch, size, size, 3)', resize=native, size=native,
        interpolation='bicubic', background=list(WHITE))
    preparation = model.description.get('preparation')
    notes = []
    if preparation is None:
        notes.append(f'The table cannot describe the test pipeline '
                     f'({model.description.get("no_preparation", "there is none")}): do the same '
                     'to your pictures before the graph.')
    if preparation is not None and 'background' in preparation:
        found['background'] = preparation['background']
    for step in (preparation or dict(steps=[]))['steps']:
        if step['step'] == 'crop':
            found['size'] = step['size'][0]
        elif step['edge'] == 'short':
            found.update(resize=step['size'], interpolation=step['interpolation'])
            if found['size'] is None:
                found['size'] = step['size']
            if step['backend'] != 'pillow':
                notes.append("ResizeEdge has backend='cv2', whose pixels differ from Pillow's: "
                             'scores of pictures that Pillow resized differ a little.')
        else:
            notes.append(f'The table cannot describe a resize with edge={step["edge"]} and size='
                         f'{step["size"]}: do the same to your pictures before the graph.')
    if not found['size']:
        raise ValueError(
            'The image size of the model is unknown: the preparation of its pictures has '
            'neither a resize nor a crop, and its backbone does not tell.')
    found['resize'] = found['resize'] or found['size']
    pixels = model.data_preprocessor
    found['channels'] = 'RGB' if pixels.to_rgb else 'BGR'
    normalise = pixels._enable_normalize
    found['mean'] = pixels.mean.flatten().tolist() if normalise else [0.0] * 3
    found['std'] = pixels.std.flatten().tolist() if normalise else [1.0] * 3
    return found, notes
