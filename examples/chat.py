"""Talks with a language model that lies on this machine.

    python examples/chat.py ~/models/SmolLM2-360M-Instruct --device opencl:0
    python examples/chat.py model-q4_0.gguf --weights int4 --prompt "Why is the sky blue?"

The checkpoint is a folder that transformers can load (safetensors), or a GGUF file.
Without --prompt, each line of the standard input is a question. Tokens are printed as
they come, then how long the first one took and how many a second followed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch_opencl  # noqa: F401
from torch_opencl.nn import quantize_linears
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

DTYPES = {"float32": torch.float32, "float16": torch.float16}
DTYPES["bfloat16"] = torch.bfloat16


class Clock(TextStreamer):
    """Prints the text and keeps when its tokens came."""

    def __init__(self, tokenizer) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.times = [time.perf_counter()]

    def put(self, value: torch.Tensor) -> None:
        is_prompt = self.next_tokens_are_prompt
        super().put(value)
        if not is_prompt:
            self.times.append(time.perf_counter())

    def report(self) -> str:
        begin, first, *rest = self.times
        text = f"first token after {first - begin:.2f} s"
        if rest:
            text += f", then {len(rest) / (rest[-1] - first):.1f} tokens/s"
        return text


def load(checkpoint: Path, device: str, weights: str):
    """A model and its tokenizer; int8 and int4 weights are rounded on the device."""
    where, file = (checkpoint, None)
    if checkpoint.is_file():
        where, file = checkpoint.parent, checkpoint.name
    dtype = DTYPES.get(weights, torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(where, gguf_file=file, dtype=dtype)
    model = model.to(device).eval()
    if weights not in DTYPES:
        quantize_linears(model, int(weights.removeprefix("int")))
    return model, AutoTokenizer.from_pretrained(where, gguf_file=file)


def codes_of(tokenizer, messages: list[dict[str, str]]) -> torch.Tensor:
    if tokenizer.chat_template:
        return tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
    text = "\n".join(message["content"] for message in messages)
    return tokenizer(text, return_tensors="pt")["input_ids"]


def questions(prompt: str | None) -> Iterator[str]:
    if prompt is not None:
        yield prompt
        return
    for line in sys.stdin:
        yield line.rstrip("\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="a folder, or a .gguf file")
    parser.add_argument("--device", default="opencl", help="default: %(default)s")
    parser.add_argument(
        "--weights",
        choices=[*DTYPES, "int8", "int4"],
        default="bfloat16",
        help="default: %(default)s; those of int8 and int4 have bfloat16 inputs",
    )
    parser.add_argument("--prompt", help="a single question")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer, at most")
    parser.add_argument("--temperature", type=float, default=0, help="0: the likeliest")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model, tokenizer = load(arguments.checkpoint, arguments.device, arguments.weights)
    sampling = {"do_sample": False}
    if arguments.temperature > 0:
        sampling = {"do_sample": True, "temperature": arguments.temperature}
    messages: list[dict[str, str]] = []
    for question in questions(arguments.prompt):
        messages.append({"role": "user", "content": question})
        codes = codes_of(tokenizer, messages).to(arguments.device)
        clock = Clock(tokenizer)
        answer = model.generate(
            codes,
            attention_mask=torch.ones_like(codes),
            streamer=clock,
            max_new_tokens=arguments.tokens,
            cache_implementation="static",
            disable_compile=True,
            pad_token_id=tokenizer.pad_token_id or 0,
            **sampling,
        )
        text = tokenizer.decode(answer[0, codes.size(1) :], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": text})
        print(f"[{clock.report()}]", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
