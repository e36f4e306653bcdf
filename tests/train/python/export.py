"""export.py TRAIN_BERT TRAIN_RESNET50: Python's safetensors reads every shard of a checkpoint. transformers'
BertForPreTraining and torchvision's resnet50 load the files of --export, with no tensor missing, left over or of
another shape. The exit status is 77 if none of the three is installed."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from programs import ended, package, run, temporary_folder  # noqa: E402

SMALL = ("--vocabulary-size", 100, "--sequence-length", 16)


def trained(program, root, *options):
    run(program, *options, "--steps", 1, "--global-batch", 4, "--micro-batch", 2, "--samples", 8, "--held-out", 0,
        "--data-parallel", 2, "--zero", 2, "--save", root / "save", "--export", root / "weights")
    return root / "save" / "step-00000001", root / "weights"


def read_shards(numpy, folder):
    """Reads every tensor of every shard. Returns the number of elements."""
    shards = sorted(folder.glob("shard-*.safetensors"))
    assert len(shards) == 2, shards
    return sum(tensor.size for shard in shards for tensor in numpy.load_file(shard).values())


def converted(model, program, weights):
    """The command that an error gives converts PyTorch's own file, in which tensors share memory."""
    package("torch").save(model.state_dict(), weights / "pytorch_model.bin")
    (weights / "model.safetensors").unlink()
    options = ("--load", weights, "--evaluate-only", *SMALL)
    said = ended(program, *options, status=1).stderr
    run("bash", "-c", said[said.index("python3 -c"):].replace("python3", sys.executable, 1))
    run(program, *options)
    type(model).from_pretrained(weights)  # transformers prefers the new file


def adapted(transformers, program, root, weights):
    """PEFT loads the adapter of --export-adapter with its head; the logits are those of the merged weights."""
    peft, torch = package("peft"), package("torch")
    if not peft:
        return
    run(program, "--load", weights, *SMALL, "--lora", "query,output.dense", "--lr", 0.1, "--steps", 2, "--global-batch", 8,
        "--save", root / "tuned", "--export", root / "merged", "--export-adapter", root / "adapter")
    base, merged = (transformers.BertForPreTraining.from_pretrained(folder).eval() for folder in (weights, root / "merged"))
    with torch.no_grad():
        found, wanted = (model(torch.arange(16)[None]).prediction_logits for model in (
            peft.PeftModel.from_pretrained(base, root / "adapter").eval(), merged))
    assert (found - wanted).abs().max() < 1e-4, (found - wanted).abs().max()


def main():
    numpy, torch_files = package("safetensors.numpy"), package("safetensors.torch")
    transformers, models = package("transformers"), package("torchvision.models")
    if not (numpy or transformers or models):
        sys.exit(77)
    with temporary_folder() as root:
        save, weights = trained(sys.argv[1], root / "bert", "--preset", "tiny", *SMALL)
        if numpy:
            exported = numpy.load_file(weights / "model.safetensors")
            numbers = sum(tensor.size for tensor in exported.values())
            assert read_shards(numpy, save) == 3 * numbers  # AdamW keeps two numbers for each weight
            print(f"safetensors reads the shards: {numbers} weights")
        if transformers:
            model, info = transformers.BertForPreTraining.from_pretrained(weights, use_safetensors=True, output_loading_info=True)
            assert not any(info.values()), info
            if numpy:
                for name, tensor in model.state_dict().items():
                    assert name not in exported or (tensor.numpy() == exported[name]).all(), name
            print(f"transformers {transformers.__version__} loads BERT: {model.num_parameters()} weights")
            converted(model, sys.argv[1], weights)
            adapted(transformers, sys.argv[1], root, weights)
        save, weights = trained(sys.argv[2], root / "resnet", "--image-size", "96", "--classes", "7", "--optimizer", "sgd")
        if models and torch_files:
            model = models.resnet50(num_classes=7)
            print("torchvision loads ResNet-50:", model.load_state_dict(torch_files.load_file(weights / "model.safetensors"), strict=True))
        if numpy:
            read_shards(numpy, save)


if __name__ == "__main__":
    main()
