"""A Hugging Face tokenizer from a GGUF file, for clients that count tokens themselves. Needs no network.

`write` makes a folder that `AutoTokenizer.from_pretrained` and `--tokenizer` of aiperf and GuideLLM take.
transformers can read GGUF files too, but leaves out the rule that every digit is a piece of its own, so its
ids differ from llama.cpp's (transformers 5.24, "½ ⅓"). `different` compares both on texts.

Run: python bench/gguf_tokenizer.py FOLDER [--python PATH]   (a Python with `transformers`, to compare)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gguf import GGUFReader, TokenType

from tutor.llama.model import Model, find_model

TEXTS = (
    "👩‍🚀 astronauts and 🏳️‍🌈 flags, 👍🏽 hands", "日本語の文章を続けてください。", "한국어 문장은",
    "हिन्दी में लिखो",
    "Zalgo: ĥ̷̡̛e̵͚̅ n̈ ñ ö", "a\r\nb\tc\x0bd", "½ ⅓ ¼ ∑ ∫ √ 1.25 x²", "１２３ ٣٤٥ Ⅷ",
    "  two  spaces   \n\n\n x",
    "abc123def 4567", "it's WE'LL don't I'D", "", " ", "<|im_start|>user\nHi<|im_end|>\n", "naïve café",
)  # fmt: skip
ENCODE = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True)
json.dump([tokenizer.encode(text, add_special_tokens=False) for text in json.load(sys.stdin)], sys.stdout)
"""


def write(path: Path, folder: Path) -> None:
    """Write the tokenizer of the GGUF file at `path`. Raises SystemExit for another kind than SmolLM's.

    The rules are those of llama.cpp (src/llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM): digits alone, then
    GPT-2's pattern, then byte-level BPE.
    """
    fields = GGUFReader(path).fields

    def told(name: str) -> object:
        return fields[f"tokenizer.ggml.{name}"].contents()

    kind = (told("model"), told("pre"))
    if kind != ("gpt2", "smollm"):
        raise SystemExit(
            f"The tokenizer of {path.name} is {kind}; this script knows ('gpt2', 'smollm') only."
        )
    tokens, types, merges = told("tokens"), told("token_type"), told("merges")
    assert isinstance(tokens, list) and isinstance(types, list) and isinstance(merges, list)
    special = [
        {
            "id": number, "content": tokens[number], "special": True, "normalized": False,
            "single_word": False, "lstrip": False, "rstrip": False,
        }
        for number, kind in enumerate(types) if kind == TokenType.CONTROL
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": special,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges,
        },
    }  # fmt: skip
    names = {
        "bos": "bos_token_id",
        "eos": "eos_token_id",
        "pad": "padding_token_id",
        "unk": "unknown_token_id",
    }
    config: dict[str, object] = {f"{name}_token": tokens[int(str(told(key)))] for name, key in names.items()}
    config |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": fields["tokenizer.chat_template"].contents(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), "utf-8")


def different(path: Path, folder: Path, python: Path, texts: Sequence[str]) -> list[str]:
    """The texts of which llama.cpp's ids are not those of `transformers` in another Python."""
    ran = subprocess.run(
        [python, "-c", ENCODE, str(folder)],
        input=json.dumps(texts), capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = json.loads(ran.stdout)
    model = Model.load(path)
    ours = [model.tokenize(text, special=True) for text in texts]
    return [text for text, mine, other in zip(texts, ours, theirs, strict=True) if mine != other]


def sample_texts() -> list[str]:
    """Odd ones, and every text of this project's docs."""
    root = Path(__file__).parents[1]
    return [*TEXTS, *(file.read_text("utf-8") for file in sorted(root.glob("docs/*.md")))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", type=Path, help="a Python with transformers, to compare the ids")
    given = parser.parse_args()
    write(find_model(), given.folder)
    if given.python is None:
        return 0
    texts = sample_texts()
    wrong = different(find_model(), given.folder, given.python, texts)
    print(f"{len(texts) - len(wrong)} of {len(texts)} texts have llama.cpp's ids", *map(repr, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
