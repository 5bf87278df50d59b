"""Looking into models and changing them: hooks, heat maps, replaced layers, edited checkpoints, low-rank adapters."""
import copy
import math
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, prune, vector_to_parameters

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(OrderedDict(conv1=nn.Conv2d(3, 6, 3, padding=1), bn1=nn.BatchNorm2d(6), relu1=nn.ReLU(),
                                                  pool=nn.MaxPool2d(2), conv2=nn.Conv2d(6, 8, 3, padding=1), relu2=nn.ReLU()))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 10))

    def forward(self, x):
        return self.classifier(self.pool(self.features(x)))


model, seen = Net(), {}
handles = [model.features.conv2.register_forward_hook(lambda m, i, o: seen.update(out=o)),
           model.features.conv2.register_full_backward_hook(lambda m, gi, go: seen.update(grad=go[0]))]
image = torch.rand(1, 3, 8, 8)
scores = model.eval()(image)
scores[0, scores.argmax(dim=1).item()].backward()
heat = F.relu((seen["grad"].mean(dim=(2, 3), keepdim=True) * seen["out"]).sum(1, keepdim=True))
heat = F.interpolate(heat, image.shape[2:], mode="bilinear", align_corners=False)
print(((heat - heat.min()) / (heat.max() - heat.min() + 1e-8)).squeeze().detach().cpu().numpy().mean(axis=0).round(4))
for handle in handles:
    handle.remove()
shapes = OrderedDict()
handles = [m.register_forward_hook(lambda m, i, o, n=n: shapes.__setitem__(n, tuple(o.shape))) for n, m in model.named_modules() if not list(m.children())]
model(torch.rand(2, 3, 8, 8))
print(shapes)
[h.remove() for h in handles]
for p in model.parameters():
    p.requires_grad = False
model.classifier[-1] = nn.Linear(model.classifier[-1].in_features, 4)
print([n for n, p in model.named_parameters() if p.requires_grad])


def replace(module, old, make):
    for name, child in module.named_children():
        if isinstance(child, old):
            setattr(module, name, make(child))
        else:
            replace(child, old, make)


class LowRank(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Parameter(base.weight.new_empty(rank, base.in_features)), nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T

    def extra_repr(self):
        return f"rank={self.a.size(0)}"


replace(model, nn.ReLU, lambda m: nn.SiLU())
replace(model, nn.Linear, LowRank)
model.features.add_module("last", nn.Identity())
del model.features.pool
print(model)
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=0.05)
x, y = torch.rand(8, 3, 8, 8), torch.randint(0, 4, (8,))
for _ in range(3):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
state = {"module." + k: v for k, v in model.state_dict().items()}
stripped = OrderedDict((k[7:] if k.startswith("module.") else k, v) for k, v in state.items())
print(model.load_state_dict(stripped))
print(model.load_state_dict({k: v for k, v in stripped.items() if "conv1" not in k}, strict=False).missing_keys)
try:
    Net().load_state_dict(stripped)
except RuntimeError as error:
    print(str(error).splitlines()[:2])
wrapped = nn.DataParallel(copy.deepcopy(model))
print(list(wrapped.state_dict())[:2], wrapped(x).shape, nn.Sequential(*list(model.children())[:-1])(x).shape)
dream = torch.rand(1, 3, 8, 8, requires_grad=True)
for _ in range(3):
    norm = model.features(dream).norm()
    norm.backward()
    dream.data += 0.1 * dream.grad / (dream.grad.abs().mean() + 1e-8)
    dream.grad.zero_()
    print("%.5f" % norm.item())
layer = nn.Linear(4, 3)
prune.l1_unstructured(layer, "weight", amount=0.5)
print((layer.weight == 0).sum(), list(layer.state_dict()))
prune.remove(layer, "weight")
vector = parameters_to_vector(layer.parameters())
vector_to_parameters(vector * 0, layer.parameters())
print(vector.shape, layer.weight.abs().sum())
