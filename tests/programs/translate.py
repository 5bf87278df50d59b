"""nn.Transformer from sequence to sequence: masks, padding, a custom collate, warm-up as a lambda, greedy decoding."""
import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

PAD, START, END = 0, 1, 2
torch.manual_seed(4)


class Reversals(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        words = [3 + (index * k) % 8 for k in range(1, 4 + index % 4)]
        return torch.tensor([START, *words, END]), torch.tensor([START, *reversed(words), END])


def collate(batch):
    return tuple(pad_sequence(side, padding_value=PAD) for side in zip(*batch))


class Places(nn.Module):
    def __init__(self, width: int, longest: int = 30):
        super().__init__()
        rate = torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
        angle = torch.arange(longest).unsqueeze(1) * rate
        table = torch.zeros(longest, 1, width)
        table[:, 0, 0::2], table[:, 0, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[:x.size(0)]


class Translator(nn.Module):
    def __init__(self, vocab: int, width: int = 16):
        super().__init__()
        self.embed, self.places = nn.Embedding(vocab, width, padding_idx=PAD), Places(width)
        self.core = nn.Transformer(width, nhead=2, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=24, dropout=0.1)
        self.head = nn.Linear(width, vocab)
        for p in self.core.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def look(self, x):
        return self.places(self.embed(x) * math.sqrt(self.embed.embedding_dim))

    def forward(self, source, goal):
        causal = nn.Transformer.generate_square_subsequent_mask(goal.size(0))
        pads = (source == PAD).t()
        return self.head(self.core(self.look(source), self.look(goal), tgt_mask=causal, src_key_padding_mask=pads,
                                   tgt_key_padding_mask=(goal == PAD).t().float().masked_fill((goal == PAD).t(), float("-inf")),
                                   memory_key_padding_mask=pads))


model = Translator(11)
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
schedule = LambdaLR(optimizer, lr_lambda=lambda step: 16 ** -0.5 * min((step + 1) ** -0.5, (step + 1) * 40 ** -1.5))
criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
for epoch in range(2):
    for source, goal in DataLoader(Reversals(), batch_size=5, shuffle=True, collate_fn=collate):
        scores = model(source, goal[:-1])
        loss = criterion(scores.reshape(-1, scores.shape[-1]), goal[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"{epoch} {tuple(source.shape)} {loss.item():.5f} lr {optimizer.param_groups[0]['lr']:.3e}")
model.eval()
source = Reversals()[5][0].unsqueeze(1)
memory, written = model.core.encoder(model.look(source)), torch.full((1, 1), START)
for _ in range(5):
    y = model.core.decoder(model.look(written), memory, nn.Transformer.generate_square_subsequent_mask(written.size(0)))
    written = torch.cat([written, model.head(y[-1]).argmax(-1, keepdim=True).type_as(written)])
print(written.flatten().tolist())
