"""Which way compiled calls of public models go: skip, follow or eager, and whether they give what the plain calls give.

    python -m flambeau tools/model_ways.py [NAME...]        with transformers, timm or torchvision installed

Small configurations with random weights. Three calls of each model are compiled: the forward pass, a training step (SGD), and
for decoders 8 tokens of greedy generation with a cache. Prints a table for docs/compile.md.
"""

from __future__ import annotations

import copy
import sys
import traceback
import warnings
from typing import Any

import torch

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=99)
CONFIGS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": dict(n_embd=32, n_layer=2, n_head=4, vocab_size=99),
    "OPTForCausalLM": dict(SMALL, word_embed_proj_dim=32, ffn_dim=64),
    "GPTNeoXForCausalLM": SMALL, "LlamaForCausalLM": dict(SMALL, num_key_value_heads=2),
    "MistralForCausalLM": dict(SMALL, num_key_value_heads=2), "Qwen2ForCausalLM": dict(SMALL, num_key_value_heads=2),
    "Qwen3ForCausalLM": dict(SMALL, num_key_value_heads=2, head_dim=8), "PhiForCausalLM": SMALL,
    "GemmaForCausalLM": dict(SMALL, num_key_value_heads=2, head_dim=8), "FalconForCausalLM": SMALL,
    "BloomForCausalLM": dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=99),
    "MixtralForCausalLM": dict(SMALL, num_key_value_heads=2, num_local_experts=4),
    "MambaForCausalLM": dict(SMALL, state_size=8),
    "BertForMaskedLM": SMALL, "RobertaForMaskedLM": dict(SMALL, pad_token_id=1), "DistilBertForMaskedLM": dict(
        dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=99), "ElectraForMaskedLM": dict(SMALL, embedding_size=32),
    "AlbertForMaskedLM": dict(SMALL, embedding_size=16), "DebertaV2ForMaskedLM": SMALL,
    "T5ForConditionalGeneration": dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99,
                                       decoder_start_token_id=0),
    "BartForConditionalGeneration": dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                         vocab_size=99,
                                         decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64),
    "ViTForImageClassification": dict(SMALL, image_size=16, patch_size=4), "ConvNextForImageClassification": dict(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], image_size=32), "ResNetForImageClassification": dict(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), "SwinForImageClassification": dict(
        image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4)}
TIMM = ("resnet10t", "vit_tiny_patch16_224", "efficientnet_b0", "convnext_atto", "mobilenetv3_small_050", "mixer_s32_224")


def transformer(name: str) -> tuple[Any, dict[str, Any], bool]:
    import transformers
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**CONFIGS[name])).eval()
    if "Image" in name:
        size = getattr(model.config, "image_size", 32)
        return model, dict(pixel_values=torch.rand(2, 3, size, size), labels=torch.tensor([0, 1])), False
    ids = torch.randint(3, 90, (2, 7))
    return model, dict(input_ids=ids, labels=ids.clone()), "Causal" in name or "LMHead" in name


def image_model(name: str) -> tuple[Any, dict[str, Any], bool]:
    import timm
    size = 224 if "224" in name else 64
    return timm.create_model(name, num_classes=5).eval(), dict(x=torch.rand(2, 3, size, size)), False


def loss_of(out: Any) -> Any:
    if getattr(out, "loss", None) is not None:
        return out.loss
    return (out if isinstance(out, torch.Tensor) else out[0]).float().pow(2).mean()


def calls(model: Any, inputs: dict[str, Any], decoder: bool) -> dict[str, Any]:
    """Functions without arguments that give a tensor to compare."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def forward() -> Any:
        with torch.no_grad():
            out = model(**inputs)
        return out if isinstance(out, torch.Tensor) else out.logits

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(**inputs))
        loss.backward()
        optimizer.step()
        return loss

    def generate() -> Any:
        return model.generate(inputs["input_ids"], max_new_tokens=8, do_sample=False, pad_token_id=0)
    return dict(forward=forward, generate=generate, step=step) if decoder else dict(forward=forward, step=step)


def way_of(compiled: Any) -> str:
    inner = compiled._compiled
    return "skip" if inner.plans else "follow" if inner.paths.runs and inner.paths.stopped is None else "eager"


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    print("| model | forward | generate | training step |\n| --- | --- | --- | --- |", flush=True)
    for name in names or [*CONFIGS, *TIMM]:
        row = {}
        try:
            torch.manual_seed(0)
            model, inputs, decoder = (transformer if name in CONFIGS else image_model)(name)
        except Exception as error:
            print(f"| {name} | not built: {type(error).__name__}: {str(error)[:80]} |", flush=True)
            continue
        twin = copy.deepcopy(model)
        for what, call in calls(model, inputs, decoder).items():
            try:
                compiled = torch.compile(calls(twin, inputs, decoder)[what])
                good = all([torch.allclose(call().float(), compiled().float(), rtol=1e-3, atol=1e-4) for _ in range(8)])
                row[what] = way_of(compiled) + ("" if good else " **differs**")
            except Exception as error:
                row[what] = f"{type(error).__name__}: {str(error)[:60]}"
                if "-v" in sys.argv:
                    traceback.print_exc()
        print(f"| {name} | {row.get('forward')} | {row.get('generate', '')} | {row.get('step')} |", flush=True)


if __name__ == "__main__":
    main([a for a in sys.argv[1:] if a != "-v"])
