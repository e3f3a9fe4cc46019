"""Cases of the audio family: WAV files, spectra."""

import struct

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops


def wav(samples, rate=8000, channels=1, bits=16, form=1, head=16, extra=b"", before=b"", **wrong):
    data = numpy.asarray(samples, "<i2").tobytes()
    frame = wrong.get("frame", channels * bits // 8)
    fmt = struct.pack("<HHIIHH", form, channels, rate, wrong.get("second", rate * frame), frame,
                      bits) + extra
    body = b"WAVE" + b"fmt " + struct.pack("<I", head) + fmt + before + b"data" + struct.pack(
        "<I", wrong.get("size", len(data))) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def decode(data, **attrs):
    return lambda: list(R.DecodeWav(contents=oracle.const(data), **attrs))


def wav_cases():
    rng = numpy.random.default_rng(1)
    samples = rng.integers(-32768, 32767, 24)
    for channels in (1, 2, 3):
        data = wav(samples, channels=channels)
        for want, n in ((-1, -1), (1, -1), (2, -1), (4, -1), (-1, 5), (-1, 40), (2, 10), (0, 0)):
            yield f"DecodeWav/{channels}/{want},{n}", decode(
                data, desired_channels=want, desired_samples=n)
    list_chunk = b"LIST" + struct.pack("<I", 6) + b"abcdef"
    odd_chunk = b"LIST" + struct.pack("<I", 5) + b"abcde"
    whole = wav(samples)
    for name, data in {
        "nothing": b"", "empty": wav([]), "18 bytes": wav(samples, head=18, extra=b"\0\0"),
        "bad head": wav(samples, head=20, extra=b"\0\0\0\0"),
        "chunk": wav(samples, before=list_chunk),
        "odd chunk": wav(samples, before=odd_chunk), "8 bits": wav(samples, bits=8),
        "float": wav(samples, form=3), "no channels": wav(samples, channels=0),
        "frame": wav(samples, frame=7),
        "second": wav(samples, second=7), "long": wav(samples, size=4000),
        "huge": wav(samples, size=2**32 - 1), "short": wav(samples, size=10),
        "odd": wav(samples, size=47), "two": whole + whole[36:],
        "no data": whole[:36], "text": b"some text that is longer than the header of a file",
        "RIFF": b"RIFF", "more": whole + b"xx", "rate 0": wav(samples, rate=0),
    }.items():  # fmt: skip
        yield f"DecodeWav/{name}", decode(data)
    for cut in (1, 3, 11, 20, 43, 44):
        yield f"DecodeWav/cut {cut}", decode(whole[:cut])
    yield "DecodeWav/vector", decode(numpy.array([whole, whole], object))
    for want, n in ((-2, -1), (-1, -2)):
        yield f"DecodeWav/wrong {want},{n}", decode(whole, desired_channels=want, desired_samples=n)
    for shape in ((7, 1), (5, 2), (0, 1), (3, 0), (4,), (2, 2, 2)):
        sound = (rng.normal(size=shape) * 0.6).astype("float32")
        for rate in (8000, 0, -1, [8000]):
            yield f"EncodeWav/{shape}/{rate}", lambda sound=sound, rate=rate: [
                R.EncodeWav(audio=oracle.const(sound),
                            sample_rate=oracle.const(numpy.array(rate, "int32")))]


def spectrum_cases():
    rng = numpy.random.default_rng(2)
    loose = {"rtol": 1e-4, "atol": 1e-4}
    for n, channels, window, stride, squared in (
        (100, 1, 16, 8, False), (100, 2, 17, 5, True), (15, 1, 16, 8, False), (16, 1, 16, 8, False),
        (64, 3, 2, 1, True), (0, 1, 8, 4, False), (40, 0, 8, 4, False), (500, 1, 100, 200, True),
        (50, 1, 1, 1, False), (50, 1, 8, 0, False), (50, 1, 0, 3, False), (50, 1, -3, 3, False),
    ):  # fmt: skip
        sound = rng.normal(size=(n, channels)).astype("float32")
        yield (f"AudioSpectrogram/{n},{channels},{window},{stride},{squared}", lambda sound=sound,
               w=window, s=stride, q=squared: [
            R.AudioSpectrogram(input=oracle.const(sound), window_size=w, stride=s,
                               magnitude_squared=q)
        ], loose)
    yield "AudioSpectrogram/vector", lambda: [R.AudioSpectrogram(
        input=oracle.const(numpy.zeros(50, "float32")), window_size=8, stride=4)]
    for shape, rate, attrs in (
        ((1, 3, 129), 16000, {}), ((2, 4, 513), 44100, {}),
        ((1, 2, 65), 8000, {"filterbank_channel_count": 20, "dct_coefficient_count": 20}),
        ((1, 2, 33), 8000, {"upper_frequency_limit": 3000, "lower_frequency_limit": 100}),
        ((1, 2, 129), 16000, {"dct_coefficient_count": 41}),
        ((1, 2, 129), 16000, {"dct_coefficient_count": 0}),
        ((1, 2, 129), 16000, {"upper_frequency_limit": 10}),
        ((1, 2, 129), 16000, {"lower_frequency_limit": -1}), ((1, 2, 129), 0, {}),
        ((1, 2, 1), 16000, {}), ((1, 0, 129), 16000, {}), ((0, 2, 129), 16000, {}),
        ((2, 129), 16000, {}), ((1, 2, 129), [16000], {}),
        ((1, 2, 129), [16000, 1], {}), ((1, 2, 0), 16000, {}),
        ((1, 2, 129), 16000, {"filterbank_channel_count": 0}),
    ):  # fmt: skip
        energies = abs(rng.normal(size=shape) * 100).astype("float32")
        energies[..., : shape[-1] // 4] *= 0
        yield f"Mfcc/{shape},{rate},{attrs}", lambda e=energies, rate=rate, attrs=attrs: [
            R.Mfcc(spectrogram=oracle.const(e),
                   sample_rate=oracle.const(numpy.array(rate, "int32")), **attrs)], loose


def cases():
    yield from wav_cases()
    yield from spectrum_cases()
