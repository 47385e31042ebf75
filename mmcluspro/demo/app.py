"""The page, in Gradio: one picture, many files; :mod:`.logic` and :mod:`.render` fill it."""
from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import gradio as gr
from gradio.utils import get_upload_folder

from mmcluspro.artefact.images import Item
from mmcluspro.artefact.pairs import Pair
from mmcluspro.artefact.results import as_csv
from mmcluspro.errors import FaultsError
from mmcluspro.utils.files import remove, within

from .examples import Example
from .logic import (
    Answer,
    Classifier,
    cross_pairs,
    name_text,
    pair_text,
    parse_names,
    parse_pairs,
)
from .render import details_html, message, pairs_html, table_html
from .server import MAX_BYTES, PATH

STYLE = Path(__file__).with_name('page.css')
LISTED, CROSS = 'These pairs', 'All pairs of these attributes and objects'
MAX_WAITING = 100
BIAS = 6.0  # the slider's range, in logarithms of scores
MAX_FILES, MAX_NAME = 200, 200
TOP_K = 3
TABLES, KEPT = 'tables', 3600  # folder among the uploads, seconds
NO_IMAGE = 'Upload a picture or pick an example.'
NO_FILES = 'Choose pictures, or drop them above, then press Classify.'
NO_ANSWER = 'There is no answer yet: see the message {}.'
WORDS = ('An **attribute** says how something is, such as red or wet; an **object** says what it '
         'is. A pair is **seen** if training had pictures of it, and **unseen** if the model has '
         'to put it together from other pairs.')
BIAS_WORDS = ('Training favours seen pairs, and the bias takes that back. Further right, more '
              'unseen pairs win; 0 changes nothing.')
API = (f'Send a picture of up to {MAX_BYTES // 1024**2} MB to `{PATH}` at the address of this '
       f'page; the answer is JSON:\n\n```\ncurl -F file=@photo.jpg http://127.0.0.1:7860{PATH}\n```\n')
HIDDEN = dict(api_visibility='private', show_progress='minimal')


def file_of(payload: Any) -> str | None:
    """Passes the uploaded file on unread, so that files that are not images get our own message.

    Gradio checks the path of a request only if the request says that it is a file. Paths outside
    the upload folder are treated as if nothing was uploaded, whether they exist or not.
    """
    path = None if payload is None else payload.path
    if not path or not os.path.isabs(path) or not within(get_upload_folder(), path):
        return None
    return path


def theme() -> gr.themes.Base:
    """Gradio's own theme with local fonts, so that nothing is fetched from elsewhere."""
    return gr.themes.Default(
        primary_hue='indigo', secondary_hue='indigo', font=('system-ui', 'sans-serif'),
        font_mono=('ui-monospace', 'monospace')).set(
        # Small print as dark as WCAG asks for.
        body_text_color_subdued='*neutral_600', body_text_color_subdued_dark='*neutral_300',
        block_info_text_color='*neutral_600', block_info_text_color_dark='*neutral_300',
        block_title_text_color='*neutral_800', block_title_text_color_dark='*neutral_100')


def build_app(classifier: Classifier, examples: list[Example], title: str,
              no_prototypes: str) -> gr.Blocks:
    """The page.

    Args:
        classifier (Classifier): Computes the answers.
        examples (list[Example]): Pictures to pick from; the first one is shown at the start.
        title (str): The model in words, as Markdown.
        no_prototypes (str): Message for a model without prototypes.
    """

    def classify(path: str | None, mode: str, attributes: str, objects: str, pairs: str,
                 bias: float) -> tuple[Any, ...]:
        chosen, wrong_list = _tried(read_pairs, mode, attributes, objects, pairs)
        image, wrong_image = (None, '') if path is None else _tried(classifier.read, path)
        if path is not None and not wrong_list and not wrong_image:
            answer, wrong_list = _tried(classifier.answer, image, chosen)
        button = gr.update(interactive=path is not None)
        places = [place for wrong, place in ((wrong_image, 'below the picture'),
                                             (wrong_list, 'below the list')) if wrong]
        if path is None or places:
            text = NO_ANSWER.format(' and '.join(places)) if places else NO_IMAGE
            return (None, message(text, 'note'), '', _wrong(wrong_image), _wrong(wrong_list),
                    button)
        return (answer, *show(answer, bias), '', '', button)

    def bounded(bias: Any) -> float:
        return min(max(float(bias), -reach), reach) if isinstance(bias, (int, float)) and (
            math.isfinite(bias)) else start

    def show(answer: Answer | None, bias: float) -> tuple[Any, Any]:
        if answer is None:  # the message that stands there stays
            return gr.skip(), gr.skip()
        ranking = classifier.ranking(answer, bounded(bias))
        return pairs_html(answer, ranking), details_html(answer, ranking, no_prototypes,
                                                         classifier.images)

    start = round(classifier.calibration.seen_bias, 2)
    reach = max(BIAS, abs(start))
    with gr.Blocks(title='mmcluspro demo', analytics_enabled=False,
                   delete_cache=(600, 3600)) as app:
        # Who comes when so many wait is told so at once; no one can fill the memory with requests.
        app.queue(max_size=MAX_WAITING, api_open=False)
        gr.Markdown(f'# Attribute and object of a picture\n{title}', elem_id='title')
        state = gr.State(None, time_to_live=3600)
        with gr.Tab('One picture'), gr.Row(elem_id='columns'):
            with gr.Column(min_width=320):
                image = gr.Image(examples[0].path if examples else None, label='Picture',
                                 sources=['upload', 'clipboard'], height=280, elem_id='picture',
                                 buttons=[], alt_text='The picture to classify')
                image.preprocess = file_of  # of a subclass Gradio would write a stub file here
                keep_local(image)
                wrong_image = gr.HTML(elem_id='picture-error')
                picks = _example_buttons(examples)
                lists, wrong_list, button = _list_boxes(classifier)
                gr.Markdown(WORDS, elem_id='words')
            with gr.Column(min_width=320):
                result = gr.HTML(message(NO_IMAGE, 'note'), elem_id='answer')
                bias = gr.Slider(
                    -reach, reach, start, step=0.01, label='Seen–unseen bias', elem_id='bias',
                    info=BIAS_WORDS
                    + (f' Validation chose {start}.' if classifier.calibrated else ''))
                details = gr.HTML(elem_id='details')
        one_at_a_time = dict(concurrency_limit=1, concurrency_id='model', **HIDDEN)
        with gr.Tab('Many files'):
            many_files_tab(classifier, lists, **one_at_a_time)
        with gr.Accordion('Use it from a program', open=False, elem_id='api'):
            gr.Markdown(API)
        ask = dict(fn=classify, inputs=[image, *lists, bias],
                   outputs=[state, result, details, wrong_image, wrong_list, button],
                   trigger_mode='always_last', **one_at_a_time)
        app.load(**ask)
        image.change(**ask)
        button.click(**ask)
        mode, attributes, objects, pairs = lists
        gr.on([box.submit for box in (attributes, objects, pairs)], **ask)
        mode.change(_shown_boxes, mode, [attributes, objects, pairs], **HIDDEN).then(**ask)
        bias.change(show, [state, bias], [result, details], trigger_mode='always_last',
                    api_visibility='private', show_progress='hidden')
        for pick, example in zip(picks, examples):
            pick.click(partial(str, example.path), None, image, **HIDDEN)
    return app


def read_pairs(mode: str, attributes: str, objects: str, pairs: str) -> list[Pair]:
    """The pairs to choose from, from the boxes of the page."""
    return parse_pairs(pairs) if mode == LISTED else cross_pairs(
        parse_names(attributes, 'attribute'), parse_names(objects, 'object'))


def _tried(run: Callable[..., Any], *inputs: Any) -> tuple[Any, str]:
    """The result and '', or None and what is wrong with the input."""
    try:
        return run(*inputs), ''
    except FaultsError as error:
        return None, '; '.join(f'{fault.where}: {fault.what}' for fault in error.faults[:3]
                               ).capitalize() + '. A pair is an attribute and an object.'
    except (ValueError, OSError) as error:
        return None, str(error)


def _wrong(text: str) -> str:
    return message(text) if text else ''


def _list_boxes(classifier: Classifier) -> tuple[list[Any], gr.HTML, gr.Button]:
    """The candidates: mode, attributes, objects, pairs; what is wrong with them; the button."""
    space = classifier.model.space
    with gr.Accordion('Edit attributes, objects and pairs', open=False, elem_id='lists'):
        mode = gr.Radio([LISTED, CROSS], value=LISTED, label='Choose from', elem_id='mode')
        pairs = gr.Textbox(
            pair_text(classifier.known_pairs()), label='Pairs', lines=6, max_lines=12,
            info='One per line: attribute object. Put a comma between them if a name has several '
            'words, and double quotes around a name with a comma, semicolon or #.',
            elem_id='pairs')
        attributes, objects = (gr.Textbox(
            name_text(names), label=label, lines=5, max_lines=10, visible=False,
            info='One per line, or separated by commas. New words are allowed.',
            elem_id=label.lower())
            for label, names in (('Attributes', space.attributes), ('Objects', space.objects)))
        wrong = gr.HTML(elem_id='list-error')
        button = gr.Button('Classify', variant='primary', elem_id='classify', interactive=False)
    return [mode, attributes, objects, pairs], wrong, button


def _example_buttons(examples: list[Example]) -> list[gr.Button]:
    if not examples:
        return []
    gr.Markdown('Or pick an example:', elem_id='pick')
    with gr.Row(elem_id='examples'):
        return [gr.Button(f'{item.attribute} {item.object}', icon=item.path, size='sm')
                for item in examples]


def _shown_boxes(mode: str) -> list[Any]:
    return [gr.update(visible=mode == CROSS)] * 2 + [gr.update(visible=mode == LISTED)]


def many_files_tab(classifier: Classifier, lists: list[Any], **options: Any) -> None:
    """Builds the tab for many files: a table of answers, and a CSV file to download.

    Args:
        classifier (Classifier): Answers it.
        lists (list): Text boxes of the other tab, for :func:`read_pairs`.
        **options: Of the event, such as its place in the queue.
    """

    def classify_many(files: list[Item], *words: str) -> tuple[str, Any]:
        if not files:
            return message(NO_FILES, 'note'), gr.update(visible=False)
        if len(files) > MAX_FILES:
            return message(f'These are {len(files)} files; the page takes up to {MAX_FILES}. For '
                           'more use mmcluspro predict.'), gr.update(visible=False)
        pairs, wrong = _tried(read_pairs, *words)
        answers, failed = (None, '') if wrong else _tried(classifier.predictions, files, pairs,
                                                          TOP_K)
        if answers is None:
            where = 'The list of the tab “One picture” has a mistake: ' if wrong else ''
            return message(f'{where}{wrong or failed}'), gr.update(visible=False)
        text = as_csv([answer.prediction for answer in answers], TOP_K)
        path = write_table(text, get_upload_folder())
        return table_html(answers), gr.update(value=path, visible=True)

    gr.Markdown(f'Up to {MAX_FILES} pictures at once. The pairs to choose from are those of the '
                'other tab, the bias is that of the checkpoint.')
    files = gr.File(file_count='multiple', label='Pictures', elem_id='files', height=180,
                    file_types=['image'])
    files.preprocess = files_of  # type: ignore[method-assign]
    keep_local(files)
    with gr.Row():
        button = gr.Button('Classify', variant='primary', elem_id='classify-many',
                           interactive=False)
        download = gr.DownloadButton('Download CSV', visible=False, elem_id='csv')
    table = gr.HTML(message(NO_FILES, 'note'), elem_id='many')
    files.change(lambda files: gr.update(interactive=bool(files)), files, button, **HIDDEN)
    button.click(classify_many, [files, *lists], [table, download], **options)


def files_of(payload: Any) -> list[Item]:
    """Names and paths of uploaded files; paths elsewhere are left out."""
    found = []
    for file in getattr(payload, 'root', None) or []:
        path = getattr(file, 'path', None)
        if path and os.path.isabs(path) and within(get_upload_folder(), path):
            name = os.path.basename(str(getattr(file, 'orig_name', None) or path))
            found.append(Item(name[:MAX_NAME], path))
    return found


def keep_local(component: Any) -> None:
    """Stops a component from fetching: Gradio would download an address that a request names."""
    move = component.async_move_resource_to_block_cache

    async def move_local(path: Any) -> Any:
        if path is not None and '://' in str(path):
            raise gr.Error('Addresses are not followed: upload the file.', print_exception=False)
        return await move(path)

    component.async_move_resource_to_block_cache = move_local


def write_table(text: str, folder: str) -> str:
    """Writes a CSV file with a secret name, and deletes files older than an hour."""
    top = Path(folder) / TABLES
    for old in top.glob('*') if top.is_dir() else ():
        if time.time() - old.stat().st_mtime > KEPT:
            remove(top, old)
    path = top / uuid4().hex / 'predictions.csv'
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding='utf-8', errors='replace')
    return str(path)
