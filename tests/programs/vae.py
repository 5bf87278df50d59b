from __future__ import print_function
import torch
from torch import nn, optim
from torch.nn import functional as F
import torch.utils.data

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(64, 40)
        self.fc21 = nn.Linear(40, 5)
        self.fc22 = nn.Linear(40, 5)
        self.fc3 = nn.Linear(5, 40)
        self.fc4 = nn.Linear(40, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5*logvar)
        eps = torch.randn_like(std)
        return mu + eps*std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction='sum')
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


data = torch.utils.data.TensorDataset(torch.rand(64, 1, 8, 8), torch.zeros(64))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (x, _) in enumerate(loader):
        x = x.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(x)
        loss = loss_function(recon_batch, x, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        print('Train Epoch: {} Loss: {:.6f}'.format(epoch, loss.item() / len(x)))
    print('====> Epoch: {} Average loss: {:.4f}'.format(epoch, train_loss / len(loader.dataset)))


for epoch in range(1, 4):
    train(epoch)
    with torch.no_grad():
        sample = torch.randn(4, 5).to(device)
        sample = model.decode(sample).cpu()
        print(sample.view(4, 1, 8, 8).mean((1, 2, 3)))
        n = min(data.tensors[0].size(0), 8)
        comparison = torch.cat([data.tensors[0][:n], sample.view(-1, 1, 8, 8)[:n]])
        print(comparison.shape)
