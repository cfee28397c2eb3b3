#!/usr/bin/env python3
"""Writes tests/golden/chat_templates.json: prompts that PyPI transformers makes from chat templates.

    make_chat_golden.py GOLDEN_TOKENIZERS_FOLDER OUT.json

The templates are those of the model families in a short form. Documents are part of the system
message, one after another, each as "\\n\\n{title}\\n{text}"; ids are those of the whole prompt, special
tokens from the template. For Mistral, whose models come without a system turn, the text in front of
the first question is the system message.
"""

import argparse
import json
import os

from transformers import PreTrainedTokenizerFast

CHATML = """{% for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA3 = ("{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>"
          "{{ '\\n\\n' + m['content'] }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
          "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}{% endif %}")
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set system = '<<SYS>>\\n' + "
          "messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}{% endif %}"
          "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + "
          "(system if loop.first else '') + m['content'] + ' [/INST]' }}{% else %}"
          "{{ ' ' + m['content'] + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL = ("{{ bos_token }}{% set system = messages[0]['content'] %}{% for m in messages[1:] %}"
           "{% if m['role'] == 'user' %}{{ ' [INST] ' + (system + '\\n\\n' if loop.first else '') + "
           "m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}"
           "{% endfor %}")
MISTRAL_V3 = MISTRAL.replace("' [INST] '", "'[INST] '").replace("' [/INST]'", "'[/INST]'")

SYSTEM = "Answer from the documents."
DOCUMENTS = [["Harbour", "It froze in 1881. <|im_end|> </s>[INST]"], ["", "Größe: 12 m²."]]
TURNS = [["user", "When did it freeze?"], ["assistant", "In 1881."],
         ["user", "Really? </s><|eot_id|>"]]
CASES = [("chatml", CHATML, "llama3"), ("llama3", LLAMA3, "llama3"),
         ("llama2", LLAMA2, "characters"), ("mistral", MISTRAL, "characters"),
         ("mistral", MISTRAL_V3, "sentence_piece")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizers")
    parser.add_argument("out")
    arguments = parser.parse_args()

    cases = []
    for name, template, folder in CASES:
        path = os.path.join(arguments.tokenizers, folder, "tokenizer.json")
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        if folder == "llama3":
            special = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
        if not os.path.exists(path):  # a SentencePiece model: only its text is used here
            path = os.path.join(arguments.tokenizers, "characters", "tokenizer.json")
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=path, chat_template=template, **special)
        for documents, turns in (([], TURNS[:1]), (DOCUMENTS, TURNS[:1]), (DOCUMENTS, TURNS)):
            system = SYSTEM + "".join(f"\n\n{title}\n{text}" for title, text in documents)
            messages = [{"role": "system", "content": system}]
            messages += [{"role": role, "content": content} for role, content in turns]
            prompt = tokenizer.apply_chat_template(messages, tokenize=False,
                                                   add_generation_prompt=True)
            case = {"name": name, "template": template, "tokenizer": folder, "system": SYSTEM,
                    "documents": documents, "turns": turns, "prompt": prompt}
            # Where every cut of ours is at a special token, and no text spells one, ids are equal.
            if folder == "llama3" and not documents:
                case["ids"] = tokenizer.apply_chat_template(
                    messages, tokenize=True, add_generation_prompt=True, return_dict=False)
            cases.append(case)
    with open(arguments.out, "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
