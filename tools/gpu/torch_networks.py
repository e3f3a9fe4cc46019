"""The networks of networks.py in PyTorch, for their times beside ours: the same layers, channels
last, with PyTorch's own initial values and fresh random images."""
import torch
from torch import nn


def width(facts, n):
    return max(4, int(n * facts["share"]))


def conv_relu(n_in, n, side, stride=1, padding=None):
    return [nn.Conv2d(n_in, n, side, stride, side // 2 if padding is None else padding),
            nn.ReLU(inplace=True)]


def pool(side=3, stride=2):
    return nn.MaxPool2d(side, stride, side // 2 if side % 2 else 0)


def classifier(facts, hidden):
    """Fully connected layers with dropout. A lazy layer takes its inputs' number from the first
    batch."""
    layers = [nn.Flatten()]
    for n in hidden:
        layers += [nn.LazyLinear(width(facts, n)), nn.ReLU(inplace=True), nn.Dropout(0.1)]
    return [*layers, nn.LazyLinear(facts["classes"])]


def alexnet(facts):
    a, b, c, d = (width(facts, n) for n in (64, 192, 384, 256))
    return nn.Sequential(*conv_relu(3, a, 11, 4, 4), pool(), *conv_relu(a, b, 5), pool(),
                         *conv_relu(b, c, 3), *conv_relu(c, d, 3), *conv_relu(d, d, 3), pool(),
                         *classifier(facts, (4096, 4096)))


def overfeat(facts):
    a, b, c, d = (width(facts, n) for n in (96, 256, 512, 1024))
    return nn.Sequential(*conv_relu(3, a, 11, 4, 0), pool(2), *conv_relu(a, b, 5, 1, 0), pool(2),
                         *conv_relu(b, c, 3), *conv_relu(c, d, 3), *conv_relu(d, d, 3), pool(2),
                         *classifier(facts, (3072, 4096)))


def oxfordnet(facts):
    layers, n_in = [], 3
    for widths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for n in (width(facts, n) for n in widths):
            layers += conv_relu(n_in, n, 3)
            n_in = n
        layers.append(pool(2))
    return nn.Sequential(*layers, *classifier(facts, (4096, 4096)))


class Inception(nn.Module):
    def __init__(self, n_in, one, reduced3, three, reduced5, five, pooled):
        super().__init__()
        self.branches = nn.ModuleList([
            nn.Sequential(*conv_relu(n_in, one, 1)),
            nn.Sequential(*conv_relu(n_in, reduced3, 1), *conv_relu(reduced3, three, 3)),
            nn.Sequential(*conv_relu(n_in, reduced5, 1), *conv_relu(reduced5, five, 5)),
            nn.Sequential(pool(3, 1), *conv_relu(n_in, pooled, 1))])
        self.n_out = one + three + five + pooled

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


# As in networks.py.
GOOGLENET = (((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
             ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
              (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
             ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)))


def googlenet(facts):
    a, b = width(facts, 64), width(facts, 192)
    layers = [*conv_relu(3, a, 7, 2), pool(), *conv_relu(a, a, 1), *conv_relu(a, b, 3), pool()]
    for i, modules in enumerate(GOOGLENET):
        layers += [pool()] if i else []
        for widths in modules[:facts["blocks"]] if facts["blocks"] else modules:
            module = Inception(b, *(width(facts, n) for n in widths))
            layers.append(module)
            b = module.n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1),
                         nn.Linear(b, facts["classes"]))


def conv_norm(n_in, n, side, stride=1):
    return [nn.Conv2d(n_in, n, side, stride, side // 2, bias=False),
            nn.BatchNorm2d(n, eps=1e-3)]


class Bottleneck(nn.Module):
    def __init__(self, n_in, n, n_out, stride):
        super().__init__()
        self.short = nn.Sequential(*(
            conv_norm(n_in, n_out, 1, stride) if n_in != n_out or stride > 1 else ()))
        self.body = nn.Sequential(*conv_norm(n_in, n, 1), nn.ReLU(inplace=True),
                                  *conv_norm(n, n, 3, stride), nn.ReLU(inplace=True),
                                  *conv_norm(n, n_out, 1))

    def forward(self, x):
        return torch.relu_(self.body(x) + self.short(x))


def resnet50(facts):
    n_in = width(facts, 64)
    layers = [*conv_norm(3, n_in, 7, 2), nn.ReLU(inplace=True), pool()]
    for i, n_blocks in enumerate((3, 4, 6, 3)):
        n = width(facts, 64 << i)
        for k in range(min(n_blocks, facts["blocks"] or n_blocks)):
            layers.append(Bottleneck(n_in, n, 4 * n, 2 if i and not k else 1))
            n_in = 4 * n
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(n_in, facts["classes"]))


NETWORKS = {"alexnet": alexnet, "overfeat": overfeat, "oxfordnet": oxfordnet,
            "googlenet": googlenet, "resnet50": resnet50}


def training(facts, device):
    """(model, a function of the model that returns the loss, an optimizer)."""
    model = NETWORKS[facts["net"]](facts).to(device)
    images = torch.randn(facts["batch"], 3, facts["image"], facts["image"], device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(facts["classes"], (facts["batch"],), device=device)
    with torch.no_grad():
        model(images)  # lazy layers get their weights
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9,
                                weight_decay=1e-4 if facts["net"] == "resnet50" else 0)
    return model, lambda m: nn.functional.cross_entropy(m(images), labels), optimizer
