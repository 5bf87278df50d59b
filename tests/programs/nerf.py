import torch
import torch.nn as nn
import torch.nn.functional as F
import numpy as np

torch.manual_seed(9458); np.random.seed(0)


class Embedder:
    def __init__(self, **kwargs):
        self.kwargs = kwargs
        self.create_embedding_fn()

    def create_embedding_fn(self):
        embed_fns, d, out_dim = [], self.kwargs['input_dims'], 0
        if self.kwargs['include_input']:
            embed_fns.append(lambda x: x)
            out_dim += d
        freq_bands = 2.**torch.linspace(0., self.kwargs['max_freq_log2'], steps=self.kwargs['num_freqs'])
        for freq in freq_bands:
            for p_fn in self.kwargs['periodic_fns']:
                embed_fns.append(lambda x, p_fn=p_fn, freq=freq: p_fn(x * freq))
                out_dim += d
        self.embed_fns, self.out_dim = embed_fns, out_dim

    def embed(self, inputs):
        return torch.cat([fn(inputs) for fn in self.embed_fns], -1)


def get_rays(H, W, K, c2w):
    i, j = torch.meshgrid(torch.linspace(0, W-1, W), torch.linspace(0, H-1, H))
    i, j = i.t(), j.t()
    dirs = torch.stack([(i-K[0][2])/K[0][0], -(j-K[1][2])/K[1][1], -torch.ones_like(i)], -1)
    rays_d = torch.sum(dirs[..., np.newaxis, :] * c2w[:3, :3], -1)
    rays_o = c2w[:3, -1].expand(rays_d.shape)
    return rays_o, rays_d


class NeRF(nn.Module):
    def __init__(self, D=3, W=16, ch=15, skips=[1]):
        super().__init__()
        self.skips = skips
        self.pts_linears = nn.ModuleList([nn.Linear(ch, W)] + [nn.Linear(W, W) if i not in skips else nn.Linear(W + ch, W) for i in range(D-1)])
        self.alpha_linear, self.rgb_linear = nn.Linear(W, 1), nn.Linear(W, 3)

    def forward(self, x):
        h = x
        for i, l in enumerate(self.pts_linears):
            h = F.relu(self.pts_linears[i](h))
            if i in self.skips:
                h = torch.cat([x, h], -1)
        return torch.cat([self.rgb_linear(h), self.alpha_linear(h)], -1)


def raw2outputs(raw, z_vals, rays_d, noise_std=0.1):
    raw2alpha = lambda raw, dists, act_fn=F.relu: 1.-torch.exp(-act_fn(raw)*dists)
    dists = z_vals[..., 1:] - z_vals[..., :-1]
    dists = torch.cat([dists, torch.Tensor([1e10]).expand(dists[..., :1].shape)], -1)
    dists = dists * torch.norm(rays_d[..., None, :], dim=-1)
    rgb = torch.sigmoid(raw[..., :3])
    noise = torch.randn(raw[..., 3].shape) * noise_std
    alpha = raw2alpha(raw[..., 3] + noise, dists)
    weights = alpha * torch.cumprod(torch.cat([torch.ones((alpha.shape[0], 1)), 1.-alpha + 1e-10], -1), -1)[:, :-1]
    rgb_map = torch.sum(weights[..., None] * rgb, -2)
    depth_map = torch.sum(weights * z_vals, -1)
    disp_map = 1./torch.max(1e-10 * torch.ones_like(depth_map), depth_map / torch.sum(weights, -1))
    return rgb_map, disp_map, weights


def sample_pdf(bins, weights, N_samples):
    weights = weights + 1e-5
    pdf = weights / torch.sum(weights, -1, keepdim=True)
    cdf = torch.cumsum(pdf, -1)
    cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
    u = torch.rand(list(cdf.shape[:-1]) + [N_samples]).contiguous()
    inds = torch.searchsorted(cdf, u, right=True)
    below = torch.max(torch.zeros_like(inds-1), inds-1)
    above = torch.min((cdf.shape[-1]-1) * torch.ones_like(inds), inds)
    inds_g = torch.stack([below, above], -1)
    matched_shape = [inds_g.shape[0], inds_g.shape[1], cdf.shape[-1]]
    cdf_g = torch.gather(cdf.unsqueeze(1).expand(matched_shape), 2, inds_g)
    bins_g = torch.gather(bins.unsqueeze(1).expand(matched_shape), 2, inds_g)
    denom = (cdf_g[..., 1]-cdf_g[..., 0])
    denom = torch.where(denom < 1e-5, torch.ones_like(denom), denom)
    return bins_g[..., 0] + (u-cdf_g[..., 0])/denom * (bins_g[..., 1]-bins_g[..., 0])


e = Embedder(include_input=True, input_dims=3, max_freq_log2=1, num_freqs=2, periodic_fns=[torch.sin, torch.cos])
K = np.array([[6., 0, 3], [0, 6., 3], [0, 0, 1]])
ro, rd = get_rays(6, 6, K, torch.eye(4))
ro, rd = ro.reshape(-1, 3), rd.reshape(-1, 3)
model = NeRF(ch=e.out_dim)
opt = torch.optim.Adam(params=list(model.parameters()), lr=5e-3, betas=(0.9, 0.999))
target = torch.rand(36, 3)
img2mse = lambda x, y: torch.mean((x - y) ** 2)
mse2psnr = lambda x: -10. * torch.log(x) / torch.log(torch.Tensor([10.]))
for step in range(4):
    t_vals = torch.linspace(0., 1., steps=8)
    z = (2. * (1.-t_vals) + 6. * t_vals).expand([36, 8])
    mids = .5 * (z[..., 1:] + z[..., :-1])
    upper, lower = torch.cat([mids, z[..., -1:]], -1), torch.cat([z[..., :1], mids], -1)
    z = lower + (upper - lower) * torch.rand(z.shape)
    pts = ro[..., None, :] + rd[..., None, :] * z[..., :, None]
    flat = torch.reshape(pts, [-1, pts.shape[-1]])
    raw = torch.cat([model(e.embed(flat[i:i+100])) for i in range(0, flat.shape[0], 100)], 0)
    rgb, disp, w = raw2outputs(raw.reshape(36, 8, 4), z, rd)
    zs = sample_pdf(.5 * (z[..., 1:] + z[..., :-1]), w[..., 1:-1], 6).detach()
    z2, _ = torch.sort(torch.cat([z, zs], -1), -1)
    opt.zero_grad()
    loss = img2mse(rgb, target)
    loss.backward(); opt.step()
    new_lr = 5e-3 * (0.1 ** (step / 10))
    for pg in opt.param_groups:
        pg['lr'] = new_lr
    print(f"[TRAIN] Iter: {step} Loss: {loss.item()}  PSNR: {mse2psnr(loss).item()}", z2.mean().item())
