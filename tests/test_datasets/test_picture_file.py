"""Pictures of every kind: transparent, of sixteen bits, AVIF, HEIC, in both orders of colours."""
import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps, features

from mmcluspro.artefact.images import Preprocessor, list_images
from mmcluspro.artefact.spec import describe_pipeline
from mmcluspro.datasets import LoadPicture, LoadReduced
from mmcluspro.datasets.folders import images_below, left_out
from mmcluspro.datasets.pictures import Refused, as_bgr, check_file_size, colour, read_picture


@pytest.fixture
def glass(tmp_path):
    """Half transparent red on the left, opaque blue on the right; black below the glass."""
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:, :2] = 255, 0, 0, 128
    pixels[:, 2:] = 0, 0, 255, 255
    Image.fromarray(pixels, 'RGBA').save(tmp_path / 'glass.png')
    return tmp_path / 'glass.png'


@pytest.mark.parametrize('background, left', [
    ('white', (127, 127, 255)), ('black', (0, 0, 128)), ('none', (0, 0, 255)),
    ((0, 255, 0), (0, 127, 128))])
def test_transparent_pictures_get_a_background(glass, background, left):
    pixels = read_picture(str(glass), background=colour(background))
    assert tuple(pixels[0, 0]) == left and tuple(pixels[0, 3]) == (255, 0, 0)
    same = LoadPicture(background=background)(dict(img_path=str(glass)))
    assert (same['img'] == pixels).all() and same['img_shape'] == (4, 4)
    with Image.open(glass) as image:
        assert (as_bgr(image, colour(background)) == pixels).all()
        rgba = np.asarray(image)
    assert (as_bgr(rgba, colour(background), 'RGB') == pixels).all()
    bgra = np.ascontiguousarray(rgba[..., [2, 1, 0, 3]])
    assert (as_bgr(bgra, colour(background)) == pixels).all()


def test_a_palette_with_a_transparent_colour_is_transparent(tmp_path):
    image = Image.new('P', (2, 1))
    image.putpalette([0, 0, 0, 200, 0, 0])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / 'p.gif', transparency=0)
    assert read_picture(str(tmp_path / 'p.gif')).tolist() == [[[255, 255, 255], [0, 0, 200]]]


@pytest.mark.parametrize('value', ['nocolour', (1, 2), (0, 0, 256), 3.5])
def test_what_is_no_colour_is_named(value):
    with pytest.raises((ValueError, TypeError), match="colour such as 'white'|iterable"):
        colour(value)


def test_sixteen_bits_are_the_upper_eight_everywhere(tmp_path):
    values = np.array([[0, 255, 256, 4096, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / 'deep.png')
    wanted = (values >> 8)[..., None].repeat(3, axis=2)
    assert (read_picture(str(tmp_path / 'deep.png')) == wanted).all()
    with Image.open(tmp_path / 'deep.png') as image:
        assert (as_bgr(image) == wanted).all()


@pytest.mark.skipif(not features.check('avif'), reason='Pillow without AVIF')
def test_avif_and_webp_are_found_and_read(tmp_path):
    for name in ('a.avif', 'b.webp'):
        Image.new('RGB', (16, 16), (250, 0, 0)).save(tmp_path / name)
        red = read_picture(str(tmp_path / name))[8, 8].astype(int)
        assert red[2] > 230 and red[0] < 30
    assert images_below(tmp_path) == ['a.avif', 'b.webp']


def test_heic_names_the_package_that_reads_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'pillow_heif', None)
    (tmp_path / 'x.heic').write_bytes(b'\0\0\0\x18ftypheic' + b'\0' * 40)
    with pytest.raises(ValueError, match='pip install pillow-heif'):
        read_picture(str(tmp_path / 'x.heic'))
    assert images_below(tmp_path) == ['x.heic']


def test_other_files_of_a_folder_are_counted_and_named(tmp_path):
    Image.new('RGB', (2, 2)).save(tmp_path / 'a.png')
    assert left_out(tmp_path) == ''
    for name in ('b.txt', 'c.txt', 'd'):
        (tmp_path / name).touch()
    assert left_out(tmp_path) == (
        '3 files are not images and skipped (.txt 2, no ending 1): b.txt, c.txt, d')
    with pytest.warns(UserWarning, match='3 files are not images'):
        assert [item.name for item in list_images(tmp_path)] == [str(tmp_path / 'a.png')]


@pytest.mark.parametrize('value, message', [
    (b'\xff\xd8', 'PIL.Image.open'), ([bytearray(3)], 'image 0 is bytearray'),
    ('https://example.org/cat.jpg', 'addresses are not followed'),
    ('file:///tmp/my%20cat.jpg', r'give the path /tmp/my cat\.jpg instead')])
def test_what_cannot_be_read_as_it_is_gets_a_clear_message(value, message):
    with pytest.raises(ValueError, match=message):
        list_images(value)


def test_pil_images_keep_their_file_name_and_are_all_answered(glass):
    with Image.open(glass) as one, Image.open(glass) as two:
        items = list_images([one, two, one.crop((0, 0, 2, 2))])
    assert [item.name for item in items] == [str(glass), str(glass), 'image 2']


def test_arrays_may_be_rgb():
    array = np.zeros((2, 2, 3), np.uint8)
    array[..., 0] = 200
    prepare = Preprocessor(dict(preparation=dict(decoder='cv2', steps=[])), None)
    blue, _ = prepare(list_images(array)[0])
    red, _ = prepare(list_images(array, channels='rgb')[0])
    assert blue[:, 0, 0].tolist() == [200, 0, 0] and red[:, 0, 0].tolist() == [0, 0, 200]
    with pytest.raises(ValueError, match="'BGR' or 'RGB'"):
        list_images(array, channels='GBR')


def test_the_background_of_a_training_is_described_and_used(glass):
    pipeline = [dict(type='mmcluspro.LoadPicture', background='black'), dict(type='PackInputs')]
    found = describe_pipeline(pipeline)
    assert found == dict(decoder='cv2', steps=[], background=[0, 0, 0])
    trained, _ = Preprocessor(dict(preparation=found), None)(list_images(str(glass))[0])
    asked, _ = Preprocessor(dict(preparation=found), None, background='white')(
        list_images(str(glass))[0])
    assert trained[:, 0, 0].tolist() == [0, 0, 128] and asked[:, 0, 0].tolist() == [127, 127, 255]


def test_a_picture_in_memory_reads_as_its_file(glass):
    buffer = io.BytesIO(glass.read_bytes())
    assert (as_bgr(Image.open(buffer)) == read_picture(str(glass))).all()


def two_widths(path, first, last, mark='<'):
    """A deflated grey TIFF whose size tags stand twice; all strips are the same few bytes."""
    rows = min(first, 1000)
    strip = zlib.compress(bytes(first * rows), 9)
    count, table = first // rows, 8 + len(strip)
    tags = [(256, 4, 1, first), (256, 4, 1, last), (257, 4, 1, first), (257, 4, 1, last),
            (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (273, 4, count, table), (277, 3, 1, 1),
            (278, 4, 1, rows), (279, 4, count, table + 4 * count)]
    entries = b''.join(
        struct.pack(f'{mark}HHI', *tag[:3])
        + struct.pack(f'{mark}HH' if tag[1] == 3 else f'{mark}I', *tag[3:], *[0] * (tag[1] == 3))
        for tag in tags)
    path.write_bytes(
        (b'II*\0' if mark == '<' else b'MM\0*') + struct.pack(f'{mark}I', table + 8 * count) + strip
        + struct.pack(f'{mark}{count}I', *[8] * count)
        + struct.pack(f'{mark}{count}I', *[len(strip)] * count)
        + struct.pack(f'{mark}H', len(tags)) + entries + bytes(4))
    return path


@pytest.mark.parametrize('mark', '<>')
def test_a_tiff_is_not_small_to_one_decoder_and_huge_to_the_other(mark, tmp_path):
    """OpenCV read 12,000 x 12,000 pixels of a file that Pillow took for 10 x 10."""
    path = two_widths(tmp_path / 'bomb.tif', 12_000, 10, mark)
    assert path.stat().st_size < 50_000
    try:
        assert read_picture(str(path)).shape == (10, 10, 3)
    except ValueError as error:
        assert 'damaged' in str(error)
    with pytest.raises(Refused, match='tag is there twice'):
        check_file_size(str(path))
    with pytest.raises(ValueError, match='144,000,000 pixels|12000 x 12000 pixels'):
        read_picture(str(two_widths(path, 10, 12_000, mark)))


def test_plain_tiff_files_pass(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    for name, options in (('a.tif', {}), ('b.tif', dict(big_tiff=True)),
                          ('c.tif', dict(compression='tiff_lzw'))):
        Image.fromarray(pixels).save(tmp_path / name, **options)
        check_file_size(str(tmp_path / name))
        assert (read_picture(str(tmp_path / name)) == pixels[..., ::-1]).all()


@pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='no named pipes')
@pytest.mark.parametrize('read', [read_picture, check_file_size,
                                  lambda path: LoadReduced(8)(dict(img_path=path))])
def test_a_pipe_or_a_device_among_the_pictures_does_not_keep_us_waiting(read, tmp_path):
    os.mkfifo(tmp_path / 'pipe.png')
    (tmp_path / 'zero.png').symlink_to('/dev/zero')
    for name in ('pipe.png', 'zero.png'):
        with pytest.raises(Refused, match='a pipe, a device or a folder'):
            read(str(tmp_path / name))


@pytest.mark.parametrize('read', [read_picture, check_file_size])
def test_a_file_of_many_bytes_is_not_read_into_memory(read, tmp_path, monkeypatch):
    with open(tmp_path / 'sparse.png', 'wb') as file:
        file.truncate(50 << 30)  # takes no room on the disk
    with pytest.raises(Refused, match='53,687,091,200 bytes, more than 816,777,216'):
        read(str(tmp_path / 'sparse.png'))
    monkeypatch.setenv('MMCLUSPRO_MAX_PIXELS', '1000')
    with pytest.raises(Refused, match=r'more than 16,785,216; make the picture smaller'):
        read(str(tmp_path / 'sparse.png'))


def heic(path, size):
    pillow_heif = pytest.importorskip('pillow_heif')
    try:
        pillow_heif.from_pillow(Image.new('RGB', size, (250, 0, 0))).save(path)
    except RuntimeError:
        pytest.skip('pillow-heif cannot write HEIC here')
    return path


def test_heic_is_read_and_its_size_checked_before(tmp_path, monkeypatch):
    path = heic(tmp_path / 'a.heic', (64, 48))
    pixels = read_picture(str(path))
    assert pixels.shape == (48, 64, 3) and pixels[20, 20, 2] > 230 and pixels[20, 20, 0] < 30
    monkeypatch.setenv('MMCLUSPRO_MAX_PIXELS', '1000')
    for read in (read_picture, check_file_size):
        with pytest.raises(ValueError, match='64 x 48 pixels, more than 1,000'):
            read(str(path))
    path.write_bytes(path.read_bytes()[:-200])
    monkeypatch.delenv('MMCLUSPRO_MAX_PIXELS')
    with pytest.raises(ValueError, match='not an image, or damaged'):
        read_picture(str(path))


def many_scans(count, side=64):
    """A progressive JPEG whose refining scans say that nothing changes: 60 bytes for each."""
    def segment(kind, data):
        return bytes([0xff, kind]) + struct.pack('>H', len(data) + 2) + data

    def table(place, value):  # one code, of one bit
        return segment(0xc4, bytes([place, 1, *[0] * 15, value]))

    blocks = (side // 8)**2
    nothing = b'\x00' + bytes([0x01])  # one run of 2**14 blocks and more, all zero
    content = b'\xff\xd8' + segment(0xdb, bytes([0]) + bytes([1]) * 64)
    content += segment(0xc2, struct.pack('>BHHB', 8, side, side, 1) + bytes([1, 0x11, 0]))
    content += table(0x00, 0) + table(0x10, 0xe0)
    content += segment(0xda, bytes([1, 1, 0, 0, 0, 0])) + bytes(blocks // 8)
    return content + (segment(0xda, bytes([1, 1, 0, 1, 63, 0x10])) + nothing) * count + b'\xff\xd9'


READERS = [lambda path: read_picture(path, 'cv2'), lambda path: read_picture(path, 'pillow'),
           lambda path: LoadReduced(8).transform(dict(img_path=path)), check_file_size]


@pytest.mark.parametrize('read', READERS, ids=['cv2', 'pillow', 'reduced', 'header'])
def test_a_jpeg_of_many_scans_is_not_decoded(read, tmp_path):
    (tmp_path / 'scans.jpg').write_bytes(many_scans(5000))
    with pytest.raises(ValueError, match='JPEG file of more than 100 scans'):
        read(str(tmp_path / 'scans.jpg'))


def test_progressive_pictures_and_data_that_looks_like_a_scan_pass(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for name, options in (('progressive', dict(progressive=True)), ('plain', {}),
                          ('comment', dict(comment=b'\xff\xda' * 1000))):
        path = tmp_path / f'{name}.jpg'
        Image.fromarray(noise).save(path, quality=95, **options)
        check_file_size(str(path))
        assert read_picture(str(path)).shape == (64, 64, 3)
    (tmp_path / 'several.jpg').write_bytes(b''.join(
        (tmp_path / 'plain.jpg').read_bytes() for _ in range(200)))  # behind the first picture
    check_file_size(str(tmp_path / 'several.jpg'))


def as_before(image, background):
    """The whole picture at once, by the plain formula."""
    image = ImageOps.exif_transpose(image)
    if image.mode[0] == 'I':
        grey = np.asarray(image).astype(np.int64)
        grey = np.clip(grey >> 8 if grey.max() > 255 else grey, 0, 255).astype(np.uint8)
        return grey[..., None].repeat(3, axis=2)
    if image.mode not in ('RGBA', 'LA', 'PA') and 'transparency' not in image.info:
        return np.asarray(image.convert('RGB'))[..., ::-1]
    pixels = np.asarray(image.convert('RGBA')).astype(np.float32)
    alpha = pixels[..., 3:] / np.float32(255)
    mixed = pixels[..., :3] * alpha + np.float32(background) * (1 - alpha)
    return np.rint(mixed).astype(np.uint8)[..., ::-1]


@pytest.mark.parametrize('mode, suffix', [
    ('RGBA', 'png'), ('LA', 'png'), ('P', 'png'), ('RGB', 'png'), ('L', 'png'), ('1', 'png'),
    ('I;16', 'png'), ('I', 'tif'), ('I;16B', 'tif'), ('CMYK', 'tif'), ('F', 'tif'), ('RGBA', 'tif'),
    ('RGBA', 'webp'), ('P', 'gif')])
@pytest.mark.parametrize('turned', [1, 3, 6, 7])
def test_parts_make_the_same_pixels_as_the_whole(mode, suffix, turned, tmp_path, monkeypatch):
    monkeypatch.setattr('mmcluspro.datasets.pictures.PART', 50)  # three rows of 13 pixels
    generator = np.random.default_rng(0)
    for largest in (255, 40_000):
        deep = generator.integers(0, largest, (17, 13))
        image = Image.fromarray(deep.astype(np.float32)) if mode == 'F' else (
            Image.fromarray(deep.astype(np.int32)) if mode == 'I' else
            Image.fromarray(deep.astype('>u2' if mode == 'I;16B' else np.uint16)) if mode[0] == 'I'
            else Image.fromarray(generator.integers(0, 256, (17, 13, 4), dtype=np.uint8)
                                 ).convert(mode))
        exif = Image.Exif()
        exif[0x0112] = turned
        options = dict(transparency=3) if mode == 'P' else dict(transparency=(9, 9, 9)) if (
            mode == 'RGB') else {}
        path = tmp_path / f'x.{suffix}'
        image.save(path, **options, **({} if suffix == 'gif' else dict(exif=exif)))
        data = path.read_bytes()
        for background in ((255, 255, 255), (10, 200, 77)):
            # Pillow 12.3 turns an uncompressed TIFF twice if it opens it by its path.
            with Image.open(io.BytesIO(data)) as one, Image.open(io.BytesIO(data)) as two:
                expected = as_before(one, background)
                found = as_bgr(two, background)
            assert (found == expected).all() and found.flags.c_contiguous
            assert (read_picture(str(path), 'pillow', background) == expected).all()


#: Prints by how many kilobytes the peak of memory rises while a picture is read.
PEAK = """
import sys
from mmcluspro.datasets.pictures import read_picture
def peak():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith('VmHWM'))
before = peak()
read_picture(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.parametrize('mode', ['RGBA', 'P', 'I;16'])
def test_a_large_picture_takes_few_bytes_per_pixel(mode, tmp_path):
    side = 4000
    image = Image.new(mode, (side, side))
    if mode == 'P':
        image.putpalette([0, 0, 0, 200, 0, 0])
    image.save(tmp_path / 'x.png', **(dict(transparency=0) if mode == 'P' else {}))
    # In a process of its own: a forked one inherits the peak of the tests before it.
    result = subprocess.run(
        [sys.executable, '-c', PEAK, str(tmp_path / 'x.png')], capture_output=True, check=True,
        text=True)
    assert 3 <= int(result.stdout) * 1024 // side**2 <= 10  # 45 before it was done in parts
