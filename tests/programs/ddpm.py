import math
from functools import partial
import torch
from torch import nn, einsum
import torch.nn.functional as F


def exists(x): return x is not None


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        device = time.device
        half_dim = self.dim // 2
        embeddings = math.log(10000) / (half_dim - 1)
        embeddings = torch.exp(torch.arange(half_dim, device=device) * -embeddings)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class WeightStandardizedConv2d(nn.Conv2d):
    def forward(self, x):
        eps = 1e-5 if x.dtype == torch.float32 else 1e-3
        weight = self.weight
        mean = weight.mean(dim=(1, 2, 3), keepdim=True)
        var = weight.var(dim=(1, 2, 3), unbiased=False, keepdim=True)
        normalized_weight = (weight - mean) * (var + eps).rsqrt()
        return F.conv2d(x, normalized_weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Block(nn.Module):
    def __init__(self, dim, dim_out, groups=2):
        super().__init__()
        self.proj = WeightStandardizedConv2d(dim, dim_out, 3, padding=1)
        self.norm = nn.GroupNorm(groups, dim_out)
        self.act = nn.SiLU()

    def forward(self, x, scale_shift=None):
        x = self.norm(self.proj(x))
        if exists(scale_shift):
            scale, shift = scale_shift
            x = x * (scale + 1) + shift
        return self.act(x)


class ResnetBlock(nn.Module):
    def __init__(self, dim, dim_out, *, time_emb_dim=None):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_emb_dim, dim_out * 2)) if exists(time_emb_dim) else None
        self.block1, self.block2 = Block(dim, dim_out), Block(dim_out, dim_out)
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, time_emb=None):
        t = self.mlp(time_emb)[:, :, None, None]
        h = self.block1(x, scale_shift=t.chunk(2, dim=1))
        return self.block2(h) + self.res_conv(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4):
        super().__init__()
        self.scale, self.heads = dim_head ** -0.5, heads
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias=False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = map(lambda t: t.reshape(b, self.heads, -1, h * w), self.to_qkv(x).chunk(3, dim=1))
        q = q * self.scale
        sim = einsum("b h d i, b h d j -> b h i j", q, k)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        attn = sim.softmax(dim=-1)
        out = einsum("b h i j, b h d j -> b h i d", attn, v)
        return self.to_out(out.permute(0, 1, 3, 2).reshape(b, -1, h, w))


class Unet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPositionEmbeddings(dim), nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim * 4))
        self.init = nn.Conv2d(1, dim, 1)
        rb = partial(ResnetBlock, time_emb_dim=dim * 4)
        self.d1, self.down, self.mid, self.attn = rb(dim, dim), nn.Conv2d(dim, dim, 4, 2, 1), rb(dim, dim), Attention(dim)
        self.up, self.u1, self.final = nn.ConvTranspose2d(dim, dim, 4, 2, 1), rb(dim * 2, dim), nn.Conv2d(dim, 1, 1)

    def forward(self, x, time):
        t = self.time_mlp(time)
        x = self.init(x)
        h = self.d1(x, t)
        x = self.mid(self.down(h), t)
        x = self.attn(x) + x
        return self.final(self.u1(torch.cat((self.up(x), h), dim=1), t))


timesteps = 20
def cosine_beta_schedule(timesteps, s=0.008):
    x = torch.linspace(0, timesteps, timesteps + 1)
    a = torch.cos(((x / timesteps) + s) / (1 + s) * torch.pi * 0.5) ** 2
    a = a / a[0]
    return torch.clip(1 - (a[1:] / a[:-1]), 0.0001, 0.9999)

torch.manual_seed(0)
betas = cosine_beta_schedule(timesteps)
alphas = 1. - betas
alphas_cumprod = torch.cumprod(alphas, axis=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
sqrt_recip_alphas = torch.sqrt(1.0 / alphas)
posterior_variance = betas * (1. - alphas_cumprod_prev) / (1. - alphas_cumprod)


def extract(a, t, x_shape):
    out = a.gather(-1, t.cpu())
    return out.reshape(t.shape[0], *((1,) * (len(x_shape) - 1))).to(t.device)


def q_sample(x0, t, noise):
    return extract(alphas_cumprod.sqrt(), t, x0.shape) * x0 + extract((1 - alphas_cumprod).sqrt(), t, x0.shape) * noise


@torch.no_grad()
def p_sample(model, x, t, t_index):
    model_mean = extract(sqrt_recip_alphas, t, x.shape) * (x - extract(betas, t, x.shape) * model(x, t) / extract((1 - alphas_cumprod).sqrt(), t, x.shape))
    if t_index == 0:
        return model_mean
    return model_mean + torch.sqrt(extract(posterior_variance, t, x.shape)) * torch.randn_like(x)


model = Unet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.rand(4, 1, 8, 8) * 2 - 1
    t = torch.randint(0, timesteps, (4,), device=x.device).long()
    noise = torch.randn_like(x)
    loss = F.smooth_l1_loss(model(q_sample(x, t, noise), t), noise) if step % 2 else F.huber_loss(model(q_sample(x, t, noise), t), noise)
    opt.zero_grad(); loss.backward(); opt.step()
    print("Loss:", loss.item())
img = torch.randn(2, 1, 8, 8)
for i in reversed(range(0, timesteps)):
    img = p_sample(model, img, torch.full((2,), i, dtype=torch.long), i)
print(img.clamp(-1, 1).mean(), img.min() <= img.max())
