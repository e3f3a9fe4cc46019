"""Cases of debuggers' ops."""

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
MODES = (2, 3, 4, 5, 8)


def summary(value, mode, **attrs):
    return lambda: [R.DebugNumericSummaryV2(input=oracle.const(value), tensor_debug_mode=mode,
                                            **attrs)]


def numbers(value, **attrs):
    attrs = {"tensor_name": "a:0", **attrs}
    return lambda: [R.DebugNumericSummary(input=oracle.const(value), **attrs)]


def cases():
    rng = numpy.random.default_rng(1)
    special = numpy.array([[1, -2, 0, numpy.nan, numpy.inf, -numpy.inf, -0.0, 3]])
    for dtype in tf_kernels.cpu_dtypes("DebugNumericSummaryV2"):
        for mode in MODES:
            yield f"DebugNumericSummaryV2/{dtype}/{mode}", summary(
                oracle.sample(rng, dtype, (3, 5)), mode, tensor_id=5)
    for dtype in ("float16", "float32", "float64"):
        for mode in MODES:
            for out in (tf.float32, tf.float64):
                yield f"DebugNumericSummaryV2/special/{dtype}/{mode}/{out.name}", summary(
                    special.astype(dtype), mode, output_dtype=out)
    for shape in ((), (0,), (0, 3), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 7, 2)):
        for mode in MODES:
            yield f"DebugNumericSummaryV2/{shape}/{mode}", summary(
                numpy.ones(shape, "float32"), mode, tensor_id=1)
    for dtype in tf_kernels.cpu_dtypes("DebugNanCount"):
        yield f"DebugNanCount/{dtype}", lambda dtype=dtype: [
            R.DebugNanCount(input=oracle.const(special.astype(dtype)), tensor_name="a:12")]
    for dtype in tf_kernels.cpu_dtypes("DebugNumericSummary"):
        for attrs in ({}, {"lower_bound": -2., "upper_bound": 2.}, {"mute_if_healthy": True}):
            yield f"DebugNumericSummary/{dtype}/{attrs}", numbers(oracle.sample(rng, dtype, (3, 5)),
                                                                  **attrs)
    for value in (special, special.astype("float32"), numpy.ones((0, 2)), numpy.float32(3),
                  numpy.array([numpy.inf, -numpy.inf])):
        for attrs in ({}, {"lower_bound": -1.5, "upper_bound": 2.5}, {"mute_if_healthy": True}):
            name = f"DebugNumericSummary/{value.dtype}/{value.shape}/{attrs}"
            yield name, numbers(value, **attrs)
    for name in ("", "a", "a:", "a:b", "a:0:1", "a:-1"):
        yield f"DebugNumericSummary/{name}", numbers(special, tensor_name=name)
    for mode in (-1, 0, 1, 6, 7, 9):
        yield f"DebugNumericSummaryV2/mode {mode}", summary(special, mode)
    for out, largest in ((tf.float32, 1 << 24), (tf.float64, 1 << 53)):
        for tensor_id in (largest, largest + 1, -5):
            yield f"DebugNumericSummaryV2/id {tensor_id}", summary(
                special, 2, tensor_id=tensor_id, output_dtype=out)
    for value in (special, numpy.array(["a", "b"]), numpy.int32(3)):
        yield f"DebugIdentityV2/{value.dtype}", lambda value=value: [
            R.DebugIdentityV2(input=oracle.const(value))]
        yield f"DebugIdentity/{value.dtype}", lambda value=value: [
            R.DebugIdentity(input=oracle.const(value), tensor_name="a")]
        yield f"Copy/{value.dtype}", lambda value=value: [R.Copy(input=oracle.const(value))]
        yield f"CopyHost/{value.dtype}", lambda value=value: [R.CopyHost(input=oracle.const(value))]
    for dtype, shape in ((tf.int32, [2, 0]), (tf.float32, [2, None]), (tf.string, [2]),
                         (tf.int64, [])):
        # TensorFlow's are what the memory held
        options = {"ignore": "values"} if dtype != tf.string else {}
        yield f"FakeParam/{dtype.name}/{shape}", lambda dtype=dtype, shape=shape: [
            R.FakeParam(dtype=dtype, shape=shape)], options
    for names in (["GPU", "CPU", "TPU"], ["CPU"], ["GPU"], []):
        yield f"DeviceIndex/{names}", lambda names=names: [R.DeviceIndex(device_names=names)]
