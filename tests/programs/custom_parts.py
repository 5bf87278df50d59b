import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function
from torch.optim.optimizer import Optimizer
from torch.optim.lr_scheduler import LambdaLR, _LRScheduler, OneCycleLR, CosineAnnealingWarmRestarts, SequentialLR, LinearLR, ExponentialLR, CyclicLR
torch.manual_seed(0)


class SwishFn(Function):
    @staticmethod
    def forward(ctx, x):
        r = x * torch.sigmoid(x)
        ctx.save_for_backward(x)
        return r

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * (s * (1 + x * (1 - s)))


class STE(Function):
    @staticmethod
    def forward(ctx, input, threshold):
        ctx.threshold = threshold
        ctx.mark_non_differentiable()
        return (input > threshold).float()

    @staticmethod
    def backward(ctx, g):
        return F.hardtanh(g), None


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class LinearFunction(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        gi = gw = gb = None
        if ctx.needs_input_grad[0]: gi = grad_output.mm(weight)
        if ctx.needs_input_grad[1]: gw = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]: gb = grad_output.sum(0)
        return gi, gw, gb


class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


class Lion(Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if not 0.0 <= lr:
            raise ValueError('Invalid learning rate: {}'.format(lr))
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None: continue
                p.data.mul_(1 - group['lr'] * group['weight_decay'])
                grad, state = p.grad, self.state[p]
                if len(state) == 0:
                    state['exp_avg'] = torch.zeros_like(p)
                exp_avg = state['exp_avg']
                beta1, beta2 = group['betas']
                update = exp_avg * beta1 + grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group['lr'])
                exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)
        return loss


class OldAdam(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super(OldAdam, self).__init__(params, dict(lr=lr, betas=betas, eps=eps))

    def __setstate__(self, state):
        super().__setstate__(state)

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group['params']:
                grad = p.grad.data
                state = self.state[p]
                if len(state) == 0:
                    state['step'] = 0
                    state['m'], state['v'] = torch.zeros_like(p.data, memory_format=torch.preserve_format), torch.zeros_like(p.data)
                m, v = state['m'], state['v']
                state['step'] += 1
                b1, b2 = group['betas']
                m.mul_(b1).add_(grad, alpha=1 - b1)
                v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
                denom = v.sqrt().add_(group['eps'])
                step_size = group['lr'] * math.sqrt(1 - b2 ** state['step']) / (1 - b1 ** state['step'])
                p.data.addcdiv_(m, denom, value=-step_size)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        gn = torch.norm(torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"]]), p=2)
        for group in self.param_groups:
            scale = group["rho"] / (gn + 1e-12)
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        if zero_grad: self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad: self.zero_grad()


class WarmupCosine(_LRScheduler):
    def __init__(self, optimizer, warmup, total, last_epoch=-1):
        self.warmup, self.total = warmup, total
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch < self.warmup:
            return [b * (self.last_epoch + 1) / self.warmup for b in self.base_lrs]
        t = (self.last_epoch - self.warmup) / (self.total - self.warmup)
        return [b * 0.5 * (1 + math.cos(math.pi * t)) for b in self.base_lrs]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.zeros(6))
        self.head, self.dom = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x, alpha=0.5):
        h = SwishFn.apply(LinearFunction.apply(x, self.w, self.b))
        g = STE.apply(h, 0.1)
        return self.head(MyReLU.apply(h) + 0.1 * g), self.dom(GradReverse.apply(h, alpha))


x, y = torch.randn(12, 4), torch.randint(0, 2, (12,))
for make in (lambda p: Lion(p, 1e-2, weight_decay=0.01), lambda p: OldAdam(p), lambda p: SAM(p, torch.optim.SGD, lr=0.1, momentum=0.9)):
    net = Net(); opt = make(net.parameters())
    sched = WarmupCosine(opt if not isinstance(opt, SAM) else opt.base_optimizer, 2, 6)
    for i in range(5):
        a, b = net(x)
        loss = F.cross_entropy(a, y) + F.cross_entropy(b, 1 - y)
        opt.zero_grad(); loss.backward()
        if isinstance(opt, SAM):
            opt.first_step(zero_grad=True)
            a, b = net(x); (F.cross_entropy(a, y) + F.cross_entropy(b, 1 - y)).backward(); opt.second_step(zero_grad=True)
        else:
            opt.step()
        sched.step()
        print(type(opt).__name__, loss.item(), sched.get_last_lr())
    print(str(opt).splitlines()[0], len(opt.state_dict()['state']))
print(torch.autograd.gradcheck(SwishFn.apply, (torch.randn(3, dtype=torch.double, requires_grad=True),), eps=1e-6, atol=1e-4))
print(torch.optim.Adam(net.parameters(), 1e-3))
for f in (lambda o: OneCycleLR(o, max_lr=0.1, steps_per_epoch=2, epochs=4), lambda o: CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2),
          lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=3), ExponentialLR(o, 0.9)], milestones=[3]),
          lambda o: CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=3), lambda o: LambdaLR(o, [lambda e: 0.95 ** e])):
    o = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9); s = f(o); lrs = []
    for _ in range(7): o.step(); lrs.append(round(o.param_groups[0]['lr'], 6)); s.step()
    print(type(s).__name__, lrs)
