"""The layout of the page, in Gradio; :mod:`.logic` and :mod:`.render` compute its content."""
from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from mmcluspro.artefact.pairs import Pair
from mmcluspro.utils.files import within

from .endpoint import MAX_BYTES, PATH
from .examples import Example
from .lists import cross_pairs, name_text, pair_text, parse_names, parse_pairs
from .logic import Answer, Classifier
from .many_files import keep_local, many_files_tab
from .render import details_html, message, pairs_html

STYLE = Path(__file__).with_name('page.css')
LISTED, CROSS = 'These pairs', 'All pairs of these attributes and objects'
MAX_WAITING = 100
BIAS = 6.0  # the slider's range, in logarithms of scores
NO_IMAGE = 'Upload a picture or pick an example.'
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
        title (str): Name of the model.
        no_prototypes (str): Message for a model without prototypes.
    """

    def read_pairs(mode: str, attributes: str, objects: str, pairs: str) -> list[Pair]:
        return parse_pairs(pairs) if mode == LISTED else cross_pairs(
            parse_names(attributes, 'attribute'), parse_names(objects, 'object'))

    def classify(path: str | None, mode: str, attributes: str, objects: str, pairs: str,
                 bias: float) -> tuple[Answer | None, Any, Any]:
        if path is None:
            return None, message(NO_IMAGE, 'note'), ''
        try:
            answer = classifier.answer(path, read_pairs(mode, attributes, objects, pairs))
        except (ValueError, OSError) as error:
            return None, message(str(error)), ''
        return answer, *show(answer, bias)

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
                picks = _example_buttons(examples)
                lists, button = _list_boxes(classifier)
            with gr.Column(min_width=320):
                result = gr.HTML(message(NO_IMAGE, 'note'), elem_id='answer')
                bias = gr.Slider(
                    -reach, reach, start, step=0.01, label='Seen–unseen bias', elem_id='bias',
                    info='Left: favours pairs seen in training. Right: favours unseen pairs.'
                    + (f' Validation chose {start}.' if classifier.calibrated else ''))
                details = gr.HTML(elem_id='details')
        one_at_a_time = dict(concurrency_limit=1, concurrency_id='model', **HIDDEN)
        with gr.Tab('Many files'):
            many_files_tab(classifier, read_pairs, lists, **one_at_a_time)
        with gr.Accordion('Use it from a program', open=False, elem_id='api'):
            gr.Markdown(API)
        ask = dict(fn=classify, inputs=[image, *lists, bias], outputs=[state, result, details],
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


def _list_boxes(classifier: Classifier) -> tuple[list[Any], gr.Button]:
    """The candidates: mode, attributes, objects, pairs, and the button below."""
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
        button = gr.Button('Classify', variant='primary', elem_id='classify')
    return [mode, attributes, objects, pairs], button


def _example_buttons(examples: list[Example]) -> list[gr.Button]:
    if not examples:
        return []
    gr.Markdown('Or pick an example:', elem_id='pick')
    with gr.Row(elem_id='examples'):
        return [gr.Button(f'{item.attribute} {item.object}', icon=item.path, size='sm')
                for item in examples]


def _shown_boxes(mode: str) -> list[Any]:
    return [gr.update(visible=mode == CROSS)] * 2 + [gr.update(visible=mode == LISTED)]
