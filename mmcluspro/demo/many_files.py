"""The tab for many files: a table of answers, and a CSV file to download."""
from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import gradio as gr
from gradio.utils import get_upload_folder

from mmcluspro.artefact.images import Item
from mmcluspro.artefact.results import as_csv
from mmcluspro.utils.files import remove, within

from .logic import Classifier
from .render import message, table_html

MAX_FILES, MAX_NAME = 200, 200
TOP_K = 3
TABLES, KEPT = 'tables', 3600  # folder among the uploads, seconds
NO_FILES = 'Choose pictures, or drop them here, then press Classify.'


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


def many_files_tab(classifier: Classifier, read_pairs: Callable[..., Any], lists: list[Any],
                   **options: Any) -> None:
    """Builds the tab.

    Args:
        classifier (Classifier): Answers it.
        read_pairs (Callable): The pairs to choose from, from the values of ``lists``.
        lists (list): Text boxes of the other tab.
        **options: Of the event, such as its place in the queue.
    """

    def classify_many(files: list[Item], *words: str) -> tuple[str, Any]:
        if not files:
            return message(NO_FILES, 'note'), gr.update(visible=False)
        if len(files) > MAX_FILES:
            return message(f'These are {len(files)} files; the page takes up to {MAX_FILES}. For '
                           'more use mmcluspro predict.'), gr.update(visible=False)
        try:
            answers = classifier.predictions(files, read_pairs(*words), top_k=TOP_K)
        except (ValueError, OSError) as error:
            return message(str(error)), gr.update(visible=False)
        path = write_table(as_csv(answers, TOP_K), get_upload_folder())
        return table_html(answers), gr.update(value=path, visible=True)

    gr.Markdown(f'Up to {MAX_FILES} pictures at once. The pairs to choose from are those of the '
                'other tab, the bias is that of the checkpoint.')
    files = gr.File(file_count='multiple', label='Pictures', elem_id='files', height=180,
                    file_types=['image'])
    files.preprocess = files_of  # type: ignore[method-assign]
    keep_local(files)
    with gr.Row():
        button = gr.Button('Classify', variant='primary', elem_id='classify-many')
        download = gr.DownloadButton('Download CSV', visible=False, elem_id='csv')
    table = gr.HTML(message(NO_FILES, 'note'), elem_id='many')
    button.click(classify_many, [files, *lists], [table, download], **options)
