from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from searchlab.errors import SearchlabError
from searchlab.target import Target
from searchlab.workload import BatchMatmul, Conv2d, Softmax, Workload, conv2d, gemm, parse_workload, preset_names
from searchlab.workload.parse import im2row

sizes = st.integers(1, 9)
dtypes = st.sampled_from(["bfloat16", "float16", "float32", "float64", "int8", "uint8", "int16"])

gemms = st.builds(gemm, sizes, sizes, sizes, dtypes, nt=st.booleans(), bias=st.booleans(), relu=st.booleans())
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def conv2ds(draw: st.DrawFn) -> Conv2d:
    kernel, stride, padding, dilation = (draw(pairs) for _ in range(4))
    least = [max(1, (k - 1) * d + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    h, w = (draw(st.integers(low, low + 5)) for low in least)
    groups = draw(st.integers(1, 3))
    return conv2d(
        draw(sizes),
        h,
        w,
        groups * draw(sizes),
        groups * draw(sizes),
        *kernel,
        stride,
        padding,
        dilation,
        draw(dtypes),
        groups=groups,
        bias=draw(st.booleans()),
        relu=draw(st.booleans()),
    )


flags = st.booleans()
batches = st.builds(BatchMatmul, dtypes, flags, flags, flags, m=sizes, n=sizes, k=sizes, nt=flags, b=sizes)
softmaxes = st.builds(Softmax, sizes, sizes, st.sampled_from(["float32", "float64"]))


@given(st.one_of(gemms, conv2ds(), batches, softmaxes))
def test_a_workload_is_what_its_spelling_says(workload: Workload) -> None:
    assert parse_workload(str(workload)) == workload


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gemm:512x256x128", gemm(512, 256, 128)),
        ("gemm:512x512x512:float64", gemm(512, 512, 512, "float64")),
        ("gemm:8x8x8:relu:bias", gemm(8, 8, 8, bias=True, relu=True)),
        ("conv2d:1x7x7x512x512x3x3:s1:p1", conv2d(1, 7, 7, 512, 512, 3, 3, 1, 1)),
        ("conv2d:1x9x7x4x4x3x1:s2x1:p1x0:d2", conv2d(1, 9, 7, 4, 4, 3, 1, (2, 1), (1, 0), 2)),
        ("conv2d:1x9x7x4x4x3x1:p0x0x1x2", conv2d(1, 9, 7, 4, 4, 3, 1, 1, (0, 0, 1, 2))),
        ("resnet50/conv1", conv2d(1, 224, 224, 64, 3, 7, 7, 2, 3)),
        ("resnet50/conv3.1b:b8:relu", conv2d(8, 56, 56, 128, 128, 3, 3, 2, 1, relu=True)),
        ("resnet50/gemm2.1a:b128", gemm(401408, 64, 64)),
    ],
)
def test_a_spelling_is_parsed(text: str, expected: Workload) -> None:
    assert parse_workload(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemm:1x-2x3", "n must be at least 1, not -2"),
        ("gemm:0x2x3", "m must be at least 1, not 0"),
        ("gemm:4611686018427387904x1x1", "m must be at most"),
        ("conv2d:1x8x4294967296x8x8x3x3", "must be at most"),
        ("gemm:3x3", "needs 3 whole numbers"),
        ("gemm:axbxc", "needs 3 whole numbers"),
        ("gemm", "needs 3 whole numbers"),
        ("", "unknown workload"),
        ("gemmm:1x1x1", "did you mean 'gemm'"),
        ("gemm:4x4x4:flaot32", "did you mean 'float32'"),
        ("gemm:4x4x4:p1", "unknown option 'p1'"),
        ("conv2d:1x3x3x4x4x5x5", "the kernel has height 5 with dilation, but the padded image's height is only 3"),
        ("conv2d:1x9x3x4x4x3x3:d2", "the kernel has width 5 with dilation"),
        ("conv2d:1x8x8x4x4x3x3:p-1", "padding must be at least 0"),
        ("conv2d:1x8x8x4x4x3x3:p1x1x-1x1", "padding must be at least 0, not -1"),
        ("conv2d:1x8x8x4x4x3x3:s0", "stride must be at least 1"),
        ("conv2d:1x8x8x4x6x3x3:g4", "the channel counts, 4 and 6, must be divisible by the number of groups, 4"),
        ("softmax:4x5:float16", "unknown option 'float16'"),
        ("batch-matmul:4x4x4", "needs 4 whole numbers"),
        ("batch-matmul:4x4x4x4:g2", "unknown option 'g2'"),
        ("acme_nowhere:Depthwise:8", "No module named 'acme_nowhere'"),
        ("searchlab.target:Target:8", "is not a searchlab.Workload"),
        ("resnet50/conv7.1a", "unknown workload"),
        ("resnet50/conv1:b0", "n must be at least 1"),
        ("resnet18/conv1", "unknown workload"),
    ],
)
def test_invalid_spellings_are_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        parse_workload(text)


def test_resnet50_has_53_convolutions_of_4_1_gflop_in_all() -> None:
    blocks = {2: 3, 3: 4, 4: 6, 5: 3}  # He et al., Table 1
    total, layers = 0, 0
    for name in preset_names():
        if name.startswith("resnet50/conv"):
            stage, _, role = name.removeprefix("resnet50/conv").partition(".")
            times = blocks[int(stage)] - 1 if role.startswith("2") else 1
            total += times * parse_workload(name).flops
            layers += times
    assert layers == 53
    assert total / 2 == pytest.approx(4.09e9, rel=0.01)  # multiply-adds of v1.5 at 224 x 224


def test_im2row_keeps_the_work() -> None:
    conv = parse_workload("resnet50/conv4.1b:b4:bias:relu")
    assert isinstance(conv, Conv2d)
    assert im2row(conv).flops == conv.flops
    assert im2row(conv).bias and im2row(conv).relu


@given(conv2ds())
def test_the_conv2d_reference_is_scipys_correlation(workload: Conv2d) -> None:
    workload = dataclasses.replace(workload, dtype="float64")
    inputs = workload.inputs(1)
    (sy, sx), (py, px), (dy, dx) = workload.stride, workload.padding, workload.dilation
    data = np.pad(inputs["data"], ((0, 0), (0, 0), (py, py), (px, px)))
    width, per_group = workload.ci // workload.groups, workload.co // workload.groups
    kernel = np.zeros((workload.co, width, (workload.kh - 1) * dy + 1, (workload.kw - 1) * dx + 1))
    kernel[:, :, ::dy, ::dx] = inputs["weight"]
    expected = np.stack(
        [
            np.stack(
                [
                    sum(
                        signal.correlate(image[filter_ // per_group * width + c], filter_weights[c], "valid")[
                            ::sy, ::sx
                        ]
                        for c in range(width)
                    )
                    for filter_, filter_weights in enumerate(kernel)
                ]
            )
            for image in data
        ]
    )
    if workload.bias:
        expected = expected + inputs["bias"].reshape(1, -1, 1, 1)
    if workload.relu:
        expected = np.maximum(expected, 0)
    np.testing.assert_allclose(workload.reference(inputs), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "text",
    [
        "gemm:5x6x7:float64:bias:relu",
        "gemm:5x6x7:nt:bias",
        "gemm:17x3x64:float16",
        "gemm:17x3x64:bfloat16:bias:relu",
        "gemm:9x8x300:int8:bias:add",
        "conv2d:2x7x5x4x3x3x3:s2x1:p1:d2x1:bias:add:relu",
        "conv2d:1x6x6x4x4x1x1:relu",
        "conv2d:1x6x6x4x4x3x3:p1:int8",
        "conv2d:2x7x6x8x4x3x3:s2:p0x1x2x0:g4",
        "conv2d:1x6x6x8x4x3x3:g2:bias",
        "batch-matmul:3x5x6x7:float64",
        "batch-matmul:3x5x6x7:nt:bias:add:relu",
        "softmax:4x9",
    ],
)
def test_the_prim_func_computes_the_reference(text: str, native: Target) -> None:
    import tvm

    workload = parse_workload(text)
    inputs = workload.inputs()
    *_, out = workload.arguments
    result = tvm.runtime.empty(out.shape, out.dtype)
    tvm.compile(workload.module, target=native.tvm)["main"](*map(tvm.runtime.tensor, inputs.values()), result)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(result.numpy(), workload.reference(inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize("text", ["kernel:convolution@A4000", "kernel:gemm-96x96:1769472flop"])
def test_a_kernel_of_another_tuner_is_spelled_and_has_no_program(text: str) -> None:
    workload = parse_workload(text)
    assert str(workload) == text and workload.op == "kernel"
    assert (workload.unit, workload.flops) == (("GFLOPS", 1769472) if "flop" in text else ("runs/s", 10**9))
    with pytest.raises(SearchlabError, match="has no program here"):
        workload.prim_func()


@pytest.mark.parametrize(
    "text", ["kernel", "kernel:", "kernel:a b", "kernel:a:0flop", "kernel:a:9", "kernel:a:9flop:b"]
)
def test_a_kernel_that_is_misspelt_is_one_sentence(text: str) -> None:
    with pytest.raises(SearchlabError, match="kernel"):
        parse_workload(text)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("k", [1, 64, 4096])
def test_integers_are_summed_exactly_in_32_bits(dtype: str, k: int) -> None:
    product = gemm(8, 8, k, dtype)
    inputs = product.inputs()
    sums = inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64)
    assert np.array_equal(product.reference(inputs), sums)
    assert not np.array_equal(sums.astype(dtype), sums)  # the type of the operands would not do
