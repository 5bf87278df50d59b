"""A convolutional classifier with options, device choice, a learning-rate schedule and an evaluation loop."""
import argparse

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adadelta
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--no-cuda", action="store_true")
options = parser.parse_args()
cudnn.benchmark = True
torch.manual_seed(3)
device = torch.device("cuda" if torch.cuda.is_available() and not options.no_cuda else "cpu")


class Classifier(nn.Module):
    def __init__(self, width=8):
        super(Classifier, self).__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.Conv2d(width, width * 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.25))
        self.hidden, self.out = nn.Linear(width * 2 * 25, 24), nn.Linear(24, 10)

    def forward(self, images):
        features = torch.flatten(self.body(images), start_dim=1)
        features = F.dropout(F.relu(self.hidden(features)), p=0.5, training=self.training)
        return F.log_softmax(self.out(features), dim=1)


images, labels = torch.rand(112, 1, 12, 12), torch.randint(0, 10, (112,))
train_set, test_set = random_split(TensorDataset(images, labels), [96, 16])
train_loader = DataLoader(train_set, batch_size=16, shuffle=True, pin_memory=device.type == "cuda")
model = Classifier().to(device)
print(model, sum(p.numel() for p in model.parameters()))
optimizer = Adadelta(model.parameters(), lr=1.0)
schedule = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(1, options.epochs + 1):
    model.train()
    for number, (x, y) in enumerate(train_loader):
        x, y = x.to(device, non_blocking=True), y.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print("epoch {} [{:>3}/{} {:.0%}] loss {:.5f}".format(epoch, number * len(x), len(train_set), number / len(train_loader), loss.item()))
    schedule.step()
    model.eval()
    total = correct = 0
    with torch.no_grad():
        for x, y in DataLoader(test_set, batch_size=8):
            scores = model(x.to(device))
            total += F.nll_loss(scores, y, reduction="sum").item()
            guess = scores.argmax(dim=1, keepdim=True)
            correct += guess.eq(y.view_as(guess)).sum().item()
    print(f"test loss {total / len(test_set):.4f} accuracy {correct}/{len(test_set)} lr {schedule.get_last_lr()}")
