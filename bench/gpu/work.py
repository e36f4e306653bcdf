"""Lower bounds for the time of a training sample on this machine: its arithmetic at the rate of a large matrix product,
its bytes at the rate of a copy."""

# Bytes read and written per image in training ResNet-50 at 224 x 224 in 16 bits. Batch norm's statistics count as fused
# into the preceding convolution; scale, ReLU and addition into the following one.
resnet_bytes = 286e6
resnet_flop = 24.3e9  # 3 x the forward pass's 8.18e9, less the first layer's input gradient


def bert_flop(layers, hidden, length, vocabulary, masked):
    """Returns the FLOP of one sample: matrix products of the blocks, attention, and both linear maps of the masked
    tokens."""
    per_token = 6 * 12 * layers * hidden**2 + 12 * layers * length * hidden
    return per_token * length + 6 * hidden * (vocabulary + hidden) * masked


def bound(machine, flop, moved_bytes=0):
    """Returns samples per second if bytes and FLOP take their times in sequence, as kernels run."""
    return 1 / (flop / machine["bf16_matrix_flop_per_s"] + moved_bytes / machine["copy_bytes_per_s"])
