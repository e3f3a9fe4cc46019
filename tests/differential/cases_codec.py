"""Cases of pictures as files' bytes: every kind of PNG, GIF, BMP and JPEG that TensorFlow reads,
damaged ones, and writing. What is missing of a JPEG that ends early is made up by the library,
differently from version to version: only shapes and errors are compared there."""

import functools
import itertools
import struct
import zlib

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
RNG = numpy.random.default_rng(3)


@functools.cache
def written(op, shape, dtype="uint8", **attrs):
    """TensorFlow's own bytes."""
    ramp = numpy.arange(int(numpy.prod(shape)), dtype=numpy.int64).reshape(shape)
    image = (ramp * 7 + ramp // 11 * 13).astype(dtype)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(getattr(R, op)(image=tf.constant(image), **attrs))


def picture(height, width, channels):
    y, x, c = numpy.mgrid[:height, :width, :channels]
    return ((numpy.sin(y / 5.0 + c) + numpy.cos(x / 7.0)) * 60 + 128).astype("uint8")


# ---- PNG: all color types, depths, interlaced or not, with or without transparency ----

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
         (1, 0, 2, 1))


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_rows(samples, depth, rng):
    out = b""
    for row in samples:
        bits = "".join(format(int(s), f"0{depth}b") for s in row.reshape(-1))
        bits += "0" * (-len(bits) % 8)
        out += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big") if bits else b""
    return out


def png(color, depth, height=6, width=5, interlaced=False, transparency=None, damage=None):
    rng = numpy.random.default_rng(color * 100 + depth)
    samples = rng.integers(0, 2**depth, (height, width, CHANNELS[color]))
    palette = rng.integers(0, 256, (2 ** min(depth, 8), 3)).astype("uint8").tobytes()
    if interlaced:
        rows = b"".join(png_rows(samples[y::dy, x::dx], depth, rng) for y, x, dy,
                        dx in ADAM7 if samples[y::dy, x::dx].size)
    else:
        rows = png_rows(samples, depth, rng)
    chunks = [png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0,
                                             int(interlaced)))]
    if color == 3:
        chunks.append(png_chunk(b"PLTE", palette))
    if transparency:
        chunks.append(png_chunk(b"tRNS", bytes(range(0, 200, 50))[: len(palette) // 3] if color == 3
                                else b"".join(struct.pack(">H", int(s)) for s in samples[0, 0])))
    chunks += [png_chunk(b"IDAT", zlib.compress(rows)), png_chunk(b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return damage(data) if damage else data


# ---- GIF ----


def lzw(indices, size):
    """Codes of one width growing as a reader's table grows."""
    clear, codes, table, string = 1 << size, [], {}, ()
    codes.append((clear, size + 1))
    width, following = size + 1, clear + 2
    for index in indices:
        if string + (index,) in table or not string:
            string += (index,)
            continue
        codes.append((table[string] if len(string) > 1 else string[0], width))
        if following < 4096:
            table[string + (index,)] = following
            following += 1
            if following > 1 << width and width < 12:
                width += 1
        string = (index,)
    codes.append((table[string] if len(string) > 1 else string[0], width))
    if following + 1 > 1 << width and width < 12:
        width += 1
    codes.append((clear + 1, width))
    bits = n = 0
    for code, code_width in codes:
        bits |= code << n
        n += code_width
    data = bits.to_bytes((n + 7) // 8, "little")
    return bytes([size]) + b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255]
                                    for i in range(0, len(data), 255)) + b"\0"


def gif(frames, height=7, width=6, size=3, colors=True, end=b";"):
    """frames: (top, left, height, width, {transparent, interlaced, colors})."""
    rng = numpy.random.default_rng(len(frames))
    palette = rng.integers(0, 256, 3 << size).astype("uint8").tobytes()
    out = b"GIF89a" + struct.pack("<HHBBB", width, height, (0x80 if colors else 0) | (size - 1), 0,
                                  0) + (palette if colors else b"")
    for top, left, h, w, options in frames:
        if "transparent" in options:
            out += b"\x21\xf9\x04" + struct.pack("<BHBB", 1, 10, options["transparent"], 0)
        own = options.get("colors")
        out += b"," + struct.pack("<HHHHB", left, top, w, h,
                                  (0x40 if options.get("interlaced") else 0)
                                  | (0x80 | own - 1 if own else 0))
        if own:
            out += rng.integers(0, 256, 3 << own).astype("uint8").tobytes()
        indices = [int(i) for i in rng.integers(0, 1 << size, h * w)]
        out += lzw(indices, max(size, 2))
    return out + end


def bmp(height, width, bits, extra=0, offset=54):
    row = (width * bits // 8 + 3) // 4 * 4
    pixels = bytes(i * 37 % 256 for i in range(row * abs(height)))
    pixels = pixels[:extra] if extra < 0 else pixels + b"x" * extra
    header = b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, offset) + struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, 0, len(pixels), 0, 0, 0, 0)
    return header + pixels


# ---- cases ----


def read(op, data, **attrs):
    return lambda: [getattr(R, op)(contents=oracle.const(data), **attrs)]


def png_cases():
    for color, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16),
                          6: (8, 16)}.items():
        for depth, interlaced, transparency in itertools.product(
            depths, (False, True), (False, True) if color in (0, 2, 3) else (False,)):
            data = png(color, depth, interlaced=interlaced, transparency=transparency)
            for channels in (0, 1, 3, 4):
                for dtype in ("uint8", "uint16"):
                    yield (
                        f"DecodePng/{color},{depth},{interlaced},{transparency}/{channels}/{dtype}",
                        read("DecodePng", data, channels=channels,
                             dtype=dtype))
                if not interlaced:
                    yield f"DecodeImage/png/{color},{depth},{transparency}/{channels}/float", read(
                        "DecodeImage", data, channels=channels, dtype="float32")
    plain = png(2, 8)
    for name, damage in {
        "cut": lambda d: d[:-20], "no end": lambda d: d[:-12], "short": lambda d: d[:20],
        "checksum": lambda d: d[:45] + b"x" + d[46:], "header only": lambda d: d[:33],
        "mark only": lambda d: d[:8],
        "wide": lambda d: d[:8] + png_chunk(b"IHDR",
                                            struct.pack(">IIBBBBB", 2**30, 1, 8, 2, 0, 0, 0))
                         + d[33:], "large": lambda d: d[:8]
                         + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 40000, 40000, 8, 2, 0, 0, 0))
                         + d[33:],
        "empty": lambda d: d[:8] + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 3, 8, 2, 0, 0, 0))
        + d[33:], "depth": lambda d: d[:8]
        + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 6, 3, 2, 0, 0, 0)) + d[33:],
        "more": lambda d: d + b"xxxx",
    }.items():  # fmt: skip
        yield f"DecodePng/damaged/{name}", read("DecodePng", damage(plain))
    yield "DecodePng/no palette", read("DecodePng", png(3, 8).replace(b"PLTE", b"PLTX"))


def gif_cases():
    whole = (0, 0, 7, 6, {})
    pictures = {
        "one": [whole], "three": [whole] * 3, "part": [(2, 1, 3, 4, {})],
        "parts": [whole, (2, 1, 3, 4, {}), (0, 0, 2, 2, {})],
        "transparent": [whole, (0, 0, 7, 6, {"transparent": 3})],
        "transparent first": [(0, 0, 7, 6, {"transparent": 3})],
        "interlaced": [(0, 0, 7, 6, {"interlaced": True})],
        "own colors": [whole, (1, 1, 4, 4, {"colors": 3})],
        "few colors": [(0, 0, 7, 6, {"colors": 1})],
    }  # fmt: skip
    for name, frames in pictures.items():
        for op in ("DecodeGif", "DecodeImage", "DecodePng", "DecodeJpeg"):
            yield f"{op}/gif/{name}", read(op, gif(frames))
        for dtype, expands in itertools.product(("uint8", "uint16", "float32"), (True, False)):
            yield f"DecodeImage/gif/{name}/{dtype}/{expands}", read(
                "DecodeImage", gif(frames), dtype=dtype, expand_animations=expands)
    yield "DecodeGif/large", read("DecodeGif", gif([(0, 0, 100, 90, {})], 100, 90, 8))
    yield "DecodeGif/long", read("DecodeGif", gif([(0, 0, 30, 30, {})] * 20, 30, 30, 2))
    yield "DecodeGif/no end", read("DecodeGif", gif([whole], end=b""))
    yield "DecodeGif/no colors", read("DecodeGif", gif([whole], colors=False))
    for cut in (3, 8, 20, 40, 50):
        yield f"DecodeGif/cut {cut}", read("DecodeGif", gif([whole])[:cut])
    for channels in (1, 3, 4):
        yield f"DecodeImage/gif/channels {channels}", read(
            "DecodeImage", gif([whole]), channels=channels)


def bmp_cases():
    for height, width, bits in itertools.product((1, 4, -4), (1, 3, 4, 5), (8, 24, 32)):
        for channels in (0, 1, 3, 4):
            yield f"DecodeBmp/{height},{width},{bits}/{channels}", read(
                "DecodeBmp", bmp(height, width, bits), channels=channels)
        if height < 0:
            continue  # TensorFlow ends itself
        yield f"DecodeImage/bmp/{height},{width},{bits}", read(
            "DecodeImage", bmp(height, width, bits), dtype="uint16")
    for name, data in {
        "short": bmp(3, 3, 24)[:20], "cut": bmp(3, 3, 24, -1), "more": bmp(3, 3, 24, 5),
        "bits 16": bmp(3, 3, 16), "bits 1": bmp(3, 8, 1), "no width": bmp(3, 0, 24),
        "no height": bmp(0, 3, 24), "negative": bmp(3, -3, 24),
        "far": bmp(3, 3, 24, offset=1000),
        "negative offset": bmp(3, 3, 24).replace(struct.pack("<I", 54), struct.pack("<i", -1), 1),
    }.items():  # fmt: skip
        yield f"DecodeBmp/damaged/{name}", read("DecodeBmp", data)


def jpeg_cases():
    kinds = {
        "color": ((37, 50, 3), {}), "grey": ((37, 50, 1), {}),
        "progressive": ((37, 50, 3), {"progressive": True}),
        "full chroma": ((37, 50, 3), {"chroma_downsampling": False}),
        "bad": ((37, 50, 3), {"quality": 5}), "one": ((1, 1, 3), {}),
        "optimized": ((16, 16, 3), {"optimize_size": True}),
    }  # fmt: skip
    for name, (shape, attrs) in kinds.items():
        data = written("EncodeJpeg", shape, **attrs)
        for channels in (0, 1, 3, 4):
            yield f"DecodeJpeg/{name}/{channels}", read("DecodeJpeg", data, channels=channels)
        for ratio, fancy, method in itertools.product(
            (1, 2, 4, 8), (True, False), ("", "INTEGER_FAST", "INTEGER_ACCURATE")):
            yield f"DecodeJpeg/{name}/{ratio},{fancy},{method}", read(
                "DecodeJpeg", data, ratio=ratio, fancy_upscaling=fancy, dct_method=method)
        for dtype in ("uint8", "uint16", "float32"):
            yield f"DecodeImage/jpeg/{name}/{dtype}", read("DecodeImage", data, dtype=dtype)
        yield f"ExtractJpegShape/{name}", read("ExtractJpegShape", data, output_type="int64")
        for cut in (1, 2, 10, len(data) // 2, len(data) - 20):
            yield f"DecodeJpeg/{name}/cut {cut}", read("DecodeJpeg", data[:-cut])
            # TensorFlow may never end on others
            for fraction in (0.0, 0.5, 1.0) if cut in (10, len(data) // 2) else ():
                yield f"DecodeJpeg/{name}/cut {cut}/{fraction}", read(
                    "DecodeJpeg", data[:-cut], try_recover_truncated=True,
                    acceptable_fraction=fraction)
        yield f"DecodeJpeg/{name}/more", read("DecodeJpeg", data + b"xxx")
    data = written("EncodeJpeg", (37, 50, 3))
    for window in ([0, 0, 37, 50], [0, 0, 1, 1], [5, 9, 20, 30], [36, 49, 1, 1], [0, 17, 37, 16],
                   [0, 0, 38, 50], [0, 1, 37, 50], [0, 0, 0, 1], [0, 0, 3], [[0, 0, 3, 3]]):
        yield f"DecodeAndCropJpeg/{window}", lambda window=window: [
            R.DecodeAndCropJpeg(contents=oracle.const(data),
                                crop_window=oracle.const(numpy.array(window, "int32")))]
    for op in ("DecodeImage", "DecodeJpeg", "DecodePng", "DecodeGif", "DecodeBmp",
               "ExtractJpegShape"):
        for name, other in {"jpeg": data, "png": png(2, 8), "bmp": bmp(2, 2, 24), "nothing": b"",
                            "text": b"some text, longer than any mark of a format",
                            "mark": data[:3], "header": data[:100], "zeros": bytes(100)}.items():
            yield f"{op}/of {name}", read(op, other)
        yield f"{op}/two", read(op, numpy.array([data, data], object))
        if op not in ("DecodeGif", "ExtractJpegShape"):
            yield f"{op}/two channels", read(op, data, channels=2)


def encoded_png(image, compression):
    """The bytes; at level 1, where versions of zlib differ, the pixels in them."""
    contents = R.EncodePng(image=oracle.const(image), compression=compression)
    return [R.DecodePng(contents=contents, dtype=image.dtype)] if compression == 1 else [contents]


def encode_cases():
    sizes = ((1, 1), (5, 4), (16, 16), (33, 21))
    for size, channels in itertools.product(sizes, (1, 3)):
        image = picture(*size, channels)
        for attrs in (
            {}, {"quality": 0}, {"quality": 50}, {"quality": 100}, {"progressive": True},
            {"optimize_size": True}, {"chroma_downsampling": False},
            {"density_unit": "cm", "x_density": 72, "y_density": 100},
            {"xmp_metadata": "some text"},
            {"format": "rgb"}, {"format": "grayscale"}, {"quality": -1}, {"quality": 101},
        ):  # fmt: skip
            yield f"EncodeJpeg/{size},{channels}/{attrs}", lambda image=image, attrs=attrs: [
                R.EncodeJpeg(image=oracle.const(image), **attrs)]
        for quality in (0, 40, 100, -1, 101, [5]):
            yield (f"EncodeJpegVariableQuality/{size},{channels}/{quality}", lambda image=image,
                   quality=quality: [
                R.EncodeJpegVariableQuality(images=oracle.const(image),
                                            quality=oracle.const(numpy.array(quality, "int32")))
            ])
    for size, channels, dtype in itertools.product(sizes, (1, 2, 3, 4), ("uint8", "uint16")):
        image = picture(*size, channels).astype(dtype) * (1 if dtype == "uint8" else 251)
        for compression in (-1, 0, 1, 9):
            yield (f"EncodePng/{size},{channels}/{dtype}/{compression}", lambda image=image,
                   c=compression: encoded_png(image, c))
    for shape in ((2, 3, 4, 5, 3), (0, 4, 5, 3), (4, 5), (4, 5, 0), (4, 5, 5), (4,)):
        yield f"EncodePng/{shape}", lambda shape=shape: [
            R.EncodePng(image=oracle.const(numpy.zeros(shape, "uint8")))]
        yield f"EncodeJpeg/{shape}", lambda shape=shape: [
            R.EncodeJpeg(image=oracle.const(numpy.zeros(shape, "uint8")))]
    yield "EncodeJpeg/empty", lambda: [R.EncodeJpeg(
        image=oracle.const(numpy.zeros((0, 4, 3), "uint8")))]
    for compression in (-2, 10):
        yield f"EncodePng/compression {compression}", lambda c=compression: [
            R.EncodePng(image=oracle.const(numpy.zeros((2, 2, 3), "uint8")), compression=c)]


def cases():
    yield from png_cases()
    yield from gif_cases()
    yield from bmp_cases()
    yield from jpeg_cases()
    yield from encode_cases()
