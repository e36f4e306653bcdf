#!/usr/bin/env python3
"""gpt.py TRAIN_GPT SCORE_GPT [EXPORT_ONNX] [gloo]: train_gpt and score_gpt on a made-up text. A saved and an exported
model score and generate the same in all kinds of layouts. If Python has torch, transformers and tokenizers, compares
random GPT-2 and Llama models: logits, the loss of a text, gradients, greedy tokens, tokens of the text, exports."""

import importlib
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "support"), str(HERE.parent / "processes")]
import ranks  # noqa: E402
from programs import axes, ended, package  # noqa: E402

LAYOUTS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (2, 2, 1))
PROMPTS = ("The cat", "Dogs sat on")
TEXT = "The cat sat on the mat. Dogs sat on 12 cats, didn't they?\n<|endoftext|>Every mat is the cat's mat; caf\u00e9 \u4e2d\u6587!\n" * 40


def run(*words):
    return ended(*words).stdout


class Programs:
    def __init__(self, train, score, folder):
        self.train, self.score, self.folder = train, score, folder
        self.text = folder / "text.txt"
        self.text.write_text(TEXT, encoding="utf-8")

    def scored(self, model, layout=(1, 1, 1), *options):
        return json.loads(run(self.score, "--model", model, "--input", self.text, "--batch", 4, "--micro-batch", 2, *axes(layout), *options))

    def generating(self, model, layout, *options):
        prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
        return [str(word) for word in (self.score, "--model", model, *prompts, "--tokens", 12, *axes(layout), *options)]

    def generated(self, model, layout=(1, 1, 1), *options):
        return run(*self.generating(model, layout, *options))

    def logits(self, model, prompts, layout, *options):
        """Returns the logits of the first token after each prompt."""
        path = self.folder / "logits.jsonl"
        run(self.score, "--model", model, *(word for prompt in prompts for word in ("--prompt", prompt)), "--tokens", 1, "--output", path,
            *axes(layout), *options)
        return [json.loads(line)["scores"] for line in path.read_text().splitlines()]

    def trained(self, *options, batch=8):
        run(self.train, "--data", self.text, "--sequence-length", 32, "--global-batch", batch, "--micro-batch", 2, *options)


def near(found, right, what, tolerance=1e-5):
    assert abs(found - right) <= tolerance * max(1, abs(right)), (what, found, right)


def alone(programs, preset):
    """A model of dhp's own is saved, exported, scored, and trained further."""
    saved, exported = programs.folder / f"{preset} saved", programs.folder / f"{preset} exported"
    programs.trained("--preset", preset, "--vocabulary-size", 300, "--steps", 6, "--tensor-parallel", 2, "--save", saved, "--export", exported)
    first = programs.scored(saved)
    assert first["tokens"] > 1000 and 1 < first["perplexity"] < 300, first
    text = programs.generated(saved)
    assert text.startswith(PROMPTS[0]) and PROMPTS[1] in text, text
    for options in ((), ("--micro-batch", 2), ("--sequence-length", 10)):  # the last is shorter than the texts
        assert programs.generated(saved, (1, 1, 1), *options) == programs.generated(saved, (1, 1, 1), "--no-cache", *options), options
    for model, layout in zip((exported, saved) * 3, LAYOUTS[1:]):
        near(programs.scored(model, layout)["loss"], first["loss"], layout)
        assert programs.generated(model, layout) == text, layout
    drawing = ("--temperature", 1, "--top-k", 40, "--top-p", 0.9, "--precision", "fp64")
    drawn = programs.generated(saved, (1, 1, 1), "--no-cache", *drawing, "--seed", 1)
    for layout in LAYOUTS:
        assert programs.generated(saved, layout, *drawing, "--seed", 1) == drawn, layout
    assert drawn != programs.generated(saved, (1, 1, 1), *drawing, "--seed", 2), drawn
    if "gloo" in sys.argv:
        end = ranks.run(4, programs.generating(saved, (1, 2, 2), *drawing, "--seed", 1, "--transport", "gloo"))[0]
        assert drawn in end.output, (drawn, end.output)
    exact = [programs.folder / f"{preset} on {ranks}" for ranks in (1, 4)]
    for folder, options in zip(exact, (("--context-groups", 2), ("--context-parallel", 2, "--tensor-parallel", 2, "--sequence-parallel"))):
        programs.trained("--preset", preset, "--vocabulary-size", 300, "--steps", 3, "--deterministic", *options,
                         "--save", programs.folder / f"{folder.name} saved", "--export", folder)
    assert len({(folder / "model.safetensors").read_bytes() for folder in exact}) == 1, exact
    again = programs.folder / f"{preset} again"
    programs.trained("--load", exported, "--steps", 0, "--save", again)
    near(programs.scored(again)["loss"], first["loss"], "begun again", 0)
    adapted = programs.folder / f"{preset} adapted"
    layers = "q_proj,v_proj,down_proj" if preset.startswith("llama") else "query,c_fc"
    programs.trained("--load", exported, "--lora", layers, "--lr", 0.01, "--steps", 3, "--save", adapted, "--export", adapted / "weights")
    loss = programs.scored(adapted / "weights")["loss"]
    near(loss, programs.scored(adapted)["loss"], "merged adapters")
    assert loss < first["loss"], (loss, first)


def tokenizer_of(tokenizers, folder):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.save(str(folder / "tokenizer.json"))
    return made


def random_model(torch, transformers, kind):
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(1)
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=320, n_embd=48, n_layer=2, n_head=4, n_positions=40, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, initializer_range=0.2, **ends))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=40, initializer_range=0.2, tie_word_embeddings=kind == "llama-tied", **ends))


def in_double(torch, model):
    """Computes also Llama's norms and rotary positions in fp64; transformers computes them in fp32."""
    def norm(part):
        return lambda x: part.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + part.variance_epsilon)

    def rotary(size):
        def forward(x, position_ids):
            angles = position_ids[..., None] * 10000.0 ** (-torch.arange(0, size, 2).double() / size).repeat(2)
            return angles.cos(), angles.sin()
        return forward

    for part in model.double().modules():
        if hasattr(part, "variance_epsilon"):
            part.forward = norm(part)
        elif hasattr(part, "inv_freq"):
            part.forward = rotary(2 * len(part.inv_freq))


def samples_of(tokenizer):
    """Returns dhp's tokens and labels: a token begins each document, samples have 32; attention stays within both."""
    rows = [[0] + tokenizer.encode(text, add_special_tokens=False).ids for text in TEXT.split("<|endoftext|>") if text.strip()]
    at = 0
    for row in rows:
        first = 0
        while first < len(row):
            last = min(len(row), first + 32 - at % 32)
            yield row[first:last], (row[1:] + [0])[first:last]
            at += last - first
            first = last


def through_onnx(programs, torch, folder, rows, model):
    """Returns the logits of the exported ONNX file at all positions."""
    exporters = [word for word in sys.argv[3:] if word != "gloo"]
    onnxruntime = package("onnxruntime")
    if not exporters or not onnxruntime:
        return
    run(*exporters, folder, folder / "model.onnx")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    for row in rows:
        found = torch.tensor(session.run(["logits"], {"input_ids": torch.tensor([row, row]).numpy()})[0])
        wanted = model(input_ids=torch.tensor([row])).logits.detach()
        apart = ((found - wanted).abs().max() / wanted.abs().max()).item()
        assert apart <= 1e-5, (folder, apart)
    print(f"{folder.name}: as ONNX, logits apart by {apart:.0e} of the largest")


def beside(programs, torch, transformers, tokenizers, kind):
    """Compares with a random model of transformers: logits, loss, gradients, greedy tokens; in fp32 and in fp64."""
    folder = programs.folder / kind
    folder.mkdir()
    tokenizer = tokenizer_of(tokenizers, folder)
    model = random_model(torch, transformers, kind).eval()
    model.save_pretrained(folder, safe_serialization=True)
    samples = list(samples_of(tokenizer))
    count = sum(len(row) for row, _ in samples)
    assert count == programs.scored(folder, (1, 1, 1), "--sequence-length", 32)["tokens"]
    prompts = [TEXT[:length] for length in (1, 7, 30, 55)]
    load = importlib.import_module("safetensors.torch").load_file
    apart = {}
    for precision, tolerance in (("fp32", 1e-5), ("fp64", 1e-12)):
        if precision == "fp64":
            in_double(torch, model)
        model.zero_grad()
        loss = sum(torch.nn.functional.cross_entropy(model(input_ids=torch.tensor([row])).logits[0], torch.tensor(labels), reduction="sum")
                   for row, labels in samples) / count
        loss.backward()
        logits = torch.stack([model(input_ids=torch.tensor([tokenizer.encode(prompt).ids])).logits[0, -1] for prompt in prompts]).detach()
        for layout in LAYOUTS[:4]:
            options = ("--precision", precision)
            near(programs.scored(folder, layout, "--sequence-length", 32, *options)["loss"], loss.item(), (kind, layout, precision), tolerance)
            found = torch.tensor(programs.logits(folder, prompts, layout, *options), dtype=torch.float64)
            apart[precision] = ((found - logits).abs().max() / logits.abs().max()).item()
            assert apart[precision] <= tolerance, (kind, layout, apart)
        if precision == "fp32":
            through_onnx(programs, torch, folder, [tokenizer.encode(prompt).ids for prompt in prompts], model)
        # Gradients: the change of the weights by one step, divided by its rate.
        rate, stepped = 64, folder / f"stepped in {precision}"
        programs.trained("--load", folder, "--load-all", "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--clip", 0, "--lr", rate,
                         "--lr-decay", "constant", "--dropout", 0, "--held-out", 0, "--steps", 1, "--tensor-parallel", 2,
                         *options, "--save", stepped, "--export", stepped / "weights", batch=(count + 63) // 64 * 2)
        after = load(stepped / "weights" / "model.safetensors")
        for name, weight in model.named_parameters():
            if name == "lm_head.weight" and name not in after:
                continue
            taken = (weight.detach().double() - after[name].double()) / rate - weight.grad.double()
            assert taken.abs().max() <= tolerance * max(weight.grad.abs().max().item(), 1e-3), (kind, precision, name, taken.abs().max())
    # Greedy tokens.
    text = ""
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        ids = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12, pad_token_id=0)[0].tolist()
        text += tokenizer.decode(ids) + "\n"
    found = programs.generated(folder, (1, 2, 1))
    assert found.encode("utf-8", "replace") == text.encode("utf-8", "replace"), (kind, found, text)
    # transformers loads the exported files, with no weight missing or left over.
    again, info = type(model).from_pretrained(stepped / "weights", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    print(f"{kind}: logits (apart by {apart['fp32']:.0e} of the largest in fp32, {apart['fp64']:.0e} in fp64), loss {loss.item():.6f} and "
          f"{model.num_parameters()} gradients as transformers {transformers.__version__} has them")


def own_tokenizer(programs, tokenizers, transformers):
    path = programs.folder / "tiny exported" / "tokenizer.json"
    theirs = tokenizers.Tokenizer.from_file(str(path))
    documents = [text for text in TEXT.split("<|endoftext|>") if text.strip()]
    count = sum(len(theirs.encode(text).ids) for text in documents)
    assert count == programs.scored(programs.folder / "tiny exported")["tokens"], count
    if transformers:
        theirs, text = transformers.AutoTokenizer.from_pretrained(path.parent), "one , two . do n't\n"
        assert theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True) == text


def main():
    torch, transformers, tokenizers = package("torch"), package("transformers"), package("tokenizers")
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(sys.argv[1], sys.argv[2], pathlib.Path(folder))
        for preset in ("tiny", "llama-tiny"):
            alone(programs, preset)
        if tokenizers:
            own_tokenizer(programs, tokenizers, transformers)
        if torch and transformers and tokenizers:
            for kind in ("gpt2", "llama", "llama-tied"):
                beside(programs, torch, transformers, tokenizers, kind)
    print("train_gpt and score_gpt agree with themselves")


if __name__ == "__main__":
    main()
