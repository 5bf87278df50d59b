"""A denoising diffusion model: time embedding, residual blocks with scale and shift, attention, sampling backwards."""
import math

import torch
import torch.nn.functional as F
from torch import einsum, nn

torch.manual_seed(6)
STEPS = 12


class Time(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.half = width // 2

    def forward(self, t):
        rate = torch.exp(torch.arange(self.half, device=t.device) * -(math.log(10000) / (self.half - 1)))
        angle = t[:, None] * rate[None, :]
        return torch.cat((angle.sin(), angle.cos()), dim=-1)


class Residual(nn.Module):
    def __init__(self, a, b, time):
        super().__init__()
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, b * 2))
        self.one, self.two, self.norm = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding="same"), nn.GroupNorm(2, b)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.time(t)[..., None, None].chunk(2, dim=1)
        return self.two(F.silu(self.norm(self.one(x)) * (scale + 1) + shift)) + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.time = nn.Sequential(Time(w), nn.Linear(w, 16), nn.GELU(), nn.Linear(16, 16))
        self.enter, self.down, self.mid = Residual(1, w, 16), nn.Conv2d(w, w, 4, 2, 1), Residual(w, w, 16)
        self.qkv, self.up, self.leave = nn.Conv2d(w, 3 * w, 1, bias=False), nn.Upsample(scale_factor=2, mode="nearest"), Residual(2 * w, w, 16)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x, t):
        t = self.time(t)
        high = self.enter(x, t)
        low = self.mid(self.down(high), t)
        q, k, v = map(lambda z: z.flatten(2), self.qkv(low).chunk(3, dim=1))
        weights = einsum("b d i, b d j -> b i j", q * q.size(1) ** -0.5, k)
        weights = (weights - weights.amax(dim=-1, keepdim=True).detach()).softmax(dim=-1)
        low = low + einsum("b i j, b d j -> b d i", weights, v).reshape(low.shape)
        return self.out(self.leave(torch.cat((self.up(low), high), dim=1), t))


beta = torch.linspace(1e-4, 0.2, STEPS)
kept = torch.cumprod(1.0 - beta, axis=0)
before = F.pad(kept[:-1], (1, 0), value=1.0)


def pick(values, t, like):
    return values.gather(-1, t).reshape(t.shape[0], *((1,) * (like.dim() - 1)))


model, ema = Denoiser(), Denoiser()
ema.load_state_dict(model.state_dict())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(5):
    x, t = torch.rand(4, 1, 8, 8) * 2 - 1, torch.randint(0, STEPS, (4,)).long()
    noise = torch.randn_like(x)
    guess = model(pick(kept.sqrt(), t, x) * x + pick((1 - kept).sqrt(), t, x) * noise, t)
    loss = F.huber_loss(guess, noise) if step % 2 else F.smooth_l1_loss(guess, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, new in zip(ema.parameters(), model.parameters()):
            slow.lerp_(new, 0.1)
    print("loss", loss.item())
image = torch.randn(2, 1, 8, 8)
with torch.inference_mode():
    for i in reversed(range(STEPS)):
        t = torch.full((2,), i, dtype=torch.long)
        mean = (image - pick(beta, t, image) * ema(image, t) / pick((1 - kept).sqrt(), t, image)) / pick(1 - beta, t, image).sqrt()
        image = mean if i == 0 else mean + pick(beta * (1 - before) / (1 - kept), t, image).sqrt() * torch.randn_like(image)
print(image.clamp(-1, 1).mean(), image.std(dim=(1, 2, 3)))
