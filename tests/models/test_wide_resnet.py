"""Wide residual networks: counts by hand, a block by hand, layouts, inputs, and the life of a model in training."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from csst.errors import InputError
from csst.models import Model, build
from csst.models.wide_resnet import CIFAR_MEAN, CIFAR_STD, Pixels, WideResNet, parse


def images(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def network(*args: int, seed: int = 0, **kwargs: float) -> WideResNet:
    torch.manual_seed(seed)
    model = WideResNet(*args, **kwargs)
    for module in model.modules():  # statistics and affine parameters that a mistake could not hide behind
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.bias.data):
                nn.init.normal_(tensor, std=0.3)
            for tensor in (module.running_var, module.weight.data):
                nn.init.uniform_(tensor, 0.5, 1.5)
    return model


def by_hand(depth: int, width: int, classes: int, channels: int) -> int:
    total, inputs = channels * 16 * 9, 16
    for outputs in (16 * width, 32 * width, 64 * width):
        for _ in range((depth - 4) // 6):
            total += 2 * inputs + inputs * outputs * 9 + 2 * outputs + outputs * outputs * 9
            total += inputs * outputs if inputs != outputs else 0
            inputs = outputs
    return total + 2 * inputs + inputs * classes + classes


def reference_norm(x, norm, training):
    """BatchNorm and leaky ReLU 0.1, a channel at a time."""
    out = torch.empty_like(x)
    for c in range(x.shape[1]):
        v = x[:, c]
        mean = v.mean() if training else norm.running_mean[c]
        variance = ((v - mean) ** 2).mean() if training else norm.running_var[c]
        z = norm.weight[c] * (v - mean) / torch.sqrt(variance + 0.001) + norm.bias[c]
        out[:, c] = torch.where(z > 0, z, 0.1 * z)
    return out


def reference_conv(x, weight, stride):
    """A convolution with zero padding as a sum over the kernel's positions."""
    k = weight.shape[-1]
    padded = F.pad(x, (k // 2,) * 4)
    rows, columns = math.ceil(x.shape[2] / stride), math.ceil(x.shape[3] / stride)
    out = 0
    for i in range(k):
        for j in range(k):
            seen = padded[:, :, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
            out = out + torch.einsum("bchw,oc->bohw", seen, weight[:, :, i, j])
    return out


def reference_block(x, block, stride, shares, training):
    active = reference_norm(x, block.act1.norm, training)
    out = reference_conv(active, block.conv1.weight, stride)
    out = reference_conv(reference_norm(out, block.act2.norm, training), block.conv2.weight, 1)
    start = active if shares else x
    same = isinstance(block.shortcut, nn.Identity)
    return out + (start if same else reference_conv(start, block.shortcut.weight, stride))


KNOWN = [(28, 2, 3, 1_467_610), (28, 8, 3, 23_354_842), (10, 1, 3, 77_850), (10, 1, 1, 77_562), (16, 2, 3, 691_674)]


@pytest.mark.parametrize(("depth", "width", "channels", "known"), KNOWN)
def test_parameter_counts(depth, width, channels, known):
    with torch.device("meta"):
        count = sum(p.numel() for p in WideResNet(depth, width, 10, channels).parameters())
    assert count == by_hand(depth, width, 10, channels) == known


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("width", "index", "stride"), [(1, 0, 1), (2, 0, 1), (2, 1, 1), (2, 2, 2), (1, 4, 2), (2, 5, 1)]
)
def test_a_block_is_what_the_paper_says(width, index, stride, training):
    block = network(16, width, 10).blocks[index].double().train(training)
    x = torch.randn(3, block.conv1.in_channels, 7, 6, dtype=torch.float64)
    expected = reference_block(x, copy.deepcopy(block), stride, shares=index == 0, training=training)
    torch.testing.assert_close(block(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("training", [True, False])
def test_the_whole_network_by_hand(training):
    model = network(10, 2, 5).double().train(training)
    x = images(4, 3, 9, 8)
    z = torch.stack([(x[:, c].double() / 255 - CIFAR_MEAN[c]) / CIFAR_STD[c] for c in range(3)], 1)
    z = reference_conv(z, model.stem.weight, 1)
    for number, (block, stride) in enumerate(zip(model.blocks, (1, 2, 2), strict=True)):
        z = reference_block(z, block, stride, number == 0, training)
    z = reference_norm(z, model.act.norm, training).mean((2, 3))
    expected = z @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)  # mean and std are rounded to float32


def test_gradients_in_place_are_those_of_plain_operations():
    model, x, y = network(10, 1, 5).double(), images(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 4, 0])
    plain = copy.deepcopy(model)
    F.cross_entropy(model(x), y).backward()
    z = plain.stem(plain.pixels(x))
    for number, block in enumerate(plain.blocks):
        active = F.leaky_relu(block.act1.norm(z), 0.1)
        residual = block.conv2(F.leaky_relu(block.act2.norm(block.conv1(active)), 0.1))
        z = block.shortcut(active if number == 0 else z) + residual
    F.cross_entropy(plain.classifier(F.leaky_relu(plain.act.norm(z), 0.1).mean((2, 3))), y).backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 33, 17), (1, 7, 5), (4, 3, 3), (3, 64, 48)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_shapes_inputs_and_layouts(shape, layout):
    model = network(10, 1, 7, shape[0]).eval()
    x = images(3, *shape)
    expected = model(x)
    assert (expected.shape, expected.dtype) == ((3, 7), torch.float32)
    model.to(memory_format=layout)
    assert model.pixels(x, True).is_contiguous(memory_format=torch.channels_last)
    for same in (x, x.float() / 255, x.contiguous(memory_format=layout)):
        torch.testing.assert_close(model(same), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_goes_through_the_whole_network(channels):
    model, seen = network(10, 1, 5, channels).to(memory_format=torch.channels_last), []
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
            module.register_forward_hook(lambda m, i, out: seen.append(out))
    model(images(4, channels, 8, 8))
    assert len(seen) > 10
    assert all(out.is_contiguous(memory_format=torch.channels_last) for out in seen)


def test_every_parameter_gets_a_finite_gradient_and_an_input_may_have_one():
    model = WideResNet(10, 1, 5)
    x = (images(8, 3, 8, 8).float() / 255).requires_grad_()
    F.cross_entropy(model(x), torch.arange(8) % 5).backward()
    assert x.grad is not None
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert 0 < parameter.grad.abs().sum() < math.inf, name


def test_training_moves_the_statistics_and_evaluation_does_not():
    model, x = WideResNet(10, 1, 5), images(8, 3, 8, 8)
    start = model.act.norm.running_var.clone()
    model.eval()
    first = model(x)
    torch.testing.assert_close(model(x[:3]), first[:3], rtol=1e-4, atol=1e-4)
    assert torch.equal(model.act.norm.running_var, start)
    hidden = model.train().blocks(model.stem(model.pixels(x)))
    start = model.act.norm.running_mean.clone()
    model.act(hidden)
    expected = 0.999 * start + 0.001 * hidden.mean((0, 2, 3))
    torch.testing.assert_close(model.act.norm.running_mean, expected)


def test_initial_weights():
    model = WideResNet(28, 2, 10)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 5000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert float(module.weight.detach().std()) == pytest.approx(math.sqrt(2 / 1.01 / fan_out), rel=0.05)
        if isinstance(module, nn.BatchNorm2d):
            assert ((module.weight == 1) & (module.bias == 0)).all()
            assert (module.eps, module.momentum) == (1e-3, 1e-3)
    assert float(model.classifier.weight.detach().std()) == pytest.approx(math.sqrt(2 / (128 + 10)), rel=0.1)
    assert not model.classifier.bias.any()


@pytest.mark.parametrize("channels", [1, 3])
def test_learns_a_few_images_by_heart(channels):
    torch.manual_seed(0)
    model = WideResNet(10, 1, 4, channels).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    x, y = images(16, channels, 16, 16), torch.arange(16) % 4
    for _ in range(40):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
    assert torch.equal(model(x).argmax(1), y)


def test_a_state_restores_and_a_copy_and_an_average_stand_alone():
    model, x = network(10, 1, 5), images(4, 3, 8, 8)
    expected = model.eval()(x)
    other = WideResNet(10, 1, 5).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), expected)
    twin = copy.deepcopy(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    for parameter in model.parameters():
        parameter.data.zero_()
    assert torch.equal(twin(x), expected)
    average.update_parameters(model)
    average.update_parameters(model)
    assert torch.equal(average.module.pixels.mean, model.pixels.mean)
    torch.testing.assert_close(average.module.stem.weight, torch.zeros_like(twin.stem.weight))


def test_reduced_images_are_means_of_squares():
    model, x = build(Model("wrn-10-1", reduce=2), (3, 9, 8), 5, seed=1).eval(), images(4, 3, 9, 8)
    small = torch.empty(4, 3, 4, 4)
    for i in range(4):
        for j in range(4):
            small[:, :, i, j] = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].double().mean((2, 3)).float() / 255
    whole = build(Model("wrn-10-1"), (3, 4, 4), 5, seed=1).eval()
    torch.testing.assert_close(model(x), whole(small))


def test_the_seed_decides_the_weights():
    first, second = network(10, 1, 5, seed=3).state_dict(), network(10, 1, 5, seed=3).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_names():
    assert [parse(name) for name in ("wrn-28-2", "wrn-28-8", "wrn-10-1")] == [(28, 2), (28, 8), (10, 1)]


@pytest.mark.parametrize("name", ["wrn", "wrn-28", "wrn-28-2-1", "WRN-28-2", "wrn-28-x", "resnet-50", "", "wrn--28-2"])
def test_a_bad_name_says_what_a_name_is(name):
    with pytest.raises(InputError, match="wrn-DEPTH-WIDTH, such as wrn-28-2; found"):
        parse(name)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: build(Model("wrn-27-2"), (3, 8, 8), 5, seed=0), "4 \\+ 6 n layers .* found depth 27: use 28"),
        (lambda: build(Model("wrn-4-2"), (3, 8, 8), 5, seed=0), "found depth 4: use 10"),
        (lambda: WideResNet(28, 0, 10), "width of at least 1.* found width 0"),
        (lambda: WideResNet(12, 1, 10), "found depth 12: use 10"),
        (lambda: WideResNet(10, 1, 0), "a class .* found width 1, 0 classes"),
        (lambda: WideResNet(10, 1, 2, reduce=0), "at least 1 .*; found 0"),
        (lambda: WideResNet(10, 1, 2, reduce=9)(images(2, 3, 8, 12)), "8 x 12 pixels cannot be reduced 9 times"),
        (lambda: Model("mlp", reduce=2), "model.reduce is for wide residual networks .* with mlp"),
        (lambda: Pixels((0.5,), (0.0,)), "std > 0"),
        (lambda: WideResNet(10, 1, 5)(images(2, 1, 8, 8)), r"\(batch, 3, height, width\).*found shape \(2, 1, 8, 8\)"),
        (lambda: WideResNet(10, 1, 5)(images(3, 8, 8)), r"found shape \(3, 8, 8\)"),
    ],
)
def test_bad_input_is_told_in_a_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
