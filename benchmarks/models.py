"""Public models beside PyTorch: speed, peak memory, and whether five training steps have the same losses.

    pip install transformers timm diffusers               # timm needs torchvision; take the build that fits your torch
    python benchmarks/models.py                           # all models
    python benchmarks/models.py --only gpt2 llama --rounds 10
    python benchmarks/models.py --peers torch torch_compiled    # with torch.compile (minutes per model)

The library code is unmodified: a process per side builds the model, for flambeau under `compat` (as `python -m flambeau` does),
and all start from the weights and inputs that PyTorch's process saved. They wait for each other, so that only one computes at a
time; each figure is the minimum of some rounds. A compiled step is `torch.compile` of the whole step; for the forward pass and
generation `model.forward` is compiled. Ratios are flambeau / PyTorch; a compiled one is to the best of the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onednn  # noqa: F401  (before torch)
from harness import duration
from memory import forget_peak, resident

torch: Any = None  # in a child: PyTorch, or flambeau under its name

SIDES = ("torch", "torch_compiled", "flambeau", "flambeau_compiled")
WHAT = ("forward", "generate", "step")
TOKENS, PROMPT, STEPS = 24, 16, 5  # generated, given; training steps whose losses are compared


def causal(kind: str, shape: tuple[int, int], **config: Any) -> tuple[Any, dict[str, Any]]:
    """A language model of transformers: inputs are their own labels."""
    import transformers
    model_class = getattr(transformers, kind)
    made = model_class.config_class(**config)
    ids = torch.randint(10, made.vocab_size, shape)
    return model_class(made), dict(input_ids=ids, labels=ids.clone())


def whisper() -> tuple[Any, dict[str, Any]]:
    model, inputs = causal("WhisperForConditionalGeneration", (2, 32), d_model=256, encoder_layers=4, decoder_layers=4,
                           encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024,
                           vocab_size=8000, num_mel_bins=80, max_source_positions=250, max_target_positions=128, pad_token_id=0,
                           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                           begin_suppress_tokens=None)
    return model, dict(input_features=torch.randn(2, 80, 500), labels=inputs["labels"])


def image(name: str, batch: int, size: int = 224) -> tuple[Any, dict[str, Any]]:
    """A classifier of timm's."""
    import timm
    return timm.create_model(name), dict(x=torch.randn(batch, 3, size, size), labels=torch.randint(0, 1000, (batch,)))


def diffusion() -> tuple[Any, dict[str, Any]]:
    """A small UNet as in Stable Diffusion: it predicts the noise of a latent image, given a text's vectors."""
    from diffusers import UNet2DConditionModel
    model = UNet2DConditionModel(sample_size=32, block_out_channels=(64, 128, 256), layers_per_block=1, cross_attention_dim=128,
                                 down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=8)
    return model, dict(sample=torch.randn(2, 4, 32, 32), timestep=torch.tensor([10, 500]),
                       encoder_hidden_states=torch.randn(2, 20, 128), labels=torch.randn(2, 4, 32, 32))


def own(name: str) -> Callable[[], tuple[Any, dict[str, Any]]]:
    """A model of `own_models.py`."""
    def build() -> tuple[Any, dict[str, Any]]:
        import own_models
        return getattr(own_models, name)()
    return build


LLAMA = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8)
MODELS: dict[str, tuple[str, Callable[[], tuple[Any, dict[str, Any]]]]] = {
    "gpt2": ("GPT-2 124 M, 2x128 tokens", lambda: causal("GPT2LMHeadModel", (2, 128))),
    "bert": ("BERT-base, 4x64 tokens", lambda: causal("BertForMaskedLM", (4, 64))),
    "llama": ("Llama 44 M, 2x128 tokens", lambda: causal(
        "LlamaForCausalLM", (2, 128), **LLAMA, vocab_size=32000, tie_word_embeddings=True)),
    "resnet50": ("ResNet-50 (timm), 4x3x224x224", lambda: image("resnet50", 4)),
    "vit": ("ViT-S/16 (timm), 4x3x224x224", lambda: image("vit_small_patch16_224", 4)),
    "efficientnet": ("EfficientNet-B0 (timm), 4x3x224x224", lambda: image("efficientnet_b0", 4)),
    "unet": ("Stable Diffusion's UNet, small (diffusers), 2x4x32x32", diffusion),
    "whisper": ("Whisper, small, 2x500 frames, 32 tokens", whisper),
    "mixtral": ("Mixtral, 8 experts, small, 2x128 tokens", lambda: causal(
        "MixtralForCausalLM", (2, 128), hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, num_local_experts=8, vocab_size=8000)),
    "mamba": ("Mamba, small, without its kernels, 2x64 tokens", lambda: causal(
        "MambaForCausalLM", (2, 64), hidden_size=256, num_hidden_layers=4, state_size=16, vocab_size=8000)),
    "unet3d": ("3-D UNet, 1x1x32x64x64", own("unet3d")),
    "gnn": ("GNN of 2 layers, 10 k nodes, 80 k edges", own("gnn")),
    "tagger": ("LSTM tagger 2x256, 16x40 tokens", own("tagger"))}


def loss_of(model: Any, inputs: dict[str, Any]) -> Any:
    """Models of transformers know their loss; the others give scores of classes, or an image that should be another."""
    if "input_ids" in inputs or "input_features" in inputs:
        return model(**inputs).loss
    inputs = dict(inputs)
    labels = inputs.pop("labels")
    out = model(**inputs)
    out = getattr(out, "sample", out)
    if labels.is_floating_point():
        return torch.nn.functional.mse_loss(out, labels)
    return torch.nn.functional.cross_entropy(out.flatten(0, -2), labels.flatten())


class Side:
    """One model in one process, and the calls that are measured."""

    def __init__(self, name: str, checkpoint: Path, compiled: bool):
        torch.manual_seed(0)
        self.level = resident("VmRSS")
        self.model, inputs = MODELS[name][1]()
        if not checkpoint.exists():
            torch.save((self.model.state_dict(), inputs), checkpoint)
        state, self.inputs = torch.load(checkpoint)
        self.model.load_state_dict(state)
        del state
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.compile = torch.compile if compiled else lambda f: f
        self.plain_forward = self.model.forward
        self.trained = self.compile(self.training_step)
        self.training = None

    def training_step(self) -> Any:
        self.optimizer.zero_grad()
        loss = loss_of(self.model, self.inputs)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self) -> list[float]:
        self.model.train()
        torch.manual_seed(1)
        forget_peak()
        found = [float(self.trained()) for _ in range(STEPS)]
        self.peak = resident("VmHWM") - self.level
        return found

    def memory(self) -> int:
        return self.peak

    def prepare(self, what: str) -> None:
        """Before a series of `what`: training or not, `forward` compiled where the whole step is not."""
        self.model.train(what == "step")
        self.model.forward = self.plain_forward if what == "step" else self.compile(self.plain_forward)

    def step(self) -> None:
        self.trained()

    def forward(self) -> Any:
        with torch.no_grad():
            return self.model(**{k: v for k, v in self.inputs.items() if k != "labels"
                                 or "input_features" in self.inputs})

    def generate(self) -> list[int]:
        torch.manual_seed(2)
        given = {k: v[:1] if k == "input_features" else v[:1, :PROMPT] for k, v in self.inputs.items() if k != "labels"}
        with torch.no_grad():
            return self.model.generate(**given, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False,
                                       pad_token_id=0)[0].tolist()

    def can_generate(self) -> bool:
        return not {"input_ids", "input_features"}.isdisjoint(self.inputs) and self.model.can_generate()


def timed(side: Side, what: str) -> float:
    """Seconds of one call; with one thread the processor's own, to which it does not matter what else runs on the machine."""
    time.sleep(0.02)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    getattr(side, what)()
    return clock() - start


def child(side_name: str, name: str, checkpoint: Path, threads: int) -> None:
    """Reads a word per line, does what it says and answers with one line of JSON."""
    global torch
    warnings.simplefilter("ignore")
    if side_name.startswith("flambeau"):
        from flambeau import compat
        compat.install()
    import torch
    if threads:
        torch.set_num_threads(threads)
    talk, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    side: Side | None = None
    for line in sys.stdin:
        order, *words = line.split()
        try:
            if side is None:
                side = Side(name, checkpoint, side_name.endswith("compiled"))
            if order == "start":
                answer = side.can_generate()
            elif order == "time":
                answer = timed(side, *words)
            elif order == "tokens":
                answer = side.generate()
            else:
                answer = getattr(side, order)(*words)
        except Exception as error:
            traceback.print_exc()
            answer = dict(error=f"{type(error).__name__}: {str(error)[:150]}")
        print(json.dumps(answer), file=talk, flush=True)


class Process:
    """The other end of `child`."""

    def __init__(self, side: str, name: str, checkpoint: Path, threads: int, log: Any):
        command = [sys.executable, __file__, "--child", side, name, str(checkpoint), "--threads", str(threads)]
        self.errors: list[str] = []
        self.side = side
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def ask(self, order: str) -> Any:
        if self.errors:
            return None
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or '{"error": "the process ended"}')
        except BrokenPipeError:
            answer = dict(error="the process ended")
        if isinstance(answer, dict):
            self.errors.append(f"{self.side}, {order}: {answer['error']}")
            return None
        return answer

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)


def interleaved(processes: dict[str, Process], what: str, rounds: int) -> dict[str, float]:
    for process in processes.values():
        process.ask(f"prepare {what}")
        for _ in range(1 if what == "step" else 3):  # compiled: recorded, built, and perhaps another way
            process.ask(f"time {what}")
    best = {side: float("inf") for side in processes}
    for _ in range(rounds):
        for side, process in processes.items():
            best[side] = min(best[side], process.ask(f"time {what}") or float("inf"))
    return best


def compared(reference: Any, other: Any) -> str:
    """Losses: to five digits; tokens: exactly."""
    if reference is None or other is None:
        return "**failed**"
    far = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(reference, other, strict=True))
    return "equal" if far < 2e-5 else f"**{far:.1e}**"


def measure(name: str, sides: list[str], options: argparse.Namespace, log: Any) -> list[str]:
    """A row of the table, after which what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        processes = {side: Process(side, name, Path(folder) / "weights.pt", options.threads, log) for side in sides}
        try:
            generates = all([p.ask("start") for p in processes.values()])
            losses = {side: p.ask("losses") for side, p in processes.items()}
            memory = {side: p.ask("memory") for side, p in processes.items()}
            cells = [MODELS[name][0]]
            for what in WHAT:
                if what == "generate" and not generates:
                    cells += ["", "", ""]
                    continue
                best = interleaved(processes, what, options.rounds)
                peer = min(best[s] for s in sides if s.startswith("torch"))
                cells += [duration(peer), *(f"{best[s] / (best['torch'] if s == 'flambeau' else peer):.2f}" for s in sides
                                            if s.startswith("flambeau"))]
            ours = [s for s in sides if s.startswith("flambeau")]
            cells.append(" / ".join(compared(losses["torch"], losses[s]) for s in ours))
            tokens = {side: p.ask("tokens") for side, p in processes.items()} if generates else {}
            cells.append(" / ".join(compared(tokens["torch"], tokens[s]) for s in ours) if generates else "")
            cells.append(" / ".join(f"{(memory[s] or 0) / (memory['torch'] or 1):.2f}" for s in ours))
        finally:
            for process in processes.values():
                process.end()
    return ["| " + " | ".join(cells) + " |", *(e for p in processes.values() for e in p.errors)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of each side (0: as many as it wants)")
    parser.add_argument("--peers", nargs="+", default=["torch"], choices=SIDES[:2])
    parser.add_argument("--log", type=Path, help="where tracebacks and what libraries print go")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child[0], options.child[1], Path(options.child[2]), options.threads)
    print("| model |" + "".join(f" {w}: torch | eager | compiled |" for w in WHAT) + " losses | tokens | peak memory |")
    print("| --- " * 13 + "|", flush=True)
    failures = []
    with open(options.log or os.devnull, "a") as log:
        for name in options.only:
            row, *errors = measure(name, [*options.peers, *SIDES[2:]], options, log)
            print(row, flush=True)
            failures += [f"- {name}, {e}" for e in errors]
    print("", *failures, sep="\n")


if __name__ == "__main__":
    main()
