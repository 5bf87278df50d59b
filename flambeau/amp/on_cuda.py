"""The precision of operations inside `autocast("cuda")`, which differs from the CPU's: PyTorch documents it as these lists.

Products, convolutions and recurrent cells run in the lower precision. What sums up many elements, or grows fast, runs in
float32: exponentials, norms, softmax, losses. A few that join tensors take the widest dtype among them.
"""

from __future__ import annotations

_LOWER = """conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution prelu addmm addmv addr
    matmul __matmul__ __rmatmul__ einsum mm mv linear addbmm baddbmm bmm chain_matmul multi_dot gru_cell lstm_cell rnn_tanh_cell
    rnn_relu_cell gru lstm rnn_tanh rnn_relu scaled_dot_product_attention"""
_FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow pow_scalar __rpow__ softplus
    layer_norm group_norm native_layer_norm rms_norm norm nuclear_norm cosine_similarity poisson_nll_loss cosine_embedding_loss
    nll_loss cross_entropy hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist
    cdist renorm logsumexp prod softmax log_softmax softmin cumprod cumsum sum gaussian_nll_loss ctc_loss"""
_WIDEST = """addcdiv addcmul atan2 bilinear cross dot vdot grid_sample index_put scatter_add tensordot cat concat concatenate
    stack index_copy"""
_UNSAFE = "binary_cross_entropy"
PRECISION = {name: precision for precision, names in (("lower", _LOWER), ("float32", _FLOAT32), ("widest", _WIDEST),
                                                      ("unsafe", _UNSAFE))
             for name in names.split()}
