"""examples/chat.py and generate(), on tiny Llamas of random weights made here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_opencl  # noqa: F401

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make test-libraries"
)

_CHAT = Path(__file__).resolve().parents[2] / "examples" / "chat.py"
_WORDS = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(62))]
_WIDTH, _HEADS, _KEY_HEADS, _HIDDEN, _LAYERS, _LENGTH = 128, 4, 2, 256, 2, 64


def _llama() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(_WORDS),
        hidden_size=_WIDTH,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KEY_HEADS,
        intermediate_size=_HIDDEN,
        num_hidden_layers=_LAYERS,
        max_position_embeddings=_LENGTH,
        eos_token_id=None,
        bos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).eval()


def _save_folder(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: code for code, word in enumerate(_WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    _llama().save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    return folder


def _chat(checkpoint: Path, *arguments: str, fallback: str = "error") -> str:
    process = subprocess.run(
        [sys.executable, _CHAT, checkpoint, "--tokens", "6", *arguments],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TORCH_OPENCL_FALLBACK": fallback},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def _answer(output: str) -> list[str]:
    assert re.search(r"\[first token after [\d.]+ s, then [\d.]+ tokens/s\]", output)
    words = output.split("[first token")[0].split()
    assert len(words) == 6
    assert set(words) <= set(_WORDS)
    return words


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
def test_chat_of_a_folder(tmp_path, weights):
    folder = _save_folder(tmp_path / "llama")
    options = ("--weights", weights, "--prompt", "w1 w2 w3 w4")
    found = _answer(_chat(folder, *options))
    if weights == "float32":  # where no rounding decides
        assert found == _answer(_chat(folder, *options, "--device", "cpu"))


def _save_gguf(path: Path, quantization: str) -> Path:
    gguf = pytest.importorskip(
        "gguf", reason="gguf is not installed: make test-libraries"
    )
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(_LENGTH)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(len(_WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    # A byte-level vocabulary: letters and digits, and a merge for each word.
    letters = [*"0123456789wĠ"]
    words = [word for word in _WORDS[2:] if len(word) == 2]
    tokens = ["[PAD]", *letters, *words]
    tokens += [f"spare{number}" for number in range(len(_WORDS) - len(tokens))]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges([f"w {word[1]}" for word in words])
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(len(tokens) - 1)
    kind = getattr(gguf.GGMLQuantizationType, quantization)
    for name, tensor in _llama().state_dict().items():
        values = tensor.float().numpy()
        if values.ndim == 2:
            packed = gguf.quants.quantize(values, kind)
            writer.add_tensor(_gguf_name(name), packed, raw_dtype=kind)
        else:
            writer.add_tensor(_gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    for ours, theirs in {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
    }.items():
        name = name.replace(ours, theirs)
    return name


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("quantization", ["Q8_0", "Q4_0"])
def test_chat_of_a_gguf_file(tmp_path, quantization):
    file = _save_gguf(tmp_path / "llama.gguf", quantization)
    output = _chat(file, "--weights", "int4", "--prompt", "w1 w2 w3")
    assert re.search(r"\[first token after [\d.]+ s", output)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
def test_generate_has_no_fallback(weights, cache):
    from torch_opencl.nn import quantize_linears

    model = _llama()
    if weights != "float32":
        model = model.bfloat16()
    model = model.to("opencl")
    if weights.startswith("int"):
        quantize_linears(model, int(weights[3:]))
    prompt = torch.arange(2, 9, device="opencl")[None]
    torch.opencl.reset_fallback_stats()
    output = model.generate(
        prompt,
        max_new_tokens=8,
        do_sample=False,
        pad_token_id=0,
        cache_implementation=cache,
        disable_compile=True,
    )
    assert torch.opencl.fallback_stats() == {}
    assert output.shape == (1, 15)
    # Every token is the likeliest after those before it.
    with torch.no_grad():
        scores = model(output[:, :-1]).logits[0, 6:].float().cpu()
    chosen = scores.gather(1, output[0, 7:, None].cpu())
    slack = 0 if weights == "float32" else 0.02
    assert (chosen[:, 0] >= scores.amax(1) - slack - 1e-4).all()
