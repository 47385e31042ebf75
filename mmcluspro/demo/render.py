"""The answer as HTML: lists with bars, readable without the bars and by a screen reader."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mmcluspro.artefact import NameScore, Prediction
from mmcluspro.artefact.prototype_images import PrototypeImages

from .logic import Answer, Ranking
from .nearest import NearPrototype

TITLES = dict(attr='Attribute prototypes', obj='Object prototypes')
COSINE = 'Prototypes closest to this picture, by cosine similarity.'
NEAREST = 'Below each are the training images closest to it.'


def message(text: str, kind: str = 'error') -> str:
    """A sentence in a box; an error is read out at once."""
    role = 'alert' if kind == 'error' else 'status'
    return f'<p class="mm-message mm-{kind}" role="{role}">{escape(text)}</p>'


def pairs_html(answer: Answer, ranking: Ranking) -> str:
    """The best pair as text, and the best ones with bars."""
    best = ranking.pairs[0]
    count = len(answer.candidates.pairs)
    head = (f'<p class="mm-best" role="status"><strong>{escape(best.attribute)} '
            f'{escape(best.object)}</strong> <span>{_percent(best.probability)} · best of {count} '
            f'pair{"s" if count > 1 else ""}</span></p>')
    pairs = [_bar(f'{pair.attribute} {pair.object}', pair.probability, _percent(pair.probability),
                  'seen' if pair.seen else 'unseen') for pair in ranking.pairs]
    notes = [message(note, 'note') for note in answer.notes]
    return _block(head, *notes, _list('Pairs', pairs))


def details_html(answer: Answer, ranking: Ranking, no_prototypes: str,
                 images: PrototypeImages | None = None) -> str:
    """Attributes and objects apart, and the prototypes that are nearest to the image.

    Args:
        answer (Answer): For the prototypes.
        ranking (Ranking): For the attributes and objects.
        no_prototypes (str): Message for a model without prototypes.
        images (PrototypeImages, optional): Training images to show with the prototypes. Defaults
            to None: none.
    """
    names = [('Attributes', _names(ranking.attributes)), ('Objects', _names(ranking.objects))]
    near = [(TITLES[branch], [_prototype(item, _pictures(images, branch, item)) for item in found])
            for branch, found in answer.prototypes.items()]
    words = COSINE if images is None else f'{COSINE} {NEAREST}'
    below = f'<p>{words}</p>' + _columns(near) if near else message(no_prototypes, 'note')
    return _block(_columns(names), below)


def _block(*parts: str) -> str:
    return '<div class="mm-answer">' + ''.join(parts) + '</div>'


def _names(scores: Sequence[NameScore]) -> list[str]:
    return [_bar(item.name, item.score, _percent(item.score)) for item in scores]


def _prototype(near: NearPrototype, pictures: str) -> str:
    return _bar(f'{near.name}, {near.place} of {near.size}', max(0.0, near.cosine),
                f'{near.cosine:.2f}', below=pictures)


def _pictures(images: PrototypeImages | None, branch: str, near: NearPrototype) -> str:
    """Small pictures; their bytes were checked when the file was read."""
    shown = None if images is None else images.prototypes.get(branch, {}).get(near.row)
    if images is None or shown is None or not shown.pictures:
        return ''
    alt = escape(f'Training image near prototype {near.place} of {near.name}', quote=True)
    return '<span class="mm-pictures">' + ''.join(
        f'<img src="{images.address(number)}" alt="{alt}">' for number in shown.pictures
    ) + '</span>'


def _bar(name: str, share: float, value: str, tag: str = '', below: str = '') -> str:
    chip = f'<span class="mm-tag mm-{tag}">{tag}</span>' if tag else ''
    return (f'<li><span class="mm-name">{escape(name)}</span>{chip}'
            f'<span class="mm-value">{value}</span><span class="mm-track" aria-hidden="true">'
            f'<span style="width:{100 * min(share, 1.0):.1f}%"></span></span>{below}</li>')


def _list(title: str, items: Iterable[str]) -> str:
    return f'<section><h3>{title}</h3><ol>{"".join(items)}</ol></section>'


def _columns(lists: Iterable[tuple[str, list[str]]]) -> str:
    return '<div class="mm-columns">' + ''.join(_list(*part) for part in lists) + '</div>'


def _percent(share: float) -> str:
    return f'{100 * share:.1f} %'


def table_html(predictions: Sequence[Prediction]) -> str:
    """Answers for several files: name, best pair, probability."""
    rows = []
    for item in predictions:
        best = item.best
        cells = (f'<td colspan="3">{escape(item.error or "no answer")}</td>' if best is None else
                 f'<td>{escape(best.attribute)} {escape(best.object)}</td>'
                 f'<td class="mm-value">{_percent(best.probability)}</td>'
                 f'<td>{"seen" if best.seen else "unseen"}</td>')
        rows.append(f'<tr><th scope="row">{escape(item.image)}</th>{cells}</tr>')
    head = ''.join(f'<th scope="col">{name}</th>'
                   for name in ('File', 'Answer', 'Probability', 'Pair'))
    return _block(f'<div class="mm-scroll"><table><thead><tr>{head}</tr></thead><tbody>'
                  f'{"".join(rows)}</tbody></table></div>')
