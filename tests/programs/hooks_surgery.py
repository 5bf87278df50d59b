import copy
from collections import OrderedDict, defaultdict
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)


class GradCAM:
    def __init__(self, model, target_layer):
        self.model, self.activations, self.gradients = model.eval(), None, None
        self.handles = [target_layer.register_forward_hook(self.save_activation), target_layer.register_full_backward_hook(self.save_gradient)]

    def save_activation(self, module, input, output): self.activations = output
    def save_gradient(self, module, grad_input, grad_output): self.gradients = grad_output[0]

    def __call__(self, x, idx=None):
        out = self.model(x)
        idx = out.argmax(dim=1).item() if idx is None else idx
        self.model.zero_grad()
        out[0, idx].backward(retain_graph=True)
        w = self.gradients.mean(dim=(2, 3), keepdim=True)
        cam = F.relu((w * self.activations).sum(1, keepdim=True))
        cam = F.interpolate(cam, x.shape[2:], mode='bilinear', align_corners=False)
        cam = (cam - cam.min()) / (cam.max() - cam.min() + 1e-8)
        return cam.squeeze().detach().cpu().numpy()


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(OrderedDict([('conv1', nn.Conv2d(3, 6, 3, padding=1)), ('bn1', nn.BatchNorm2d(6)), ('relu1', nn.ReLU(inplace=False)),
                                                   ('pool', nn.MaxPool2d(2)), ('conv2', nn.Conv2d(6, 8, 3, padding=1)), ('relu2', nn.ReLU())]))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(p=0.5), nn.Linear(8, 10))

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)))


model = CNN()
cam = GradCAM(model, model.features.conv2)
m = cam(torch.randn(1, 3, 8, 8))
print(m.shape, m.mean())
for h in cam.handles: h.remove()
# feature extraction
acts = {}
def get_activation(name):
    def hook(model, input, output): acts[name] = output.detach()
    return hook
hs = [l.register_forward_hook(get_activation(n)) for n, l in model.named_modules() if isinstance(l, (nn.Conv2d, nn.Linear))]
model(torch.randn(2, 3, 8, 8))
print({k: tuple(v.shape) for k, v in acts.items()})
[h.remove() for h in hs]
model.classifier[2].register_forward_pre_hook(lambda mod, inp: (inp[0] * 2,))
# summary
def summary(model, size):
    rows, hooks = OrderedDict(), []
    def reg(m):
        def hook(m, i, o):
            k = '%s-%i' % (str(m.__class__).split('.')[-1].split("'")[0], len(rows) + 1)
            rows[k] = (list(o.size()), sum(int(torch.prod(torch.LongTensor(list(p.size())))) for p in m.parameters()))
        if not isinstance(m, (nn.Sequential, nn.ModuleList)) and m is not model:
            hooks.append(m.register_forward_hook(hook))
    model.apply(reg); model(torch.rand(2, *size))
    for h in hooks: h.remove()
    for k, (s, n) in rows.items(): print('{:>20} {:>20} {:>10,}'.format(k, str(s), n))
summary(model, (3, 8, 8))
# surgery
backbone = nn.Sequential(*list(model.children())[:-1])
print(backbone(torch.zeros(1, 3, 8, 8)).shape, [type(c).__name__ for c in model.features.children()])
for p in model.parameters(): p.requires_grad = False
num_ftrs = model.classifier[-1].in_features
model.classifier[-1] = nn.Linear(num_ftrs, 4)
for name, p in model.named_parameters():
    if p.requires_grad: print('train', name, tuple(p.shape))
def swap(module, old, new):
    for n, c in module.named_children():
        if isinstance(c, old): setattr(module, n, new())
        else: swap(c, old, new)
swap(model, nn.ReLU, nn.SiLU)
model.features.add_module('extra', nn.Identity()); del model.features.pool
print(model)
sd = model.state_dict()
sd2 = OrderedDict((k.replace('features.', 'module.features.'), v) for k, v in sd.items())
sd3 = {k[7:] if k.startswith('module.') else k: v for k, v in sd2.items()}
print(model.load_state_dict(sd3), list(sd3)[:3])
missing = model.load_state_dict({k: v for k, v in sd3.items() if 'conv1' not in k}, strict=False)
print(missing.missing_keys, missing.unexpected_keys)
pretrained = {k: v for k, v in sd3.items() if k in model.state_dict() and v.size() == model.state_dict()[k].size()}
md = model.state_dict(); md.update(pretrained); model.load_state_dict(md)
dp = nn.DataParallel(model)
print(list(dp.state_dict())[:2], dp.module is model, dp(torch.zeros(1, 3, 8, 8)).shape)
# freeze bn
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.eval(); m.weight.requires_grad = False; m.momentum = 0.01
print(model.features.bn1.running_mean.sum(), model.features.bn1.num_batches_tracked)
# gradient hooks, deep dream
img = torch.rand(1, 3, 12, 12, requires_grad=True)
for i in range(3):
    out = model.features(img)
    loss = out.norm(); loss.backward()
    g = img.grad.data
    img.data += 0.1 * g / (g.abs().mean() + 1e-8)
    img.grad.data.zero_()
    img.data = torch.roll(torch.roll(img.data, 2, -1), 1, -2)
    print('%.5f' % loss.item())
grads = []
w = torch.randn(3, requires_grad=True); h = w.register_hook(lambda g: g.clamp(-0.5, 0.5)); z = w * 2; z.retain_grad(); z.register_hook(grads.append)
(z ** 2).sum().backward(); print(w.grad, z.grad, len(grads)); h.remove()
# adversarial: FGSM / PGD
def fgsm(model, x, y, eps):
    x = x.clone().detach().requires_grad_(True)
    F.cross_entropy(model(x), y).backward()
    return torch.clamp(x + eps * x.grad.sign(), 0, 1).detach()
model.eval(); x, y = torch.rand(2, 3, 8, 8), torch.tensor([0, 3])
adv = fgsm(model, x, y, 0.03); print((adv - x).abs().max(), F.cross_entropy(model(adv), y) > F.cross_entropy(model(x), y))
# buffers and repr
class B(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('steps', torch.zeros(1, dtype=torch.long)); self.register_buffer('tmp', torch.ones(2), persistent=False)
        self.register_parameter('none', None); self.ps = nn.ParameterList([nn.Parameter(torch.ones(i)) for i in range(1, 3)]); self.pd = nn.ParameterDict({'a': nn.Parameter(torch.zeros(2))})
    def extra_repr(self): return 'steps={}'.format(self.steps.item())
b = B(); b.steps += 1; print(b, list(b.state_dict()), [n for n, _ in b.named_buffers()], b.double().ps[0].dtype, copy.deepcopy(b).steps)
import torch.nn.utils.prune as prune
lin = nn.Linear(4, 3); prune.l1_unstructured(lin, 'weight', amount=0.5); print((lin.weight == 0).sum(), list(dict(lin.named_buffers()))); prune.remove(lin, 'weight'); print(list(lin.state_dict()))
v = nn.utils.parameters_to_vector(lin.parameters()); nn.utils.vector_to_parameters(v * 0, lin.parameters()); print(v.shape, lin.weight.abs().sum())
