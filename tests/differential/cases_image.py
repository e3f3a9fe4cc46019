"""Cases of the image family: resizing, cropping, colours, boxes, projective maps."""

import itertools

import numpy as np
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
F, I = np.float32, np.int32
# Sums of a few products: the order of adding differs. Integers up to 100 make the sums larger.
NEAR = {"rtol": 2e-5, "atol": 2e-4}
NARROW = {"float16": {"rtol": 1e-2, "atol": 2e-2}, "bfloat16": {"rtol": 5e-2, "atol": 1e-1}}


def case(op, inputs, **attrs):
    def build():
        out = getattr(R, op)(**{k: oracle.const(v) for k, v in inputs.items()}, **attrs)
        return list(out) if isinstance(out, tuple) else [out]

    return build


def images(dtype, shape, seed=1):
    return oracle.sample(np.random.default_rng(seed), dtype, shape)


def sizes(*values):
    return np.array(values, I)


WAYS = ({}, {"align_corners": True}, {"half_pixel_centers": True})
# fmt: skip
SHAPES = (((1, 4, 5, 3), (7, 3)), ((2, 3, 3, 1), (3, 3)), ((1, 1, 1, 2), (4, 1)),
          ((2, 9, 7, 4), (2, 3)), ((0, 2, 2, 1), (3, 3)), ((1, 6, 1, 3), (1, 6)),
          ((3, 8, 8, 5), (16, 4)))
WRONG = (
    ((2, 2, 1), (3, 3)), ((1, 2, 2, 1), (3,)), ((1, 2, 2, 1), (3, 3, 3)), ((1, 2, 2, 1), (0, 3)),
    ((1, 2, 2, 1), (3, -1)), ((1, 0, 2, 1), (3, 3)), ((1, 2, 0, 1), (3, 3)), ((1, 2, 2, 0), (3, 3)),
    ((1, 2, 2, 1), ((3, 3),)), ((0, 0, 0, 0), (1, 1)),
)  # fmt: skip


def resizes():
    for op in ("ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"):
        ways = WAYS[:2] if op == "ResizeArea" else WAYS
        options = {} if op == "ResizeNearestNeighbor" else NEAR
        for dtype, (shape, size), way in itertools.product(tf_kernels.cpu_dtypes(op), SHAPES, ways):
            if op == "ResizeArea" and way and 1 in shape[1:3]:
                continue  # TensorFlow divides by nothing
            yield f"{op}/{dtype}/{shape}/{size}/{way}", case(
                op, {"images": images(dtype, shape), "size": sizes(*size)}, **way), options
        for shape, size in WRONG:
            yield f"{op}/wrong {shape} {size}", case(
                op, {"images": images("float32", shape), "size": sizes(*size)})
        if op != "ResizeArea":
            both = {"align_corners": True, "half_pixel_centers": True}
            yield f"{op}/both", case(op, {"images": images("float32", (1, 2, 2, 1)),
                                          "size": sizes(3, 3)}, **both)
    large = images("float32", (2, 61, 83, 3))
    for op, way in itertools.product(("ResizeBilinear", "ResizeBicubic", "ResizeArea",
                                      "ResizeNearestNeighbor"), WAYS):
        if op == "ResizeArea" and "half_pixel_centers" in way:
            continue
        for size in ((30, 40), (122, 166), (61, 83), (200, 7)):
            yield f"{op}/large {size} {way}", case(
                op, {"images": large, "size": sizes(*size)}, **way), {"rtol": 1e-4, "atol": 1e-3}


def resize_grads():
    for op in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        for dtype, (shape, size), way in itertools.product(tf_kernels.cpu_dtypes(op), SHAPES, WAYS):
            grads = images("float32", (shape[0], *size, shape[3]))
            inputs = {"grads": grads, "original_image": images(dtype, shape)}
            yield f"{op}/{dtype}/{shape}/{size}/{way}", case(op, inputs, **way), NARROW.get(
                dtype, NEAR)
        for one, other in (((2, 2, 1), (1, 2, 2, 1)), ((1, 2, 2, 1), (2, 2, 1)),
                           ((1, 2, 2, 1), (1, 0, 2, 1))):
            yield f"{op}/wrong {one} {other}", case(
                op, {"grads": images("float32", one), "original_image": images("float32", other)})
    op = "ResizeNearestNeighborGrad"
    for dtype, (shape, size), way in itertools.product(tf_kernels.cpu_dtypes(op), SHAPES, WAYS):
        inputs = {"grads": images(dtype, (shape[0], *size, shape[3])), "size": sizes(*shape[1:3])}
        yield f"{op}/{dtype}/{shape}/{size}/{way}", case(op, inputs, **way), NARROW.get(dtype, NEAR)
    for shape, size in (((2, 2, 1), (3, 3)), ((1, 2, 2, 1), (3,)), ((1, 2, 2, 1), (0, 3)),
                        ((1, 2, 2, 1), ((3, 3),))):
        yield f"{op}/wrong {shape} {size}", case(
            op, {"grads": images("float32", shape), "size": sizes(*size)})


FILTERS = ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic",
           "mitchellcubic")


def placed():
    op = "ScaleAndTranslate"
    for dtype in tf_kernels.cpu_dtypes(op):
        inputs = {"images": images(dtype, (2, 5, 6, 3)), "size": sizes(4, 9),
                  "scale": F([0.8, 1.5]), "translation": F([0, 0])}
        yield f"{op}/{dtype}", case(op, inputs), NEAR
    places = (((1, 1), (0, 0)), ((0.5, 2), (1, -2)), ((0.3, 0.4), (0.5, 0.25)), ((3, 3), (-4, 10)),
              ((1, 1), (100, 0)))
    for name, antialias, (scale, shift) in itertools.product(FILTERS, (True, False), places):
        inputs = {"images": images("float32", (2, 5, 6, 3)), "size": sizes(4, 9), "scale": F(scale),
                  "translation": F(shift)}
        attrs = {"kernel_type": name, "antialias": antialias}
        yield f"{op}/{name}/{antialias}/{scale}/{shift}", case(op, inputs, **attrs), NEAR
        inputs = {"grads": images("float32", (2, 4, 9, 3)),
                  "original_image": images("float32", (2, 5, 6, 3)), "scale": F(scale),
                  "translation": F(shift)}
        yield f"{op}Grad/{name}/{antialias}/{scale}/{shift}", case(
            op + "Grad", inputs, **attrs), NEAR
    good = {"images": images("float32", (1, 2, 2, 1)), "size": sizes(3, 3), "scale": F([1, 1]),
            "translation": F([0, 0])}
    for change in (
        {"scale": F([0, 1])}, {"scale": F([1, -1])}, {"scale": F([1])},
        {"translation": F([1, 2, 3])}, {"size": sizes(0, 1)},
        {"images": images("float32", (2, 2, 1))}, {"scale": F([[1, 1]])},
    ):  # fmt: skip
        yield f"{op}/wrong {[(k, v.shape, v.ravel()[:2]) for k, v in change.items()]}", case(
            op, {**good, **change})
    yield f"{op}/wrong filter", case(op, good, kernel_type="round")


BOXES = F([[0, 0, 1, 1], [0.2, 0.3, 0.7, 0.9], [-0.5, -0.25, 1.5, 1.25], [0.9, 0.8, 0.1, 0.2],
           [0.5, 0.5, 0.5, 0.5], [2, 2, 3, 3]])


def crops():
    op = "CropAndResize"
    index = I([0, 1, 1, 0, 1, 0])
    for dtype, method, size in itertools.product(tf_kernels.cpu_dtypes(op), ("bilinear", "nearest"),
            ((3, 4), (1, 1), (7, 1))):
        inputs = {"image": images(dtype, (2, 5, 6, 3)), "boxes": BOXES, "box_ind": index,
                  "crop_size": sizes(*size)}
        yield f"{op}/{dtype}/{method}/{size}", case(
            op, inputs, method=method, extrapolation_value=-7.5), NEAR
        inputs = {"grads": images("float32", (6, *size, 3)), "image": images(dtype, (2, 5, 6, 3)),
                  "boxes": BOXES, "box_ind": index}
        yield f"{op}GradBoxes/{dtype}/{size}", case(op + "GradBoxes", inputs), {
            "rtol": 1e-4, "atol": 1e-2}
        if dtype in tf_kernels.cpu_dtypes(op + "GradImage"):
            inputs = {"grads": images("float32", (6, *size, 3)), "boxes": BOXES, "box_ind": index,
                      "image_size": sizes(2, 5, 6, 3)}
            yield f"{op}GradImage/{dtype}/{method}/{size}", case(
                op + "GradImage", inputs, method=method, T=tf.as_dtype(dtype)), NARROW.get(
                    dtype, NEAR)
    good = {"image": images("float32", (2, 5, 6, 3)), "boxes": BOXES, "box_ind": index,
            "crop_size": sizes(2, 2)}
    changes = (
        {"box_ind": I([0, 1, 2, 0, 0, 0])}, {"box_ind": I([0, -1, 0, 0, 0, 0])},
        {"box_ind": I([0])}, {"box_ind": I([[0, 0, 0, 0, 0, 0]])}, {"boxes": BOXES[:, :3]},
        {"boxes": BOXES[0]}, {"boxes": F([[np.nan, 0, 1, 1]] * 6)},
        {"boxes": F([[np.inf, 0, 1, 1]] * 6)}, {"boxes": BOXES[:0], "box_ind": index[:0]},
        {"boxes": np.zeros((0, 7), F), "box_ind": index[:0]}, {"crop_size": sizes(0, 2)},
        {"crop_size": sizes(2)}, {"crop_size": sizes((2, 2))},
        {"image": images("float32", (5, 6, 3))},
        {"image": images("float32", (2, 0, 6, 3))}, {"image": images("float32", (0, 5, 6, 3))},
        {"image": images("float32", (2, 5, 6, 0))},
    )  # fmt: skip
    for change in changes:
        name = [(k, v.shape, v.ravel()[:3]) for k, v in change.items()]
        yield f"{op}/change {name}", case(op, {**good, **change})
        both = {**good, **change}
        if not np.isfinite(both["boxes"]).all() or both["boxes"].shape[-1] == 7:
            continue  # TensorFlow's gradients crash, and have another static shape than value
        n = len(both["boxes"])
        grads = images("float32", (n, 2, 2, both["image"].shape[-1]))
        inputs = {"grads": grads, "image": both["image"], "boxes": both["boxes"],
                  "box_ind": both["box_ind"]}
        yield f"{op}GradBoxes/change {name}", case(op + "GradBoxes", inputs), NEAR
        if both["image"].ndim == 4:
            inputs = {"grads": grads, "boxes": both["boxes"], "box_ind": both["box_ind"],
                      "image_size": sizes(*both["image"].shape)}
            yield f"{op}GradImage/change {name}", case(op + "GradImage", inputs, T=tf.float32), NEAR
    yield f"{op}/wrong method", case(op, good, method="cubic")
    inputs = {"grads": images("float32", (6, 2, 2, 3)), "boxes": BOXES, "box_ind": index}
    for size in (sizes(2, 5, 6), sizes(2, 0, 6, 3), sizes(2, 5, 6, 4), sizes(2, 5, 6, -3),
                 sizes((2, 5, 6, 3))):
        yield f"{op}GradImage/size {size.tolist()}", case(
            op + "GradImage", {**inputs, "image_size": size}, T=tf.float32)


def glimpses():
    x = images("float32", (2, 6, 7, 3))
    for op, centered, normalized, offset, size in itertools.product(
        ("ExtractGlimpse", "ExtractGlimpseV2"), (True, False), (True, False),
        ([[0, 0], [0.5, -0.5]], [[1, 2], [3, 4]], [[-2, 9], [-0.9, 0.9]]), ((3, 4), (6, 7), (9, 2))
    ):
        inputs = {"input": x, "size": sizes(*size), "offsets": F(offset)}
        yield f"{op}/{centered}/{normalized}/{offset}/{size}", case(
            op, inputs, centered=centered, normalized=normalized, uniform_noise=False, noise="zero")
    inputs = {"input": x, "size": sizes(3, 4), "offsets": F([[0, 0], [1, 1]])}
    for op in ("ExtractGlimpse", "ExtractGlimpseV2"):
        for noise in ("uniform", "gaussian", "", "pink"):
            yield f"{op}/noise {noise}", case(op, inputs, uniform_noise=False, noise=noise), {
                "ignore": "values"}
        yield f"{op}/noise both", case(op, inputs, uniform_noise=True, noise="zero")
        for change in ({"input": x[0]}, {"size": sizes(3)}, {"size": sizes(0, 3)},
                       {"offsets": F([0, 0])}, {"offsets": F([[0, 0]])},
                       {"offsets": F([[0], [0]])}):
            yield f"{op}/wrong {[(k, v.shape) for k, v in change.items()]}", case(
                op, {**inputs, **change}, uniform_noise=False, noise="zero")


def colors():
    rng = np.random.default_rng(5)
    special = np.array([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0],
                        [0, 0.5, 0.5], [0.5, 0, 0.5]])
    for op, dtype in itertools.product(("RGBToHSV", "HSVToRGB"), tf_kernels.cpu_dtypes("RGBToHSV")):
        kind = tf.as_dtype(dtype).as_numpy_dtype
        options = {"float32": {"rtol": 1e-5, "atol": 1e-5}, "float16": {"rtol": 2e-2, "atol": 2e-2},
                   "bfloat16": {"rtol": 1e-1, "atol": 1e-1}}.get(dtype, {})
        for values in (rng.random((2, 5, 7, 3)), special, special[0], np.zeros((0, 3))):
            yield f"{op}/{dtype}/{values.shape}", case(op, {"images": values.astype(kind)}), options
        for shape in ((), (2,), (3, 4), (2, 0)):
            yield f"{op}/{dtype}/wrong {shape}", case(op, {"images": np.zeros(shape, kind)})
    near = {"rtol": 1e-5, "atol": 1e-5}
    for values in (rng.random((2, 5, 7, 3)), rng.random((4, 3, 3)), rng.random((2, 2, 3, 4, 3)),
                   special.reshape(1, 8, 3), np.zeros((0, 2, 2, 3)), np.zeros((2, 0, 2, 3))):
        for amount in (0, 0.3, -0.7, 1, 2.5):
            x = values.astype(F)
            yield f"AdjustContrastv2/{x.shape}/{amount}", case(
                "AdjustContrastv2", {"images": x, "contrast_factor": F(amount)}), near
            yield f"AdjustSaturation/{x.shape}/{amount}", case(
                "AdjustSaturation", {"images": x, "scale": F(amount)}), near
            yield f"AdjustHue/{x.shape}/{amount}", case(
                "AdjustHue", {"images": x, "delta": F(amount)}), near
    yield "AdjustContrastv2/channels", case("AdjustContrastv2",
                                            {"images": rng.random((2, 3, 3, 5)).astype(F),
                                             "contrast_factor": F(2)}), near
    for op, name in (("AdjustContrastv2", "contrast_factor"), ("AdjustSaturation", "scale"),
                     ("AdjustHue", "delta")):
        for shape, amount in (((2, 3), F(1)), ((2, 2, 3), F([1])), ((2, 2, 4), F(1)),
                              ((2, 2, 0), F(1))):
            yield f"{op}/wrong {shape} {amount.shape}", case(
                op, {"images": np.ones(shape, F), name: amount}), near


def drawing():
    boxes = F([[[0, 0, 1, 1], [0.2, 0.3, 0.7, 0.9], [-0.5, 0.1, 0.5, 1.5], [2, 2, 3, 3],
                [0.9, 0.1, 0.2, 0.3]], [[0.5, 0.5, 0.5, 0.5], [-1, -1, 2, 2], [0.1, 0.1, 30, 0.6],
                                        [0, 0, 0.3, 0.3], [0.4, 0.6, 0.8, 0.7]]])
    for dtype, depth in itertools.product(("float16", "float32"), (1, 3, 4)):
        x = images(dtype, (2, 9, 11, depth))
        yield f"DrawBoundingBoxes/{dtype}/{depth}", case(
            "DrawBoundingBoxes", {"images": x, "boxes": np.nan_to_num(boxes, posinf=1)})
        for n in (0, 1, 3):
            yield f"DrawBoundingBoxesV2/{dtype}/{depth}/{n}", case(
                "DrawBoundingBoxesV2", {"images": x, "boxes": boxes,
                                        "colors": images("float32", (n, 4))})
    many = np.tile(boxes[:1, 1:2], (1, 13, 1)) * np.linspace(0.5, 1, 13, dtype=F)[None, :, None]
    yield "DrawBoundingBoxes/many", case("DrawBoundingBoxes",
                                         {"images": images("float32", (1, 30, 30, 3)),
                                          "boxes": many.astype(F)})
    # fmt: skip
    for shape, box_shape, colors in (((9, 9, 3), (1, 1, 4), (1, 4)),
                                     ((1, 9, 9, 2), (1, 1, 4), (1, 4)),
                                     ((1, 9, 9, 3), (1, 4), (1, 4)),
                                     ((1, 9, 9, 3), (2, 1, 4), (1, 4)),
                                     ((1, 9, 9, 3), (1, 1, 3), (1, 4)),
                                     ((1, 9, 9, 3), (1, 1, 4), (4,)),
                                     ((1, 9, 9, 3), (1, 1, 4), (1, 2)),
                                     ((1, 9, 9, 3), (1, 0, 4), (1, 4)),
                                     ((0, 9, 9, 3), (0, 1, 4), (1, 4))):
        yield f"DrawBoundingBoxesV2/shapes {shape} {box_shape} {colors}", case(
            "DrawBoundingBoxesV2", {"images": np.ones(shape, F),
                                    "boxes": np.full(box_shape, 0.5, F),
                                    "colors": np.ones(colors, F)})


def suppression():
    rng = np.random.default_rng(11)
    for n, most, iou in itertools.product((0, 1, 12, 60), (0, 3, 100), (0.0, 0.3, 1.0)):
        corner, extent = rng.random((n, 2)), rng.random((n, 2)) * 0.6
        boxes, scores = np.concatenate([corner, corner + extent], 1).astype(F), (
            rng.integers(0, 20, n) / 20).astype(F)
        if n > 5:
            boxes[3] = boxes[3][[2, 3, 0, 1]]
            boxes[4] = boxes[5]
        base = {"boxes": boxes, "scores": scores, "max_output_size": I(most)}
        name = f"{n}/{most}/{iou}"
        yield f"NonMaxSuppression/{name}", case("NonMaxSuppression", base, iou_threshold=iou)
        for kind in (np.float16, F):
            typed = {"boxes": boxes.astype(kind), "scores": scores.astype(kind),
                     "max_output_size": I(most)}
            if kind == F or iou != 0.3:  # rounding of half decides
                yield f"NonMaxSuppressionV2/{name}/{kind.__name__}", case(
                    "NonMaxSuppressionV2", {**typed, "iou_threshold": F(iou)})
                three = {**typed, "iou_threshold": kind(iou), "score_threshold": kind(0.25)}
                yield f"NonMaxSuppressionV3/{name}/{kind.__name__}", case(
                    "NonMaxSuppressionV3", three)
                for pads in (True, False):
                    yield f"NonMaxSuppressionV4/{name}/{kind.__name__}/{pads}", case(
                        "NonMaxSuppressionV4", three, pad_to_max_output_size=pads)
                    yield f"NonMaxSuppressionV5/{name}/{kind.__name__}/{pads}", case(
                        "NonMaxSuppressionV5", {**three, "soft_nms_sigma": kind(0)},
                        pad_to_max_output_size=pads)
        for sigma in (0.2, 0.5):
            soft = {**base, "iou_threshold": F(iou), "score_threshold": F(0.05),
                    "soft_nms_sigma": F(sigma)}
            yield f"NonMaxSuppressionV5/{name}/soft {sigma}", case("NonMaxSuppressionV5", soft), {
                "rtol": 1e-5}
        overlaps = rng.random((n, n)).astype(F)
        yield f"NonMaxSuppressionWithOverlaps/{name}", case(
            "NonMaxSuppressionWithOverlaps", {"overlaps": overlaps, "scores": scores,
                                              "max_output_size": I(most),
                                              "overlap_threshold": F(iou),
                                              "score_threshold": F(0.2)})
    good = {"boxes": np.ones((3, 4), F), "scores": np.ones(3, F), "max_output_size": I(2),
            "iou_threshold": F(0.5), "score_threshold": F(0)}
    # fmt: skip
    for change in ({"boxes": np.ones((3, 3), F)}, {"boxes": np.ones(4, F)},
                   {"scores": np.ones(2, F)}, {"scores": np.ones((3, 1), F)},
                   {"max_output_size": I([2])}, {"max_output_size": I(-1)},
                   {"iou_threshold": F(1.5)}, {"iou_threshold": F(-0.1)},
                   {"iou_threshold": F([0.5])}, {"score_threshold": F([0])},
                   {"scores": F([np.nan, 1, 2])}):
        for op in ("NonMaxSuppressionV3", "NonMaxSuppressionV4"):
            yield f"{op}/wrong {[(k, v.shape, v.ravel()[:1]) for k, v in change.items()]}", case(
                op, {**good, **change})
    yield "NonMaxSuppression/wrong iou", case("NonMaxSuppression",
                                              {k: good[k] for k in ("boxes", "scores",
                                                      "max_output_size")}, iou_threshold=1.5)
    yield "NonMaxSuppressionV5/wrong sigma", case(
        "NonMaxSuppressionV5", {**good, "soft_nms_sigma": F(-1)})
    flat = {"overlaps": np.ones((3, 2), F), "scores": np.ones(3, F), "max_output_size": I(2),
            "overlap_threshold": F(0.5), "score_threshold": F(0)}
    yield "NonMaxSuppressionWithOverlaps/wrong", case("NonMaxSuppressionWithOverlaps", flat)


def combined():
    rng = np.random.default_rng(12)
    op = "CombinedNonMaxSuppression"
    for batch, n, q, classes in ((2, 12, 1, 3), (1, 20, 3, 3), (2, 1, 1, 1), (0, 4, 1, 2),
                                 (1, 0, 1, 2)):
        corner = rng.random((batch, n, q, 2))
        boxes = np.concatenate([corner, corner + rng.random((batch, n, q, 2))], 3).astype(F)
        scores = rng.random((batch, n, classes)).astype(F)
        for per_class, total, pads, clips in ((3, 5, False, True), (3, 100, True, True),
                                              (50, 7, True, False), (1, 1, False, False)):
            inputs = {"boxes": boxes, "scores": scores, "max_output_size_per_class": I(per_class),
                      "max_total_size": I(total), "iou_threshold": F(0.4),
                      "score_threshold": F(0.2)}
            yield f"{op}/{batch}/{n}/{q}/{classes}/{per_class}/{total}", case(
                op, inputs, pad_per_class=pads, clip_boxes=clips)
    good = {"boxes": np.ones((1, 3, 1, 4), F), "scores": np.ones((1, 3, 2), F),
            "max_output_size_per_class": I(2), "max_total_size": I(2), "iou_threshold": F(0.5),
            "score_threshold": F(0)}
    # fmt: skip
    for change in ({"boxes": np.ones((1, 3, 4), F)}, {"scores": np.ones((3, 2), F)},
                   {"scores": np.ones((1, 2, 2), F)}, {"boxes": np.ones((2, 3, 1, 4), F)},
                   {"boxes": np.ones((1, 3, 3, 4), F)}, {"max_total_size": I(0)},
                   {"max_output_size_per_class": I(0)}, {"iou_threshold": F(2)},
                   {"max_total_size": I([1])}):
        yield f"{op}/wrong {[(k, v.shape, v.ravel()[:1]) for k, v in change.items()]}", case(
            op, {**good, **change})


def sampled():
    boxes = F([[[0.1, 0.2, 0.5, 0.6], [0.3, 0.3, 0.9, 0.8]]])

    def twice(op, inputs, **attrs):
        def build():
            out = getattr(R, op)(**{k: oracle.const(v) for k, v in inputs.items()}, **attrs)
            return [oracle.Step(list(out)) for _ in range(3)]

        return build

    for seed, (height, width), ratio, area, attempts in itertools.product(
        ((1, 2), (87654321, 12)), ((100, 200), (37, 11), (1, 1)), ((0.75, 1.33), (0.2, 4)),
        ((0.05, 1.0), (0.3, 0.4)), (1, 100)):
        attrs = {"seed": seed[0], "seed2": seed[1], "aspect_ratio_range": list(ratio),
                 "area_range": list(area), "max_attempts": attempts}
        inputs = {"image_size": sizes(height, width, 3), "bounding_boxes": boxes}
        name = f"{seed}/{height}x{width}/{ratio}/{area}/{attempts}"
        yield f"SampleDistortedBoundingBox/{name}", twice(
            "SampleDistortedBoundingBox", inputs, min_object_covered=0.4, **attrs)
        yield f"SampleDistortedBoundingBoxV2/{name}", twice(
            "SampleDistortedBoundingBoxV2", {**inputs, "min_object_covered": F(0.1)}, **attrs)
        stateless = {k: v for k, v in attrs.items() if not k.startswith("seed")}
        for kind in ("int32", "int64"):
            given = {**inputs, "min_object_covered": F(0.1), "seed": np.array(seed, kind)}
            yield f"StatelessSampleDistortedBoundingBox/{name}/{kind}", case(
                "StatelessSampleDistortedBoundingBox", given, **stateless)
    for dtype in tf_kernels.cpu_dtypes("SampleDistortedBoundingBoxV2"):
        inputs = {"image_size": np.array([90, 100, 3], dtype), "bounding_boxes": boxes,
                  "min_object_covered": F(0.1)}
        yield f"SampleDistortedBoundingBoxV2/{dtype}", twice(
            "SampleDistortedBoundingBoxV2", inputs, seed=3, seed2=4)
    good = {"image_size": sizes(50, 60, 3), "bounding_boxes": boxes, "min_object_covered": F(0.1)}
    for seed in (I([1]), I(1), I([1, 2, 3])):
        yield f"StatelessSampleDistortedBoundingBox/seed {seed}", case(
            "StatelessSampleDistortedBoundingBox", {**good, "seed": seed})
    none = np.zeros((0, 0, 4), F)
    for change, attrs in (({"bounding_boxes": none}, {}),
                          ({"bounding_boxes": none}, {"use_image_if_no_bounding_boxes": True}),
                          ({"image_size": sizes(50, 60)}, {}),
                          ({"image_size": sizes((50, 60, 3))}, {}),
                          ({"image_size": sizes(0, 60, 3)}, {}),
                          ({"image_size": sizes(50, -1, 3)}, {}),
        ({"bounding_boxes": boxes * 2}, {}), ({"bounding_boxes": -boxes}, {}),
        ({"bounding_boxes": boxes[0]}, {}), ({"bounding_boxes": boxes[:, :, :3]}, {}),
        ({"min_object_covered": F(1.5)}, {}), ({"min_object_covered": F([0.5])}, {}),
        ({}, {"area_range": [0.5, 1.5]}), ({}, {"area_range": [0.5]}),
        ({}, {"aspect_ratio_range": [0.0, 1]}),
        # fmt: skip
        ({}, {"aspect_ratio_range": [2.0, 1]}), ({}, {"area_range": [0.9, 0.1]}),
        ({}, {"max_attempts": 0}), ({"bounding_boxes": boxes[:, :, [2, 3, 0, 1]]}, {})):
        given = {**good, **change, "seed": sizes(1, 2)}
        yield (
            f"StatelessSampleDistortedBoundingBox/"
            f"{[(k, v.shape, v.ravel()[:2]) for k, v in change.items()]}/{attrs}",
            case("StatelessSampleDistortedBoundingBox", given, **attrs))
        yield (
            f"SampleDistortedBoundingBoxV2/"
            f"{[(k, v.shape, v.ravel()[:2]) for k, v in change.items()]}/{attrs}",
            case("SampleDistortedBoundingBoxV2", {**good, **change}, seed=1, seed2=2, **attrs))


def projected():
    transforms = F([[1, 0, 0, 0, 1, 0, 0, 0], [1, 0, -3.5, 0, 1, 2.25, 0, 0],
                    [0.7, -0.4, 3, 0.4, 0.7, -2, 0, 0], [1.2, 0.1, -9, 0.2, 0.8, 14, 0.01, -0.03],
                    [1, 0, 0, 0, 1, 0, -0.5, 0]])
    near = {"rtol": 1e-4, "atol": 1e-3}
    for dtype, interpolation, fill, (row, matrix) in itertools.product(
        tf_kernels.cpu_dtypes("ImageProjectiveTransformV2", "dtype"), ("NEAREST", "BILINEAR"),
        ("CONSTANT", "REFLECT", "WRAP", "NEAREST"), enumerate(transforms)):
        if row == 4 and dtype not in ("float32", "float64"):
            continue
        inputs = {"images": images(dtype, (2, 6, 5, 3)), "transforms": matrix[None],
                  "output_shape": sizes(7, 8)}
        attrs = {"interpolation": interpolation, "fill_mode": fill}
        options = NARROW.get(dtype, near)
        yield f"ImageProjectiveTransformV2/{dtype}/{interpolation}/{fill}/{row}", case(
            "ImageProjectiveTransformV2", inputs, **attrs), options
        yield f"ImageProjectiveTransformV3/{dtype}/{interpolation}/{fill}/{row}", case(
            "ImageProjectiveTransformV3", {**inputs, "fill_value": F(7)}, **attrs), options
    good = {"images": images("float32", (2, 6, 5, 3)), "transforms": transforms[:2],
            "output_shape": sizes(3, 3)}
    op = "ImageProjectiveTransformV2"
    yield f"{op}/each its own", case(op, good, interpolation="BILINEAR"), near
    # fmt: skip
    for change in ({"images": images("float32", (6, 5, 3))}, {"transforms": transforms[:3]},
                   {"transforms": transforms[:2, :7]}, {"transforms": transforms[0]},
                   {"output_shape": sizes(3)}, {"output_shape": sizes(0, 3)},
                   {"output_shape": sizes((3, 3))}, {"images": images("float32", (2, 0, 5, 3))},
                   {"images": images("float32", (0, 6, 5, 3)), "transforms": transforms[:1]}):
        yield f"{op}/change {[(k, v.shape) for k, v in change.items()]}", case(
            op, {**good, **change}, interpolation="NEAREST")
    # Left out: an interpolation or fill mode that there is not. TensorFlow logs it and computes
    # something; we refuse.


def cases():
    for group in (resizes, resize_grads, placed, crops, glimpses, colors, drawing, suppression,
                  combined, sampled, projected):
        yield from group()
