"""How long a sample of training takes at least: its arithmetic at the rate of a large matrix product, its bytes
at the rate of a copy, on the machine at hand."""

# Bytes read and written per image in training ResNet-50 at 224 x 224 in 16 bits, with batch norm's
# statistics fused into the preceding convolution, and scale, ReLU and addition into the following
# one.
resnet_bytes = 286e6
resnet_flop = 24.3e9  # 3 x 8.18e9 of the forward pass, without the first layer's input gradient


def bert_flop(layers, hidden, length, vocabulary, masked):
    """Of one sample: matrix products of the blocks, attention, both linear maps of the masked tokens."""
    per_token = 6 * 12 * layers * hidden**2 + 12 * layers * length * hidden
    return per_token * length + 6 * hidden * (vocabulary + hidden) * masked


def bound(machine, flop, moved_bytes=0):
    """Samples a second: one after the other, as kernels run."""
    return 1 / (flop / machine["bf16_matrix_flop_per_s"] + moved_bytes / machine["copy_bytes_per_s"])
