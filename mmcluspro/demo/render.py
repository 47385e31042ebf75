"""The answer as HTML: lists with bars, readable without the bars and by a screen reader."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mmcluspro.artefact import NameScore
from mmcluspro.visualization.prototypes import PrototypeImages

from .logic import Answer, FileAnswer, NearPrototype, Ranking

TITLES = dict(attr='Attribute prototypes', obj='Object prototypes')
COSINE = ('A prototype is one look of an attribute or object that training found. These are the '
          'closest to this picture, by cosine similarity.')
NEAREST = 'Below each are the training images closest to it.'
ALONE = ('Two more questions about the same picture: which attribute, and which object, each on '
         'its own and without the bias. A pair weighs both, and how well it fits as a whole.')
SUMS = 'Each attribute and object has the sum of its pairs, without the bias.'


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
    return _block(head, *notes, _list('Best pairs', pairs))


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
    names = [('Attribute alone', _names(ranking.attributes)),
             ('Object alone', _names(ranking.objects))]
    alone = f'<p>{SUMS if answer.scores.attribute is None else ALONE}{_differs(ranking)}</p>'
    near = [(TITLES[branch], [_prototype(item, _pictures(images, branch, item)) for item in found])
            for branch, found in answer.prototypes.items()]
    words = COSINE if images is None else f'{COSINE} {NEAREST}'
    below = f'<p>{words}</p>' + _columns(near) if near else message(no_prototypes, 'note')
    return _block(alone, _columns(names), below)


def _differs(ranking: Ranking) -> str:
    """Says that the best pair is not made of the best attribute and object, if so."""
    best = ranking.pairs[0]
    rest = [f'“{names[0].name}” among the {title}' for title, names, own in (
        ('attributes', ranking.attributes, best.attribute),
        ('objects', ranking.objects, best.object)) if names[0].name != own]
    return escape(f' That is why “{best.attribute} {best.object}” can lead the pairs and '
                  f'{" and ".join(rest)}.') if rest else ''


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


def table_html(answers: Sequence[FileAnswer]) -> str:
    """Answers for several files: name, best pair, probability; remarks below the name."""
    rows = []
    for item, notes in answers:
        best = item.best
        cells = (f'<td colspan="3">{escape(item.error or "no answer")}</td>' if best is None else
                 f'<td>{escape(best.attribute)} {escape(best.object)}</td>'
                 f'<td class="mm-value">{_percent(best.probability)}</td>'
                 f'<td>{"seen" if best.seen else "unseen"}</td>')
        below = '<br><small>unlike the training pictures</small>' if notes else ''
        rows.append(f'<tr><th scope="row">{escape(item.image)}{below}</th>{cells}</tr>')
    head = ''.join(f'<th scope="col">{name}</th>'
                   for name in ('File', 'Answer', 'Probability', 'Pair'))
    return _block(f'<div class="mm-scroll"><table><thead><tr>{head}</tr></thead><tbody>'
                  f'{"".join(rows)}</tbody></table></div>')
