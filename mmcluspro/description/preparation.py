"""How pictures are prepared, as plain numbers: schema, and what a test pipeline amounts to."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmcluspro.datasets.picture_file import colour
from mmcluspro.datasets.pixels import EDGES, INTERPOLATIONS
from mmcluspro.fields import Refusal, choice, either, integer, items, needs, optional, record, shown

SIDE = integer(1, 4096)
SILENT = ('PackInputs', 'PackMultiTaskInputs', 'Collect')


def check_preparation(value: Any) -> dict[str, Any]:
    """The field ``preparation``: which library decodes, and the steps in order."""
    step = record(
        step=choice('resize', 'crop'), size=either(SIDE, items(SIDE, 2, 2)),
        edge=optional(choice(*EDGES)), backend=choice(*INTERPOLATIONS),
        interpolation=choice(*sorted({name for names in INTERPOLATIONS.values()
                                      for name in names})))
    found = record(
        decoder=choice('cv2', 'pillow'), steps=items(step, 0, 8),
        background=optional(items(integer(0, 255), 3, 3)))(value, 'preparation')
    needs(found, ('decoder', 'steps'), 'preparation')
    for place, entry in enumerate(found['steps']):
        where = f'preparation.steps[{place}]'
        resize = entry.get('step') == 'resize'
        needs(entry, ('step', 'size', 'edge', 'backend', 'interpolation') if resize else
              ('step', 'size'), where)
        if len(entry) != (5 if resize else 2):
            raise Refusal(f'{where} has fields that a crop does not have')
        if isinstance(entry['size'], int) != (resize and entry['edge'] is not None):
            raise Refusal(f'{where}.size must be one number with an edge, two without')
        if resize and entry['interpolation'] not in INTERPOLATIONS[entry['backend']]:
            raise Refusal(f'{where}.interpolation must be one that {entry["backend"]} has, '
                          f'got {shown(entry["interpolation"])}')
    return found


def describe_pipeline(pipeline: Sequence[Any]) -> dict[str, Any]:
    """Turns a test pipeline of a config into plain numbers.

    Args:
        pipeline (Sequence[dict]): Steps of mmpretrain, as data.

    Raises:
        Refusal: For a step that plain numbers cannot say.
    """
    decoder, steps = 'cv2', []
    behind: dict[str, Any] = {}
    for place, transform in enumerate(pipeline):
        where = f'the test pipeline, step {place}'
        if not isinstance(transform, dict) or not isinstance(transform.get('type'), str):
            raise Refusal(f'{where} must be a dict with a type, got {shown(transform)}')
        fields = {key: value for key, value in transform.items() if key != 'type'}
        scope, _, kind = transform['type'].rpartition('.')
        if transform['type'] == 'mmcluspro.LoadPicture':
            found = _only(fields, where, decoder='cv2', background='white')
            decoder, background = found['decoder'], colour(found['background'])
            behind = dict(background=background and list(background))
            continue
        if scope not in ('', 'mmpretrain', 'mmcv') or kind not in (
                'LoadImageFromFile', 'ResizeEdge', 'Resize', 'CenterCrop', *SILENT):
            raise Refusal(f'{where} is {shown(transform["type"])}; resize and crop are known')
        if kind == 'LoadImageFromFile':
            decoder = _only(fields, where, imdecode_backend='cv2', backend_args=None,
                            color_type='color', to_float32=False)['imdecode_backend']
        elif kind == 'ResizeEdge':
            steps.append(_resize(_only(fields, where, scale=None, edge='short', backend='cv2',
                                       interpolation='bilinear')))
        elif kind == 'Resize':
            steps.append(_resize(_only(fields, where, scale=None, edge=None, backend='cv2',
                                       interpolation='bilinear', keep_ratio=False)))
        elif kind == 'CenterCrop':
            found = _only(fields, where, crop_size=None, auto_pad=False)
            steps.append(dict(step='crop', size=_two(found['crop_size'])))
    return check_preparation(dict(decoder=decoder, steps=steps, **behind))


def _only(fields: dict[str, Any], where: str, **known: Any) -> dict[str, Any]:
    """Fields with their defaults; one that is unknown, or may not be changed, is refused."""
    fixed = ('backend_args', 'color_type', 'to_float32', 'keep_ratio', 'auto_pad')
    for name, value in fields.items():
        if name not in known or name in fixed and value != known[name]:
            raise Refusal(f'{where} has {name}={shown(value)}, which plain numbers cannot say')
    return {**known, **fields}


def _resize(fields: dict[str, Any]) -> dict[str, Any]:
    size = fields['scale'] if fields['edge'] else _two(fields['scale'])
    return dict(step='resize', size=size, edge=fields['edge'], backend=fields['backend'],
                interpolation=fields['interpolation'])


def _two(size: Any) -> Any:
    return [size, size] if isinstance(size, int) else size
